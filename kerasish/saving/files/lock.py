"""One saver at a time, where several files belong together."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP}  # of some network file systems
_guard = threading.Lock()
_locks: dict[str, tuple[threading.Lock, list[int]]] = {}  # path -> lock, how many want it


@contextmanager
def holding(path: str) -> Iterator[None]:
    """A `with` block that one thread, of one process, is in at a time for each path.

    Others wait. Processes use a lock on a hidden file next to `path`, which is removed
    afterwards; where the system has no such locks (Windows), only threads wait.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with holding(os.path.join(folder, "a")):
        ...         os.listdir(folder)
        ...     os.listdir(folder)
        ['.a.kerasish-lock']
        []
    """
    full = os.path.realpath(path)
    with _in_this_process(full):
        if os.name == "nt":
            yield
            return
        folder, name = os.path.split(full)
        place = os.path.join(folder, f".{name}.kerasish-lock")
        number = _locked_file(place)
        try:
            yield
        finally:
            # Removed while it is held: a saver that waits for this file sees that it is gone. If
            # it cannot be removed, it stays: the next saver locks it again.
            with suppress(OSError):
                os.remove(place)
            os.close(number)


@contextmanager
def _in_this_process(full: str) -> Iterator[None]:
    with _guard:
        lock, users = _locks.setdefault(full, (threading.Lock(), [0]))
        users[0] += 1
    try:
        with lock:
            yield
    finally:
        with _guard:
            users[0] -= 1
            if not users[0]:
                del _locks[full]


def _locked_file(place: str) -> int:
    """Return the number of the file at `place`, open and locked."""
    import fcntl

    while True:
        number = os.open(place, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            try:
                fcntl.flock(number, fcntl.LOCK_EX)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                return number
            if is_there(number, place):
                return number
        except BaseException:
            os.close(number)
            raise
        os.close(number)


def is_there(number: int, place: str) -> bool:
    """Return whether the path is still that of the open file `number`."""
    try:
        return os.path.samestat(os.fstat(number), os.stat(place))
    except FileNotFoundError:
        return False
