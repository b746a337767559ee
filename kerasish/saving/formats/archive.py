"""`.keras` archives: a ZIP of metadata, config and weights."""

from __future__ import annotations

import datetime
import math
import os
import re
import shutil
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from kerasish.engine.layer.layer import Layer
from kerasish.engine.layer.masks import accept_dropped_masks
from kerasish.engine.layer.weights import limited_weights
from kerasish.overriding import Closing
from kerasish.saving.files.atomic import replacing
from kerasish.saving.files.sink import FilePart, Overlay, open_raw
from kerasish.saving.files.source import SLACK, elements_in
from kerasish.saving.formats.assets import load_assets, written_assets
from kerasish.saving.formats.json_text import (
    described,
    read_json,
    restore_object,
    shortened,
    write_json,
)
from kerasish.saving.formats.weights import parts_of, put_weights, renew_optimizer, write_weights
from kerasish.saving.hdf5 import file as hdf5
from kerasish.saving.hdf5 import writer as hdf5_output

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kerasish.engine.model.model import Model

METADATA, CONFIG, WEIGHTS = "metadata.json", "config.json", "model.weights.h5"
KERAS_VERSION = "3.15.1"  # whose layout this is
_MOST_MEMBERS = 100_000
_SAFE_SIZE = 4 * 2**30  # a member may be that large with any compression
_BEST_RATIO = 100
_SMALL_SIZE, _TEXT_RATIO = 2**24, 20  # what is read into memory: small, or not packed that well


# --- writing ----------------------------------------------------------------------------------


def save_archive(model: Model, path: str) -> None:
    """Write `model` as a `.keras` archive."""
    config = write_json(described(model))
    with replacing(path) as temporary, open_raw(temporary) as raw:
        file: Any = Overlay(raw)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            _write_members(model, config, archive, file)


def save_folder(model: Model, path: str) -> None:
    """Write the members of an archive as files of a folder."""
    config = write_json(described(model))
    with replacing(path) as temporary:
        os.mkdir(temporary)
        for name, text in ((METADATA, _metadata()), (CONFIG, config)):
            with open(os.path.join(temporary, name), "w", encoding="utf-8") as file:
                file.write(text)
        write_weights(model, os.path.join(temporary, WEIGHTS))
        with written_assets(model) as assets:
            for name, path in assets:
                to = os.path.join(temporary, *name.split("/"))
                os.makedirs(os.path.dirname(to), exist_ok=True)
                shutil.copyfile(path, to)


def _metadata() -> str:
    now = datetime.datetime.now().strftime("%Y-%m-%d@%H:%M:%S")
    return write_json({"keras_version": KERAS_VERSION, "date_saved": now, "written_by": "kerasish"})


def _write_members(model: Layer, config: str, archive: zipfile.ZipFile, file: Overlay) -> None:
    archive.writestr(METADATA, _metadata())
    archive.writestr(CONFIG, config)
    _append_weights(archive, file, model)
    with written_assets(model) as assets:  # type: ignore[arg-type]
        for name, path in assets:
            archive.write(path, name)


def _append_weights(archive: zipfile.ZipFile, file: Overlay, model: Layer) -> None:
    """Write the weights into their place in the archive, then let zipfile see them for its sum.

    HDF5 goes back and forth in its file; zipfile writes a member from front to back. To write a
    temporary file and copy it into the archive took 1.0 s for 400 MB, this takes 0.6 s, and needs
    half the disk.
    """
    optimizer = getattr(model, "optimizer", None)
    every = [*model.variables, *(optimizer.undivided_variables if optimizer is not None else [])]
    # Then the header can hold sizes over 4 GiB.
    large = 8 * sum(math.prod(v.shape) for v in every) > 2**31
    info = zipfile.ZipInfo(WEIGHTS, time.localtime()[:6])
    info.external_attr = 0o644 << 16
    with archive.open(info, "w", force_zip64=large) as member:
        start = file.tell()
        with hdf5_output.creating_in(file.raw, start) as output:
            output.put_groups(parts_of(model))
        file.seek(start)
        for piece in file.pieces():
            member.write(piece)


# --- reading ----------------------------------------------------------------------------------


class Archive(Closing):
    """A `.keras` file or folder, its members checked."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._zip: zipfile.ZipFile | None = None
        self._members: dict[str, zipfile.ZipInfo] = {}
        # The file is opened once: another saver may replace what is at the path.
        self._raw: Any = None
        if not os.path.isdir(path):
            self._raw, self._zip = _open_zip(path)
            try:
                self._members = _checked_members(self._zip, path)
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Close the file."""
        if self._zip is not None:
            self._zip.close()
            self._raw.close()

    def has(self, name: str) -> bool:
        """Return whether there is a member called `name`."""
        if self._zip is None:
            return os.path.isfile(os.path.join(self.path, name))
        return name in self._members

    def names(self) -> list[str]:
        """Return the names of all members."""
        if self._zip is not None:
            return list(self._members)
        results = [os.path.join(at, name) for at, _, names in os.walk(self.path) for name in names]
        return [os.path.relpath(path, self.path).replace(os.sep, "/") for path in results]

    def where(self, name: str) -> str:
        """Return what messages call a member."""
        return f"{self.path}: {name}"

    def read(self, name: str, most: int = 2**28) -> bytes:
        """Return the bytes of a member that has at most `most` of them."""
        if not self.has(name):
            raise ValueError(f"{self.path}: there is no {name!r} in it; not a model's archive.")
        if self._zip is None:
            full = os.path.join(self.path, name)
            if os.path.getsize(full) > most:
                raise ValueError(f"{self.where(name)}: more than {most} bytes.")
            with open(full, "rb") as file:
                return file.read()
        info = self._members[name]
        if info.file_size > max(_SMALL_SIZE, _TEXT_RATIO * info.compress_size):
            most = _SMALL_SIZE
        if info.file_size > most:
            raise ValueError(
                f"{self.where(name)}: says it has {info.file_size} bytes, packed into "
                f"{info.compress_size}; more than {most} are refused."
            )
        with _zip_errors(self.where(name)), self._zip.open(info) as member:
            result = member.read(info.file_size + 1)
        if len(result) != info.file_size:
            raise ValueError(f"{self.where(name)}: has not the size that the archive says.")
        return result

    def config(self) -> dict[str, Any]:
        """Return the model's config."""
        return read_json(self.read(CONFIG), self.where(CONFIG))

    @contextmanager
    def weights(self) -> Iterator[Any]:
        """Yield the weights' HDF5 file, open for reading."""
        if not self.has(WEIGHTS):
            raise ValueError(f"{self.path}: there is no {WEIGHTS!r} in it.")
        where = self.where(WEIGHTS)
        if self._zip is None:
            with hdf5.opened(os.path.join(self.path, WEIGHTS), where) as file:
                yield file
            return
        info = self._members[WEIGHTS]
        if info.compress_type == zipfile.ZIP_STORED:
            if not self._is_ours():  # in ours each array has its own checksum
                self._check_bytes(info, where)
            start = _data_offset(self._raw, info, where)
            with hdf5.opened(Window(self._raw, start, info.file_size), where) as file:
                yield file
            return
        with tempfile.TemporaryFile() as copy:
            with _zip_errors(where), self._zip.open(info) as member:
                shutil.copyfileobj(member, copy, 2**20)
            with hdf5.opened(copy, where) as file:
                yield file

    def _is_ours(self) -> bool:
        if not self.has(METADATA):
            return False
        metadata = read_json(self.read(METADATA), self.where(METADATA))
        return isinstance(metadata, dict) and metadata.get("written_by") == "kerasish"

    def _check_bytes(self, info: zipfile.ZipInfo, where: str) -> None:
        """Compare a member's bytes with the archive's checksum."""
        assert self._zip is not None
        with _zip_errors(where), self._zip.open(info) as member:
            while member.read(2**22):
                continue


class Window(FilePart):
    """A part of an open file, as a separate file for reading."""

    def readinto(self, buffer: Buffer) -> int:
        """Fill a buffer with the next bytes; return the number of bytes."""
        view = memoryview(buffer).cast("B")
        count = max(0, min(len(view), self.size - self._at))
        self._raw.seek(self._start + self._at)
        got = self._raw.readinto(view[:count]) or 0
        self._at += got
        return int(got)


def _open_zip(path: str) -> tuple[Any, zipfile.ZipFile]:
    """Return the open file, and the archive in it."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"There is no file {path!r}.")
    try:
        with ExitStack() as stack:
            raw = stack.enter_context(open(path, "rb"))
            archive = zipfile.ZipFile(raw, "r")
            stack.pop_all()
            return raw, archive
    except OSError as error:
        raise OSError(error.errno, f"{path}: cannot be read ({error}).") from error
    except (zipfile.BadZipFile, ValueError, NotImplementedError, zlib.error, OverflowError) as e:
        raise ValueError(f"{path}: not a whole ZIP archive ({e}).") from e


@contextmanager
def _zip_errors(where: str) -> Iterator[None]:
    try:
        yield
    except (
        zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError,
        OSError, OverflowError,
    ) as error:  # fmt: skip
        raise ValueError(f"{where}: damaged ({shortened(error)}).") from error


def _checked_members(archive: zipfile.ZipFile, path: str) -> dict[str, zipfile.ZipInfo]:
    infos = archive.infolist()
    if len(infos) > _MOST_MEMBERS:
        raise ValueError(f"{path}: {len(infos)} members in the archive; refused.")
    results: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        name = info.filename
        if name in results:
            raise ValueError(f"{path}: two members are called {name!r}.")
        if not _is_inside(name):
            raise ValueError(f"{path}: a member called {name!r} points outside the archive.")
        if info.flag_bits & 1:
            raise ValueError(f"{path}: the member {name!r} is encrypted.")
        if info.file_size > _SAFE_SIZE and info.file_size > _BEST_RATIO * info.compress_size:
            raise ValueError(
                f"{path}: the member {name!r} says that {info.compress_size} bytes unpack to "
                f"{info.file_size}; refused."
            )
        results[name] = info
    return results


def _is_inside(name: str) -> bool:
    parts = name.replace("\\", "/").split("/")
    return not (name.startswith(("/", "\\")) or ".." in parts or re.match(r"[A-Za-z]:", name))


def _data_offset(raw: Any, info: zipfile.ZipInfo, where: str) -> int:
    """Return where a stored member's bytes begin in the file."""
    raw.seek(info.header_offset)
    head = raw.read(30)
    if len(head) != 30 or head[:4] != b"PK\x03\x04":
        raise ValueError(f"{where}: damaged (no local header).")
    name, extra = int.from_bytes(head[26:28], "little"), int.from_bytes(head[28:30], "little")
    start = int(info.header_offset) + 30 + name + extra
    if start + info.file_size > raw.seek(0, os.SEEK_END):
        raise ValueError(f"{where}: damaged (goes beyond the file's end).")
    return start


def load_archive(
    path: str, custom_objects: Mapping[str, Any] | None, compile: bool, safe_mode: bool
) -> Any:
    """Return the model that a `.keras` file or folder holds."""
    with Archive(path) as archive:
        where = archive.where(CONFIG)
        config = archive.config()
        if not isinstance(config, dict) or "class_name" not in config:
            raise ValueError(f"{where}: describes no object.")
        if not compile:
            config.pop("compile_config", None)
        with archive.weights() as file:
            groups = hdf5.read_groups(file, archive.where(WEIGHTS))
            if not compile:
                groups = {k: g for k, g in groups.items() if not k.startswith("optimizer/")}
            with limited_weights(SLACK + elements_in(groups)):
                model = restore_object(config, custom_objects, safe_mode, where)
            if not isinstance(model, Layer):
                raise ValueError(f"{where}: describes a {type(model).__name__}, no model.")
            accept_dropped_masks(model)
            renew_optimizer(model, len(groups.get("optimizer/vars", ())))  # type: ignore[arg-type]
            put_weights(model, groups, archive.where(WEIGHTS))
        load_assets(model, archive)
    return model


def load_into(
    model: Model,
    archive: Archive,
    skip_mismatch: bool = False,
    by: str | None = None,
) -> None:
    """Put an archive's weights into a model."""
    where = archive.where(WEIGHTS)
    with archive.weights() as file:
        groups = hdf5.read_groups(file, where)
        put_weights(model, groups, where, skip_mismatch, by)
