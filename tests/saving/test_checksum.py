"""Checksums computed while reading and writing, and files that never fail halfway."""

from __future__ import annotations

import errno
import io
import threading
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kerasish.saving.files.checksum import LARGE, Digest, checksum, described, fill
from kerasish.saving.files.sink import Sink, open_raw


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
    assert checksum(array) == zlib.crc32(array.tobytes(), described(array))
    assert checksum(array) != checksum(array.view("int32"))
    assert checksum(array) != checksum(array.reshape((1, *shape)))


def test_a_sink_holds_what_is_written_where_and_keeps_the_first_error(tmp_path: Path) -> None:
    with open_raw(str(tmp_path / "file")) as raw:
        sink = Sink(raw)
        sink.seek(7)
        sink.write(b"later")
        sink.seek(0)
        sink.write(b"first")
        sink.seek(-2, 2)
        sink.check()
        assert (sink.size, sink.tell()) == (12, 10)
        sink.truncate(9)
    assert (tmp_path / "file").read_bytes() == b"first\0\0la"


def test_a_sink_pretends_after_an_error() -> None:
    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            raise OSError(errno.ENOSPC, "full")

    sink = Sink(Full())
    assert sink.write(b"four") == 4 and sink.write(b"more") == 4 and sink.size == 8
    sink.truncate(3)
    with pytest.raises(OSError, match="full"):
        sink.check()
