"""The GPU against the CPU: each check is handed an engine, and runs on the fake as well."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import layer_examples
import numpy as np
from op_examples import arguments, call, results

import kerasish
from kerasish import autodiff, config, devices, layers, ops
from kerasish.backends.eager import Eager
from kerasish.ops import dtypes
from kerasish.ops.op import using_engine
from kerasish.tensor import Variable

# Relative to the largest number of a result.
TOLERANCES = {"float32": 3e-5, "float64": 1e-10, "float16": 6e-3, "bfloat16": 5e-2}
# Columns of these results are right with either sign: libraries differ, and so do gradients.
EITHER_SIGN = {"qr", "eigh", "eig", "svd_reduced", "svd_full"}


def compare(found: Any, expected: Any, dtype: str = "float32", factor: float = 1.0) -> None:
    """Compare two arrays: integers exactly, others by the dtype's tolerance."""
    a, b = np.asarray(found), np.asarray(expected)
    assert (a.dtype, a.shape) == (b.dtype, b.shape)
    name = dtypes.name_of(b.dtype)
    if not dtypes.is_inexact(name):
        np.testing.assert_array_equal(a, b)
        return
    wide = "complex128" if name.startswith("complex") else "float64"
    a, b = a.astype(wide), b.astype(wide)
    finite = np.abs(b[np.isfinite(b)])
    size = max(1.0, finite.max(initial=0))
    rough = max(TOLERANCES[dtype], TOLERANCES.get(name, 0.0))
    np.testing.assert_allclose(a, b, rtol=0, atol=factor * rough * size)


def is_on(tensor: Any, engine: Any) -> bool:
    """Return whether a tensor is on the engine's device."""
    return devices.place_of(tensor.value) == getattr(engine, "device", devices.CPU)


def check_op(engine: Any, op: Any, example: Any, dtype: str) -> None:
    """The op gives on the GPU what it gives on the CPU, and so does its gradient."""
    arrays, attrs = arguments(op, example, dtype)
    slopes = op.grad is not None and op.name not in EITHER_SIGN
    made = []
    for one in (Eager(), engine):
        with kerasish.device(getattr(one, "device", "cpu")), using_engine(one):
            made.append(_run_op(op, arrays, attrs, slopes))
            assert all(is_on(t, one) for t in made[-1])
    expected, found = ([t.numpy() for t in many] for many in made)
    assert len(found) == len(expected)
    for a, b in zip(found, expected):
        if op.name in EITHER_SIGN:
            a, b = np.abs(a), np.abs(b)
        compare(a, b, dtype, 10 if op.kind == "decomposition" else 1)


def _run_op(op: Any, arrays: list[Any], attrs: Any, slopes: bool) -> list[Any]:
    """Return the op's results, and with `slopes` the gradients of a sum of them."""
    given = [kerasish.Tensor(a) for a in arrays]
    floats = [i for i, t in enumerate(given) if dtypes.is_float(t.dtype)]
    if not slopes or not floats:
        return list(results(call(op, given, attrs)))

    def weighed(*moving: Any) -> Any:
        everything = list(given)
        for i, t in zip(floats, moving):
            everything[i] = t
        found = results(call(op, everything, attrs))
        total: Any = 0.0
        for t in found:
            for part in (ops.real(t), ops.imag(t)) if t.dtype.startswith("complex") else (t,):
                if dtypes.is_float(part.dtype):
                    total = ops.add(total, ops.sum(ops.cast(part, "float32")))
        return total, list(found)

    moving = [given[i] for i in floats]
    find = autodiff.value_and_grad(weighed, argnums=tuple(range(len(moving))), has_aux=True)
    (_, found), gradients = find(*moving)
    return [*found, *(g for g in gradients if g is not None)]


def check_layer(engine: Any, name: str, dtype: str | None = None) -> None:
    """Results, gradients and what a training step leaves behind are those of the CPU."""
    made = []
    for one in (Eager(), engine):
        config.set_seed(11)
        layer = layer_examples.started(name, dtype)
        with kerasish.device(getattr(one, "device", "cpu")):
            inputs = [kerasish.Tensor(x) for x in layer_examples.data(name)]
            many, value, slopes = one.compile(layer_examples.step_of(layer, name))(inputs)
        left = [v.numpy() for v in layer.variables]
        made.append([t.numpy() for t in (*many, value, *_present(slopes))] + left)
    assert len(made[0]) == len(made[1])
    narrow = dtype is not None  # slopes by float32 weights are sums of numbers of 16 bits
    for a, b in zip(made[1], made[0]):
        compare(a, b, dtype.removeprefix("mixed_") if narrow else "float32", 2 if narrow else 10)


def _present(slopes: Any) -> Iterator[Any]:
    return (g for g in slopes if g is not None)


def check_optimizer(engine: Any, make: Any) -> None:
    """Five steps move variables and slots as on the CPU."""
    made = []
    for one in (Eager(), engine):
        rng = np.random.default_rng(2)
        shapes = ((3, 5), (5,), (2, 3, 2), ())
        own = [Variable(rng.normal(size=s).astype("float32"), name=f"v{s}") for s in shapes]
        optimizer = make()
        step = one.compile(lambda *g: optimizer.apply(list(g), own, **_signals(optimizer)))  # noqa: B023
        with kerasish.device(getattr(one, "device", "cpu")):
            for _ in range(5):
                step(*(rng.normal(size=s).astype("float32") for s in shapes))
        made.append([v.numpy() for v in (*own, *optimizer.variables)])
    for a, b in zip(made[1], made[0]):
        compare(a, b, "float32", 3)


def _signals(optimizer: Any) -> dict[str, Any]:
    return {"loss": ops.convert_to_tensor(2.0)} if optimizer.needs_loss else {}


# --- training -------------------------------------------------------------------------------------

CLASSES = 3


def _images() -> Any:
    return [
        layers.Input((8, 8, 2)), layers.Conv2D(6, 3, padding="same", activation="relu"),
        layers.BatchNormalization(), layers.MaxPooling2D(2), layers.DepthwiseConv2D(3),
        layers.GlobalAveragePooling2D(), layers.Dropout(0.2), layers.Dense(CLASSES),
    ]  # fmt: skip


def _tokens(middle: Any) -> Any:
    return [
        layers.Input((7,), dtype="int32"), layers.Embedding(30, 8), *middle(),
        layers.GlobalAveragePooling1D(), layers.Dense(CLASSES),
    ]  # fmt: skip


class Attending(layers.Layer):
    """One block of a transformer."""

    def build(self, shape: Any) -> None:
        self.attention = layers.MultiHeadAttention(2, 4)
        self.first, self.second = layers.LayerNormalization(), layers.LayerNormalization()
        self.wide, self.narrow = layers.Dense(16, "gelu"), layers.Dense(8)

    def call(self, x: Any) -> Any:
        x = self.first(x + self.attention(x, x))
        return self.second(x + self.narrow(self.wide(x)))


# name -> layers of the model
MODELS: dict[str, Any] = {
    "mlp": lambda: [layers.Input((6,)), layers.Dense(16, "relu"), layers.Dense(CLASSES)],
    "images": _images,
    "lstm": lambda: _tokens(lambda: [layers.LSTM(6, return_sequences=True)]),
    "gru": lambda: _tokens(lambda: [layers.GRU(6, return_sequences=True)]),
    "transformer": lambda: _tokens(lambda: [Attending()]),
}


def train(
    name: str, device: Any, steps: int, rounds: int = 1, optimizer: Any = "adam"
) -> tuple[list[float], Any]:
    """Return (the loss after each step, the model), trained on `device`."""
    kerasish.utils.set_random_seed(5)
    rng = np.random.default_rng(0)
    with kerasish.device(device):
        model = kerasish.Sequential(MODELS[name]())
        loss = kerasish.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss, run_eagerly=True)
        shape = (16 * steps, *model.input_shape[1:])
        whole = len(shape) == 2 and name != "mlp"
        x = rng.integers(0, 30, shape) if whole else rng.normal(size=shape)
        x = x.astype("int32" if whole else "float32")
        y = rng.integers(0, CLASSES, len(x))
        losses: list[float] = []
        for _ in range(rounds):
            for i in range(0, len(x), 16):
                losses.append(float(model.train_on_batch(x[i : i + 16], y[i : i + 16])))
    return losses, model


def check_losses(engine: Any, name: str) -> None:
    """The losses of 20 steps are the CPU's to 1e-4."""
    expected, _ = train(name, "cpu", 20)
    found, model = train(name, engine.device, 20)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert all(devices.place_of(v.latest.value) == engine.device for v in model.trainable_variables)


def check_determinism(engine: Any, name: str) -> None:
    """Two trainings give the same bits."""
    (first, one), (second, two) = (train(name, engine.device, 5) for _ in range(2))
    assert first == second
    for a, b in zip(one.get_weights(), two.get_weights()):
        assert a.tobytes() == b.tobytes()


def check_memory(engine: Any, name: str) -> None:
    """Steps need no more memory than the first ones did, and a dropped model leaves none."""

    def used() -> int:
        gc.collect()
        return devices.memory(engine.device)["used"]

    train(name, engine.device, 3)  # constants that the engine keeps
    before = used()
    _, model = train(name, engine.device, 3)
    few = used()
    del model
    assert used() == before
    _, model = train(name, engine.device, 3, rounds=10)
    assert used() == few
    del model
    assert used() == before


def check_transfers(engine: Any) -> None:
    """Numbers of every dtype come back from the GPU as they went; batches keep their order."""
    for dtype in ("float32", "float16", "bfloat16", "float64", "int32", "uint8", "bool"):
        numbers = np.arange(-3, 300).astype(dtypes.array_dtype(dtype))
        there = kerasish.Tensor(numbers).to(engine.device)
        assert is_on(there, engine)
        np.testing.assert_array_equal(there.numpy(), numbers)
        np.testing.assert_array_equal(there.to("cpu").numpy(), numbers)
    total = engine.compile(lambda x: ops.sum(x, axis=-1))
    waiting = [total(np.full((50, 1000), k, "float32")) for k in range(20)]
    for k, found in enumerate(waiting):  # two pinned buffers served all of them
        np.testing.assert_array_equal(found.numpy(), np.full(50, 1000.0 * k, "float32"))
