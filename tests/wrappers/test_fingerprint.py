"""Fingerprints: equal where values are equal, in every process."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kerasish as keras
from kerasish.wrappers.fingerprint import fingerprint

SCALE = 2


def helper(x):
    return x * SCALE


def calls_helper(x):
    return helper(x) + 1


def closes_over(value):
    return lambda: value


class Net(keras.Model):
    def call(self, x):
        return x + 1


class Stateful:
    def __init__(self, inner):
        self.inner = inner


def dense(seed, units=3):
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [keras.Input((2,), name="x"), keras.layers.Dense(units, name="y")], name="net"
    )


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1, "b": 3}),
        ([1, 2], [1, 2], (1, 2)),
        (1, 1, 1.0),
        (np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.ones(6)),
        (np.array(["a", 1], object), np.array(["a", 1], object), np.array(["a", 2], object)),
        (closes_over(1), closes_over(1), closes_over(2)),
        (keras.optimizers.Adam(0.1), keras.optimizers.Adam(0.1), keras.optimizers.Adam(0.2)),
        (Stateful(closes_over(1)), Stateful(closes_over(1)), Stateful(closes_over(2))),
        (keras.optimizers.Adam, keras.optimizers.Adam, keras.optimizers.SGD),
    ],
)
def test_equal_values_have_equal_prints(one, same, other):
    assert fingerprint(one) == fingerprint(same) != fingerprint(other)


def test_models_differ_by_config_and_weights():
    assert fingerprint(dense(1)) == fingerprint(dense(1))
    assert len({fingerprint(m) for m in (dense(1), dense(2), dense(1, units=4))}) == 3


def test_functions_that_are_called_count(monkeypatch):
    before = fingerprint(calls_helper)
    assert fingerprint(calls_helper) == before
    monkeypatch.setitem(globals(), "SCALE", 3)
    changed = fingerprint(calls_helper)
    monkeypatch.setitem(globals(), "helper", lambda x: x)
    assert len({before, changed, fingerprint(calls_helper)}) == 3


def test_classes_differ_by_their_methods(monkeypatch):
    before = fingerprint(Net)
    monkeypatch.setattr(Net, "call", lambda self, x: x + 2)
    assert fingerprint(Net) != before


def test_circles_end():
    circle = []
    circle.append(circle)
    assert fingerprint(circle) == fingerprint(circle)


def test_what_cannot_be_told_is_refused():
    with pytest.raises(TypeError, match="has no fingerprint"):
        fingerprint({"file": (n for n in ())})


@pytest.mark.slow
def test_prints_are_the_same_in_every_process():
    program = (
        "from kerasish.wrappers.fingerprint import fingerprint\n"
        "def model(x, sides={'b': 1, 'a': 2}):\n"
        "    return x in {'one', 'two', 'three'}\n"
        "print(fingerprint((model, {'x', 'y'} == {'y', 'x'}, 'é')))"
    )
    result = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": str(Path(keras.__file__).parent.parent), "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True, timeout=60,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(result) == 1
