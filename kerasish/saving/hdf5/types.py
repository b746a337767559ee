"""HDF5's descriptions of types and shapes, read into NumPy's words."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np

_LARGEST_RANK = 32


class Text(NamedTuple):
    """Texts of any length, kept in a heap of the file."""

    size: int = 16


def shape_of(data: bytes) -> tuple[int, ...] | None:
    """Return the shape that a dataspace message describes; None: there are no numbers at all."""
    version, rank, flags, kind = data[0], data[1], data[2], data[3]
    if version not in (1, 2) or rank > _LARGEST_RANK or flags > 3:
        raise ValueError("a shape is described in an unknown way")
    if version == 2 and kind == 2:
        return None
    return struct.unpack_from(f"<{rank}Q", data, 8 if version == 1 else 4)


def dtype_of(data: bytes) -> Any:
    """Return the dtype that a datatype message describes, or `Text`.

    Raises:
        ValueError: the description is damaged, or of something that is no number and no text.
    """
    if len(data) < 8:
        raise ValueError("a type's description is cut off")
    kind, bits, size = data[0] & 15, data[1], int.from_bytes(data[4:8], "little")
    if data[0] >> 4 not in (1, 2, 3) or not 0 < size <= 2**16:
        raise ValueError("a type is described in an unknown way")
    if kind in _BYTES:
        return np.dtype(f"{_BYTES[kind]}{size}")
    if kind not in _READERS:
        raise ValueError(f"{_NAMES.get(kind, f'type {kind}')}: no numbers")
    return _READERS[kind](bits, size, data)


def _integer(bits: int, size: int, data: bytes) -> np.dtype[Any]:
    offset, precision = struct.unpack_from("<HH", data, 8)
    if size not in (1, 2, 4, 8) or offset or precision != 8 * size or bits & ~0b1001:
        raise ValueError("a kind of integers that NumPy has not")
    return np.dtype(f"{'>' if bits & 1 else '<'}{'i' if bits & 8 else 'u'}{size}")


# Size, and then: bit offset, precision, place and size of exponent and of mantissa, bias.
_FLOATS = {
    2: (0, 16, 10, 5, 0, 10, 15),
    4: (0, 32, 23, 8, 0, 23, 127),
    8: (0, 64, 52, 11, 0, 52, 1023),
}


def _float(bits: int, size: int, data: bytes) -> np.dtype[Any]:
    if size not in _FLOATS or struct.unpack_from("<HHBBBBI", data, 8) != _FLOATS[size]:
        raise ValueError("a kind of floating-point numbers that NumPy has not")
    if bits & 0b01000000:
        raise ValueError("floating-point numbers of VAX byte order")
    return np.dtype(f"{'>' if bits & 1 else '<'}f{size}")


def _enumeration(bits: int, size: int, data: bytes) -> Any:
    """Booleans are an enumeration of FALSE and TRUE; others are refused."""
    base = dtype_of(data[8:])
    names = [data.find(name) for name in (b"FALSE\0", b"TRUE\0")]
    if base.itemsize != 1 or bits != 2 or -1 in names:
        raise ValueError("an enumeration: no numbers")
    return np.dtype(bool)


def _compound(bits: int, size: int, data: bytes) -> Any:
    """Complex numbers are pairs called r and i; others are refused."""
    length = 8 if data[0] >> 4 < 3 else 2  # names are padded in the older versions
    if bits != 2 or size not in (8, 16) or data[8 : 8 + length] != b"r".ljust(length, b"\0"):
        raise ValueError("a compound: no numbers")
    part = data.find(struct.pack("<I", size // 2), 8 + length + 4)
    if part < 4 or dtype_of(data[part - 4 :]) != np.dtype(f"<f{size // 2}"):
        raise ValueError("a compound: no numbers")
    return np.dtype(f"<c{size}")


def _variable(bits: int, size: int, data: bytes) -> Text:
    if bits & 15 != 1 or size != 16:
        raise ValueError("sequences of any length: no numbers")
    return Text()


_BYTES = {3: "S", 5: "V"}
_READERS = {0: _integer, 1: _float, 6: _compound, 8: _enumeration, 9: _variable}
_NAMES = {2: "times", 4: "bit fields", 7: "references", 10: "arrays as elements"}
