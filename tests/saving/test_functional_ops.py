"""Functional models of ops in files, with functions among the ops' arguments."""

from __future__ import annotations

import numpy as np
import pytest

import kerasish as keras
from kerasish import ops


@pytest.mark.parametrize("ending", [".keras", ".h5"])
@pytest.mark.parametrize(
    "call",
    [
        lambda x: ops.associative_scan(ops.add, x, axis=1),
        lambda x: ops.vectorized_map(ops.square, x),
        lambda x: ops.map(ops.relu, x),
    ],
    ids=["associative_scan", "vectorized_map", "map"],
)
def test_ops_among_arguments(call, ending, tmp_path):
    x = keras.Input((3,))
    model = keras.Model(x, call(x))
    model.save(tmp_path / f"m{ending}")
    loaded = keras.models.load_model(tmp_path / f"m{ending}")
    data = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
    np.testing.assert_array_equal(model.predict(data, verbose=0), loaded.predict(data, verbose=0))
