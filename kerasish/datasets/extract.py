"""Archives unpacked by the standard library's safe extraction: no member leaves the folder."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path


def extract_archive(
    archive: Path, folder: Path, archive_format: str | list[str] | tuple[str, ...] | None = "auto"
) -> None:
    """Unpack `archive` as `folder`, which replaces one of that name once everything is unpacked.

    Members of a tar go through tarfile's "data" filter: paths and links that lead outside, devices
    and pipes are refused. So are absolute names and names with "..", in tar and zip files, which
    the standard library would shorten and write inside the folder: no archive for others to use
    has such names. zipfile writes links as files.

    Args:
        archive: a tar (plain, gzip, bzip2, xz) or zip file.
        folder: where the members go.
        archive_format: "auto", "tar", "zip" or a list of them.

    Raises:
        ValueError: the file is no such archive, is damaged, or a member is unsafe; nothing is left
            behind.
        RuntimeError: this Python's tarfile has no filters.
    """
    unpack = _unpacker(archive, _formats(archive_format))
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".part", dir=folder.parent))
    try:
        unpack(archive, work)
        work.chmod(0o755)
        _swap(work, folder)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{archive}: unsafe or damaged, nothing is unpacked ({error}).") from error
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


def _unpacker(archive: Path, formats: list[str]) -> Callable[[Path, Path], None]:
    if "tar" in formats and tarfile.is_tarfile(archive):
        return _unpack_tar
    if "zip" in formats and zipfile.is_zipfile(archive):
        return _unpack_zip
    raise ValueError(f"{archive}: expected an archive of format {formats}, got something else.")


def _unpack_tar(archive: Path, work: Path) -> None:
    if not hasattr(tarfile, "data_filter"):
        raise RuntimeError(
            f"{archive}: to unpack a tar file safely takes Python 3.10.12, 3.11.4 or later. Update "
            "Python, or unpack the file manually."
        )
    with tarfile.open(archive) as tar:
        tar.extractall(work, filter=_refuse_absolute)


def _refuse_absolute(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo:
    """Return the member as tarfile's "data" filter leaves it; refuse a name it would shorten."""
    if _leads_outside(member.name):
        raise tarfile.AbsolutePathError(member)
    return tarfile.data_filter(member, folder)


def _leads_outside(name: str) -> bool:
    """Return whether a member's name is absolute, on any system, or goes up."""
    parts = name.replace("\\", "/").split("/")
    drive = parts[0][:1].isalpha() and parts[0][1:2] == ":"
    return not parts[0] or drive or ".." in parts


def _unpack_zip(archive: Path, work: Path) -> None:
    with zipfile.ZipFile(archive) as zipped:
        for name in zipped.namelist():
            if _leads_outside(name):
                raise zipfile.BadZipFile(f"member {name!r} would be outside of the folder")
        zipped.extractall(work)


def _swap(work: Path, folder: Path) -> None:
    if folder.is_dir():
        shutil.rmtree(folder)
    elif folder.exists():
        folder.unlink()
    os.replace(work, folder)
