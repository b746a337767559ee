"""Weights that products keep in their own layout: reordered when the variable has changed, only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kerasish
from kerasish import config, layers, ops
from kerasish.backends import onednn
from kerasish.backends.onednn import native
from kerasish.backends.static.engine import COMPILED_PLANS, Static
from kerasish.backends.static.lowering import compiled_plan
from kerasish.backends.static.machine import guard_pages
from kerasish.ops.networks.quantized import integer_matmul


def exact() -> bool:
    """Return whether oneDNN multiplies int8 exactly here, in a layout of its own."""
    if native.available() or guard_pages.mode():
        return False
    sizes = ((16, 256), (256, 256))
    product = onednn.matmul(*sizes, dtype="int8", out_dtype="int32", b_layout="any")
    plain = onednn.matmul(*sizes, dtype="int8", out_dtype="int32")
    return "vnni" in product.implementation and product.arguments["b"] != plain.arguments["b"]


needs_exact = pytest.mark.skipif(
    not exact(), reason="no product of int8 with weights in a layout of its own on this processor"
)
pytestmark = pytest.mark.skipif(
    bool(native.available() or guard_pages.mode()), reason="without oneDNN nothing is kept"
)


ENGINE = Static()


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-100, 100, shape).astype("int8")


def product_of(weights: Any, extra: Any = None) -> Any:
    """Return a compiled function of rows: their product with a variable."""

    def step(x: Any) -> Any:
        y = integer_matmul(x, weights)
        return y if extra is None else extra(y)

    return compiled_step(step)


def compiled_step(step: Any) -> Any:
    return ENGINE.compile(step)


def kept_of(step: Any) -> Any:
    """Return what the latest program of a compiled function keeps."""
    (executable,) = step.executables()
    return executable.kept


def is_stale(kept: Any) -> bool:
    """Return whether the next run reorders some weights."""
    kept.begin()
    return bool(kept.flags.any())


def exact_product(x: Any, weights: Any) -> Any:
    return x.astype("int32") @ np.asarray(weights).astype("int32")


@needs_exact
def test_weights_are_reordered_once_and_after_each_change() -> None:
    weights = kerasish.Variable(numbers(256, 256), dtype="int8", trainable=False)
    step, x = product_of(weights), numbers(16, 256, seed=1)
    first = weights.numpy()
    np.testing.assert_array_equal(step(x).numpy(), exact_product(x, first))
    kept = kept_of(step)
    assert kept.nbytes >= 256 * 256
    assert not is_stale(kept)
    np.testing.assert_array_equal(step(x).numpy(), exact_product(x, first))
    for seed in (2, 3):
        weights.assign(numbers(256, 256, seed=seed))
        expected = exact_product(x, weights.numpy())
        for _ in range(2):
            np.testing.assert_array_equal(step(x).numpy(), expected)
            assert not is_stale(kept)


@needs_exact
def test_another_program_changes_the_weights() -> None:
    weights = kerasish.Variable(numbers(256, 256), dtype="int8", trainable=False)
    step, x = product_of(weights), numbers(16, 256, seed=1)
    step(x)

    def change(by: Any) -> None:
        weights.assign(weights + by)

    compiled_step(change)(np.array(3, "int8"))
    changed = (numbers(256, 256) + 3).astype("int8")
    np.testing.assert_array_equal(weights.numpy(), changed)
    np.testing.assert_array_equal(step(x).numpy(), exact_product(x, changed))


@needs_exact
def test_a_program_that_changes_the_weights_keeps_none() -> None:
    weights = kerasish.Variable(numbers(256, 256), dtype="int8", trainable=False)

    def step(x: Any) -> Any:
        y = integer_matmul(x, weights)
        weights.assign(weights + np.int8(1))
        return y

    compiled, x = compiled_step(step), numbers(16, 256, seed=1)
    for i in range(3):
        expected = exact_product(x, numbers(256, 256) + np.int8(i))
        np.testing.assert_array_equal(compiled(x).numpy(), expected)
    assert kept_of(compiled).nbytes == 0


@needs_exact
def test_a_run_that_fails_is_not_believed() -> None:
    weights = kerasish.Variable(numbers(256, 256), dtype="int8", trainable=False)
    table = kerasish.Variable(np.zeros((4, 8), "float32"), trainable=False)

    def step(x: Any, rows: Any) -> Any:
        weighted = ops.take(table, rows, axis=0)  # fails before the product
        return integer_matmul(x, weights) + ops.cast(ops.sum(weighted), "int32")

    compiled, x = compiled_step(step), numbers(16, 256, seed=1)
    good, bad = np.zeros(2, "int32"), np.full(2, 9, "int32")
    compiled(x, good)
    weights.assign(numbers(256, 256, seed=5))
    with pytest.raises(IndexError):
        compiled(x, bad)
    expected = exact_product(x, weights.numpy())
    np.testing.assert_array_equal(compiled(x, good).numpy(), expected)


@needs_exact
def test_two_models_of_one_plan_keep_their_own(tmp_path: Any) -> None:
    def build() -> Any:
        model = kerasish.Sequential([kerasish.Input((256,)), layers.Dense(256)])
        model.quantize("int8")
        return model

    models = [build(), build()]
    x = np.random.default_rng(0).normal(size=(16, 256)).astype("float32")
    results = [model.predict(x, verbose=0) for model in models]
    assert np.abs(results[0] - results[1]).max() > 0.1
    for model, result in zip(models, results):
        np.testing.assert_array_equal(model.predict(x, verbose=0), result)
    models[0].save_weights(tmp_path / "a.weights.h5")
    models[1].load_weights(tmp_path / "a.weights.h5")
    np.testing.assert_array_equal(models[1].predict(x, verbose=0), results[0])


def network() -> Any:
    x = kerasish.Input((12, 12, 8))
    y = layers.Conv2D(64, 3, activation="relu")(x)
    y = layers.Conv2DTranspose(32, 3)(y)
    return kerasish.Model(x, layers.Dense(96)(layers.Flatten()(y)))


def test_float_weights_are_followed_through_training_and_assignment() -> None:
    model = network()
    model.compile(optimizer=kerasish.optimizers.SGD(0.01), loss="mse")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(16, 12, 12, 8)).astype("float32"), rng.normal(size=(16, 96))
    for turn in range(3):
        for _ in range(2):
            result = model.predict(x, verbose=0)
            expected = np.asarray(model(x))  # op by op
            np.testing.assert_allclose(result, expected, atol=1e-5 * np.abs(expected).max())
        before = result
        if turn == 0:
            model.fit(x, y, epochs=2, batch_size=8, verbose=0)
        else:
            model.set_weights([w * 1.5 for w in model.get_weights()])
        assert np.abs(model.predict(x, verbose=0) - before).max() > 1e-3


@pytest.mark.parametrize("threads", [1, 2])
def test_many_batches_in_one_native_call_reorder_once(threads: int) -> None:
    """The run clears the flag itself, since Python sets it before the first batch only.

    On one thread the library multiplies; beside a helper the product packs its weights itself.
    """
    model = kerasish.Sequential([kerasish.Input((256,)), layers.Dense(256), layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.random.default_rng(0).normal(size=(64, 256)).astype("float32")
    expected = float(np.mean(np.asarray(model(x)) ** 2))
    with config.using_threads(threads):
        for _ in range(2):
            loss = model.evaluate(x, np.zeros((64, 1)), batch_size=16, verbose=0)
            np.testing.assert_allclose(loss, expected, rtol=1e-5)
            kept = [e.kept for e in model.training_program.step("test").executables()]
            assert any(k.nbytes for k in kept) and not any(k.flags.any() for k in kept)
            assert not any(map(is_stale, kept))  # nor does the next call
            model.fit(x, np.ones((64, 1)), batch_size=16, verbose=0)
            expected = float(np.mean(np.asarray(model(x)) ** 2))


def test_a_run_over_rows_that_fails_is_not_believed() -> None:
    """Its first batch fails before the product that keeps its weights."""
    weights = kerasish.Variable(numbers(256, 256).astype("float32"), trainable=False)

    class Taken(layers.Layer):
        def call(self, rows: Any) -> Any:
            return ops.sum(ops.matmul(self.table[rows], weights), axis=1)

        def build(self, shape: Any) -> None:
            self.table = self.add_weight(shape=(4, 256), trainable=False, initializer="ones")

    model = kerasish.Sequential([kerasish.Input((), dtype="int32"), Taken()])
    model.compile(loss="mse")
    rows, zeros = np.zeros(64, "int32"), np.zeros(64)
    for seed in range(3):
        loss = model.evaluate(rows, zeros, batch_size=32, verbose=0)
        total = weights.numpy().astype("float64").sum()
        np.testing.assert_allclose(loss, total**2, rtol=1e-4)
        weights.assign(numbers(256, 256, seed=seed + 7).astype("float32"))
        with pytest.raises(IndexError):
            model.evaluate(rows + 9, zeros, batch_size=32, verbose=0)


@pytest.mark.parametrize("again", [False, True])
def test_a_new_value_that_the_same_step_multiplies_by_is_not_kept(again: bool) -> None:
    """As a discriminator is updated, then judges the generator: its buffer holds the new value."""
    first = numbers(256, 256).astype("float32") / 100
    weights = kerasish.Variable(first)
    total = kerasish.Variable(np.zeros((16, 256), "float32"))

    def step(x: Any) -> Any:
        if again:
            total.assign(ops.matmul(x, weights))
        weights.assign(weights + 1.0)
        return ops.matmul(x, weights)

    compiled, x = compiled_step(step), np.ones((16, 256), "float32")
    for i in range(1, 4):
        np.testing.assert_allclose(compiled(x).numpy(), x @ (first + i), rtol=1e-4)
    assert kept_of(compiled).nbytes == 0


def test_copies_of_floats_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = [kerasish.Variable(numbers(256, 256, seed=i).astype("float32")) for i in range(3)]

    def step(x: Any) -> Any:
        for w in weights:
            x = ops.matmul(x, w)
        return x

    x = numbers(16, 256).astype("float32")
    for most, count in ((1 << 28, 3), (256 * 256 * 4 * 2, 2), (0, 0)):
        monkeypatch.setattr(compiled_plan, "MOST_KEPT", most)
        COMPILED_PLANS.clear()
        compiled = compiled_step(step)
        compiled(x)
        assert kept_of(compiled).nbytes == count * 256 * 256 * 4
    COMPILED_PLANS.clear()
