"""Weights into HDF5 files, as plainly as Keras writes them, each array with a checksum."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from kerasish.saving.files.checksum import Digest, bytes_of, described
from kerasish.saving.files.sink import Sink, open_raw
from kerasish.saving.hdf5.file import CHECKSUM
from kerasish.typing import Array


class NewFile:
    """A new HDF5 file, open for writing.

    Args:
        file: the file as h5py has it.
    """

    def __init__(self, file: Any) -> None:
        self.file = file

    def put_array(self, group: Any, key: str, value: Array) -> None:
        """Store an array under `key` of a group, with its checksum."""
        array = np.asarray(value)
        if array.ndim:
            array = np.ascontiguousarray(array)
        kind = None
        if array.dtype.name == "bfloat16":
            array, kind = array.view("V2"), "bfloat16"
        with Digest(described(array)) as digest:
            if array.nbytes:
                digest.add(bytes_of(array))
            result = group.create_dataset(key, data=array)
        if kind:
            result.attrs["dtype"] = kind
        result.attrs[CHECKSUM] = np.uint32(digest.result())

    def put_groups(self, parts: Iterable[tuple[str, str | None, dict[str, Any]]]) -> None:
        """Write (path, name, arrays) of each part; arrays are asked for one part at a time."""
        for path, name, arrays in parts:
            group = self.file.require_group(path)
            if name is not None:
                group.attrs["name"] = name
            for key, value in arrays.items():
                self.put_array(group, key, value)


@contextmanager
def creating(path: str) -> Iterator[NewFile]:
    """Yield a new HDF5 file at `path`; what the disk refuses is raised when it is closed."""
    with open_raw(path) as raw, creating_in(raw) as output:
        yield output


@contextmanager
def creating_in(raw: Any, start: int = 0) -> Iterator[NewFile]:
    """Yield a new HDF5 file at `start` of an open, unbuffered file; its end raises errors."""
    import h5py

    sink = Sink(raw, start)
    with h5py.File(sink, "w") as file:
        yield NewFile(file)
    sink.check()


def put_names(holder: Any, key: str, names: list[str]) -> None:
    """Store a list of names as an attribute, in pieces where HDF5 allows no longer ones."""
    texts = [n.encode("utf-8") for n in names]
    if not texts:
        holder.attrs[key] = np.zeros((0,))
        return
    size = max(map(len, texts)) * len(texts)
    if size <= 64512:
        import h5py

        result = np.array(names, dtype=object)
        holder.attrs.create(key, result, dtype=h5py.string_dtype("utf-8"))
        return
    count = -(-size // 64512)
    for i, part in enumerate(np.array_split(np.array(texts), count)):
        holder.attrs[f"{key}{i}"] = part
