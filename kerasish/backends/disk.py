"""Files that cache expensive results: their folders, their checksums, how they are written.

`KERASISH_CACHE_DIR`, else `$XDG_CACHE_HOME/kerasish`, else `~/.cache/kerasish` holds a folder for
each kind of them; `KERASISH_CACHE_DIR=""` (empty) turns the disk off. Files are written under
another name and then renamed, so any number of processes may share a folder. They carry a checksum.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path


def cache_folder(kind: str) -> Path | None:
    """Return the folder of files of this kind; None if there is none."""
    chosen = os.environ.get("KERASISH_CACHE_DIR")
    if chosen is not None:
        return Path(chosen) / kind if chosen else None
    root = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(root) if root else Path.home() / ".cache") / "kerasish" / kind
    except RuntimeError:  # no home directory
        return None


def seal(mark: bytes, body: bytes) -> bytes:
    """Return a file's bytes: its kind's mark, a checksum, the body."""
    return mark + hashlib.sha256(body).digest() + body


def unseal(mark: bytes, data: bytes) -> bytes:
    """Return the body of a result of `seal`.

    Raises:
        ValueError: the mark differs, or the checksum does not match.
    """
    body = data[len(mark) + 32 :]
    if data[: len(mark)] != mark or hashlib.sha256(body).digest() != data[len(mark) :][:32]:
        raise ValueError(f"damaged file: not {mark!r}, or its checksum does not match")
    return body


def replace(path: Path, data: bytes) -> None:
    """Write a file atomically: a reader gets the old file or this one.

    Raises:
        OSError: the folder cannot be written.
    """
    handle, other = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(other, path)
    except BaseException:
        Path(other).unlink(missing_ok=True)
        raise
