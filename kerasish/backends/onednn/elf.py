"""Loads a shared library under another name (its SONAME), without writing a file.

Wheels contain copies of common libraries under names with a hash, to avoid conflicts with other
copies. A library that needs "libgomp.so.1" does not recognize "libgomp-e985bcbb.so.1.0.0" as such.
The copy in memory that is created here has the expected name.

Source: System V ABI, ELF-64 object file format: program header, dynamic section.
"""

from __future__ import annotations

import ctypes
import os
import struct

_LOAD, _DYNAMIC = 1, 2  # p_type
_STRING_TABLE, _SONAME = 5, 14  # d_tag


def load_renamed(path: str, name: str) -> ctypes.CDLL:
    """Load the library at `path` as if its name were `name`.

    Raises:
        ValueError: not a little-endian ELF-64 library, or its own name is shorter than `name`.
        OSError: it cannot be read or loaded.
    """
    with open(path, "rb") as file:
        image = bytearray(file.read())
    start, limit = _soname(image)
    if len(name) > limit:
        raise ValueError(f"{path}: its name has {limit} letters, {name!r} is longer.")
    image[start : start + limit] = name.encode().ljust(limit, b"\0")
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(image)
        return ctypes.CDLL(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _soname(image: bytearray) -> tuple[int, int]:
    """Return offset and length of the library's own name in the file."""
    if image[:6] != b"\x7fELF\x02\x01":
        raise ValueError("expected a little-endian ELF-64 library.")
    try:
        segments = _segments(image)
        dynamic = dict(_dynamic(image, segments))
        start = _file_offset(segments, dynamic[_STRING_TABLE]) + dynamic[_SONAME]
        return start, image.index(b"\0", start) - start
    except (struct.error, KeyError, StopIteration) as error:
        raise ValueError(f"a damaged ELF library: {error!r}.") from error


def _segments(image: bytearray) -> list[tuple[int, int, int, int]]:
    """Return (type, offset, address, bytes in file) of each program header."""
    (table,) = struct.unpack_from("<Q", image, 32)
    size, count = struct.unpack_from("<HH", image, 54)
    results = []
    for index in range(count):
        kind, _, offset, address, _, length = struct.unpack_from(
            "<IIQQQQ", image, table + index * size
        )
        results.append((kind, offset, address, length))
    return results


def _dynamic(image: bytearray, segments: list[tuple[int, int, int, int]]) -> list[tuple[int, int]]:
    _, offset, _, length = next(segment for segment in segments if segment[0] == _DYNAMIC)
    entries = [struct.unpack_from("<qQ", image, offset + at) for at in range(0, length, 16)]
    return [(tag, value) for tag, value in entries if tag in (_STRING_TABLE, _SONAME)]


def _file_offset(segments: list[tuple[int, int, int, int]], address: int) -> int:
    for kind, offset, start, length in segments:
        if kind == _LOAD and start <= address < start + length:
            return offset + address - start
    raise KeyError(address)
