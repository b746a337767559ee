"""A GPU's streams as queues that run late and in adversarial order, and pools that reuse memory.

`Machine(seed)` has the names of CuPy that feeding uses. Nothing handed to a stream happens at
once: a copy reads its pinned memory, and a kernel its array, when the queue gets there, at a
moment that the seed chooses, or when the host waits. Freed memory is overwritten: pinned memory at
once, as CuPy's pool hands it out at once; memory of the device in the order of the stream that took
it, as CuPy's pool promises. So tests compare numbers, not which calls were made.
"""

from __future__ import annotations

import ctypes
import random
import types
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

POISON = 0xEE


class Event:
    """A place in a stream's queue."""

    def __init__(self, stream: Stream) -> None:
        self.stream, self.number = stream, stream.handed_in

    def is_over(self) -> bool:
        return self.stream.done >= self.number

    def synchronize(self) -> None:
        """Wait on the host: run what must have run, and nothing else."""
        self.stream.machine.waits += 1
        while not self.is_over():
            self.stream.run_one(forced=True)


class Stream:
    """A queue of work; a pair (event to wait for or None, what to do) each."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.queue: deque[tuple[Event | None, Callable[[], None]]] = deque()
        self.handed_in = self.done = 0
        machine.streams.append(self)

    def put(self, work: Callable[[], None], after: Event | None = None) -> None:
        self.queue.append((after, work))
        self.handed_in += 1
        self.machine.go_on()

    def run_one(self, forced: bool = False) -> bool:
        """Do the next piece of work, unless it waits for an event; return whether it was done.

        Args:
            forced: do what it waits for first.
        """
        if not self.queue:
            return False
        after, work = self.queue[0]
        if after is not None and not after.is_over():
            if not forced:
                return False
            while not after.is_over():
                after.stream.run_one(forced=True)
        self.queue.popleft()
        work()
        self.done += 1
        return True

    def record(self) -> Event:
        return Event(self)

    def wait_event(self, event: Event) -> None:
        self.put(lambda: None, event)

    def synchronize(self) -> None:
        self.record().synchronize()


class Array:
    """An array on the device: numbers in memory that `owner` keeps from the pool."""

    def __init__(self, machine: Machine, numbers: np.ndarray, owner: Any) -> None:
        self.machine, self.numbers, self.owner = machine, numbers, owner
        self.shape, self.dtype, self.size = numbers.shape, numbers.dtype, numbers.size
        self.nbytes = numbers.nbytes

    def __getitem__(self, key: Any) -> Array:
        return Array(self.machine, self.numbers[key], self.owner)

    def view(self, dtype: Any) -> Array:
        return Array(self.machine, self.numbers.view(dtype), self.owner)

    def reshape(self, *shape: Any) -> Array:
        return Array(self.machine, self.numbers.reshape(*shape), self.owner)

    def set(self, given: np.ndarray, stream: Stream) -> None:
        """Copy from the host when the stream gets there; only the address is passed."""
        if given.dtype != self.dtype or given.shape != self.shape:
            raise ValueError(f"{given.dtype}{given.shape} for {self.dtype}{self.shape}")
        source = self.machine.storage_of(given)
        numbers = self.numbers
        stream.put(lambda: numbers.__setitem__(..., source))


class _Block:
    """Memory of the device that goes back to the pool when nothing uses it."""


class Machine:
    """What feeding asks CuPy for; see the module."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.streams: list[Stream] = []
        self.current = Stream(self)
        self.waits = 0
        self._pinned: dict[int, list[np.ndarray]] = {}
        self._blocks: dict[tuple[int, int], list[np.ndarray]] = {}
        self._in_use: dict[int, np.ndarray] = {}  # address -> pinned storage
        self.cuda = types.SimpleNamespace(
            Device=_Device, Stream=lambda non_blocking=False: Stream(self),
            get_current_stream=lambda: self.current, alloc_pinned_memory=self._alloc_pinned,
        )  # fmt: skip

    def go_on(self) -> None:
        """Run as much as chance wills: often nothing for long, then one stream far ahead."""
        if self.random.random() < 0.7:
            return
        stream = self.random.choice(self.streams)
        for _ in range(self.random.choice((1, 2, 5, 50))):
            if not stream.run_one():
                return

    def drain(self) -> None:
        """Run all that is left, the streams in turns of random length."""
        while any(s.queue for s in self.streams):
            stream = self.random.choice(self.streams)
            for _ in range(self.random.randint(1, 9)):
                stream.run_one()

    def _alloc_pinned(self, size: int) -> Any:
        free = self._pinned.setdefault(size, [])
        storage = free.pop() if free else np.full(size, POISON, np.uint8)
        address = storage.ctypes.data
        # No array: NumPy would keep only the storage, and not what a weak reference watches.
        memory = (ctypes.c_ubyte * size).from_address(address)
        self._in_use[address] = storage

        def freed() -> None:
            storage[:] = POISON
            free.append(storage)

        weakref.finalize(memory, freed).atexit = False
        return memory

    def storage_of(self, given: np.ndarray) -> np.ndarray:
        """Return what is at an array's address: pinned memory, of which nothing keeps track."""
        address = given.ctypes.data
        for start, storage in self._in_use.items():
            if start <= address < start + storage.size:
                offset = address - start
                part = storage[offset : offset + given.nbytes]
                return part.view(given.dtype).reshape(given.shape)
        raise ValueError("a copy in a stream reads memory that is not pinned")

    def empty(self, shape: Any, dtype: Any) -> Array:
        """Return memory of the current stream's pool, which reuses it in that stream's order."""
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        stream = self.current
        free = self._blocks.setdefault((id(stream), count), [])
        storage = free.pop() if free else np.full(count, POISON, np.uint8)
        owner = _Block()

        def freed() -> None:
            stream.put(lambda: storage.__setitem__(..., POISON))
            free.append(storage)

        weakref.finalize(owner, freed).atexit = False
        return Array(self, storage.view(dtype).reshape(shape), owner)

    def read(self, array: Array) -> list[np.ndarray]:
        """Launch a kernel on the current stream that reads an array; return where it writes."""
        result: list[np.ndarray] = []
        numbers = array.numbers
        self.current.put(lambda: result.append(numbers.copy()))
        return result


class _Device:
    def __init__(self, index: int = 0) -> None:
        self.id = index

    def __enter__(self) -> _Device:
        return self

    def __exit__(self, *error: Any) -> None:
        return None
