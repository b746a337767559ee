"""Runners: computations by oneDNN on arrays of given sizes, kept between calls.

Each thread keeps a runner per computation and sizes: primitives with their bindings. Running one
sets addresses and calls the library, about 5 us of Python. Additional memory of primitives (weights
in another layout, scratchpads) is shared by all runners of a thread.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from kerasish.backends import onednn
from kerasish.backends.loops import address_of
from kerasish.backends.onednn import native
from kerasish.typing import Array

_ALIGNMENT = 64
# FLOPs per thread, about 40 us. Python runs between two calls, so threads must be woken up.
GRAIN = 4e6
_KEPT = 1024  # runners per thread; a model has three for each of its convolutions and batch sizes


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


class _Memory(threading.local):
    """The data of each thread: runners by computation, and memory that they share."""

    def __init__(self) -> None:
        self.runners: OrderedDict[Hashable, PrimitiveRunner | None] = OrderedDict()
        self.shared = np.empty(0, np.uint8)

    def address(self, nbytes: int) -> int:
        """Return the address, a multiple of 64, of `nbytes` bytes for the current run."""
        if self.shared.nbytes < nbytes + _ALIGNMENT:
            self.shared = np.empty(nbytes + _ALIGNMENT, np.uint8)
        return _aligned(address_of(self.shared))


_memory = _Memory()


class PrimitiveStep:
    """A primitive of a runner, and the name of the memory for each of its arguments.

    Args:
        primitive: what is computed.
        names: argument -> name of its memory, if that differs.
    """

    def __init__(self, primitive: onednn.Primitive, **names: str) -> None:
        self.primitive = primitive
        self.names = {name: names.get(name, name) for name in primitive.arguments}
        self.order = tuple(self.names.values())
        self.binding: onednn.Binding | None = None

    def run(self, addresses: dict[str, int]) -> None:
        """Execute the primitive on the memory at these addresses, by name."""
        assert self.binding is not None
        self.binding.run_at([addresses[name] for name in self.order])


class PrimitiveRunner:
    """Primitives that run one after the other, on different arrays in each call.

    Args:
        steps: the primitives.
        sizes: name -> bytes of memory that only the steps use.
    """

    def __init__(self, steps: list[PrimitiveStep], sizes: dict[str, int]) -> None:
        self.steps, self.sizes = steps, dict(sizes)
        scratch = max(step.primitive.scratchpad_bytes for step in steps)
        if scratch:
            self.sizes["scratchpad"] = scratch  # used by one step after the other
        self._offsets: dict[str, int] = {}
        self._total = 0
        for name, nbytes in self.sizes.items():
            self._offsets[name] = self._total
            self._total += _aligned(nbytes)
        self._is_bound = False

    def run(self, **arrays: Array) -> None:
        """Compute; `arrays` has one of C order for each further name, results included.

        The arrays of a name have the same size in all calls; the first call checks it.
        """
        addresses = {name: address_of(x) for name, x in arrays.items()}
        if self._total:
            start = _memory.address(self._total)
            for name, offset in self._offsets.items():
                addresses[name] = start + offset
        if not self._is_bound:
            self._bind(arrays, addresses)
        for step in self.steps:
            step.run(addresses)

    def _bind(self, arrays: dict[str, Array], addresses: dict[str, int]) -> None:
        sizes = {**{name: x.nbytes for name, x in arrays.items()}, **self.sizes}
        memory = {name: onednn.Buffer(address, sizes[name]) for name, address in addresses.items()}
        for step in self.steps:
            step.binding = step.primitive.bind({n: memory[m] for n, m in step.names.items()})
        self._is_bound = True


def threads_for(flops: float) -> int:
    """Return the number of threads for this amount of work."""
    return native.threads_for(flops, GRAIN)


def find(
    key: tuple[Any, ...], make: Callable[[], PrimitiveRunner | None]
) -> PrimitiveRunner | None:
    """Return this thread's runner with this key; None if oneDNN has no fast kernel.

    Args:
        key: the computation with all sizes.
        make: returns a new runner, or raises oneDNN's error if it is not supported.
    """
    if native.available():
        return None
    full = (key, native.get_threads())
    runners = _memory.runners
    try:
        runners.move_to_end(full)
    except KeyError:
        runners[full] = _made(make)
        if len(runners) > _KEPT:
            runners.popitem(last=False)
    return runners[full]


def _made(make: Callable[[], PrimitiveRunner | None]) -> PrimitiveRunner | None:
    try:
        result = make()
    except (onednn.OneDnnError, ValueError):
        return None
    slow = result is None or any(step.primitive.is_reference for step in result.steps)
    return None if slow else result
