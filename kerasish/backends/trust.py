"""Reading files that only this user, or root, may have written, because they are executed.

    with open_folder(path) as folder:
        data = folder.read("ab", "name")

The rules are those of ssh for its keys. A file, its folder and every folder above it belong to
this user or to root, and neither group nor others can write them. Two exceptions: a folder above
may be writable by all if it is sticky, like /tmp (users cannot move files of others there), and a
group whose only member is this user counts as the user. Everything is opened from the root down
without following links, and the checks use the opened descriptors, not the paths: nothing can be
replaced in between. On systems without POSIX users nothing is checked.
"""

from __future__ import annotations

import functools
import os
import stat
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from kerasish.overriding import Closing

if TYPE_CHECKING:
    pass

_POSIX = hasattr(os, "geteuid") and os.open in os.supports_dir_fd
_DIRECTORY = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_PATH", 0)
_NEVER_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class UntrustedError(PermissionError):
    """Another user may have written a file or folder; the message names it and the fix."""


class TrustedFolder(Closing):
    """An open folder whose files are read after they were checked; for `with` blocks."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self._descriptor = path, descriptor

    def close(self) -> None:
        """Close the descriptor."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def read(self, *parts: str) -> bytes:
        """Return the bytes of a file.

        Args:
            parts: names of folders below this one, then the file's name.

        Raises:
            UntrustedError: another user may have written it.
            OSError: it cannot be read.
        """
        path = self.path.joinpath(*parts)
        if not _POSIX:
            return path.read_bytes()
        *folders, name = parts
        opened: list[int] = []
        try:
            parent = self._descriptor
            for depth, part in enumerate(folders):
                parent = _open_below(parent, part, self.path.joinpath(*parts[: depth + 1]))
                opened.append(parent)
            file = os.open(name, os.O_RDONLY | os.O_NONBLOCK | _NEVER_FOLLOW, dir_fd=parent)
            opened.append(file)
            _check(os.fstat(file), path, stat.S_IFREG)
            with os.fdopen(os.dup(file), "rb") as stream:
                return stream.read()
        finally:
            for descriptor in opened:
                os.close(descriptor)


def open_folder(path: Path) -> TrustedFolder:
    """Open a folder that only this user, or root, can write.

    Args:
        path: the folder; links above it are resolved first.

    Raises:
        UntrustedError: another user can write it, or a folder above it.
        OSError: it does not exist, or is not a folder.
    """
    if not _POSIX:
        return TrustedFolder(path, -1)
    real = Path(os.path.realpath(path, strict=True))
    descriptor = os.open(real.anchor, os.O_RDONLY | _DIRECTORY | _NEVER_FOLLOW)
    try:
        at = Path(real.anchor)
        _check(os.fstat(descriptor), at, stat.S_IFDIR, above=at != real)
        for part in real.parts[1:]:
            at /= part
            below = _open_below(descriptor, part, at, above=at != real)
            os.close(descriptor)
            descriptor = below
    except BaseException:
        os.close(descriptor)
        raise
    return TrustedFolder(real, descriptor)


def make_folder(path: Path) -> None:
    """Create a folder, and missing folders above it, only for this user.

    Args:
        path: the folder; nothing happens if it exists.

    Raises:
        OSError: it cannot be created.
    """
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)


def _open_below(parent: int, name: str, path: Path, above: bool = False) -> int:
    descriptor = os.open(name, os.O_RDONLY | _DIRECTORY | _NEVER_FOLLOW, dir_fd=parent)
    try:
        _check(os.fstat(descriptor), path, stat.S_IFDIR, above)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check(status: os.stat_result, path: Path, kind: int, above: bool = False) -> None:
    """Raise UntrustedError if another user can change what was opened."""
    if stat.S_IFMT(status.st_mode) != kind:
        what = "file" if kind == stat.S_IFREG else "folder"
        raise UntrustedError(f"{path} is no plain {what}. Remove it")
    if status.st_uid not in (0, os.geteuid()):
        raise UntrustedError(
            f"{path} belongs to user {status.st_uid}, not to user {os.geteuid()} or root. Remove it"
        )
    if above and status.st_mode & stat.S_ISVTX:
        return
    others = status.st_mode & stat.S_IWOTH
    group = status.st_mode & stat.S_IWGRP and not _is_private(status.st_gid)
    if others or group:
        mode = stat.S_IMODE(status.st_mode)
        who = "all users" if others else f"group {status.st_gid}"
        raise UntrustedError(f"{path} can be written by {who} (mode {mode:04o}). chmod go-w it")


@functools.cache
def _is_private(group: int) -> bool:
    """Return whether a group is private to this user: same name, and no other members."""
    import grp
    import pwd

    try:
        entry, user = grp.getgrgid(group), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    private = user.pw_gid == group and entry.gr_name == user.pw_name
    return private and set(entry.gr_mem) <= {user.pw_name}


_warned: set[str] = set()


def warn_untrusted(folder: Path, what: str, error: UntrustedError) -> None:
    """Warn, once for each folder in a process, that its files are not used.

    Args:
        folder: the cache's folder.
        what: the kind of its files, for the message, in the plural.
        error: the reason why it is not trusted.
    """
    if str(folder) in _warned:
        return
    _warned.add(str(folder))
    warnings.warn(
        f"The {what} in {folder} are not used, since another user can have written them: {error}, "
        "or set KERASISH_CACHE_DIR to a folder of your own. Until then they are computed again.",
        RuntimeWarning,
        stacklevel=2,
    )
