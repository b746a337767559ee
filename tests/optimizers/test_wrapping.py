"""LossScaleOptimizer and MultiOptimizer against Keras 3.15.1's numbers."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import kerasish as keras
from kerasish import optimizers
from kerasish.tensor import Variable


def scaled():
    created = optimizers.LossScaleOptimizer(
        optimizers.SGD(0.1, momentum=0.9), initial_scale=8.0, dynamic_growth_steps=3
    )
    w = Variable(np.ones(3, "float32"), name="w")
    created.build([w])
    return created, w


def test_loss_scale_follows_keras():
    # counter, scale, inner counter, weight: recorded from Keras (a gradient of 8 a step, the
    # third not finite).
    expected = [
        (1, 8, 1, 0.9), (2, 8, 2, 0.71), (0, 4, 2, 0.71), (1, 4, 3, 0.339), (2, 4, 4, -0.1949),
        (0, 8, 5, -0.87541), (1, 8, 6, -1.5878689), (2, 8, 7, -2.329082), (0, 16, 8, -3.0961738),
    ]  # fmt: skip
    created, w = scaled()
    assert [v.name for v in created.variables] == [
        "iteration", "learning_rate", "step_counter", "dynamic_scale",
        "iteration", "learning_rate", "w_momentum",
    ]  # fmt: skip
    for number, (counter, scale, inner, value) in enumerate(expected):
        gradient = np.full(3, 8.0, "float32")
        if number == 2:
            gradient[0] = np.inf
        created.apply([gradient])
        assert int(created.step_counter) == counter and float(created.dynamic_scale) == scale
        assert int(created.iterations) == inner
        assert float(w[1]) == pytest.approx(value, rel=1e-5)
        assert float(created.scale_loss(np.float16(1))) == scale


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_a_gradient_that_is_not_finite_sets_the_count_of_good_steps_back(bad):
    created, w = scaled()
    for number in range(bad + 1):
        before = w.numpy().copy()
        created.apply([np.full(3, np.nan if number == bad else 8.0, "float32")])
    np.testing.assert_array_equal(w, before)
    assert int(created.step_counter) == 0 and float(created.dynamic_scale) == 4
    for count in (1, 2, 0):  # three good steps in turn, and not fewer, double the scale
        assert float(created.dynamic_scale) == 4
        created.apply([np.full(3, 8.0, "float32")])
        assert int(created.step_counter) == count
    assert float(created.dynamic_scale) == 8


def test_loss_scale_config_copy_and_refusals():
    created, _ = scaled()
    created.learning_rate = 0.5
    assert float(created.inner_optimizer.learning_rate) == 0.5 == float(created.learning_rate)
    again = optimizers.deserialize(optimizers.serialize(created))
    assert again.get_config() == created.get_config()
    assert float(copy.deepcopy(created).dynamic_scale) == 8
    store = {}
    created.save_own_variables(store)
    assert list(store) == [str(i) for i in range(7)]
    with pytest.raises(ValueError, match="clipnorm"):
        optimizers.LossScaleOptimizer(optimizers.SGD(), clipnorm=1.0)
    with pytest.raises(ValueError, match="optimizer was expected"):
        optimizers.LossScaleOptimizer("sgd")


def test_multi_optimizer():
    keras.utils.clear_session()
    known = optimizers.OptimizerMap(optimizers.SGD(0.1))
    known["a"] = optimizers.Adam(0.2)
    created = optimizers.MultiOptimizer(known)
    own = [
        Variable(np.ones(n, "float32"), name=name) for name, n in (("a", 3), ("b", 2), ("a2", 2))
    ]
    created.apply([np.ones(v.shape, "float32") for v in own], own)
    assert np.allclose(own[0].numpy(), 0.800002) and np.allclose(own[1].numpy(), 0.9)
    assert np.allclose(own[2].numpy(), 0.9)  # the whole path must match
    assert [v.path for v in created.variables] == [
        "multi_optimizer/iteration", "multi_optimizer/learning_rate",
        "adam/iteration", "adam/learning_rate", "adam/a_momentum", "adam/a_velocity",
        "sgd/iteration", "sgd/learning_rate",
    ]  # fmt: skip
    assert int(created.iterations) == 1
    with pytest.raises(AttributeError, match="optimizers"):
        created.learning_rate  # noqa: B018
    again = optimizers.deserialize(optimizers.serialize(created))
    assert again.get_config() == created.get_config()
    assert again.optimizer_map(own[0]).name == "adam" and len(again.optimizer_map) == 1
    with pytest.raises(ValueError, match="already"):
        known["a"] = optimizers.SGD()
    with pytest.raises(ValueError, match="optimizer was expected"):
        known["b"] = "sgd"


def test_multi_optimizer_by_function():
    created = optimizers.MultiOptimizer(
        lambda v: optimizers.SGD(0.5) if v.name == "a" else optimizers.SGD(0.25),
        loss_scale_factor=2.0,
    )
    a, b = Variable([1.0], name="a"), Variable([1.0], name="b")
    created.apply([[2.0], [2.0]], [a, b])
    assert (float(a[0]), float(b[0])) == (0.5, 0.75)
    assert float(created.scale_loss(1.0)) == 2.0


def test_a_path_that_two_keys_match_is_an_error():
    known = optimizers.OptimizerMap(optimizers.SGD(0.1))
    known[".*kernel"] = optimizers.SGD(0.2)
    known["head/.*"] = optimizers.SGD(0.3)
    known["body/kernel"] = exact = optimizers.SGD(0.4)
    with pytest.raises(ValueError, match="more than one"):
        known["head/kernel"]
    assert known["body/kernel"] is exact


@pytest.mark.parametrize("wrap", [optimizers.LossScaleOptimizer, optimizers.MultiOptimizer])
def test_optimizers_around_others_do_not_stand_inside_a_multi_optimizer(wrap):
    plain = optimizers.SGD()
    created = wrap(
        plain if wrap is optimizers.LossScaleOptimizer else optimizers.OptimizerMap(plain)
    )
    with pytest.raises(ValueError, match="plain"):
        optimizers.OptimizerMap(plain)["a"] = created
    with pytest.raises(ValueError, match="plain"):
        optimizers.MultiOptimizer(lambda v: created).build([Variable([1.0])])


def test_one_loss_scale_counts_for_all():
    inside = optimizers.SGD(1.0, loss_scale_factor=4.0)
    both = optimizers.MultiOptimizer(optimizers.OptimizerMap(inside), loss_scale_factor=2.0)
    w = Variable([1.0])
    both.apply([[1.0]], [w])
    assert float(w[0]) == 0.5
    around = optimizers.LossScaleOptimizer(both, initial_scale=8.0)
    assert both.loss_scale_factor is inside.loss_scale_factor is None
    around.apply([[2.0]], [w])
    assert float(w[0]) == 0.25


def test_loss_scale_leaves_overwriting_gradients_as_they_are():
    created, range_ = optimizers.LossScaleOptimizer(optimizers.SGD()), Variable([1.0])
    range_.overwrite_with_gradient = True
    created.apply([[3.0]], [range_])
    assert float(range_[0]) == 3.0


def test_loss_scale_reads_configs_of_old_files():
    created = optimizers.LossScaleOptimizer(optimizers.SGD(0.5), initial_scale=4.0)
    old = {**created.get_config(), "clipnorm": None, "use_ema": False, "ema_momentum": 0.99}
    again = optimizers.LossScaleOptimizer.from_config(old)
    assert again.get_config() == created.get_config()
    assert optimizers.LossScaleOptimizer(optimizers.SGD(), dynamic=True).built is False
    with pytest.raises(ValueError, match="loss_scale_factor"):
        optimizers.LossScaleOptimizer(optimizers.SGD(), dynamic=False)
    with pytest.raises(ValueError, match="ema_momentum"):
        optimizers.LossScaleOptimizer(optimizers.SGD(), ema_momentum=0.5)


def two_rates(**first):
    """A model of two layers, each with an optimizer, and those two."""
    slow, fast = optimizers.SGD(0.01, name="slow", **first), optimizers.SGD(0.1, name="fast")
    both = optimizers.MultiOptimizer(optimizers.OptimizerMap(fast, {".*low/.*": slow}))
    layers = [keras.layers.Dense(2, name="low"), keras.layers.Dense(1, name="high")]
    model = keras.Sequential([keras.Input((1,)), *layers])
    model.compile(both, "mse")
    return model, slow, fast


ROWS = np.array([[0.0], [1.0]], "float32")


def test_unused_optimizers_are_listed_too():
    used, unused = optimizers.SGD(0.1), optimizers.Adam()
    both = optimizers.MultiOptimizer(optimizers.OptimizerMap(unused, {"w": used}))
    assert both.optimizers == [used, unused]
    both.apply([[1.0]], [Variable([1.0], name="w")])
    assert [int(one.iterations) for one in (both, used, unused)] == [1, 1, 0]


def test_schedules_set_each_rate_of_a_multi_optimizer():
    model, slow, fast = two_rates()
    halved = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)
    history = model.fit(ROWS, ROWS, verbose=0, callbacks=[halved]).history
    np.testing.assert_allclose(history["learning_rate_slow"], 0.005)
    np.testing.assert_allclose(history["learning_rate_fast"], 0.05)
    plateau = keras.callbacks.ReduceLROnPlateau("loss", 0.1, patience=1, min_lr=0.01)
    plateau.set_model(model)
    for epoch in range(2):
        plateau.on_epoch_end(epoch, {"loss": 1.0})
    np.testing.assert_allclose([slow.learning_rate, fast.learning_rate], [0.005, 0.01])


def test_averages_inside_a_multi_optimizer_change_places_with_weights():
    model, slow, _ = two_rates(use_ema=True, ema_momentum=0.5)
    swap = keras.callbacks.SwapEMAWeights()
    model.fit(ROWS, ROWS + 1, epochs=2, verbose=0, callbacks=[swap])
    low, high = model.layers[0].kernel, model.layers[1].kernel
    low.assign(low.value + 1.0)
    before = low.numpy().copy(), high.numpy().copy()
    swap.on_test_begin()
    assert slow.averages_swapped and not np.allclose(low.numpy(), before[0])
    np.testing.assert_array_equal(high.numpy(), before[1])
    swap.on_test_end()
    np.testing.assert_array_equal(low.numpy(), before[0])


def test_each_optimizer_finalizes_its_own_variables():
    inner = [optimizers.SGD(0.5, use_ema=True, ema_momentum=m) for m in (0.5, 0.75)]
    created = optimizers.MultiOptimizer(optimizers.OptimizerMap(inner[0], {"b": inner[1]}))
    own = [Variable([1.0], name="a"), Variable([1.0], name="b")]
    for _ in range(3):
        created.apply([[1.0], [1.0]], own)
    averages = [float(one._averages[0].numpy()[0]) for one in inner]
    assert len({-0.5, *averages}) == 3
    created.finalize_variable_values(own)
    assert [float(v.numpy()[0]) for v in own] == averages


@pytest.mark.parametrize("eager", [False, True], ids=["static", "eager"])
def test_a_fit_in_float16_that_overflows_recovers(eager):
    keras.utils.set_random_seed(1)
    policy = keras.dtype_policies.DTypePolicy("mixed_float16")
    hidden = keras.layers.Dense(16, activation="relu", dtype=policy)
    model = keras.Sequential([keras.Input((4,)), hidden, keras.layers.Dense(1, dtype=policy)])
    model.dtype_policy = policy
    model.compile(optimizers.Adam(0.01), "mse", run_eagerly=eager)
    assert isinstance(model.optimizer, optimizers.LossScaleOptimizer)
    x = np.random.default_rng(2).normal(size=(64, 4)).astype("float32")
    y = x.sum(1, keepdims=True)
    first = model.fit(x, y, batch_size=32, epochs=30, verbose=0).history["loss"]
    scale, steps = float(model.optimizer.dynamic_scale), int(model.optimizer.iterations)
    before = [w.numpy() for w in model.weights]
    model.fit(x, y + 1e37, batch_size=32, epochs=2, verbose=0)  # gradients beyond float32
    for old, w in zip(before, model.weights):  # steps that are left out
        np.testing.assert_array_equal(old, w.numpy())
    assert float(model.optimizer.dynamic_scale) == scale / 16
    assert int(model.optimizer.iterations) == steps
    after = model.fit(x, y, batch_size=32, epochs=10, verbose=0).history["loss"]
    assert np.isfinite(after).all() and after[-1] < 0.5 * first[0]
    assert int(model.optimizer.iterations) == steps + 20


def test_a_scale_beyond_float16_comes_down_by_itself():
    """On the eager engine; the static one computes halves in float32 where it can."""
    keras.utils.set_random_seed(1)
    layer = keras.layers.Dense(1, dtype="mixed_float16")
    model = keras.Sequential([keras.Input((4,)), layer])
    scaled = optimizers.LossScaleOptimizer(optimizers.SGD(0.1), initial_scale=2.0**30)
    model.compile(scaled, "mse", run_eagerly=True)
    x = np.random.default_rng(2).normal(size=(64, 4)).astype("float32")
    model.fit(x, x.sum(1, keepdims=True), batch_size=32, epochs=20, verbose=0)
    assert 0 < int(scaled.iterations) < 40 and float(scaled.dynamic_scale) < 2.0**24
    assert model.evaluate(x, x.sum(1, keepdims=True), verbose=0) < 0.1
