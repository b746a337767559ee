"""Weights into HDF5 files, as plainly as Keras writes them, each array with a checksum."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from kerasish.saving.files.checksum import LARGE, checksum
from kerasish.saving.files.sink import Sink, open_raw
from kerasish.saving.hdf5.file import CHECKSUM


class Output:
    """A new HDF5 file, open for writing.

    Args:
        file: the file as h5py has it.
        sink: where its bytes go.
    """

    def __init__(self, file: Any, sink: Sink) -> None:
        self.file, self._sink = file, sink

    def put_array(self, group: Any, key: str, value: Any) -> None:
        """Store an array under `key` of a group, with its checksum."""
        array = np.asarray(value)
        if array.ndim:
            array = np.ascontiguousarray(array)
        kind = None
        if array.dtype.name == "bfloat16":
            array, kind = array.view("V2"), "bfloat16"
        made = group.create_dataset(key, data=array)
        if kind:
            made.attrs["dtype"] = kind
        made.attrs[CHECKSUM] = np.uint32(checksum(array, self._checksum_of(made, array)))

    def _checksum_of(self, dataset: Any, array: Any) -> int | None:
        """Large arrays are written at once, and their bytes were summed up on the way."""
        if array.nbytes < LARGE or dataset.id.get_offset() is None:
            return None
        return self._sink.checksum_at(dataset.id.get_offset(), array.nbytes)

    def put_groups(self, parts: Iterable[tuple[str, str | None, dict[str, Any]]]) -> None:
        """Write (path, name, arrays) of each part; arrays are asked for one part at a time."""
        for path, name, arrays in parts:
            group = self.file.require_group(path)
            if name is not None:
                group.attrs["name"] = name
            for key, value in arrays.items():
                self.put_array(group, key, value)


@contextmanager
def creating(path: str) -> Iterator[Output]:
    """Yield a new HDF5 file at `path`; what the disk refuses is raised when it is closed."""
    with open_raw(path) as raw, creating_in(Sink(raw)) as output:
        yield output


@contextmanager
def creating_in(sink: Sink) -> Iterator[Output]:
    """Yield a new HDF5 file in a part of an open file."""
    import h5py

    with h5py.File(sink, "w") as file:
        yield Output(file, sink)
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

        made = np.array(names, dtype=object)
        holder.attrs.create(key, made, dtype=h5py.string_dtype("utf-8"))
        return
    count = -(-size // 64512)
    for i, part in enumerate(np.array_split(np.array(texts), count)):
        holder.attrs[f"{key}{i}"] = part
