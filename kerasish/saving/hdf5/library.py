"""HDF5 files of newer layouts (superblock 2 and 3), read through the HDF5 library.

Such files keep checksums over their descriptions, so that chance damage is seen before it is
followed. Objects here have the form of those in `reader`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from kerasish.saving.hdf5.reader import Link, Linking

_MOST = 1_000_000


@contextmanager
def opened(raw: Any) -> Iterator[Group]:
    """Yield the root of an open binary file."""
    import h5py

    with h5py.File(raw, "r") as file:
        yield Group(file)


class Group(Linking):
    """A group: names that lead to groups and arrays."""

    def __init__(self, item: Any) -> None:
        import h5py

        self._item, self.name = item, item.name
        self.address = h5py.h5o.get_info(item.id).addr

    def _read_links(self) -> dict[str, Link]:
        import h5py

        kinds = {h5py.HardLink: "hard", h5py.SoftLink: "soft", h5py.ExternalLink: "external"}
        every = {name: self._item.get(name, getlink=True) for name in self._item}
        return {name: Link(kinds.get(type(link), "unknown"), 0) for name, link in every.items()}

    def child(self, name: str, address: int) -> Any:
        """Return what a name leads to."""
        import h5py

        result = self._item[name]
        if isinstance(result, h5py.Group):
            return Group(result)
        if isinstance(result, h5py.Dataset):
            return Dataset(result)
        raise ValueError(f"{result.name!r} is neither a group nor an array")

    def attribute(self, key: str) -> Any:
        """Return an attribute: a text, a number or an array; None if none is so."""
        return _attribute(self._item, key)


class Dataset:
    """An array: its shape and dtype are known, its numbers are read when asked for."""

    def __init__(self, item: Any) -> None:
        self._item, self.name = item, item.name
        self.shape, self.dtype = item.shape, item.dtype
        self.elsewhere = item.external is not None or item.is_virtual
        self.packed = item.chunks is not None

    def stored(self) -> int:
        """Return how many bytes the file has for the numbers."""
        return int(self._item.id.get_storage_size())

    def read(self, summed: bool = False) -> tuple[Any, int | None]:
        """Return the numbers; no checksum is available here."""
        return np.asarray(self._item[()]), None

    def attribute(self, key: str) -> Any:
        """Return an attribute: a text, a number or an array; None if none is so."""
        return _attribute(self._item, key)


def _attribute(item: Any, key: str) -> Any:
    """Other types than texts and numbers are refused unread: the library crashes on some."""
    import h5py

    if key not in item.attrs:
        return None
    held = item.attrs.get_id(key)
    plain = (h5py.h5t.TypeStringID, h5py.h5t.TypeIntegerID, h5py.h5t.TypeFloatID)
    if not isinstance(held.get_type(), plain) or math.prod(held.shape) > _MOST:
        raise ValueError(f"the attribute {key!r} of {item.name!r} is damaged")
    return item.attrs[key]
