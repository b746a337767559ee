"""The seeds that code takes which was given none: one sequence per process, or per block."""

from __future__ import annotations

import contextlib
import contextvars
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any


class _Draws:
    """Numbers from 0 on, for any thread; `at` is the next one, and may be set."""

    def __init__(self, at: int = 0) -> None:
        self.at = at
        self._guard = threading.Lock()

    def take(self) -> int:
        """Return the next number."""
        with self._guard:
            self.at += 1
            return self.at - 1

    def __getstate__(self) -> int:
        return self.at

    def __setstate__(self, at: int) -> None:
        _Draws.__init__(self, at)


class _Process:
    seed: int | None = None
    draws = _Draws()
    restarts: list[Callable[[], None]] = []


def set_seed(seed: int | None) -> None:
    """Make the seeds that `next_seed` hands out a function of `seed` and their order."""
    _Process.seed = seed
    _Process.draws = _Draws()
    for restart in _Process.restarts:
        restart()


def when_seeded(restart: Callable[[], None]) -> None:
    """Let `set_seed` call `restart`, for code that keeps a random state of the process."""
    _Process.restarts.append(restart)


def seed() -> int | None:
    """Return the seed of `set_seed`, or None."""
    return _Process.seed


class SeedStream:
    """The seeds of one `seeded` block: a function of its seed and of their order."""

    def __init__(self, seed: int) -> None:
        self.seed = int(seed)
        self.draws = _Draws()
        self.kept: dict[str, Any] = {}  # random states that live as long as the block

    def next_seed(self) -> int:
        """Return the next seed in [0, 2**31)."""
        return _mix(self.seed, self.draws.take())


_stream: contextvars.ContextVar[SeedStream | None] = contextvars.ContextVar("stream", default=None)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[SeedStream]:
    """Let this thread draw its seeds from `seed`, and the process's own sequence rest meanwhile.

    Example:
        >>> with seeded(3):
        ...     first = next_seed()
        >>> with seeded(3):
        ...     print(next_seed() == first)
        True
    """
    stream = SeedStream(seed)
    token = _stream.set(stream)
    try:
        yield stream
    finally:
        _stream.reset(token)


def seed_stream() -> SeedStream | None:
    """Return the stream of the `seeded` block that is running in this thread, or None."""
    return _stream.get()


def next_seed() -> int:
    """Return a seed in [0, 2**31) for code that was given none.

    With `set_seed(s)` the n-th call is a fixed function of s and n; else it is from the system.
    Inside `seeded(s)` it is a fixed function of s and of the calls made in the block.
    """
    stream = _stream.get()
    if stream is not None:
        return stream.next_seed()
    if _Process.seed is None:
        return int.from_bytes(os.urandom(4), "little") >> 1
    return _mix(_Process.seed, _Process.draws.take())


def random_state() -> list[int | None]:
    """Return [seed, seeds handed out so far] of this thread's `seeded` block, or the process."""
    stream = _stream.get()
    if stream is not None:
        return [stream.seed, stream.draws.at]
    return [_Process.seed, _Process.draws.at]


def set_random_state(state: Sequence[int | None]) -> None:
    """Let `next_seed` continue at a state of `random_state`."""
    seed, draws = state
    stream = _stream.get()
    if stream is None:
        _Process.seed, _Process.draws = seed, _Draws(draws or 0)
    elif seed is not None:
        stream.seed, stream.draws = seed, _Draws(draws or 0)


def _mix(seed: int, draw: int) -> int:
    """Return 31 bits that are a function of `seed` and `draw`."""
    mixed = (seed + 1) * 0x9E3779B97F4A7C15 + draw * 0xBF58476D1CE4E5B9
    mixed &= 0xFFFFFFFFFFFFFFFF
    mixed ^= mixed >> 31
    mixed = mixed * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    return mixed >> 33
