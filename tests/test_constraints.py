"""Constraints: values of Keras 3.15.1, names and configs."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from kerasish import constraints, ops
from kerasish.errors import UnknownNameError

X = np.arange(6.0, dtype="float32").reshape(2, 3) - 2


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (constraints.MaxNorm(), [[-1.7888544, -0.8944272, 0.0], [0.8944272, 1.7888544, 2.0]]),
        (constraints.MinMaxNorm(), [[-0.8944272, -0.4472136, 0.0], [0.4472136, 0.8944272, 1.0]]),
        (constraints.MinMaxNorm(0, 1, 0.0), X),
        (constraints.NonNeg(), [[0, 0, 0], [1, 2, 3]]),
        (constraints.UnitNorm(), [[-0.8944272, -0.4472136, 0.0], [0.4472136, 0.8944272, 1.0]]),
        (constraints.UnitNorm(axis=[0, 1]), X / np.sqrt(19)),
    ],
)
def test_value(made, expected):
    assert np.allclose(made(X).numpy(), expected, atol=1e-6)
    assert pickle.loads(pickle.dumps(made)).get_config() == made.get_config()
    restored = constraints.deserialize(constraints.serialize(made))
    assert type(restored) is type(made) and restored.get_config() == made.get_config()


def test_get():
    assert isinstance(constraints.get("max_norm"), constraints.MaxNorm)
    assert isinstance(constraints.get("NonNeg"), constraints.NonNeg)
    assert constraints.get({"class_name": "MaxNorm", "config": {"max_value": 3}}).max_value == 3
    assert constraints.get(None) is None
    with pytest.raises(UnknownNameError, match="unit_norm"):
        constraints.get("unit_nrm")


def test_the_base_class_allows_any_weight():
    w = ops.convert_to_tensor([-2.0, 5.0])
    assert constraints.Constraint()(w) is w
