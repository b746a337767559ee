"""Training states as files: what goes in comes out, and no damage goes unseen."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from kerasish.saving.formats.state_file import StateFolder, read_state, write_state
from kerasish.saving.formats.tensor_file import write_arrays

STATE = {
    "plain": [1, -2.5, None, True, "text", float("inf"), 2**70, {"1": 2}, {3: []}],
    "variables": {
        "0:a": np.arange(6, dtype="float32").reshape(2, 3),
        "1:b": np.array(7, "int32"),
        "2:c": np.zeros((0, 4), "float64"),
        "3:d": np.array([True, False]),
        "4:e": np.array([1.5, -2.0], ml_dtypes.bfloat16),
        "5:f": np.array([1, 2**32 - 1], "uint32"),
    },
    "nested": [{"weights": [np.ones(3, "float16"), np.ones((2, 1), "complex64")]}],
}


def same(a, b):
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b)
    return type(a) is type(b) and a == b


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "a.safetensors")
    write_state(path, STATE)
    return path


def test_round_trip(path):
    assert same(read_state(path), STATE)
    assert not same(read_state(path), {**STATE, "plain": []})
    read_state(path)["variables"]["0:a"][0, 0] = 5  # arrays may be written to


def test_numbers_of_numpy_become_plain(tmp_path):
    path = str(tmp_path / "a.safetensors")
    write_state(path, {"a": np.float32(0.5), "b": np.int64(3), "c": (1, 2)})
    assert read_state(path) == {"a": 0.5, "b": 3, "c": [1, 2]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({1, 2}, r"a/0 is a set"),
        (np.array(["x"]), r"no arrays of <U1 \(a/0\)"),
        (np.zeros(2, ">f4"), r"no arrays of >f4 \(a/0\)"),
    ],
)
def test_what_no_file_holds(tmp_path, value, message):
    with pytest.raises(TypeError, match=message):
        write_state(str(tmp_path / "a"), {"a": [value]})
    assert list(tmp_path.iterdir()) == []


def found(path):
    """Return what is said of the file's damage, None if the state is as it was."""
    try:
        state = read_state(path)
    except ValueError as error:
        return str(error)
    assert same(state, STATE)
    return None


def test_every_flipped_bit_is_found(path):
    with open(path, "rb") as file:
        whole = bytearray(file.read())
    start = 8 + int.from_bytes(whole[:8], "little")
    unseen = []
    for at in range(len(whole)):
        whole[at] ^= 1 << (at % 8)
        with open(path, "wb") as file:
            file.write(whole)
        damage = found(path)
        # Nothing may be said only where the meaning stays the same: a space in the header.
        if damage is None and at >= start:
            unseen.append(at)
        elif at >= start:
            assert "'variables/" in damage or "'nested/0/weights/" in damage
        whole[at] ^= 1 << (at % 8)
    assert unseen == []


def test_every_truncation_is_found(path):
    with open(path, "rb") as file:
        whole = file.read()
    for size in range(len(whole)):
        with open(path, "wb") as file:
            file.write(whole[:size])
        with pytest.raises(ValueError, match=r"a\.safetensors"):
            read_state(path)


def test_the_package_safetensors_reads_the_arrays(path):
    package = pytest.importorskip(
        "safetensors.numpy", reason="safetensors is not installed (extra `test`)"
    )
    result = package.load_file(path)
    np.testing.assert_array_equal(result["variables/0:a"], STATE["variables"]["0:a"])
    np.testing.assert_array_equal(result["variables/5:f"], STATE["variables"]["5:f"])


def test_the_newest_two_are_kept(tmp_path):
    folder = StateFolder(str(tmp_path / "new" / "states"))
    assert folder.read() == (None, [])
    for number in range(4):
        folder.write({"n": number})
    names = ["state-00000002.safetensors", "state-00000003.safetensors"]
    assert sorted(p.name for p in (tmp_path / "new" / "states").iterdir()) == names
    assert StateFolder(folder.path).read() == ({"n": 3}, [])
    folder.remove()
    assert not (tmp_path / "new" / "states").exists()


def test_the_newest_whole_one_is_taken(tmp_path):
    folder = StateFolder(str(tmp_path))
    for number in range(2):
        folder.write({"n": number})
    (tmp_path / "state-00000002.safetensors").write_bytes(b"half a fi")
    again = StateFolder(str(tmp_path))
    state, damages = again.read()
    assert state == {"n": 1}
    assert len(damages) == 1
    assert "state-00000002" in damages[0]
    again.write({"n": 3})  # two whole ones stay
    names = ["state-00000001.safetensors", "state-00000003.safetensors"]
    assert sorted(p.name for p in tmp_path.iterdir()) == names


def test_what_a_save_cut_off_leaves_is_cleared(tmp_path):
    folder = StateFolder(str(tmp_path))
    litter = tmp_path / ".state-00000000.safetensors.kerasish-new"
    litter.write_bytes(b"half")
    assert folder.read() == (None, [])
    folder.write({"n": 0})
    assert not litter.exists()


@pytest.mark.parametrize(
    "record", ["[]", "{}", '{"array": 0}', '{"dict": [["a", {"array": 1}]]}', '{"dict": 3}', "x"]
)
def test_a_record_that_means_nothing_is_refused(path, record):
    write_arrays(path, {"a": np.zeros(2)}, {"format": "kerasish training state 2", "state": record})
    with pytest.raises(ValueError, match=r"a\.safetensors"):
        read_state(path)


def test_places_that_have_one_name_stay_apart(path):
    state = {"a/b": np.zeros(2), "a": {"b": np.ones(3)}}
    write_state(path, state)
    assert same(read_state(path), state)
