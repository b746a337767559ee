"""The reader of HDF5 files sees what the library sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from kerasish.saving.hdf5 import file as hdf5

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
DTYPES = [
    "float16", "float32", "float64", ">f4", ">f8", "int8", "uint8", "int16", "uint16", "int32",
    ">i4", "uint32", "int64", "uint64", "bool", "complex64", "complex128",
]  # fmt: skip
PACKED: list[dict[str, Any]] = [
    {"chunks": (3, 4)},
    {"chunks": (3, 4), "compression": "gzip"},
    {"chunks": (2, 5), "compression": "gzip", "shuffle": True, "fletcher32": True},
    {"chunks": (1, 1)},
    {"maxshape": (None, None)},
]


def arrays_by_library(path: Path) -> dict[str, Any]:
    result: dict[str, Any] = {}

    def take(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.dtype.kind != "V":
            result[name] = item[()]

    with h5py.File(path) as file:
        file.visititems(take)
    return result


def arrays_by_us(path: Path) -> dict[str, Any]:
    with hdf5.opened(path, str(path)) as file:
        return {
            name: hdf5.entry_of(item, name, str(path)).read()
            for name, item in hdf5.walk(file, str(path))
            if hdf5.is_array(item) and item.dtype.kind != "V"
        }


def assert_same(path: Path) -> int:
    wanted, result = arrays_by_library(path), arrays_by_us(path)
    assert list(result) == list(wanted)
    for name, array in wanted.items():
        assert result[name].dtype.newbyteorder("=") == array.dtype.newbyteorder("="), name
        np.testing.assert_array_equal(result[name], array, err_msg=name)
    return len(result)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.h5")), ids=lambda p: p.name)
def test_files_of_keras_are_read_as_the_library_reads_them(path: Path) -> None:
    assert assert_same(path) > 0


@pytest.mark.parametrize("libver", ["earliest", "latest", "v108"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_all_dtypes(dtype: str, libver: str, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        file["a/b"] = (random.random((3, 5)) * 100).astype(dtype)
        file["a/scalar"] = np.asarray(7).astype(dtype)
        file["a/none"] = np.zeros((0, 2), dtype)
    assert assert_same(tmp_path / "a.h5") == 3


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("options", PACKED)
def test_chunks(options: dict[str, Any], libver: str, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        file.create_dataset("a", data=random.integers(0, 9, (37, 23)), **options)
        file.create_dataset("b", (8, 9), "float32", fillvalue=0.0, **options)
        file["b"][2:4, 3:5] = 2.5
    assert assert_same(tmp_path / "a.h5") == 2


def test_many_names_need_a_tree(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for i in range(3000):
            file[f"group/{i}"] = np.int32(i)
    assert assert_same(tmp_path / "a.h5") == 3000


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_attributes(libver: str, tmp_path: Path) -> None:
    texts = ["", "a", "Größe", "x" * 70_000]
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        for i, text in enumerate(texts):
            file.attrs[f"text{i}"] = text
        file.attrs["bytes"] = np.bytes_(b"fixed")
        file.attrs["list"] = np.array([b"one", b"four"])
        file.attrs["objects"] = ["ä", "bc"]
        file.attrs["number"] = np.uint32(2**32 - 1)
        file.attrs["empty"] = np.zeros((0,))
        if libver == "earliest":
            for i in range(300):
                file.attrs[f"more{i}"] = i
    with hdf5.opened(tmp_path / "a.h5", "a.h5") as root:
        for i, text in enumerate(texts):
            assert root.attribute(f"text{i}") == text
        assert hdf5.text_attribute(root, "bytes", "a.h5") == "fixed"
        assert hdf5.get_names(root, "list", "a.h5") == ["one", "four"]
        assert hdf5.get_names(root, "objects", "a.h5") == ["ä", "bc"]
        assert hdf5.get_names(root, "empty", "a.h5") == []
        assert root.attribute("number") == 2**32 - 1
        assert root.attribute("missing") is None
        if libver == "earliest":
            assert root.attribute("more299") == 299


def test_a_circle_in_the_tree_of_names_ends(tmp_path: Path) -> None:
    # The library itself runs forever on some of these.
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        for i in range(500):
            file[f"{i}"] = np.int32(i)
    whole = path.read_bytes()
    trees = [i for i in range(0, len(whole) - 4, 8) if whole[i : i + 4] == b"TREE"]
    assert len(trees) > 1
    for at in trees:
        data = bytearray(whole)
        data[at + 32 : at + 40] = at.to_bytes(8, "little")  # its first child is itself
        path.write_bytes(bytes(data))
        with pytest.raises(ValueError, match=r"a\.h5"):
            arrays_by_us(path)


@pytest.mark.slow
def test_every_cut_of_a_file_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["a/vars/0"] = np.ones((2, 3))
        file["a/vars"].attrs["name"] = "a"
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"a\.h5"):
            arrays_by_us(path)


def test_two_names_for_one_group_are_refused(tmp_path: Path) -> None:
    # n groups of two names each are 2^n ways to go.
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a/b"] = np.ones(2)
        file["c"] = file["a"]
    with pytest.raises(ValueError, match="second name"):
        arrays_by_us(tmp_path / "a.h5")
