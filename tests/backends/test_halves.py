"""Models in halves on the static engine: as exact as float32, natively, on any processor."""

from __future__ import annotations

import numpy as np
import pytest

import kerasish as keras
from kerasish.backends.onednn import library as onednn_library
from kerasish.backends.onednn import native
from kerasish.backends.onednn.library import has_bfloat16, slow_halves
from kerasish.layers import (
    GRU,
    LSTM,
    Conv2D,
    Dense,
    DepthwiseConv2D,
    Embedding,
    Flatten,
    GlobalAveragePooling1D,
    Input,
    LayerNormalization,
    MaxPooling2D,
    MultiHeadAttention,
    SimpleRNN,
)


def _attention():
    x = Input((6, 8))
    y = LayerNormalization()(x + MultiHeadAttention(2, 4)(x, x))
    return keras.Model(x, Dense(3)(GlobalAveragePooling1D()(y)))


MODELS = {
    "mlp": ((9,), lambda: keras.Sequential([Dense(40, "relu"), Dense(40, "tanh"), Dense(3)])),
    "pictures": (
        (8, 8, 2),
        lambda: keras.Sequential(
            [
                Conv2D(4, 3, activation="relu"),
                DepthwiseConv2D(3),
                MaxPooling2D(2),
                Flatten(),
                Dense(3),
            ]
        ),
    ),
    "lstm": ((5, 4), lambda: keras.Sequential([LSTM(8), Dense(3)])),
    "gru": ((5, 4), lambda: keras.Sequential([GRU(8), Dense(3)])),
    "rnn": ((5, 4), lambda: keras.Sequential([SimpleRNN(8), Dense(3)])),
    "attention": ((6, 8), _attention),
    "embedding": ((6,), lambda: keras.Sequential([Embedding(900, 8), Flatten(), Dense(3)])),
}


@pytest.fixture(autouse=True)
def _policy():
    before = keras.config.dtype_policy()
    yield
    keras.config.set_dtype_policy(before)


def losses(name, policy, steps=6):
    """Return the losses of a few steps, and the executable of the step."""
    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy(policy)
    shape, make = MODELS[name]
    rng = np.random.default_rng(0)
    x = rng.integers(0, 900, (32, *shape)) if name == "embedding" else rng.normal(size=(32, *shape))
    y = rng.integers(0, 3, 32)
    model = make()
    model.compile(
        keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    result = [float(model.train_on_batch(x, y)) for _ in range(steps)]
    return result, model.training_program.step("train").executables()[0]


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16", "bfloat16", "float16"])
@pytest.mark.parametrize("name", MODELS)
def test_training_in_halves_is_native_and_follows_float32(name, policy, monkeypatch):
    monkeypatch.setenv("KERASISH_BFLOAT16", "float32")
    expected, step = losses(name, "float32")
    got, half_step = losses(name, policy)
    rough = 0.05 if policy in ("bfloat16", "float16") else 0.005
    np.testing.assert_allclose(got, expected, rtol=rough)
    if policy == "mixed_bfloat16":  # a step of float32, sparse updates and all
        assert [u.name for u in half_step.units] == [u.name for u in step.units]
        assert ("update of rows" in [u.name for u in step.units]) is (name == "embedding")
    slow = {u.name for u in half_step.units if not u.native}
    assert slow <= {"cond"} | {u.name for u in step.units if not u.native}  # the loss's scale


@pytest.mark.parametrize("name", MODELS)
def test_bfloat16_as_the_processor_has_it(name, monkeypatch):
    """By instructions where there are some, else by NumPy: slow, and right."""
    monkeypatch.setenv("KERASISH_BFLOAT16", "native")
    got, _ = losses(name, "mixed_bfloat16")
    np.testing.assert_allclose(got, losses(name, "float32")[0], rtol=0.03)


def test_who_computes_bfloat16(monkeypatch):
    monkeypatch.delenv("KERASISH_BFLOAT16", raising=False)
    assert ("bfloat16" in slow_halves()) is not has_bfloat16()
    monkeypatch.setenv("KERASISH_BFLOAT16", "native")
    # Without oneDNN nothing multiplies halves.
    assert slow_halves() == (("float16", "bfloat16") if native.available() else ("float16",))
    monkeypatch.setattr(native, "available", lambda: "not there")
    assert slow_halves() == ("float16", "bfloat16")
    monkeypatch.setenv("KERASISH_BFLOAT16", "float32")
    assert "bfloat16" in slow_halves()
    monkeypatch.setenv("KERASISH_BFLOAT16", "fast")
    with pytest.raises(ValueError, match="KERASISH_BFLOAT16='fast'"):
        slow_halves()


@pytest.mark.parametrize(
    ("isa", "expected"),
    [(0x7, False), (0x1F, False), (0x27, False), (0x67, False), (0xE7, True), (0xFEF, True)],
)
def test_instruction_sets(isa, expected, monkeypatch):
    """oneDNN's numbers of AVX2, AVX2-VNNI-2, AVX-512, its VNNI, its bfloat16, AMX."""

    class Library:
        @staticmethod
        def dnnl_get_effective_cpu_isa():
            return isa

    monkeypatch.setattr(native, "available", lambda: "")
    monkeypatch.setattr(native, "library", Library)
    monkeypatch.setattr(Library.dnnl_get_effective_cpu_isa, "restype", None, raising=False)
    monkeypatch.setattr(
        onednn_library, "_has_bfloat16_instructions",
        onednn_library._has_bfloat16_instructions.__wrapped__,
    )  # fmt: skip
    assert onednn_library.has_bfloat16() is expected
    monkeypatch.setattr(native, "available", lambda: "not there")
    assert not onednn_library.has_bfloat16()


def test_digits_are_learnt_as_well_in_bfloat16():
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype("float32")
    accuracy = {}
    for policy in ("float32", "mixed_bfloat16"):
        keras.utils.set_random_seed(1)
        keras.config.set_dtype_policy(policy)
        model = keras.Sequential([Dense(64, "relu"), Dense(64, "relu"), Dense(10, "softmax")])
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        model.fit(x[:1400], y[:1400], batch_size=32, epochs=25, verbose=0)
        accuracy[policy] = model.evaluate(x[1400:], y[1400:], verbose=0)[1]
    assert accuracy["float32"] > 0.9
    assert accuracy["mixed_bfloat16"] == pytest.approx(accuracy["float32"], abs=0.01)
