"""Files of recorded facts: what is written is read, what is off is seen."""

from __future__ import annotations

import facts
import numpy as np
import pytest


def test_what_is_written_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(facts, "DATA", tmp_path)
    arrays = [np.array(1.5), np.zeros((0, 3)), np.array([[1.0, -np.inf, np.nan]])]
    given = {"b": {"list": arrays, "words": "x"}, "a": [None, 3, True, {"n": np.arange(4.0)}]}
    assert facts.write("some", given) == (tmp_path / "some.npz").stat().st_size
    found = facts.read("some")
    assert list(found) == ["b", "a"] and found["a"][:3] == [None, 3, True]
    assert found["b"]["words"] == "x"
    for a, b in zip([*found["b"]["list"], found["a"][3]["n"]], [*arrays, np.arange(4.0)]):
        assert a.shape == b.shape and a.dtype == "float32"
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.0001]),
        ([1.0, np.nan], [1.0, 2.0]),
        ([1.0, 2.0], [1.0, np.nan]),
        ([1.0, np.inf], [1.0, -np.inf]),
        ([1.0, 2.0], [[1.0, 2.0]]),
        (1e-5, 0.0),
    ],
)
def test_what_is_off_is_seen(found, expected):
    with pytest.raises(AssertionError, match="some numbers"):
        facts.expect_close(found, expected, "some numbers")


@pytest.mark.parametrize(
    ("found", "expected"),
    [([1e-4, 50.0], [0.0, 50.0001]), ([np.nan, -np.inf], [np.nan, -np.inf]), ([], []), (1e-7, 0)],
)
def test_what_is_close_passes(found, expected):
    facts.expect_close(found, expected, "some numbers")


def test_two_recordings_are_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(facts, "DATA", tmp_path)
    given = {"a": [np.array([1.0, 2.0]), 3, "x"], "b": {"n": np.array([np.nan])}}

    def changed(**more):
        facts.write("other", {**given, **more})
        return facts.differences(tmp_path / "some.npz", tmp_path / "other.npz")

    facts.write("some", given)
    assert changed() == []
    assert changed(a=[np.array([1.0, 2.000001]), 3, "x"]) == []
    assert "off by" in changed(a=[np.array([1.0, 2.0001]), 3, "x"])[0]
    assert "shape" in changed(a=[np.array([1.0]), 3, "x"])[0]
    assert "3 and 4" in changed(a=[np.array([1.0, 2.0]), 4, "x"])[0]
    assert "off by" in changed(b={"n": np.array([0.0])})[0]
    assert "/c: in only one file" in changed(c=1)[0]
    np.savez(tmp_path / "p.npz", x=np.arange(3), y=np.float16(1.0))
    np.savez(tmp_path / "q.npz", x=np.arange(1, 4), y=np.float32(1.0))
    found = facts.differences(tmp_path / "p.npz", tmp_path / "q.npz")
    assert sorted(found) == ["/x: other numbers", "/y: float16 and float32"]
    for name, text in {
        "p": '[1.00001, {"k": null}]',
        "q": '[1.0, {"k": null}]',
        "r": "[1.1, 2]",
    }.items():
        (tmp_path / f"{name}.json").write_text(text)
    assert facts.differences(tmp_path / "p.json", tmp_path / "q.json") == []
    assert len(facts.differences(tmp_path / "p.json", tmp_path / "r.json")) == 2
