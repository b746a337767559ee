"""One training at a time in a folder: a lock that the system drops when its process ends.

The lock is a POSIX record lock (Windows: `msvcrt.locking`) on a file in the folder, which NFS
passes on to the server. A process that is killed holds no lock any more, so nothing must be
removed manually. Such locks do not distinguish the threads of one process: a table does.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sys
import threading
import time
import warnings

from kerasish.errors import FolderInUseError
from kerasish.saving.files.lock import is_there

NAME = ".kerasish-lock"
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)
_LONGEST = 1000  # bytes of a record that are read
_held: dict[str, int] = {}  # real path of a folder -> the process that took it (forks copy this)
_guard = threading.Lock()


def _take(number: int) -> bool:
    """Lock an open file; return whether that was possible.

    Raises:
        OSError: the file system does not support locks.
    """
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(number, _LONGEST, os.SEEK_SET)  # behind the record, which others may read
            msvcrt.locking(number, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.lockf(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
            return False
        raise
    return True


class FolderLock:
    """The right to keep training states in a folder, from `take` to `drop`.

    Args:
        folder: the folder; made by `take` if missing, and removed by `drop` if still empty.

    Example:
        >>> import tempfile
        >>> lock = FolderLock(tempfile.mkdtemp())
        >>> lock.take()
        >>> lock.drop()
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.path = os.path.join(folder, NAME)
        self._key = os.path.realpath(folder)
        self._number: int | None = None  # of the open file
        self._taken = self._new = False

    def take(self) -> None:
        """Take the lock.

        Raises:
            FolderInUseError: another training has it.
            OSError: the folder or the file cannot be written.
        """
        with _guard:
            if _held.get(self._key) == os.getpid():
                raise FolderInUseError(self._message("this process"))
            self._new = not os.path.isdir(self.folder)
            os.makedirs(self.folder, exist_ok=True)
            try:
                self._open_and_take()
            except BaseException:
                self._remove_empty()
                raise
            _held[self._key], self._taken = os.getpid(), True

    def _open_and_take(self) -> None:
        while True:
            number = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                if not _take(number):
                    raise FolderInUseError(self._message(_owner(number)))
            except OSError as error:
                os.close(number)
                if error.errno not in _NO_LOCKS:
                    raise
                warnings.warn(
                    f"{self.folder!r} is on a file system without locks ({error.strerror}): two "
                    "trainings that resume from it at once are not noticed.",
                    stacklevel=2,
                )
                return
            except BaseException:
                os.close(number)
                raise
            if is_there(number, self.path):
                break
            os.close(number)  # its owner has removed the file meanwhile
        record = {"process": os.getpid(), "machine": socket.gethostname(), "since": time.time()}
        os.ftruncate(number, 0)
        os.write(number, json.dumps(record).encode())
        self._number = number

    def _message(self, owner: str) -> str:
        return (
            f"Another training keeps its states in {self.folder!r} at this moment ({owner}). Wait "
            "until it ends, or name another folder."
        )

    def drop(self) -> None:
        """Give the lock back, if it is held, and remove its file."""
        if not self._taken:
            return
        with _guard:
            if _held.get(self._key) != os.getpid():
                return  # a fork of the process that took it
            del _held[self._key]
            self._taken = False
            if self._number is not None:
                if os.name != "nt":  # removed while locked: no other process can have taken it
                    with contextlib.suppress(FileNotFoundError):
                        os.remove(self.path)
                os.close(self._number)
                self._number = None
                if os.name == "nt":
                    with contextlib.suppress(OSError):  # taken by another one meanwhile
                        os.remove(self.path)
            self._remove_empty()

    def _remove_empty(self) -> None:
        if self._new:
            with contextlib.suppress(OSError):  # states are in it, or it was removed
                os.rmdir(self.folder)


def _owner(number: int) -> str:
    """Return who says to hold the lock of an open file."""
    text = os.pread(number, _LONGEST, 0) if hasattr(os, "pread") else b""
    try:
        record = json.loads(text)
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(record["since"])))
        return f"process {int(record['process'])} on {str(record['machine'])[:99]}, since {since}"
    except (ValueError, TypeError, KeyError, OverflowError, OSError):
        return "another process"
