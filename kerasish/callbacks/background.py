"""Background: one piece of work at a time, done by a thread beside the training."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

Work = Callable[[], None]


class Background:
    """Does the work handed to it in a thread of its own, one piece at a time.

    What goes wrong there is raised here, at the next call of `check`, `wait` or `start`. The thread
    lives from the first `start` to the next `wait`.

    Args:
        name: what the thread is called.

    Example:
        >>> done = []
        >>> work = Background("example")
        >>> work.start(lambda: done.append(1))
        >>> work.wait()
        >>> done
        [1]
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._begin()

    def _begin(self) -> None:
        self._thread: threading.Thread | None = None
        self._tasks: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._done = threading.Event()
        self._done.set()

    @property
    def busy(self) -> bool:
        """Whether the last piece of work is not done yet."""
        return not self._done.is_set()

    def start(self, work: Work) -> None:
        """Begin `work` when what came before it is done.

        Raises:
            BaseException: what the work before raised; the new one is not begun then.
        """
        self._done.wait()
        self.check()
        if self._thread is None:
            # A daemon: it holds up no interpreter that ends without `wait`.
            self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
            self._thread.start()
        self._done.clear()
        self._tasks.put(work)

    def _run(self) -> None:
        while (work := self._tasks.get()) is not None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 (raised again by `check`)
                self._error = error
            del work  # keep no state alive while waiting
            self._done.set()

    def check(self) -> None:
        """Raise what the work raised, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def wait(self) -> None:
        """Wait until the work is done; raise what it raised. The thread ends."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join()
            self._thread = None
        self.check()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Background) and self.name == other.name

    __hash__ = object.__hash__

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self.name}  # copies and pickles of a callback share no thread

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.name = state["name"]
        self._begin()
