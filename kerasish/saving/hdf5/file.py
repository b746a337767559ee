"""Weights in HDF5 files, read with distrust.

Only plain datasets inside the file itself are read: links to other places, data stored elsewhere
and declared sizes that the file cannot hold are refused, before memory is taken.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from kerasish.saving.files.checksum import checksum
from kerasish.saving.files.source import Entry, Groups, PartArrays
from kerasish.saving.hdf5 import library as hdf5_library
from kerasish.saving.hdf5 import reader as hdf5_input
from kerasish.saving.paths import SEEDS
from kerasish.typing import Array

HDF5Group = hdf5_input.Group | hdf5_library.Group

CHECKSUM = "crc32"  # attribute of a dataset: CRC-32 of its dtype, shape and bytes
_DEEPEST = 1000
_MOST_OBJECTS = 1_000_000


@contextmanager
def opened(path: Any, where: str) -> Iterator[Any]:
    """Yield the root group of an HDF5 file, open for reading.

    Args:
        path: the file's path, or an open binary file.
        where: what messages call it.

    Raises:
        ValueError: it is no HDF5 file, or not a whole one.
        OSError: it cannot be read.
    """
    if hasattr(path, "seek"):
        with _root(path, where) as root:
            yield root
        return
    with ExitStack() as stack:
        try:
            raw = stack.enter_context(open(path, "rb"))
        except FileNotFoundError:
            raise FileNotFoundError(f"There is no file {where!r}.") from None
        except PermissionError as error:
            raise PermissionError(f"{where}: no permission to read the file.") from error
        yield stack.enter_context(_root(raw, where))


@contextmanager
def _root(raw: Any, where: str) -> Iterator[Any]:
    try:
        root = hdf5_input.open_file(raw)
    except hdf5_input.NewerLayout:
        root = None
    except (ValueError, OSError) as error:
        raise ValueError(f"{where}: not a whole HDF5 file ({error}).") from error
    if root is not None:
        yield root
        return
    raw.seek(0)
    with ExitStack() as stack:
        try:
            newer = stack.enter_context(hdf5_library.opened(raw))
        except Exception as error:
            raise ValueError(f"{where}: not a whole HDF5 file ({error}).") from error
        yield newer


@contextmanager
def clear_errors(where: str) -> Iterator[None]:
    """Turn what is raised for broken files into a ValueError that names the file."""
    try:
        yield
    except (ValueError, OSError) as error:
        if where in str(error):
            raise
        raise ValueError(f"{where}: the HDF5 file is damaged ({error}).") from error
    except (
        KeyError, RuntimeError, TypeError, IndexError, AttributeError, SystemError, struct.error,
    ) as error:  # fmt: skip
        raise ValueError(f"{where}: the HDF5 file is damaged ({error}).") from error
    except hdf5_input.NewerLayout as error:
        raise ValueError(
            f"{where}: parts of the HDF5 file are of a newer layout than the file itself."
        ) from error
    except MemoryError as error:
        raise ValueError(f"{where}: the HDF5 file asks for too much memory.") from error


def is_group(item: Any) -> bool:
    """Return whether something of a file is a group."""
    return isinstance(item, HDF5Group)


def is_array(item: Any) -> bool:
    """Return whether something of a file is an array."""
    return isinstance(item, (hdf5_input.Dataset, hdf5_library.Dataset))


def members(group: Any, where: str) -> Iterator[tuple[str, Any]]:
    """Yield (name, object) of a group; links to anything but an object of this file are refused."""
    links = group.links()
    for name in sorted(links):
        yield name, _follow(group, name, links[name], where)


def member(group: Any, name: str, where: str) -> Any:
    """Return what is at the path `name` below a group, None if nothing is."""
    for part in name.split("/"):
        if not part or part in (".", "..") or not is_group(group):
            return None
        link = group.links().get(part)
        if link is None:
            return None
        group = _follow(group, part, link, where)
    return group


def _follow(group: Any, name: str, link: hdf5_input.Link, where: str) -> Any:
    if link.kind != "hard":
        raise ValueError(
            f"{where}: {_join(group, name)!r} is a link to another place ({link.kind}); only "
            "arrays inside the file itself are read."
        )
    return group.child(name, link.address)


def _join(group: Any, name: str) -> str:
    return f"{group.name.strip('/')}/{name}".strip("/")


def walk(root: HDF5Group, where: str) -> Iterator[tuple[str, Any]]:
    """Yield (path, object) of everything below a group, each group before its members.

    Raises:
        ValueError: it is nested without end, or two names lead to one group.
    """
    inside: list[tuple[int, str, Iterator[tuple[str, Any]]]] = []  # groups on the way down
    seen: set[int] = set()
    count = 0

    def enter(group: Any, path: str) -> None:
        if len(inside) > _DEEPEST or any(group.address == at for at, _, _ in inside):
            # A hard link may lead back up.
            raise ValueError(f"{where}: the groups at {path!r} are nested without end.")
        if group.address in seen:
            raise ValueError(f"{where}: a second name leads to the group {path!r}.")
        seen.add(group.address)
        inside.append((group.address, path, members(group, where)))

    with clear_errors(where):
        enter(root, "")
        while inside:
            _, path, rest = inside[-1]
            name, item = next(rest, ("", None))
            if item is None:
                inside.pop()
                continue
            count += 1
            if count > _MOST_OBJECTS:
                raise ValueError(f"{where}: more than {_MOST_OBJECTS} objects.")
            inner = f"{path}/{name}" if path else name
            yield inner, item
            if is_group(item):
                enter(item, inner)


def read_groups(root: HDF5Group, where: str) -> Groups:
    """Return all groups of variables or seeds below `root`, by path; no numbers are read yet."""
    results: Groups = {}
    with clear_errors(where):
        for path, item in walk(root, where):
            parent, _, name = path.rpartition("/")
            if is_group(item) and name in ("vars", SEEDS):
                results[path] = PartArrays(text_attribute(item, "name", where), {})
            elif is_array(item) and parent in results:
                results[parent].entries[name] = entry_of(item, path, where)
    return results


def entry_of(dataset: Any, path: str, where: str) -> Entry:
    """Return a dataset as an entry, its storage checked."""
    kind = text_attribute(dataset, "dtype", where)
    dtype = dataset.dtype
    if kind == "bfloat16" and dtype.kind == "V" and dtype.itemsize == 2:
        name = "bfloat16"
    elif dtype.kind in "biufc":
        name = dtype.name
    else:
        raise ValueError(f"{where}: {path!r} holds {dtype}, no numbers.")
    if dataset.shape is None:
        raise ValueError(f"{where}: {path!r} holds nothing, not even a number.")
    with clear_errors(where):
        _check_storage(dataset, path, where)
    shape = tuple(int(s) for s in dataset.shape)
    return Entry(path, shape, name, lambda: read_array(dataset, path, where, name))


def _check_storage(dataset: Any, path: str, where: str) -> None:
    if dataset.elsewhere:
        raise ValueError(
            f"{where}: {path!r} keeps its numbers in another file; only arrays inside the file "
            "itself are read."
        )
    declared, stored = math.prod(dataset.shape) * dataset.dtype.itemsize, dataset.stored()
    if not dataset.packed and declared > stored:
        raise ValueError(
            f"{where}: {path!r} says it has {declared} bytes, the file holds {stored} of them."
        )
    if declared > 1000 * max(stored, 4096):
        raise ValueError(
            f"{where}: {path!r} says it has {declared} bytes, made from {stored} in the file: "
            "refused, as this would fill the memory."
        )


def read_array(dataset: Any, path: str, where: str, dtype: str) -> Array:
    """Return a dataset's numbers, compared with their checksum if there is one."""
    with clear_errors(where):
        expected = dataset.attribute(CHECKSUM)
        array, result = dataset.read(summed=expected is not None)
        if expected is not None and result is None:
            result = checksum(array)
        wrong = expected is not None and int(expected) != result
    if wrong:
        raise ValueError(f"{where}: the array {path!r} is damaged (its checksum does not fit).")
    if dtype == "bfloat16":
        import ml_dtypes

        array = array.view(ml_dtypes.bfloat16)
    return array


def text_attribute(holder: Any, key: str, where: str) -> str | None:
    """Return an attribute that holds text, or None."""
    with clear_errors(where):
        value = holder.attribute(key)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None


def get_names(holder: Any, key: str, where: str) -> list[str] | None:
    """Return a list of names stored by `put_names`, or by Keras; None if there is none."""
    with clear_errors(where):
        whole = holder.attribute(key)
        if whole is not None:
            return [_text(x) for x in np.asarray(whole).reshape(-1)]
        names: list[str] = []
        part = 0
        while (some := holder.attribute(f"{key}{part}")) is not None:
            names.extend(_text(x) for x in np.asarray(some).reshape(-1))
            part += 1
    return names if part else None


def _text(x: str) -> str:
    return x.decode("utf-8", "replace") if isinstance(x, bytes) else str(x)
