"""Background: a thread that does one task at a time during the training."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

Work = Callable[[], None]


class Background:
    """Runs tasks in a thread, one at a time.

    The next call of `check`, `wait` or `start` raises the error of a task that failed. The thread
    exists from the first `start` to the next `wait`.

    Args:
        name: the thread's name.

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
        """Whether the last task is still running."""
        return not self._done.is_set()

    def start(self, work: Work) -> None:
        """Start `work` after the previous task has ended.

        Raises:
            BaseException: the error of the previous task; the new one is not started then.
        """
        self._done.wait()
        self.check()
        if self._thread is None:
            # A daemon: the interpreter can exit without `wait`.
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
        """Raise the error of the last task, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def wait(self) -> None:
        """Wait until the task is done and raise its error, if any. The thread ends."""
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
