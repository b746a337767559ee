"""Checksums of parts make those of the whole."""

from __future__ import annotations

import io
import threading
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from kerasish.saving.files.checksum import LARGE, Digest, checksum, combine, fill
from kerasish.saving.files.sink import Sink


@given(some.binary(max_size=300), some.binary(max_size=300))
def test_pieces_combine(first: bytes, second: bytes) -> None:
    found = combine(zlib.crc32(first), zlib.crc32(second), len(second))
    assert found == zlib.crc32(first + second)


@pytest.mark.parametrize("size", [0, 1, LARGE - 1, LARGE, 3 * LARGE + 7])
def test_digests_in_threads_are_those_of_zlib(size: int) -> None:
    data = memoryview(np.random.default_rng(0).bytes(size))
    with Digest(zlib.crc32(b"before")) as digest:
        for at in range(0, size, LARGE + 1):
            digest.add(data[at : at + LARGE + 1])
    assert digest.result() == zlib.crc32(b"before" + bytes(data))


@pytest.mark.parametrize("size", [0, 5, 3 * LARGE + 8])
def test_filling_gives_the_bytes_and_their_checksum(size: int) -> None:
    data = np.random.default_rng(0).bytes(size)
    array = np.zeros(size, "uint8")
    assert fill(array, io.BytesIO(data).readinto, 7) == zlib.crc32(data, 7)
    assert array.tobytes() == data
    assert fill(array, io.BytesIO(data).readinto, None) == 0
    before = threading.active_count()
    with pytest.raises(EOFError, match="1 bytes are missing"):
        fill(np.zeros(size + 1, "uint8"), io.BytesIO(data).readinto)
    assert threading.active_count() == before


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_the_checksum_covers_dtype_and_shape(shape: Any) -> None:
    array = np.ones(shape, "float32")
    known = zlib.crc32(array.tobytes())
    assert checksum(array) == checksum(array, known)
    assert checksum(array) != checksum(array.view("int32"))
    assert checksum(array) != checksum(array.reshape((1, *shape)))


def test_a_sink_knows_its_checksum_whatever_is_written_where() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        raw = io.BytesIO(b"before")
        sink = Sink(raw, 6)
        for _ in range(random.integers(1, 8)):
            sink.seek(int(random.integers(0, 4 * LARGE)))
            sink.write(random.bytes(int(random.choice([5, 4000, LARGE, LARGE + 3]))))
        if random.random() < 0.3:
            sink.truncate(int(random.integers(1, sink.size + 100)))
        written = raw.getvalue()[6:].ljust(sink.size, b"\0")
        raw.seek(0)
        raw.write(b"before" + written)
        assert sink.checksum() == zlib.crc32(written)
