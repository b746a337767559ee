"""A reader of HDF5 files in the layout that Keras and h5py write, in pure Python.

The HDF5 library crashes on some damaged files and runs forever on others. Here each address,
size and count is checked before it is followed, nothing is visited twice, and only what is
inside the file is read. Newer layouts (superblock 2 and 3) keep checksums over their
descriptions; they go to the library, by `library`.

Source: HDF5 File Format Specification, version 3.0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kerasish.saving.files.checksum import described, fill
from kerasish.saving.hdf5.chunks import read_chunks
from kerasish.saving.hdf5.types import Text, dtype_of, shape_of

if TYPE_CHECKING:
    from kerasish.saving.formats.archive import Window

SIGNATURE = b"\x89HDF\r\n\x1a\n"
_NOWHERE = 2**64 - 1
_MOST = 1_000_000  # messages, links or texts in one place

_SPACE, _LINK_INFO, _TYPE, _LINK, _EXTERNAL, _LAYOUT = 0x1, 0x2, 0x3, 0x6, 0x7, 0x8
_FILTERS, _ATTRIBUTE, _MORE, _TABLE, _ATTRIBUTE_INFO = 0xB, 0xC, 0x10, 0x11, 0x15


class NewerLayout(Exception):  # noqa: N818 (no error: another reader takes over)
    """The file is laid out in a way that the library has to read."""


class Link(NamedTuple):
    """Where a name of a group leads: an address of this file, or another kind of link."""

    kind: str  # "hard", "soft", "external" or "unknown"
    address: int


class Linking:
    """What groups share: their links are read once."""

    _known: dict[str, Link] | None = None

    def links(self) -> dict[str, Link]:
        """Return where each name leads."""
        if self._known is None:
            self._known = self._read_links()
        return self._known

    def _read_links(self) -> dict[str, Link]:
        """Read where each name leads."""
        raise NotImplementedError(f"{type(self).__name__} does not say how links are read.")


class Bytes:
    """The bytes of a file, handed out only where there are any."""

    def __init__(self, raw: Window) -> None:
        self._raw = raw
        self.size = int(raw.seek(0, 2))
        self._texts: dict[int, dict[int, bytes]] = {}

    def at(self, start: int, length: int) -> bytes:
        """Return `length` bytes from `start` on."""
        self.check(start, length)
        self._raw.seek(start)
        result: bytes = self._raw.read(length)
        if len(result) != length:
            raise ValueError("the file is cut off")
        return result

    def check(self, start: int, length: int) -> None:
        """Raise an error if the file has no such bytes."""
        if start < 0 or length < 0 or start + length > self.size:
            raise ValueError(f"bytes {start} to {start + length} of {self.size} are needed")

    def fill(self, array: Any, start: int, summed: bool) -> int:
        """Read the bytes from `start` on into an array; return its checksum if it is requested."""
        self.check(start, array.nbytes)
        self._raw.seek(start)
        try:
            return fill(array, self._raw.readinto, described(array) if summed else None)
        except EOFError as error:
            raise ValueError("the file is cut off") from error

    def text(self, data: bytes) -> bytes:
        """Return the text that an element of variable length points to."""
        length, address, index = struct.unpack("<IQI", data)
        if not length:
            return b""
        if address not in self._texts:
            self._texts[address] = dict(self._heap(address))
        result = self._texts[address].get(index)
        if result is None or len(result) < length:
            raise ValueError("a text is not where it should be")
        return result[:length].rstrip(b"\0")

    def _heap(self, address: int) -> Iterator[tuple[int, bytes]]:
        head = self.at(address, 16)
        size = int.from_bytes(head[8:], "little")
        if head[:5] != b"GCOL\x01":
            raise ValueError("a heap of texts is damaged")
        data = self.at(address, size)
        at = 16
        while at + 16 <= size:
            index, _, length = struct.unpack_from("<HHxxxxQ", data, at)
            if not index:
                return  # the rest is free
            if at + 16 + length > size:
                raise ValueError("a heap of texts is damaged")
            yield index, data[at + 16 : at + 16 + length]
            at += 16 + -(-length // 8) * 8


class Hdf5Object:
    """A group or an array of a file.

    Args:
        file: the file's bytes.
        address: where its description begins.
        name: its path.
    """

    def __init__(self, file: Bytes, address: int, name: str, messages: Any) -> None:
        self.file, self.address, self.name = file, address, name
        self._messages: list[tuple[int, int, bytes]] = messages

    def _find(self, kind: int) -> bytes | None:
        results = [(flags, data) for k, flags, data in self._messages if k == kind]
        if len(results) > 1:
            raise ValueError(f"{self.name!r} is described twice")
        if results and results[0][0] & 2:
            raise ValueError(f"{self.name!r} shares its description with another object")
        return results[0][1] if results else None

    def attribute(self, key: str) -> Any:
        """Return an attribute: a text (str or bytes), a number or an array; None if none is so.

        Raises:
            ValueError: it is damaged, or holds anything else.
        """
        for kind, flags, data in self._messages:
            if kind == _ATTRIBUTE_INFO and data[2 + 2 * (data[1] & 1) :][:8] != b"\xff" * 8:
                raise ValueError(f"{self.name!r} has more attributes than are read")
            if kind == _ATTRIBUTE and not flags & 2 and _attribute_name(data)[0] == key:
                try:
                    return self._value(data)
                except ValueError as error:
                    text = f"the attribute {key!r} of {self.name!r} is damaged ({error})"
                    raise ValueError(text) from error
        return None

    def _value(self, data: bytes) -> Any:
        _, at, sizes, padded = _attribute_name(data)
        parts = []
        for size in sizes:
            parts.append(data[at : at + size])
            at += -(-size // 8) * 8 if padded else size
        dtype, shape = dtype_of(parts[0]), shape_of(parts[1])
        if shape is None:
            return np.zeros(0)
        count = int(np.prod(shape, dtype=object)) if shape else 1
        size = dtype.size if isinstance(dtype, Text) else dtype.itemsize
        if count > _MOST or at + count * size > len(data):
            raise ValueError("it is longer than its place")
        if isinstance(dtype, Text):
            places = range(at, at + count * size, size)
            texts = [self.file.text(data[i : i + size]).decode("utf-8", "replace") for i in places]
            return texts[0] if not shape else np.array(texts, dtype=object).reshape(shape)
        result = np.frombuffer(data, dtype, count, at).reshape(shape)
        return result if shape else result[()]


def _attribute_name(data: bytes) -> tuple[str, int, tuple[int, int], bool]:
    """(name, where the type begins, sizes of type and space, whether fields are padded)."""
    version, flags, name_size, *sizes = struct.unpack_from("<BBHHH", data)
    if version not in (1, 2, 3) or (version > 1 and flags):
        raise ValueError("an attribute is described in an unknown way")
    start = 9 if version == 3 else 8
    padded = version == 1
    name = data[start : start + name_size].split(b"\0")[0].decode("utf-8", "replace")
    at = start + (-(-name_size // 8) * 8 if padded else name_size)
    return name, at, (sizes[0], sizes[1]), padded


class Group(Linking, Hdf5Object):
    """A group: names that lead to groups and arrays."""

    def _read_links(self) -> dict[str, Link]:
        results: dict[str, Link] = {}
        table = self._find(_TABLE)
        if table is not None:
            tree, heap = struct.unpack_from("<QQ", table)
            names = _Names(self.file, heap)
            for name, link in self._entries(tree, names, 255, set()):
                _add(results, name, link)
        for kind, _, data in self._messages:
            if kind == _LINK:
                _add(results, *_read_link(data))
            if kind == _LINK_INFO:
                at = 2 + 8 * (data[1] & 1)
                if data[at : at + 8] != b"\xff" * 8:
                    raise ValueError(f"{self.name!r} keeps its names in a way that is not read")
        return results

    def child(self, name: str, address: int) -> Hdf5Object:
        """Return what is at an address that `links` returned."""
        return open_item(self.file, address, f"{self.name.rstrip('/')}/{name}")

    def _entries(
        self, address: int, names: _Names, above: int, seen: set[int]
    ) -> Iterator[tuple[str, Link]]:
        """Yield what a tree of names holds, in order."""
        if address in seen or len(seen) > _MOST:
            raise ValueError(f"the names of {self.name!r} lead in a circle")
        seen.add(address)
        head = self.file.at(address, 24)
        kind, level, used = struct.unpack_from("<4xBBH", head)
        if head[:4] != b"TREE" or kind != 0 or level >= above:
            raise ValueError(f"the tree of names of {self.name!r} is damaged")
        body = self.file.at(address + 24, 16 * used + 8)
        for i in range(used):
            below = int.from_bytes(body[16 * i + 8 : 16 * i + 16], "little")
            if level:
                yield from self._entries(below, names, level, seen)
            else:
                yield from self._leaf(below, names, seen)

    def _leaf(self, address: int, names: _Names, seen: set[int]) -> Iterator[tuple[str, Link]]:
        if address in seen:
            raise ValueError(f"the names of {self.name!r} lead in a circle")
        seen.add(address)
        head = self.file.at(address, 8)
        if head[:5] != b"SNOD\x01":
            raise ValueError(f"the tree of names of {self.name!r} is damaged")
        count = int.from_bytes(head[6:], "little")
        body = self.file.at(address + 8, 40 * count)
        for i in range(count):
            name, target, cache = struct.unpack_from("<QQI", body, 40 * i)
            yield names.at(name), Link("soft" if cache == 2 else "hard", target)


def _add(links: dict[str, Link], name: str, link: Link) -> None:
    if not name or "/" in name or name in links or len(links) > _MOST:
        raise ValueError(f"a name is damaged: {name[:80]!r}")
    links[name] = link


def _read_link(data: bytes) -> tuple[str, Link]:
    """Return the name and target of a link message."""
    version, flags = data[0], data[1]
    at = 2
    kind = data[at] if flags & 8 else 0
    at += bool(flags & 8) + 8 * bool(flags & 4) + bool(flags & 16)
    width = 1 << (flags & 3)
    length = int.from_bytes(data[at : at + width], "little")
    at += width
    if version != 1 or at + length > len(data):
        raise ValueError("a link is damaged")
    name = data[at : at + length].decode("utf-8", "replace")
    if kind:
        return name, Link({1: "soft", 64: "external"}.get(kind, "unknown"), _NOWHERE)
    return name, Link("hard", int.from_bytes(data[at + length : at + length + 8], "little"))


class _Names:
    """The heap in which a group keeps its names."""

    def __init__(self, file: Bytes, address: int) -> None:
        head = file.at(address, 32)
        if head[:5] != b"HEAP\x00":
            raise ValueError("a heap of names is damaged")
        size, _, start = struct.unpack_from("<QQQ", head, 8)
        self._data = file.at(start, size)

    def at(self, offset: int) -> str:
        """Return the name at an offset."""
        end = self._data.find(b"\0", offset) if offset < len(self._data) else -1
        if end < 0:
            raise ValueError("a name is not where it should be")
        return self._data[offset:end].decode("utf-8", "replace")


class Dataset(Hdf5Object):
    """An array: its shape and dtype are known, its numbers are read when asked for."""

    def __init__(self, file: Bytes, address: int, name: str, messages: Sequence[Any]) -> None:
        super().__init__(file, address, name, messages)
        self.shape = shape_of(self._find(_SPACE) or b"")
        described = dtype_of(self._find(_TYPE) or b"")
        self.dtype = np.dtype("O") if isinstance(described, Text) else described
        self._layout = self._find(_LAYOUT) or b"\0\0"
        version, self._kind = self._layout[0], self._layout[1]
        self.elsewhere = self._find(_EXTERNAL) is not None or version == 4 and self._kind == 3
        if not self.elsewhere and (version != 3 or self._kind > 2):
            raise ValueError(f"{self.name!r} keeps its numbers in a way that is not read")

    @property
    def packed(self) -> bool:
        """Whether the numbers may be compressed."""
        return self._kind == 2

    def stored(self) -> int:
        """Return how many bytes the file has for the numbers."""
        if self._kind == 0:
            return int.from_bytes(self._layout[2:4], "little")
        if self._kind == 1:
            start, size = struct.unpack_from("<QQ", self._layout, 2)
            return 0 if start == _NOWHERE else max(0, min(size, self.file.size - start))
        return self.file.size

    def read(self, summed: bool = False) -> tuple[Any, int | None]:
        """Return the numbers, and their checksum where it is requested and available."""
        assert self.shape is not None
        if self.dtype.hasobject:
            raise ValueError(f"{self.name!r} holds no numbers")
        if self._kind == 2:
            filters = self._find(_FILTERS)
            return read_chunks(self.file, self._layout, self.shape, self.dtype, filters), None
        array = np.empty(self.shape, self.dtype)
        if self._kind == 0:
            flat = np.frombuffer(self._layout, self.dtype, array.size, 4)
            array[...] = flat.reshape(self.shape)
        elif array.nbytes:
            result = self.file.fill(array, int.from_bytes(self._layout[2:10], "little"), summed)
            return array, result if summed else None
        return array, None


# --- objects -----------------------------------------------------------------------------------


def open_file(raw: Window) -> Group:
    """Return the root of an open binary file.

    Raises:
        NewerLayout: the library has to read it.
        ValueError: it is no HDF5 file, or a damaged one.
    """
    file = Bytes(raw)
    head = file.at(0, min(96, file.size))
    if head[:8] != SIGNATURE or len(head) < 48:
        raise ValueError("the file does not begin as one")
    if head[8] in (2, 3):
        raise NewerLayout
    if head[8] > 1 or len(head) < 96:
        raise ValueError("its first bytes are damaged")
    at = 28 if head[8] else 24
    base, _, end, _ = struct.unpack_from("<QQQQ", head, at)
    if head[13:15] != b"\x08\x08" or base or end > file.size:
        raise ValueError(
            f"it is cut off: {file.size} bytes of {end}" if end > file.size else "strange sizes"
        )
    root = open_item(file, int.from_bytes(head[at + 40 : at + 48], "little"), "/")
    if not isinstance(root, Group):
        raise ValueError("there is no group at its root")
    return root


def open_item(file: Bytes, address: int, name: str) -> Hdf5Object:
    """Return the group or array whose description begins at `address`."""
    try:
        messages = list(_messages(file, address))
        kinds = {kind for kind, _, _ in messages}
        if kinds & {_TABLE, _LINK_INFO}:
            return Group(file, address, name, messages)
        if {_SPACE, _TYPE, _LAYOUT} <= kinds:
            return Dataset(file, address, name, messages)
    except (struct.error, IndexError) as error:
        raise ValueError(f"the description of {name!r} is cut off") from error
    except ValueError as error:
        if name in str(error):
            raise
        raise ValueError(f"{name!r}: {error}") from error
    raise ValueError(f"{name!r} is neither a group nor an array")


def _messages(file: Bytes, address: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield (kind, flags, data) of an object's description."""
    head = file.at(address, 16)
    if head[:4] == b"OHDR":
        raise NewerLayout
    version, left, size = struct.unpack("<BxH4xI4x", head)
    if version != 1:
        raise ValueError("its description is damaged")
    blocks, seen = [(address + 16, size)], {address + 16}
    while blocks:
        start, size = blocks.pop(0)
        data = file.at(start, size)
        at = 0
        while at + 8 <= size and left > 0:
            kind, length, flags = struct.unpack_from("<HHB", data, at)
            body = data[at + 8 : at + 8 + length]
            if len(body) != length:
                raise ValueError("its description is cut off")
            at, left = at + 8 + length, left - 1
            if kind == _MORE:
                block = struct.unpack_from("<QQ", body)
                if block[0] in seen:
                    raise ValueError("its description leads in a circle")
                seen.add(block[0])
                blocks.append(block)
            else:
                yield kind, flags, body
