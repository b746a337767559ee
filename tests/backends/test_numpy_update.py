"""Updates of all variables at once on the CPU: the same bits as op by op."""

import numpy as np
import pytest

import kerasish
from kerasish import optimizers
from kerasish.backends.eager import numpy_update
from kerasish.backends.eager.engine import Eager

MAKERS = {
    "sgd": lambda: optimizers.SGD(0.1),
    "momentum": lambda: optimizers.SGD(0.1, momentum=0.9),
    "nesterov": lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: optimizers.Adam(0.01),
    "adamw": lambda: optimizers.AdamW(0.01, weight_decay=0.02),
    "clipnorm": lambda: optimizers.Adam(0.01, clipnorm=0.5),
    "clipvalue": lambda: optimizers.SGD(0.1, clipvalue=0.1),
    "schedule": lambda: optimizers.Adam(optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)),
    "ema": lambda: optimizers.Adam(0.01, use_ema=True, ema_momentum=0.5),
}
SHAPES = [(), (1,), (7, 3), (300, 500), (0, 4)]


def run(make, dtype="float32", steps=4):
    rng = np.random.default_rng(0)
    variables = [
        kerasish.Variable(rng.normal(size=s).astype(dtype), name=f"v{i}")
        for i, s in enumerate(SHAPES)
    ]
    optimizer = make()
    for _ in range(steps):
        gradients = [rng.normal(size=s).astype(dtype) for s in SHAPES]
        optimizer.apply(gradients, variables)
    return [v.numpy() for v in [*variables, *optimizer.variables]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", MAKERS)
def test_the_bits_are_those_of_the_ops(name, dtype, monkeypatch):
    got = run(MAKERS[name], dtype)
    asked = []
    whole = Eager.fused_update
    monkeypatch.setattr(Eager, "fused_update", lambda *args: asked.append(whole(*args)))
    want = run(MAKERS[name], dtype)
    assert all(found is not None for found in asked)
    assert len(asked) == 4
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_norm_of_all_gradients(monkeypatch):
    got = run(lambda: optimizers.Adam(0.01, global_clipnorm=0.3))
    monkeypatch.setattr(Eager, "fused_update", lambda *args: None)
    want = run(lambda: optimizers.Adam(0.01, global_clipnorm=0.3))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


def test_other_dtypes_and_rules_are_left_to_the_ops():
    for make in (lambda: optimizers.Adam(0.01, amsgrad=True), lambda: optimizers.Lion(0.01)):
        run(make)
    before = run(lambda: optimizers.Adam(0.01), "float16")
    assert before[0].dtype == np.float16
    lists = [[np.zeros(3, "float32")], [np.zeros(3, "float64")]]
    settings = {"momentum": 0.0, "nesterov": False}
    assert numpy_update.update_by_rule("sgd", settings, lists, 0.1, 0, [0.0], None) is None


def test_gradients_and_values_stay_as_they_were():
    value = np.arange(6, dtype="float32")
    gradient = np.ones((3, 2), "float32").T.reshape(-1)
    lists = [[value], [gradient], [np.zeros(6, "float32")], [np.zeros(6, "float32")]]
    kept = [a[0].copy() for a in lists]
    settings = {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7}
    found = numpy_update.update_by_rule("adam", settings, lists, 0.1, 0, [0.1], 0.5)
    for a, b in zip(lists, kept):
        np.testing.assert_array_equal(a[0], b)
    assert not any(np.shares_memory(new[0], old[0]) for new in found for old in lists)
