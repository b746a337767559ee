"""Files that are there whole or not at all.

A save writes a temporary file next to the target, flushes it to the disk, and then renames it to
the target's name in one step. If anything fails before, the old file stays as it was.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from kerasish.saving.files.temporary import clear as clear
from kerasish.saving.files.temporary import clear_left, temporary

_WORDS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota is used up",
    errno.EACCES: "no permission to write there",
    errno.EPERM: "no permission to write there",
    errno.EROFS: "the file system is read-only",
    errno.ENOENT: "the folder does not exist",
    errno.EFBIG: "the file would be larger than is allowed",
    errno.EIO: "the disk reports an error",
}


@contextmanager
def replacing(path: str) -> Iterator[str]:
    """Yield a temporary path whose file takes the place of `path` when the block ends well.

    Of several savers of one path, in threads or processes, each writes its own file; the last
    one to end stays.

    Raises:
        OSError: the file could not be written; the old one is as it was, the temporary one gone.
    """
    replaced = False
    with temporary(path) as new:
        try:
            clear_left(path)
            yield new
            if os.path.isdir(new):
                _replace_folder(new, path)
            else:
                flush_file(new)
                os.replace(new, path)
            replaced = True
            flush_folder(os.path.dirname(path) or ".")
            _clear_quietly(new)  # the old folder, where the two changed places
        except BaseException as error:
            if not replaced:
                _clear_quietly(new)
            if _from_the_disk(error):
                raise save_error(path, error, replaced) from error
            raise


def _from_the_disk(error: BaseException) -> bool:
    # The HDF5 library reports a full disk as a RuntimeError or an OSError without a number.
    return isinstance(error, OSError) or (
        isinstance(error, RuntimeError) and type(error) is RuntimeError and "HDF5" in str(error)
    )


def save_error(path: str, error: BaseException, replaced: bool = False) -> OSError:
    """Return the error that says why `path` could not be saved.

    Args:
        path: the file.
        error: the system's error.
        replaced: whether the new file is in its place already.
    """
    number = getattr(error, "errno", None) or _errno_in(str(error))
    why = _WORDS.get(number or 0) or getattr(error, "strerror", None) or str(error)
    text = f"Could not save {path!r}: {why}. What was there before is unchanged."
    if replaced:
        text = (
            f"Saved {path!r}, but its name is perhaps not on the disk yet: {why}. After a power "
            "failure what was there before may be back."
        )
    result = type(error) if isinstance(error, OSError) and number else OSError
    return result(number, text) if number else OSError(text)


def _errno_in(text: str) -> int | None:
    """Return the number that HDF5 puts into its messages ("errno = 28")."""
    _, result, rest = text.partition("errno = ")
    digits = rest.split(",")[0].strip()
    return int(digits) if result and digits.isdigit() else None


def flush_file(path: str) -> None:
    """Have the system write a file's bytes to the disk."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def flush_folder(path: str) -> None:
    """Have the system write a folder's names to the disk, where systems can."""
    if os.name == "nt":
        return
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _replace_folder(new: str, path: str) -> None:
    for folder, _, names in os.walk(new):
        for name in names:
            flush_file(os.path.join(folder, name))
        flush_folder(folder)
    if not os.path.isdir(path):
        try:
            os.replace(new, path)
            return
        except OSError:
            if not os.path.isdir(path):  # else another saver was faster
                raise
    if exchange(new, path):
        return
    # Elsewhere a folder cannot be replaced in one step: the old one waits aside for a moment.
    old = new + ".old"
    os.rename(path, old)
    os.rename(new, path)
    clear(old)


def exchange(one: str, other: str) -> bool:
    """Let two files or folders take each other's place in one step; return whether that is done.

    Linux can, on most file systems.
    """
    if not sys.platform.startswith("linux"):
        return False
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    if rename is None:
        return False
    here = -100  # AT_FDCWD: paths are as the process sees them
    swap = 2  # RENAME_EXCHANGE
    return bool(rename(here, os.fsencode(one), here, os.fsencode(other), swap) == 0)


def _clear_quietly(path: str) -> None:
    try:
        clear(path)
    except OSError:
        return  # the first error is the one to report
