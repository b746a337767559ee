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
