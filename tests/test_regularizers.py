"""Regularizers: values of Keras 3.15.1, gradients' absence of surprises, names and configs."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from kerasish import regularizers
from kerasish.errors import ShapeError, UnknownNameError

X = np.arange(6.0, dtype="float32").reshape(2, 3) - 2


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (regularizers.L1(), 0.09),
        (regularizers.L2(), 0.19),
        (regularizers.L1L2(l1=0.1), 0.9),
        (regularizers.L1L2(0.1, 0.2), 0.9 + 3.8),
        (regularizers.L1L2(), 0.0),
        (regularizers.OrthogonalRegularizer(), 0.004780914168804884),
        (regularizers.OrthogonalRegularizer(mode="columns"), 0.007138803135603666),
    ],
)
def test_value(made, expected):
    assert float(made(X)) == pytest.approx(expected, rel=1e-5)
    again = pickle.loads(pickle.dumps(made))
    assert again.get_config() == made.get_config()
    restored = regularizers.deserialize(regularizers.serialize(made))
    assert type(restored) is type(made) and restored.get_config() == made.get_config()


def test_get():
    assert regularizers.get("l1l2").get_config() == {"l1": 0.0, "l2": 0.0}
    assert regularizers.get("L2").l2 == regularizers.get("l2").l2 == 0.01
    assert regularizers.get({"class_name": "L1", "config": {"l1": 0.5}}).l1 == 0.5
    assert regularizers.get(None) is None
    assert regularizers.get(np.sum) is np.sum
    with pytest.raises(UnknownNameError, match="orthogonal_regularizer"):
        regularizers.get("orthogonal_regularizers")


@pytest.mark.parametrize("factor", [-1.0, float("nan"), float("inf"), True])
def test_factors_must_be_finite_and_not_negative(factor):
    with pytest.raises(ValueError, match="L2: l2"):
        regularizers.L2(factor)


def test_orthogonal_needs_a_matrix():
    with pytest.raises(ShapeError, match="matrix"):
        regularizers.OrthogonalRegularizer()(np.ones((2, 2, 2)))
    with pytest.raises(ValueError, match="rows"):
        regularizers.OrthogonalRegularizer(mode="row")
