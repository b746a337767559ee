"""Weights in HDF5 files, read with distrust.

Only plain datasets inside the file itself are read: links to other places, data stored elsewhere
and declared sizes that the file cannot hold are refused, before memory is taken.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from kerasish.saving.checksum import checksum
from kerasish.saving.source import Entry, Group, Groups

CHECKSUM = "crc32"  # attribute of a dataset: CRC-32 of its dtype, shape and bytes
_DEEPEST = 64
_MOST_OBJECTS = 1_000_000


@contextmanager
def opened(path: Any, where: str) -> Iterator[Any]:
    """Yield an HDF5 file for reading; whatever the library dislikes becomes a ValueError.

    Args:
        path: the file's path, or an open binary file.
        where: what messages call it.
    """
    import h5py

    if isinstance(path, (str, os.PathLike)) and not os.path.exists(path):
        raise FileNotFoundError(f"There is no file {where!r}.")
    try:
        file = h5py.File(path, "r")
    except PermissionError as error:
        raise PermissionError(f"{where}: no permission to read the file.") from error
    except Exception as error:
        raise ValueError(f"{where}: not a whole HDF5 file ({error}).") from error
    with file:
        yield file


@contextmanager
def clear_errors(where: str) -> Iterator[None]:
    """Turn what the HDF5 library raises for broken files into a ValueError that names the file."""
    try:
        yield
    except (ValueError, OSError) as error:
        if where in str(error):
            raise
        raise ValueError(f"{where}: the HDF5 file is damaged ({error}).") from error
    except (KeyError, RuntimeError, TypeError, IndexError, AttributeError, SystemError) as error:
        raise ValueError(f"{where}: the HDF5 file is damaged ({error}).") from error
    except MemoryError as error:
        raise ValueError(f"{where}: the HDF5 file asks for too much memory.") from error


def members(group: Any, where: str) -> Iterator[tuple[str, Any]]:
    """Yield (name, object) of a group; links to anything but an object of this file are refused."""
    import h5py

    for name in group:
        link = group.get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            raise ValueError(
                f"{where}: {_join(group, name)!r} is a link to another place "
                f"({type(link).__name__}); only arrays inside the file itself are read."
            )
        yield name, group[name]


def _join(group: Any, name: str) -> str:
    return f"{group.name.strip('/')}/{name}".strip("/")


def read_groups(root: Any, where: str) -> Groups:
    """Return all groups called "vars" below `root`, by path; no numbers are read yet."""
    import h5py

    found: Groups = {}
    inside: set[int] = set()  # groups on the way down: a hard link may lead back up
    count = 0

    def visit(group: Any, path: str, depth: int) -> None:
        nonlocal count
        address = h5py.h5o.get_info(group.id).addr
        if depth > _DEEPEST or address in inside:
            raise ValueError(f"{where}: the groups at {path!r} are nested without end.")
        inside.add(address)
        entries: dict[str, Entry] = {}
        is_vars = path == "vars" or path.endswith("/vars")
        for name, item in members(group, where):
            count += 1
            if count > _MOST_OBJECTS:
                raise ValueError(f"{where}: more than {_MOST_OBJECTS} objects.")
            inner = f"{path}/{name}" if path else name
            if isinstance(item, h5py.Group):
                visit(item, inner, depth + 1)
            elif isinstance(item, h5py.Dataset) and is_vars:
                entries[name] = entry_of(item, inner, where)
        if is_vars:
            found[path] = Group(text_attribute(group, "name", where), entries)
        inside.discard(address)

    with clear_errors(where):
        visit(root, "", 0)
    return found


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
    _check_storage(dataset, path, where)
    shape = tuple(int(s) for s in dataset.shape)
    return Entry(path, shape, name, lambda: read_array(dataset, path, where, name))


def _check_storage(dataset: Any, path: str, where: str) -> None:
    if dataset.external is not None or dataset.is_virtual:
        raise ValueError(
            f"{where}: {path!r} keeps its numbers in another file; only arrays inside the file "
            "itself are read."
        )
    declared, stored = dataset.size * dataset.dtype.itemsize, dataset.id.get_storage_size()
    if dataset.compression is None and dataset.chunks is None and declared > max(stored, 4096):
        raise ValueError(
            f"{where}: {path!r} says it has {declared} bytes, the file holds {stored} of them."
        )
    if declared > 1000 * max(stored, 4096):
        raise ValueError(
            f"{where}: {path!r} says it has {declared} bytes, made from {stored} in the file: "
            "refused, as this would fill the memory."
        )


def read_array(dataset: Any, path: str, where: str, dtype: str) -> Any:
    """Return a dataset's numbers, compared with their checksum if there is one."""
    with clear_errors(where):
        array = dataset[()]
        wanted = attribute(dataset, CHECKSUM, where)
    array = np.asarray(array)
    if wanted is not None and int(wanted) != checksum(array):
        raise ValueError(f"{where}: the array {path!r} is damaged (its checksum does not fit).")
    if dtype == "bfloat16":
        import ml_dtypes

        array = array.view(ml_dtypes.bfloat16)
    return array


def text_attribute(holder: Any, key: str, where: str) -> str | None:
    """Return an attribute that holds text, or None."""
    with clear_errors(where):
        value = attribute(holder, key, where)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None


def get_names(holder: Any, key: str, where: str) -> list[str] | None:
    """Return a list of names stored by `put_names`, or by Keras; None if there is none."""
    with clear_errors(where):
        whole = attribute(holder, key, where)
        if whole is not None:
            return [_text(x) for x in np.asarray(whole).reshape(-1)]
        names: list[str] = []
        part = 0
        while (some := attribute(holder, f"{key}{part}", where)) is not None:
            names.extend(_text(x) for x in np.asarray(some).reshape(-1))
            part += 1
    return names if part else None


def attribute(holder: Any, key: str, where: str) -> Any:
    """Return an attribute that holds text or numbers, None if there is none.

    Other types are refused unread: the library itself crashes on some that are damaged.
    """
    import h5py

    if key not in holder.attrs:
        return None
    found = holder.attrs.get_id(key)
    plain = (h5py.h5t.TypeStringID, h5py.h5t.TypeIntegerID, h5py.h5t.TypeFloatID)
    if not isinstance(found.get_type(), plain) or math.prod(found.shape) > _MOST_OBJECTS:
        raise ValueError(f"{where}: the attribute {key!r} of {holder.name!r} is damaged.")
    return holder.attrs[key]


def _text(x: Any) -> str:
    return x.decode("utf-8", "replace") if isinstance(x, bytes) else str(x)
