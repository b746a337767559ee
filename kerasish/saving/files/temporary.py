"""Names of files while they are written, and the removal of leftover ones.

Each save has its own name, so that savers of one path do not conflict. The name says which
process writes, so that what a killed one has left is known and removed by the next save.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import shutil
import socket
import string
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache

_ENDING = ".kerasish-new"
# `.NAME.MACHINE-PROCESS-NUMBER.kerasish-new`; earlier versions wrote `.NAME.kerasish-new`.
_WRITER = r"(?:\.([0-9a-f]{8})-(\d+)-(\d+))?"
_LONGEST_NAME = 200  # bytes; most file systems allow 255 for all of it
_TOO_OLD = 24 * 3600  # seconds without a write, after which no save is under way

_numbers = itertools.count()
_writing: set[int] = set()  # numbers of this process's saves that are under way


@contextmanager
def temporary(path: str) -> Iterator[str]:
    """Yield a name next to `path` that no other save has; it is free again after the block.

    Example:
        >>> with temporary("models/a.keras") as one, temporary("models/a.keras") as other:
        ...     one == other, one.startswith("models/.a.keras."), one.endswith(".kerasish-new")
        (False, True, True)
    """
    folder, name = os.path.split(path)
    number = next(_numbers)
    _writing.add(number)
    try:
        own = f"{_machine()}-{os.getpid()}-{number}"
        yield os.path.join(folder, f".{_short(name)}.{own}{_ENDING}")
    finally:
        _writing.discard(number)


def _short(name: str) -> str:
    whole = os.fsencode(name)
    return name if len(whole) <= _LONGEST_NAME else hashlib.sha256(whole).hexdigest()


@cache
def _machine() -> str:
    """Return a mark of what process numbers are unique in: a machine since it was started."""
    parts = [socket.gethostname()]
    for place in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        with suppress(OSError):
            if os.path.islink(place):
                parts.append(os.readlink(place))
            else:
                with open(place, encoding="ascii") as file:
                    parts.append(file.read())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


def clear(path: str) -> None:
    """Remove a file or folder if it is there."""
    with suppress(FileNotFoundError):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.remove(path)


def clear_left(path: str) -> None:
    """Remove what saves of `path` have left behind when they were cut off."""
    folder, name = os.path.split(path)
    _clear_matching(folder, re.escape(_short(name)))


def clear_cut_off(pattern: str) -> None:
    """Remove what saves under names of one pattern have left behind when they were cut off.

    Args:
        pattern: a path whose file name has fields, as for `str.format`; the folder has none.
    """
    folder, name = os.path.split(pattern)
    parts = string.Formatter().parse(name)
    regex = "".join(
        re.escape(text) + (".+?" if field is not None else "") for text, field, *_ in parts
    )
    if "{" not in folder and os.path.isdir(folder or "."):
        _clear_matching(folder, regex)


def _clear_matching(folder: str, name: str) -> None:
    pattern = re.compile(rf"\.{name}{_WRITER}{re.escape(_ENDING)}(?:\.old)?", re.DOTALL)
    for result in os.listdir(folder or "."):
        match = pattern.fullmatch(result) if result.endswith((_ENDING, ".old")) else None
        there = os.path.join(folder, result)
        if match is not None and not _is_written(there, match):
            with suppress(OSError):  # litter is no reason not to save
                clear(there)


def _is_written(path: str, match: re.Match[str]) -> bool:
    """Return whether a save may be under way there."""
    machine, process, number = match.groups()
    if machine is None:
        return False
    if machine == _machine() and os.name != "nt":
        if int(process) == os.getpid():
            return int(number) in _writing
        if not _is_alive(int(process)):
            return False
    return time.time() - _last_write(path) < _TOO_OLD


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _last_write(path: str) -> float:
    """Return when a file, or anything in a folder, was last written; 0 if it was removed."""
    inside = [os.path.join(at, name) for at, _, names in os.walk(path) for name in names]
    latest = 0.0
    for place in (path, *inside):
        with suppress(FileNotFoundError):
            latest = max(latest, os.lstat(place).st_mtime)
    return latest
