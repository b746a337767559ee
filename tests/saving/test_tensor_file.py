"""The layout of `.safetensors`: whole or refused, and the same to the package of that name."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kerasish.saving.formats.tensor_file import opened, write_arrays

ARRAYS = {
    "a/0": np.arange(6, dtype="float32").reshape(2, 3),
    "b": np.array(7, "int64"),
    "none": np.zeros((0, 4), "float64"),
    "half": np.array([1.5, -2.0], ml_dtypes.bfloat16),
    "large": np.random.default_rng(0).random(2**18 + 3, "float32"),  # summed up in a thread
}


def read(path: Path) -> dict[str, np.ndarray]:
    with opened(str(path)) as file:
        return {name: file.read(name) for name in file.places}


def same(found: dict[str, np.ndarray]) -> bool:
    return list(found) == list(ARRAYS) and all(
        found[name].dtype == a.dtype and np.array_equal(found[name], a)
        for name, a in ARRAYS.items()
    )


def put(path: Path, header: Any, data: bytes) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_arrays(str(tmp_path / "a.safetensors"), ARRAYS, {"format": "test"})
    return tmp_path / "a.safetensors"


def test_round_trip(path: Path) -> None:
    assert same(read(path))
    with opened(str(path)) as file:
        assert file.sealed
        assert file.metadata["format"] == "test"
        assert file.places["a/0"].shape == (2, 3)


def test_the_package_reads_ours_and_we_read_its(path: Path) -> None:
    package = pytest.importorskip(
        "safetensors.numpy", reason="safetensors is not installed (extra `test`)"
    )
    result = package.load_file(str(path))
    for name in ("a/0", "b", "none", "large"):
        np.testing.assert_array_equal(result[name], ARRAYS[name])
    plain = {name: a for name, a in ARRAYS.items() if name != "half"}
    package.save_file(plain, str(path))
    again = read(path)
    assert set(again) == set(plain)
    for name, a in plain.items():
        np.testing.assert_array_equal(again[name], a)


def test_every_flipped_bit_of_the_header_is_found(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(whole[:8], "little")
    for at in range(start):
        whole[at] ^= 1 << (at % 8)
        path.write_bytes(whole)
        # Nothing is said where nothing is meant by it: a space that became another.
        assert damage(path) or same(read(path)), at
        whole[at] ^= 1 << (at % 8)


def damage(path: Path) -> str:
    try:
        read(path)
    except ValueError as error:
        return str(error)
    return ""


F4 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("header", "data", "message"),
    [
        (b"[" * 5000, b"", "nested more than"),
        (b"\xff\xfe", b"", "no UTF-8"),
        ([], b"", "no object"),
        ({"__metadata__": {"a": 1}}, b"", "no texts"),
        ({"__metadata__": {"seal": "00000000", "crc32": "[]"}}, b"", "checksum does not fit"),
        ({"x": {**F4, "dtype": "F33"}}, bytes(8), "'x' is damaged .*F33"),
        ({"x": {**F4, "shape": [-2]}}, bytes(8), "'x' is damaged"),
        ({"x": {**F4, "shape": [1e999]}}, bytes(8), "'x' is damaged"),
        ({"x": {**F4, "shape": [2**40]}}, bytes(8), "'x' is damaged"),
        ({"x": {**F4, "shape": [2**40], "data_offsets": [0, 2**42]}}, bytes(8), "'x' is damaged"),
        ({"x": {**F4, "shape": [1] * 40}}, bytes(8), "'x' is damaged"),
        ({"x": {**F4, "data_offsets": [-8, 0]}}, bytes(8), "'x' is damaged"),
        ({"x": F4, "y": F4}, bytes(8), "'y' is damaged"),
        ({"x": F4}, bytes(9), "1 bytes belong to no array"),
        ({"x": F4}, bytes(7), "'x' is damaged"),
        ({"x": None}, b"", "'x' is damaged"),
    ],
)
def test_hostile_headers_are_refused_before_memory_is_taken(
    path: Path, header: Any, data: bytes, message: str
) -> None:
    put(path, header, data)
    tracemalloc.start()
    with pytest.raises(ValueError, match=message) as error:
        read(path)
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()
    assert "a.safetensors" in str(error.value)


def test_cut_off_anywhere(path: Path) -> None:
    whole = path.read_bytes()
    for size in [*range(0, 700, 3), len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"a\.safetensors"):
            read(path)
