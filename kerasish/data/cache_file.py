"""Files of elements: written one after the other, read by number, mapped into memory.

Layout: 8 bytes of magic; the bytes of the elements; the offset of each, int64; a footer in JSON
(kinds of arrays, structure, which pipeline wrote it); the length of the footer, int64; the magic.
Nothing in a file is executed.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from kerasish import tree
from kerasish.ops import dtypes
from kerasish.saving.files.atomic import replacing
from kerasish.typing import Array, Structure

_MAGIC = b"KERCACH1"
_ALIGN = 16


class CacheWriter:
    """Writes elements to a file that appears when it is complete.

    Args:
        path: the file.
        pipeline: the description of what the elements are made by.
    """

    def __init__(self, path: str, pipeline: str) -> None:
        self._path, self._pipeline = path, pipeline
        self._partial = f"{path}.{os.getpid()}-{id(self)}.partial"
        self._file: Any = open(self._partial, "wb")  # noqa: SIM115 (closed by `finish` or `drop`)
        self._file.write(_MAGIC)
        self._at = len(_MAGIC)
        self._offsets: list[int] = []
        self._kinds: dict[tuple[Any, ...], int] = {}
        self._template: Any = None

    def write(self, element: Structure) -> None:
        """Append an element."""
        template = _template(element)
        if self._template is None:
            self._template = template
        elif template != self._template:
            raise ValueError(
                f"cache({self._path!r}): element {len(self._offsets)} is built differently from "
                "the first one; elements in a file have one structure."
            )
        self._offsets.append(self._at)
        for leaf in tree.flatten(element):
            kind, data = _encoded(leaf)
            number = self._kinds.setdefault(kind, len(self._kinds))
            self._put(struct.pack("<qq", number, len(data)))
            self._put(data)
            self._put(b"\0" * (-self._at % _ALIGN))

    def _put(self, data: bytes) -> None:
        self._file.write(data)
        self._at += len(data)

    def finish(self) -> None:
        """Complete the file, which takes its place."""
        footer = json.dumps({
            "offsets": self._at, "count": len(self._offsets), "template": self._template,
            "kinds": [[*kind] for kind in self._kinds], "pipeline": self._pipeline,
        }).encode()  # fmt: skip
        self._file.write(np.asarray(self._offsets, "<i8").tobytes())
        self._file.write(footer + struct.pack("<q", len(footer)) + _MAGIC)
        self._file.close()
        self._file = None
        with replacing(self._path) as new:
            os.replace(self._partial, new)

    def drop(self) -> None:
        """Remove what was written, if the file was not completed."""
        if self._file is not None:
            self._file.close()
            self._file = None
            os.remove(self._partial)


class CacheReader:
    """The elements of a complete file, by number; arrays are views of the file.

    Args:
        path: the file.
        pipeline: what it should have been written by.

    Raises:
        ValueError: the file is damaged, or another pipeline has written it.
    """

    def __init__(self, path: str, pipeline: str) -> None:
        self._path = path
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < 24:
                raise self._damaged("it is too short")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if self._map[:8] != _MAGIC or self._map[-8:] != _MAGIC:
            raise self._damaged("it does not begin and end as such a file does")
        (length,) = struct.unpack("<q", self._map[size - 16 : size - 8])
        if not 0 <= length <= size - 24:
            raise self._damaged("the length of its footer is wrong")
        try:
            footer = json.loads(self._map[size - 16 - length : size - 16])
            self.count, offsets = int(footer["count"]), int(footer["offsets"])
            self._offsets = np.frombuffer(self._map, "<i8", self.count, offsets)
            self._template = footer["template"]
            self._kinds = [tuple(kind) for kind in footer["kinds"]]
            written_by = footer["pipeline"]
        except (ValueError, KeyError, TypeError) as error:
            raise self._damaged(str(error)) from error
        if written_by != pipeline:
            raise ValueError(
                f"cache({path!r}): the file holds the elements of another pipeline:\n"
                f"  {written_by} in the file,\n  {pipeline} now.\n"
                "Delete the file, or name another one."
            )

    def _damaged(self, why: str) -> ValueError:
        return ValueError(
            f"cache({self._path!r}): no complete file of cached elements ({why}). Delete it."
        )

    def read(self, number: int) -> Any:
        """Return an element."""
        at = int(self._offsets[number])
        leaves: list[Any] = []

        def leaf() -> Any:
            nonlocal at
            kind, length = struct.unpack_from("<qq", self._map, at)
            value = _decoded(self._kinds[kind], self._map, at + 16, length)
            at += 16 + length
            at += -at % _ALIGN
            return value

        try:
            for _ in range(_leaf_count(self._template)):
                leaves.append(leaf())
        except (struct.error, ValueError, IndexError) as error:
            raise self._damaged(f"element {number}: {error}") from error
        return _filled(self._template, iter(leaves))


def _template(element: Structure) -> Any:
    if isinstance(element, Mapping):
        return {"d": {str(key): _template(part) for key, part in sorted(element.items())}}
    if isinstance(element, tuple):
        return {"t": [_template(part) for part in element]}
    return 0


def _leaf_count(template: Any) -> int:
    if template == 0:
        return 1
    parts = template["d"].values() if "d" in template else template["t"]
    return sum(map(_leaf_count, parts))


def _filled(template: Any, leaves: Any) -> Any:
    if template == 0:
        return next(leaves)
    if "d" in template:
        return {key: _filled(part, leaves) for key, part in template["d"].items()}
    return tuple([_filled(part, leaves) for part in template["t"]])


def _encoded(leaf: Any) -> tuple[tuple[Any, ...], bytes]:
    if isinstance(leaf, str):
        return ("str",), leaf.encode("utf-8", "surrogatepass")
    if isinstance(leaf, bytes):
        return ("bytes",), leaf
    array = np.asarray(leaf)
    scalar = not isinstance(leaf, np.ndarray)
    if array.dtype.kind == "O":
        values = array.ravel().tolist()
        if not all(isinstance(v, (str, bytes)) for v in values):
            raise ValueError("cache: expected numbers or strings, got an array of other objects.")
        coded = [["b", v.decode("latin-1")] if isinstance(v, bytes) else v for v in values]
        return ("texts", *array.shape), json.dumps(coded).encode()
    name = array.dtype.name if array.dtype.kind == "V" else array.dtype.str
    return ("array", name, scalar, *array.shape), np.ascontiguousarray(array).tobytes()


def _decoded(kind: tuple[Any, ...], data: mmap.mmap, at: int, length: int) -> Any:
    if kind[0] == "str":
        return data[at : at + length].decode("utf-8", "surrogatepass")
    if kind[0] == "bytes":
        return data[at : at + length]
    if kind[0] == "texts":
        values = json.loads(data[at : at + length])
        array = np.empty(len(values), object)
        array[:] = [v[1].encode("latin-1") if isinstance(v, list) else v for v in values]
        return array.reshape(kind[1:])
    dtype: Any = _dtype(kind[1])
    shape = kind[3:]
    array = np.frombuffer(data, dtype, length // max(dtype.itemsize, 1), at).reshape(shape)
    return array[()] if kind[2] else array


def _dtype(name: str) -> Array:
    return np.dtype(name if name[0] in "<>|=" else dtypes.array_dtype(name))
