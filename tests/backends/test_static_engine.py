"""The static engine: what is compiled anew, and what is said of it."""

import numpy as np
import pytest

import kerasish
from kerasish.errors import TraceError


def test_python_values_that_always_change_are_an_error():
    scaled = kerasish.function(lambda x, n: x * n)
    x = np.ones(2, "float32")
    for n in range(32):
        scaled(x, n)
    with pytest.raises(TraceError, match=r"compiled 32 times.*32 instead of 0.*np\.asarray"):
        scaled(x, 32)
    scaled(x, 3)  # what is compiled stays so
    for n in range(40):
        assert scaled(x, np.float32(n)).tolist() == [n, n]


def test_compilations_are_explained(capsys):
    kerasish.config.explain_compiles()
    try:
        scaled = kerasish.function(lambda x, n: x * n)
        scaled(np.ones(2, "float32"), 2.0)
        scaled(np.ones(3, "float32"), 2.0)
        scaled(np.ones(3, "float32"), 5.0)
    finally:
        kerasish.config.explain_compiles(False)
    first, second, third = capsys.readouterr().err.splitlines()
    assert "first call" in first
    assert "float32[3] instead of float32[2]" in second
    assert "5.0 instead of 2.0" in third


@pytest.mark.parametrize("level", ["fast_run", "fast_compile", "none"])
def test_levels_give_equal_numbers(level, monkeypatch):
    monkeypatch.setattr(kerasish.config._Settings, "optimize", "fast_run")
    kerasish.config.set_optimize(level)
    assert kerasish.config.optimize() == level
    kerasish.utils.set_random_seed(0)
    layers = kerasish.layers
    model = kerasish.Sequential(
        [kerasish.Input((8, 8, 2)), layers.Conv2D(4, 3, activation="relu"), layers.Flatten(),
         layers.Dropout(0.2), layers.Dense(3, activation="softmax")]
    )  # fmt: skip
    model.compile("adam", "sparse_categorical_crossentropy")
    x = np.random.default_rng(0).normal(size=(40, 8, 8, 2)).astype("float32")
    losses = model.fit(x, np.arange(40) % 3, batch_size=16, epochs=2, verbose=0).history["loss"]
    _seen.setdefault("losses", losses)
    np.testing.assert_allclose(losses, _seen["losses"], rtol=1e-5)
    fused = [n for _, g in model._function("train").graphs()[1:] for n in g.nodes]
    assert ("fused" in {n.op.name for n in fused}) == (level == "fast_run")


_seen = {}


def test_unknown_levels():
    with pytest.raises(ValueError, match="fast_run.*'fastest'"):
        kerasish.config.set_optimize("fastest")
