"""remat and RematScope: the same numbers bit for bit, from less memory, on both engines."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import kerasish as keras
from kerasish import layers, ops
from kerasish.errors import UnknownNameError

RNG = np.random.default_rng(5)
X = RNG.normal(size=(64, 16)).astype("float32")
Y = RNG.normal(size=(64, 3)).astype("float32")
WORDS = RNG.integers(0, 6, (64, 5))


class Block(layers.Layer):
    """What goes wrong easily: random numbers, statistics, losses, metrics, a branch."""

    def __init__(self, seed: int = 3, loss: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        width = 16
        self.loss = loss
        self.wide = layers.Dense(
            4 * width, activation="gelu", activity_regularizer="l2" if loss else None
        )
        self.drop = layers.Dropout(0.4, seed=seed)
        self.back = layers.Dense(width)
        self.norm = layers.BatchNormalization()
        self.seen = keras.metrics.Mean(name=f"seen_{seed}")
        self.noise = keras.random.SeedGenerator(seed)

    def call(self, x: Any, training: bool = False) -> Any:
        y = self.back(self.drop(self.wide(x), training=training))
        self.seen.update_state(y)
        if self.loss:
            self.add_loss(0.01 * ops.mean(ops.square(y)))
        level = keras.random.uniform((), seed=self.noise)
        y = ops.cond(
            level > 0.5, lambda: y * 2.0, lambda: y + ops.cast(self._jitter(y.shape), y.dtype)
        )
        return x + self.norm(y, training=training)

    def _jitter(self, shape: Any) -> Any:
        return keras.random.normal(shape, seed=self.noise) * 0.1


def trained(
    scope: Any, make: Any, x: Any = X, y: Any = Y, policy: str = "float32", optimizer: str = "adam"
) -> Any:
    keras.utils.set_random_seed(1)
    keras.config.set_dtype_policy(policy)
    try:
        with scope:
            model = make()
    finally:
        keras.config.set_dtype_policy("float32")
    model.compile(optimizer, "mse")
    history = model.fit(x, y, batch_size=32, epochs=2, verbose=0).history
    return model, history


def blocks() -> Any:
    stack = [Block(seed=i, name=f"block_{i}") for i in range(3)]
    return keras.Sequential([keras.Input((16,)), *stack, layers.Dense(3)])


def recurrent(residual: bool = False) -> Any:
    middle = layers.GRU(6, dropout=0.2, recurrent_dropout=0.2, return_sequences=True, seed=1)
    attention = layers.MultiHeadAttention(2, 3, dropout=0.1, seed=2)
    x = keras.Input((5,))
    y = middle(layers.Embedding(6, 4, mask_zero=True)(x))
    z = attention(y, y)
    y = layers.LayerNormalization()(layers.Add()([y, z]) if residual else z)
    return keras.Model(x, layers.Dense(3)(layers.GlobalAveragePooling1D()(y)))


SCOPES = {
    "full": lambda: keras.RematScope(),
    "activations": lambda: keras.RematScope("activations"),
    "larger_than": lambda: keras.RematScope("larger_than", output_size_threshold=1500),
    "list_of_layers": lambda: keras.RematScope("list_of_layers", layer_names=["block_1", "gru"]),
}
NONE = keras.RematScope(None)


def expect_equal(a: Any, b: Any) -> None:
    assert a[1] == b[1]
    for u, v in zip(a[0].variables, b[0].variables):
        np.testing.assert_array_equal(u.numpy(), v.numpy(), err_msg=u.path)


@pytest.mark.parametrize("mode", SCOPES)
def test_training_is_the_same_bit_for_bit(mode: str, engine: str) -> None:
    expect_equal(trained(SCOPES[mode](), blocks), trained(NONE, blocks))


@pytest.mark.parametrize("mode", SCOPES)
def test_sequences_masks_and_attention_too(mode: str, engine: str) -> None:
    created = [trained(s, recurrent, WORDS, optimizer="sgd") for s in (SCOPES[mode](), NONE)]
    if engine == "eager":
        expect_equal(*created)
    for u, v in zip(created[0][0].weights, created[1][0].weights):  # other loops are fused
        np.testing.assert_allclose(u.numpy(), v.numpy(), rtol=1e-5, atol=1e-7)


def test_what_is_used_inside_and_outside_is_added_up_in_another_order(engine: str) -> None:
    created = [
        trained(s, lambda: recurrent(residual=True), WORDS, optimizer="sgd")[0]
        for s in (keras.RematScope(), NONE)
    ]
    for u, v in zip(created[0].weights, created[1].weights):
        np.testing.assert_allclose(u.numpy(), v.numpy(), rtol=1e-5, atol=1e-7)


def test_mixed_precision_too() -> None:
    """On the static engine, what is fused is rounded once: equal there but for that."""
    before = keras.config.backend()
    try:
        for engine, tolerance in (("eager", 0.0), ("static", 2e-3)):
            keras.config.set_backend(engine)
            created = [
                trained(s, blocks, policy="mixed_bfloat16", optimizer="sgd")[0]
                for s in (keras.RematScope(), NONE)
            ]
            for u, v in zip(created[0].weights, created[1].weights):
                np.testing.assert_allclose(u.numpy(), v.numpy(), rtol=0, atol=tolerance)
    finally:
        keras.config.set_backend(before)


def mlp(width: int = 256) -> Any:
    inner = [layers.Dense(width, "gelu") for _ in range(8)]
    return keras.Sequential([keras.Input((16,)), *inner, layers.Dense(3)])


@pytest.mark.parametrize("engine", ["static"], indirect=True)
def test_the_static_engine_plans_less_memory(engine: str) -> None:
    x, y = np.zeros((512, 16), "float32"), np.zeros((512, 3), "float32")
    planned = {}
    for mode in ("full", "activations", None):
        model, step = _step(mode, x, y)
        step()
        planned[mode] = model.memory_report()["train"]["planned"]
    assert planned["full"] < 0.75 * planned[None] and planned["activations"] < 0.75 * planned[None]


def _step(mode: Any, x: Any, y: Any, eager: bool = False) -> Any:
    with keras.RematScope(mode):
        model = mlp()
    model.compile("sgd", "mse", run_eagerly=eager)
    return model, lambda: model.train_on_batch(x, y)


@pytest.mark.slow
def test_the_eager_engine_needs_less_at_its_peak() -> None:
    x, y = np.zeros((2048, 16), "float32"), np.zeros((2048, 3), "float32")
    peaks = {}
    for mode in ("full", None):
        _, step = _step(mode, x, y, eager=True)
        tracemalloc.start()
        step()
        peaks[mode] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peaks["full"] < 0.7 * peaks[None]


# --- functions -----------------------------------------------------------------------------------


def _loss(x: Any, w: Any) -> Any:
    return ops.sum(ops.tanh(ops.matmul(ops.sin(x), w)) ** 2)


def test_gradients_of_a_function(engine: str) -> None:
    w = RNG.normal(size=(16, 4)).astype("float32")
    for wrapped in (keras.remat(_loss), keras.remat(keras.remat(_loss))):
        for plain, other in zip(
            keras.value_and_grad(_loss, (0, 1))(X, w)[1],
            keras.function(keras.value_and_grad(wrapped, (0, 1)))(X, w)[1],
        ):
            np.testing.assert_allclose(other.numpy(), plain.numpy(), rtol=2e-5, atol=1e-6)


def test_what_a_function_closes_over_gets_its_gradient() -> None:
    v = keras.Variable(np.float32(2.0))
    x = keras.Tensor(3.0, requires_grad=True)
    with keras.GradientTape() as tape:
        z = x * 5.0
        out = keras.remat(lambda a: {"y": a * z * v, "n": 3})(x)
        assert out["n"] == 3
        result = out["y"] * 1.0
    slopes = tape.gradient(result, [x, v])
    np.testing.assert_allclose([float(s) for s in slopes], [2 * 2 * 5 * 3, 5 * 9])


def test_second_derivatives() -> None:
    cube = keras.remat(lambda x: x * x * x)
    assert float(keras.grad(keras.grad(cube))(2.0)) == 12.0
    assert float(keras.grad(keras.grad(keras.grad(cube)))(2.0)) == 6.0


def test_only_a_part_of_several_results_is_used() -> None:
    def two(x: Any) -> Any:
        return ops.sin(x), (ops.cos(x), x)

    def last(x: Any) -> Any:
        _, (second, same) = keras.remat(two)(x)
        return second + 2.0 * same

    assert float(keras.grad(last)(1.0)) == pytest.approx(2.0 - np.sin(1.0), abs=1e-6)


def test_random_numbers_without_a_seed_are_drawn_once() -> None:
    keras.utils.set_random_seed(3)
    x = keras.Tensor(np.ones(1000, "float32"), requires_grad=True)
    y = keras.remat(lambda a: keras.random.dropout(a, 0.5))(x)
    kept = y.numpy()
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), kept)
    assert 300 < np.count_nonzero(kept) < 700


def test_variables_assigned_outside_steps_are_assigned_once() -> None:
    count = keras.Variable(np.float32(1.0), trainable=False)
    x = keras.Tensor(3.0, requires_grad=True)

    def counted(a: Any) -> Any:
        count.assign_add(1.0)
        return a * a * count

    y = keras.remat(counted)(x)
    assert float(count) == 2.0
    y.backward()
    assert float(count) == 2.0 and float(x.grad) == 12.0


def test_what_needs_no_gradient_runs_once() -> None:
    calls = []

    def f(a: Any) -> Any:
        calls.append(1)
        return a * 2.0

    with keras.no_gradient():
        assert float(keras.remat(f)(3.0)) == 6.0
    assert keras.remat(f)(keras.Input((2,))).shape == (None, 2)
    assert float(keras.remat(f)(ops.convert_to_tensor(3.0))) == 6.0
    assert len(calls) < 5


def test_a_layer_can_be_wrapped() -> None:
    layer = layers.Dense(2, kernel_initializer="ones")
    x = keras.Tensor(X[:2], requires_grad=True)
    keras.remat(layer)(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2.0)
    np.testing.assert_allclose(layer.bias.grad.numpy(), 2.0)


# --- scopes --------------------------------------------------------------------------------------


def test_losses_and_metrics_of_layers_count_once() -> None:
    result = []
    for scope in (keras.RematScope(), NONE):
        keras.utils.set_random_seed(2)
        with scope:
            block = Block(loss=True)
        x = keras.Tensor(X, requires_grad=True)
        y = block(x, training=True)
        ops.add(ops.sum(y), sum(block.losses)).backward()
        result.append(([float(one) for one in block.losses], float(block.seen.result()),
                      x.grad.numpy()))  # fmt: skip
    assert result[0][:2] == result[1][:2] and len(result[0][0]) == 2
    np.testing.assert_allclose(result[0][2], result[1][2], atol=1e-6)  # sums in another order


def test_scopes_hold_for_the_layers_made_inside() -> None:
    with keras.RematScope():
        full = layers.Dense(1)
        with keras.RematScope("list_of_layers", layer_names=["me"]):
            inner = layers.Dense(1, name="me")
        with NONE:
            none = layers.Dense(1)
        after = layers.Dense(1)
    outside = layers.Dense(1)
    modes = [getattr(one._remat_mode, "mode", None) for one in (full, inner, none, after, outside)]
    assert modes == ["full", "list_of_layers", None, "full", None]
    assert outside.rematerialized_call(outside.call) == outside.call
    assert after.rematerialized_call(after.call) != after.call


def test_an_unknown_mode_lists_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="mode of RematScope: 'ful'.*'full'"):
        keras.RematScope("ful")
