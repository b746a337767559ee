"""Runners: computations by oneDNN on arrays of given sizes, kept from one call to the next.

Each thread keeps a runner per computation and sizes: primitives with their bindings. To run one is
to set addresses and to call the library, about 20 us of Python. What primitives need besides their
arrays (weights in another order, scratchpads) lies in memory that all runners of a thread share.
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
_KEPT = 1024  # runners per thread; a model has three for each of its convolutions and batch sizes


def _buffer(x: Array) -> onednn.Buffer:
    return onednn.Buffer(address_of(x), x.nbytes)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


class _Memory(threading.local):
    """What each thread has of its own: runners by computation, and memory that they share."""

    def __init__(self) -> None:
        self.runners: OrderedDict[Hashable, Runner | None] = OrderedDict()
        self.shared = np.empty(0, np.uint8)

    def address(self, nbytes: int) -> int:
        """Return the address, a multiple of 64, of `nbytes` bytes for the current run."""
        if self.shared.nbytes < nbytes + _ALIGNMENT:
            self.shared = np.empty(nbytes + _ALIGNMENT, np.uint8)
        return _aligned(_buffer(self.shared).address)


_memory = _Memory()


class Step:
    """A primitive of a runner, and the name of the memory for each of its arguments.

    Args:
        primitive: what is computed.
        names: argument -> name of its memory, where that is another one.
    """

    def __init__(self, primitive: onednn.Primitive, **names: str) -> None:
        self.primitive = primitive
        self.names = {name: names.get(name, name) for name in primitive.arguments}
        self.binding: onednn.Binding | None = None

    def run(self, memory: dict[str, onednn.Buffer]) -> None:
        """Execute the primitive on this memory."""
        if self.binding is None:
            self.binding = self.primitive.bind({n: memory[m] for n, m in self.names.items()})
        else:
            for name, where in self.names.items():
                self.binding.rebind(name, memory[where])
        self.binding.execute()


class Runner:
    """Primitives that run one after the other, on other arrays in each call.

    Args:
        steps: the primitives.
        sizes: name -> bytes of memory that only the steps use.
    """

    def __init__(self, steps: list[Step], sizes: dict[str, int]) -> None:
        self.steps, self.sizes = steps, dict(sizes)
        scratch = max(step.primitive.scratchpad_bytes for step in steps)
        if scratch:
            self.sizes["scratchpad"] = scratch  # used by one step after the other

    def run(self, **arrays: Array) -> None:
        """Compute; `arrays` has one of C order for each further name, results included."""
        memory = {name: _buffer(x) for name, x in arrays.items()}
        address = _memory.address(sum(map(_aligned, self.sizes.values()))) if self.sizes else 0
        for name, nbytes in self.sizes.items():
            memory[name] = onednn.Buffer(address, nbytes)
            address += _aligned(nbytes)
        for step in self.steps:
            step.run(memory)


def find(key: tuple[Any, ...], make: Callable[[], Runner | None]) -> Runner | None:
    """Return this thread's runner with this key; None where oneDNN has no fast kernel.

    Args:
        key: what is computed, with all sizes.
        make: returns a new runner, or raises what oneDNN raises for what it does not have.
    """
    if native.available():
        return None
    full = (*key, native.get_threads())
    runners = _memory.runners
    if full not in runners:
        runners[full] = _made(make)
        if len(runners) > _KEPT:
            runners.popitem(last=False)
    runners.move_to_end(full)
    return runners[full]


def _made(make: Callable[[], Runner | None]) -> Runner | None:
    try:
        result = make()
    except (onednn.OneDnnError, ValueError):
        return None
    slow = result is None or any(step.primitive.is_reference for step in result.steps)
    return None if slow else result
