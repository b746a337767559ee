"""Orders of a shuffle: functions of its seed, the number of the pass and the size of the buffer.

A buffer of b elements is filled with the first b. Then each step draws a slot, gives the element in
it, and puts the next element there. When there is none, the rest follows in random order. The draws
of step t are a function of (seed, pass, t), so that the whole order can be computed at once, and so
that a pass can continue at any step.
"""

from __future__ import annotations

import numpy as np

from kerasish.engine.data.data import random_order
from kerasish.typing import Array

_CHUNK = 1 << 12  # steps whose slots are drawn at once


def _slots(seed: int, number: int, chunk: int, buffer: int) -> Array:
    counter = np.array([0, number % 2**64, chunk + 1, 0], np.uint64)
    bits = np.random.Philox(key=seed % 2**64, counter=counter)
    return np.random.Generator(bits).integers(0, buffer, _CHUNK, dtype=np.int64)


class Draws:
    """The slots of a buffer that the steps of a pass draw.

    Args:
        seed: any integer.
        number: of the pass.
        buffer: the number of slots.

    Example:
        >>> draws = Draws(seed=1, number=0, buffer=4)
        >>> draws.slot(5) == draws.slots(6)[5] and 0 <= draws.slot(5) < 4
        True
    """

    def __init__(self, seed: int, number: int, buffer: int) -> None:
        self._seed, self._number, self._buffer = seed, number, buffer
        self._chunk, self._drawn = -1, np.zeros(0, np.int64)

    def slot(self, step: int) -> int:
        """Return the slot that a step draws."""
        chunk, place = divmod(step, _CHUNK)
        if chunk != self._chunk:
            self._drawn = _slots(self._seed, self._number, chunk, self._buffer)
            self._chunk = chunk
        return int(self._drawn[place])

    def slots(self, steps: int) -> Array:
        """Return the slots of the first steps."""
        chunks = [
            _slots(self._seed, self._number, chunk, self._buffer)
            for chunk in range(-(-steps // _CHUNK))
        ]
        return np.concatenate(chunks)[:steps] if chunks else np.zeros(0, np.int64)

    def held(self, steps: int) -> Array:
        """Return the number of the element in each slot after some steps."""
        contents = np.arange(self._buffer, dtype=np.int64)
        contents[self.slots(steps)] = self._buffer + np.arange(steps)  # the last one stays
        return contents

    def rest(self, count: int) -> Array:
        """Return the slots of the last `count` elements in turn, once no elements follow."""
        return random_order(count, self._seed, self._number)


def buffer_order(count: int, buffer: int, seed: int, number: int) -> Array:
    """Return the numbers of all elements in the order in which the buffer gives them.

    Example:
        >>> sorted(buffer_order(6, 3, seed=1, number=0).tolist())
        [0, 1, 2, 3, 4, 5]
        >>> bool((buffer_order(6, 6, 1, 0) == buffer_order(6, 100, 1, 0)).all())
        True
    """
    if buffer >= count:
        return random_order(count, seed, number)
    draws, steps = Draws(seed, number, buffer), count - buffer
    slots = draws.slots(steps)
    # Step t gives what the step before it that drew the same slot had put there.
    by_slot = np.argsort(slots, kind="stable")
    sorted_slots = slots[by_slot]
    first = np.ones(steps, bool)
    first[1:] = sorted_slots[1:] != sorted_slots[:-1]
    given = np.empty(steps, np.int64)
    given[by_slot[first]] = sorted_slots[first]
    given[by_slot[1:][~first[1:]]] = buffer + by_slot[:-1][~first[1:]]
    return np.concatenate([given, draws.held(steps)[draws.rest(buffer)]])
