"""Background: one piece of work at a time, done by a thread beside the training."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Background:
    """Does the work handed to it in a thread of its own, one piece at a time.

    What goes wrong there is raised here, at the next call of `check`, `wait` or `start`. The thread
    ends with the last piece of work, so that nothing has to be closed.

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
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._busy = False

    @property
    def busy(self) -> bool:
        """Whether the last piece of work is not done yet."""
        return self._busy

    def start(self, work: Callable[[], None], then: Callable[[], None] | None = None) -> None:
        """Begin `work` when what came before it is done.

        Args:
            work: what to do.
            then: called in the thread when the work is over, well or not.

        Raises:
            BaseException: what the work before raised; the new one is not begun then.
        """
        self.wait()
        self._busy = True
        # No daemon: an interpreter that ends lets the file be finished.
        self._thread = threading.Thread(target=self._do, args=(work, then), name=self.name)
        self._thread.start()

    def _do(self, work: Callable[[], None], then: Callable[[], None] | None) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 (raised again by `check`)
            self._error = error
        finally:
            self._busy = False
            if then is not None:
                then()

    def check(self) -> None:
        """Raise what the work raised, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def wait(self) -> None:
        """Wait until the work is done; raise what it raised."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.check()

    def __getstate__(self) -> dict[str, object]:
        # Copies and pickles of a callback share no thread.
        return {"name": self.name, "_thread": None, "_error": None, "_busy": False}
