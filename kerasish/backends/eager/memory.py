"""Memory of large arrays, reused after the arrays are freed.

The C library returns the memory of a large array to the system when the array is freed, and the
next array of that size costs a page fault for every 4 KB. `empty` keeps the blocks that it has
returned. A block is free when no array refers to it: only the pool's reference remains.

Blocks that were not used for two generations, of 4,096 requests each, are dropped. A pool belongs
to a compiled step and is freed with it; outside of steps, memory is returned to the system.
"""

from __future__ import annotations

import math
import sys
import sysconfig
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager

import numpy as np

from kerasish.backends.loops import address_of
from kerasish.overriding import override
from kerasish.typing import Array

LEAST = 1 << 17  # bytes: smaller ones are from the C library's heap
GENERATION = 4096  # requests
_TRIES = 100  # blocks of a size that are checked before a new one is allocated

_Blocks = dict[int, deque[Array]]


def _references(blocks: deque[Array]) -> tuple[Array, int]:
    block = blocks.popleft()  # no other thread sees it until it is put back
    return block, sys.getrefcount(block)


# The number of references that `_references` counts if there is no other.
_ALONE = _references(deque([np.empty(1, np.uint8)]))[1]
# Without the global lock a count may be changed by other threads while it is read.
_COUNTS = not sysconfig.get_config_var("Py_GIL_DISABLED")


class Pool:
    """Blocks of memory by size: those of this generation, and of the previous one."""

    def __init__(self) -> None:
        self._now: _Blocks = {}
        self._before: _Blocks = {}
        self._requests = 0

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        """Return an array of this shape, of any content."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < LEAST or not _COUNTS:
            return np.empty(shape, dtype)
        self._requests += 1
        if self._requests >= GENERATION:
            self._requests, self._before, self._now = 0, self._now, {}
        mine = self._now.setdefault(nbytes, deque())
        block = _free(mine)
        if block is None:
            older = self._before.get(nbytes)
            block = _free(older, take=True) if older else None
            if block is None:
                block = np.empty(nbytes, np.uint8)
            mine.append(block)
        return block.view(dtype).reshape(shape)

    def held(self) -> int:
        """Return the bytes of all blocks of the pool."""
        sizes = (self._now, self._before)
        return sum(n * len(blocks) for some in sizes for n, blocks in list(some.items()))

    def clear(self) -> None:
        """Drop all blocks: memory in use is freed with its arrays."""
        self._now, self._before = {}, {}


def _free(blocks: deque[Array], take: bool = False) -> Array | None:
    """Return a block without references, or None.

    Args:
        blocks: in the order of their last check.
        take: whether the block leaves `blocks`.
    """
    for _ in range(min(len(blocks), _TRIES)):
        try:
            block, count = _references(blocks)
        except IndexError:  # another thread has taken the last one
            return None
        if count == _ALONE and take:
            return block
        blocks.append(block)
        if count == _ALONE:
            return block
    return None


class Turns:
    """Small arrays of given shapes that are needed repeatedly: sets of them are reused.

    A set is reused when nothing else refers to any of its arrays. A set is a list, which belongs to
    the caller until `give_back`.

    Args:
        shapes: of the arrays of a set.
        dtype: of all of them.

    Attributes:
        addresses: of the arrays of the sets that are kept, by their ids. Such an array lives as
            long as this object.
    """

    MOST = 3  # sets that are kept

    def __init__(self, shapes: Sequence[tuple[int, ...]], dtype: np.dtype) -> None:
        self._shapes, self._dtype = shapes, dtype
        self._kept: list[list[Array]] = []
        self._free: deque[list[Array]] = deque()
        # The number of references of a set's arrays if nothing else refers to them.
        self._alone = sum(map(sys.getrefcount, [np.empty(0, dtype) for _ in shapes]))
        self.addresses: dict[int, int] = {}

    def take(self) -> list[Array]:
        """Return a set of arrays of any content."""
        for _ in range(len(self._free)):
            try:
                some = self._free.popleft()  # no other thread sees it until it is given back
            except IndexError:
                break
            if sum(map(sys.getrefcount, some)) == self._alone:
                return some
            self._free.append(some)
        some = [np.empty(shape, self._dtype) for shape in self._shapes]
        if len(self._kept) < self.MOST and _COUNTS:
            self._kept.append(some)
            self.addresses.update((id(x), address_of(x)) for x in some if x.size)
        return some

    def give_back(self, some: list[Array]) -> None:
        """Return a set to the pool; its arrays are in use while something refers to them."""
        if any(some is kept for kept in self._kept):
            self._free.append(some)


class _Current(threading.local):
    """The pool of the step that this thread runs."""

    pool: Pool | None = None


_current = _Current()


def using_pool(pool: Pool) -> AbstractContextManager[None]:
    """Let `empty` take memory from this pool inside the `with` block, in this thread."""
    return override(_current, "pool", pool)


def empty(shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Return an array of this shape, of any content, from the pool of the current step."""
    pool = _current.pool
    return np.empty(shape, dtype) if pool is None else pool.empty(shape, dtype)
