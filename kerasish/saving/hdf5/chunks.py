"""Arrays that an HDF5 file keeps in chunks, compressed or not."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

_DEFLATE, _SHUFFLE, _FLETCHER = 1, 2, 3
_MOST_CHUNKS = 1_000_000


def read_chunks(
    file: Any, layout: bytes, shape: tuple[int, ...], dtype: Any, filters: bytes | None
) -> Any:
    """Return the array.

    Args:
        file: the file's bytes, `at(start, length)`.
        layout: the message that says where the chunks are.
        shape: the array's shape.
        dtype: the array's dtype.
        filters: the message that says what was done to the chunks.
    """
    rank = layout[2] - 1
    address = int.from_bytes(layout[3:11], "little")
    *chunk, size = struct.unpack_from(f"<{rank + 1}I", layout, 11)
    if rank != len(shape) or not rank or size != dtype.itemsize or 0 in chunk:
        raise ValueError("the chunks of an array are described wrongly")
    nbytes = int(np.prod(chunk, dtype=object)) * size
    steps = _filters(filters) if filters else []
    array = np.zeros(shape, dtype)
    if address == 2**64 - 1:
        return array
    for offset, mask, data in _chunks(file, address, rank, 255, set()):
        kept = [step for i, step in enumerate(steps) if not mask >> i & 1]
        data = _undo(data, kept, size, nbytes)
        if len(data) != nbytes or any(o >= s or o % c for o, s, c in zip(offset, shape, chunk)):
            raise ValueError("a chunk of an array is damaged")
        place = tuple(slice(o, o + c) for o, c in zip(offset, chunk))
        part = array[place]
        part[...] = np.frombuffer(data, dtype).reshape(chunk)[tuple(map(slice, part.shape))]
    return array


def _chunks(
    file: Any, address: int, rank: int, above: int, seen: set[int]
) -> Iterator[tuple[tuple[int, ...], int, bytes]]:
    """Yield (offset, mask of filters left out, bytes) of each chunk."""
    if address in seen or len(seen) > _MOST_CHUNKS:
        raise ValueError("the chunks of an array lead in a circle")
    seen.add(address)
    head = file.at(address, 24)
    kind, level, used = struct.unpack_from("<4xBBH", head)
    if head[:4] != b"TREE" or kind != 1 or level >= above:
        raise ValueError("the tree of an array's chunks is damaged")
    width = 8 + 8 * (rank + 1)
    body = file.at(address + 24, (width + 8) * used)
    for i in range(used):
        at = (width + 8) * i
        size, mask, *offset = struct.unpack_from(f"<II{rank + 1}Q", body, at)
        below = int.from_bytes(body[at + width : at + width + 8], "little")
        if level:
            yield from _chunks(file, below, rank, level, seen)
        elif below in seen:
            raise ValueError("two chunks of an array are in one place")
        else:
            seen.add(below)
            yield tuple(offset[:rank]), mask, file.at(below, size)


def _filters(data: bytes) -> list[int]:
    """Return the numbers of the filters, in the order of writing."""
    version, count = data[0], data[1]
    at, result = (8 if version == 1 else 2), []
    for _ in range(count):
        number = int.from_bytes(data[at : at + 2], "little")
        if version == 1 or number >= 256:
            name, _, values = struct.unpack_from("<HHH", data, at + 2)
            at += 8 + (-(-name // 8) * 8 if version == 1 else name)
        else:
            values = int.from_bytes(data[at + 4 : at + 6], "little")
            at += 6
        at += 4 * (values + (values & 1 if version == 1 else 0))
        if number not in (_DEFLATE, _SHUFFLE, _FLETCHER):
            raise ValueError(f"an array is packed by filter {number}, which is not read")
        result.append(number)
    return result


def _undo(data: bytes, steps: list[int], size: int, nbytes: int) -> bytes:
    """Return a chunk as it was before the filters, at most `nbytes` long."""
    for step in reversed(steps):
        if step == _DEFLATE:
            unpack = zlib.decompressobj()
            try:
                data = unpack.decompress(data, nbytes + 8)
            except zlib.error as error:
                raise ValueError(f"a chunk of an array is damaged ({error})") from error
        elif step == _SHUFFLE:
            whole = len(data) // size * size
            turned = np.frombuffer(data[:whole], "uint8").reshape(size, -1).T
            data = turned.tobytes() + data[whole:]
        else:
            data = data[:-4]  # its own checksum; ours covers the array
    return data
