"""Variables as nested dicts, and back."""

from __future__ import annotations

import numpy as np
import pytest

import kerasish
from kerasish import layers
from kerasish.errors import UnknownNameError


@pytest.fixture
def model():
    created = kerasish.Sequential(
        [kerasish.Input((3,)), layers.Dense(2, name="a"), layers.BatchNormalization(name="b")],
        name="net",
    )
    created.compile("adam", "mse", metrics=["mae"])
    created.fit(np.ones((8, 3)), np.ones((8, 2)), verbose=0)
    return created


def test_values_stand_under_their_paths(model):
    result = model.get_state_tree("numpy_array")
    by_path = {v.path: v for v in model.variables}
    assert {"net/a/kernel", "net/b/moving_mean"} <= set(by_path) or {
        "a/kernel", "b/moving_mean"} <= set(by_path)  # fmt: skip

    def look(tree, path):
        for key in path.split("/"):
            tree = tree[key]
        return tree

    for v in model.trainable_variables:
        np.testing.assert_array_equal(look(result["trainable_variables"], v.path), v.numpy())
    for v in model.non_trainable_variables:
        np.testing.assert_array_equal(look(result["non_trainable_variables"], v.path), v.numpy())
    assert result["optimizer_variables"] and result["metrics_variables"]


def test_a_state_comes_back(model):
    state, x = model.get_state_tree(), np.ones((4, 3))
    before = model.predict(x, verbose=0)
    steps = int(model.optimizer.iterations)
    model.fit(np.ones((8, 3)), np.zeros((8, 2)), epochs=3, verbose=0)
    assert np.abs(model.predict(x, verbose=0) - before).max() > 0
    model.set_state_tree(state)
    np.testing.assert_array_equal(model.predict(x, verbose=0), before)
    assert int(model.optimizer.iterations) == steps


def test_unknown_parts_change_nothing(model):
    state, before = model.get_state_tree("numpy_array"), model.get_weights()
    with pytest.raises(UnknownNameError, match="value_format"):
        model.get_state_tree("numpy")
    with pytest.raises(UnknownNameError, match="group"):
        model.set_state_tree({"trainable": {}})
    zeros = {k: np.zeros_like(v) for k, v in _flat(state["trainable_variables"]).items()}
    with pytest.raises(UnknownNameError, match="path"):
        model.set_state_tree({"trainable_variables": {**zeros, "nothing": 1}})
    with pytest.raises(ValueError, match="shape"):
        model.set_state_tree({"trainable_variables": {**zeros, next(reversed(zeros)): np.ones(99)}})
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def _flat(tree, prefix=""):
    result = {}
    for key, value in tree.items():
        path = f"{prefix}{key}"
        result.update(_flat(value, f"{path}/") if isinstance(value, dict) else {path: value})
    return result
