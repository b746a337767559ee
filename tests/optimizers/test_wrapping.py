"""LossScaleOptimizer and MultiOptimizer against Keras 3.15.1's numbers; Eve against its paper."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from kerasish import optimizers
from kerasish.tensor import Variable


def scaled():
    made = optimizers.LossScaleOptimizer(
        optimizers.SGD(0.1, momentum=0.9), initial_scale=8.0, dynamic_growth_steps=3
    )
    w = Variable(np.ones(3, "float32"), name="w")
    made.build([w])
    return made, w


def test_loss_scale_follows_keras():
    # counter, scale, inner counter, weight: recorded from Keras (a gradient of 8 a step, the
    # third not finite).
    expected = [
        (1, 8, 1, 0.9), (2, 8, 2, 0.71), (0, 4, 2, 0.71), (1, 4, 3, 0.339), (2, 4, 4, -0.1949),
        (0, 8, 5, -0.87541), (1, 8, 6, -1.5878689), (2, 8, 7, -2.329082), (0, 16, 8, -3.0961738),
    ]  # fmt: skip
    made, w = scaled()
    assert [v.name for v in made.variables] == [
        "iteration", "learning_rate", "step_counter", "dynamic_scale",
        "iteration", "learning_rate", "w_momentum",
    ]  # fmt: skip
    for number, (counter, scale, inner, value) in enumerate(expected):
        gradient = np.full(3, 8.0, "float32")
        if number == 2:
            gradient[0] = np.inf
        made.apply([gradient])
        assert int(made.step_counter) == counter and float(made.dynamic_scale) == scale
        assert int(made.iterations) == inner
        assert float(w[1]) == pytest.approx(value, rel=1e-5)
        assert float(made.scale_loss(np.float16(1))) == scale


def test_loss_scale_config_copy_and_refusals():
    made, _ = scaled()
    made.learning_rate = 0.5
    assert float(made.inner_optimizer.learning_rate) == 0.5 == float(made.learning_rate)
    again = optimizers.deserialize(optimizers.serialize(made))
    assert again.get_config() == made.get_config()
    assert float(copy.deepcopy(made).dynamic_scale) == 8
    store = {}
    made.save_own_variables(store)
    assert list(store) == [str(i) for i in range(7)]
    with pytest.raises(ValueError, match="clipnorm"):
        optimizers.LossScaleOptimizer(optimizers.SGD(), clipnorm=1.0)
    with pytest.raises(ValueError, match="optimizer was expected"):
        optimizers.LossScaleOptimizer("sgd")


def test_multi_optimizer():
    known = optimizers.OptimizerMap(optimizers.SGD(0.1))
    known["a"] = optimizers.Adam(0.2)
    made = optimizers.MultiOptimizer(known)
    own = [
        Variable(np.ones(n, "float32"), name=name) for name, n in (("a", 3), ("b", 2), ("a2", 2))
    ]
    made.apply([np.ones(v.shape, "float32") for v in own], own)
    assert np.allclose(own[0].numpy(), 0.800002) and np.allclose(own[1].numpy(), 0.9)
    assert np.allclose(own[2].numpy(), 0.9)  # the whole path must match
    assert [v.path for v in made.variables] == [
        "multi_optimizer/iteration", "multi_optimizer/learning_rate",
        "adam/iteration", "adam/learning_rate", "adam/a_momentum", "adam/a_velocity",
        "sgd/iteration", "sgd/learning_rate",
    ]  # fmt: skip
    assert int(made.iterations) == 1
    with pytest.raises(AttributeError, match="optimizers"):
        made.learning_rate  # noqa: B018
    again = optimizers.deserialize(optimizers.serialize(made))
    assert again.get_config() == made.get_config()
    assert again.optimizer_map(own[0]).name == "adam" and len(again.optimizer_map) == 1
    with pytest.raises(ValueError, match="already"):
        known["a"] = optimizers.SGD()
    with pytest.raises(ValueError, match="optimizer was expected"):
        known["b"] = "sgd"


def test_multi_optimizer_by_function():
    made = optimizers.MultiOptimizer(
        lambda v: optimizers.SGD(0.5) if v.name == "a" else optimizers.SGD(0.25),
        loss_scale_factor=2.0,
    )
    a, b = Variable([1.0], name="a"), Variable([1.0], name="b")
    made.apply([[2.0], [2.0]], [a, b])
    assert (float(a[0]), float(b[0])) == (0.5, 0.75)
    assert float(made.scale_loss(1.0)) == 2.0


def eve(gradients, losses, rate=0.1, b1=0.9, b2=0.999, b3=0.99, c=10.0, epsilon=1e-8):
    """Algorithm 1 of the paper, in NumPy."""
    w, m, v, d = 1.0, 0.0, 0.0, 1.0
    values = []
    for t, (g, f) in enumerate(zip(gradients, losses), 1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        if t > 1:
            r = abs(f - losses[t - 2]) / min(f, losses[t - 2])
            d = b3 * d + (1 - b3) * np.clip(r, 1 / c, c)
        w -= rate / d * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + epsilon)
        values.append(w)
    return values


def test_eve_is_the_papers_algorithm():
    gradients = [0.5, -0.2, 0.7, 0.1, 0.4, 0.3]
    losses = [2.0, 1.5, 30.0, 1.2, 1.2, 1.1]
    w, made = Variable([1.0]), optimizers.Eve(0.1, beta_3=0.99)
    for g, f, expected in zip(gradients, losses, eve(gradients, losses)):
        made.apply([[g]], [w], loss=f)
        assert float(w[0]) == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match="loss"):
        made.apply([[1.0]], [w])
    with pytest.raises(ValueError, match="c must"):
        optimizers.Eve(c=0.5)


def test_eve_inside_a_loss_scale():
    made = optimizers.LossScaleOptimizer(optimizers.Eve(0.1), initial_scale=4.0)
    w, plain = Variable([1.0]), Variable([1.0])
    alone = optimizers.Eve(0.1)
    for f in (2.0, 1.0, 0.0, 0.0):
        made.apply([[4.0 * f]], [w], loss=f)
        alone.apply([[f]], [plain], loss=f)
    assert made.needs_loss and float(w[0]) == pytest.approx(float(plain[0]))
    assert np.isfinite(float(w[0]))
