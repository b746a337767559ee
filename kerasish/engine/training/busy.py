"""One thread at a time trains or evaluates a model: both share its metrics and variables."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

_LOOK = 0.05  # seconds between two checks of which thread has the model


class BusyModelError(RuntimeError):
    """Another thread runs fit or evaluate of the same model."""


class ExclusiveUse:
    """Says which thread may change a model's variables and metrics.

    Single batches wait for each other. What takes long (`fit`, `evaluate`) makes all others raise,
    since waiting might be forever: a callback may wait for the thread that waits for it. In the
    same thread all of them nest.

    Example:
        >>> turn = ExclusiveUse()
        >>> with turn.take("fit", True), turn.take("evaluate", True):
        ...     print("nested")
        nested
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._long: list[str] = []  # what the thread that has the turn does, outermost first

    def take(self, what: str, long: bool) -> _Taken:
        """Return a context in which only this thread changes the model."""
        return _Taken(self, what, long)

    def _wait(self, what: str) -> None:
        while not self._lock.acquire(timeout=_LOOK):
            if self._long:
                raise BusyModelError(
                    f"{what}: another thread runs {self._long[0]} of this model, and both would "
                    "change its variables and metrics. Wait until it ends, or use a copy: "
                    "keras.models.clone_model(model), then set_weights()."
                )

    def __reduce__(self) -> tuple[Any, ...]:
        return ExclusiveUse, ()  # copies and pickles of a model share nothing


class _Taken:
    __slots__ = ("_long", "_turn", "_what")

    def __init__(self, turn: ExclusiveUse, what: str, long: bool) -> None:
        self._turn, self._what, self._long = turn, what, long

    def __enter__(self) -> None:
        turn = self._turn
        if not turn._lock.acquire(blocking=False):
            turn._wait(self._what)
        if self._long:
            turn._long.append(self._what)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._long:
            self._turn._long.pop()
        self._turn._lock.release()
