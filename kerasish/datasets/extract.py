"""Archives unpacked so that no member can leave the folder: no absolute names, "..", or links."""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

_Member = tuple[str, bool, "IO[bytes] | None"]  # name, whether a folder, contents


def extract_archive(
    archive: Path, folder: Path, archive_format: str | list[str] | tuple[str, ...] | None = "auto"
) -> None:
    """Unpack `archive` as `folder`, which replaces one of that name once everything is unpacked.

    Args:
        archive: a tar (plain, gzip, bzip2, xz) or zip file.
        folder: where the members go.
        archive_format: "auto", "tar", "zip" or a list of them.

    Raises:
        ValueError: the file is no such archive, or a member's name or kind is unsafe; nothing is
            left behind.
    """
    members = _members(archive, _formats(archive_format))
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".part", dir=folder.parent))
    try:
        for name, is_folder, contents in members:
            _write(work, _safe(name, archive), is_folder, contents)
        work.chmod(0o755)
        _swap(work, folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _formats(archive_format: str | list[str] | tuple[str, ...] | None) -> list[str]:
    formats = [archive_format] if isinstance(archive_format, str) else list(archive_format or [])
    if "auto" in formats:
        return ["tar", "zip"]
    for name in formats:
        if name not in ("tar", "zip"):
            raise ValueError(f"archive_format: expected 'auto', 'tar' or 'zip', got {name!r}.")
    return formats


def _members(archive: Path, formats: list[str]) -> Iterator[_Member]:
    if "tar" in formats and tarfile.is_tarfile(archive):
        return _tar_members(archive)
    if "zip" in formats and zipfile.is_zipfile(archive):
        return _zip_members(archive)
    raise ValueError(f"{archive}: expected an archive of format {formats}, got something else.")


def _tar_members(archive: Path) -> Iterator[_Member]:
    with tarfile.open(archive) as tar:
        for member in tar:
            if not (member.isfile() or member.isdir()):
                raise ValueError(
                    f"{archive}: member {member.name!r} is a link or a device; only files and "
                    "folders are unpacked."
                )
            contents = tar.extractfile(member) if member.isfile() else None
            yield member.name, member.isdir(), contents


def _zip_members(archive: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as zipped:
        for member in zipped.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise ValueError(
                    f"{archive}: member {member.filename!r} is a link or a device; only files and "
                    "folders are unpacked."
                )
            if member.is_dir():
                yield member.filename, True, None
                continue
            with zipped.open(member) as contents:
                yield member.filename, False, contents


def _safe(name: str, archive: Path) -> Path:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or PureWindowsPath(name).drive:
        raise ValueError(f"{archive}: member {name!r} would be written outside its folder.")
    return Path(*path.parts)


def _write(work: Path, name: Path, is_folder: bool, contents: IO[bytes] | None) -> None:
    target = work / name
    if is_folder or contents is None:
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        shutil.copyfileobj(contents, file)


def _swap(work: Path, folder: Path) -> None:
    if folder.is_dir():
        shutil.rmtree(folder)
    elif folder.exists():
        folder.unlink()
    os.replace(work, folder)
