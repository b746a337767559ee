"""GPTQ and AWQ: roundings that depend on data, and models quantized block by block."""

from __future__ import annotations

import numpy as np
import pytest
import quantized_cases as cases

import kerasish as keras
from kerasish import config, layers, quantizers
from kerasish.quantizers.calibrated import limits

KINDS = {
    "gptq": (quantizers.GPTQConfig, {"group_size": 4}),
    "gptq, 8 bits": (quantizers.GPTQConfig, {"weight_bits": 8, "group_size": -1}),
    "gptq, 3 bits": (
        quantizers.GPTQConfig,
        {"weight_bits": 3, "group_size": 5, "symmetric": True, "activation_order": True},
    ),
    "awq": (quantizers.AWQConfig, {"group_size": 4}),
    "awq, one group": (quantizers.AWQConfig, {"group_size": -1}),
}


def settings(kind, dataset=None, structure=None, **more):
    make, options = KINDS[kind]
    return make(dataset, None, quantization_layer_structure=structure, **options, **more)


def inputs_and_weights(rows=40, columns=6):
    """Return correlated inputs, of which a few are large, and weights."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, rows)) @ (np.eye(rows) + 0.3 * rng.normal(size=(rows, rows)))
    x[:, ::7] *= 8
    return x, rng.normal(size=(rows, columns))


def error(rounded, x, w):
    return np.mean((x @ (rounded - w)) ** 2)


def plainly(w, group, bits):
    """Return w, each group of a column rounded to nearest."""
    result = np.empty_like(w)
    for g in range(group[-1] + 1):
        part = w[group == g]
        scale, zero = limits(part, bits)
        q = np.clip(np.rint(part / scale) + zero, 0, 2**bits - 1)
        result[group == g] = (q - zero) * scale
    return result


@pytest.mark.parametrize("kind", ["gptq", "gptq, 8 bits", "awq", "awq, one group"])
def test_results_are_nearer_than_by_rounding_to_nearest(kind):
    x, w = inputs_and_weights()
    made = settings(kind)
    rounded = made.rounded(w, x.T @ x / len(x))
    assert rounded.q.min() >= 0 and rounded.q.max() < 2**made.weight_bits
    np.testing.assert_array_equal(rounded.q, np.rint(rounded.q))
    nearest = error(plainly(w, rounded.group, made.weight_bits), x, w)
    # A row can be enlarged only until it sets the scale of its group.
    share = 0.97 if kind == "awq, one group" else 0.8
    assert error(rounded.floats(), x, w) < share * nearest


def test_rows_with_large_inputs_first():
    x, w = inputs_and_weights()
    hessian = x.T @ x / len(x)
    made = quantizers.GPTQConfig(None, None, group_size=-1, activation_order=True)
    plain = quantizers.GPTQConfig(None, None, group_size=-1)
    first, other = (c.rounded(w, hessian).floats() for c in (made, plain))
    assert error(first, x, w) < 1.2 * error(other, x, w) and not np.array_equal(first, other)


def test_inputs_that_are_always_0():
    x, w = inputs_and_weights()
    x[:, 3] = 0
    for kind in KINDS:
        floats = settings(kind).rounded(w, x.T @ x / len(x)).floats()
        assert np.isfinite(floats).all(), kind


class Block(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.mix = layers.EinsumDense("abc,dc->abd", (None, 10), bias_axes="d")
        self.out = layers.Dense(8)

    def call(self, x):
        return x + self.out(keras.ops.tanh(self.mix(x)))


def model_of():
    x = keras.Input((None,), dtype="int32")
    table, blocks = layers.Embedding(20, 8), [Block(), Block()]
    y = table(x)
    for block in blocks:
        y = block(y)
    model = keras.Model(x, layers.Dense(3)(y))
    for i, v in enumerate(model.weights):
        v.assign(cases.wave(tuple(v.shape), i) * 0.7)
    return model, {"pre_block_layers": [table], "sequential_blocks": blocks}


DATA = np.random.default_rng(1).integers(0, 20, (12, 9)).astype("int32")


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_model_block_by_block(kind, tmp_path):
    config.set_backend("static")
    model, structure = model_of()
    before = model.predict(DATA, verbose=0)
    model.quantize(config=settings(kind, DATA, structure, num_samples=8))
    mode = kind[:4].rstrip(",")
    for block in structure["sequential_blocks"]:
        assert "call" not in vars(block.mix) and "call" not in vars(block.out)
        for layer in (block.mix, block.out):
            assert layer.quantization_mode == layer.weight_format == mode
            assert layer.kernel.shape == layer._adapted_shape and not layer.g_idx.trainable
    assert model.layers[-1].quantization_mode is None  # it is in no block
    after = model.predict(DATA, verbose=0)
    scale = np.abs(before).max()
    limit = {"gptq, 8 bits": 0.02, "gptq, 3 bits": 0.5}.get(kind, 0.25)
    assert 0 < np.abs(after - before).max() < limit * scale
    config.set_backend("eager")
    np.testing.assert_allclose(model.predict(DATA, verbose=0), after, atol=1e-4 * scale)
    path = tmp_path / "model.weights.h5"
    model.save_weights(path)
    model.layers[2].out.kernel_zero.assign(keras.ops.zeros_like(model.layers[2].out.kernel_zero))
    model.load_weights(path)
    np.testing.assert_allclose(model.predict(DATA, verbose=0), after, atol=1e-4 * scale)
    with pytest.raises(NotImplementedError, match="LoRA supports floats, int8 and int4"):
        model.layers[2].out.enable_lora(2)


@pytest.mark.parametrize("kind", ["gptq", "gptq, 8 bits", "awq"])
def test_files_of_layers(kind, tmp_path):
    x = keras.Input((8,))
    dense = layers.Dense(5)
    model = keras.Model(x, dense(x))
    rows = cases.wave((30, 8))
    made = settings(kind, rows, {"sequential_blocks": [dense]})
    model.quantize(config=made)
    expected = model.predict(rows, verbose=0)
    path = tmp_path / "model.keras"
    model.save(path)
    again = keras.models.load_model(path)
    assert again.layers[1].dtype_policy == dense.dtype_policy
    assert [v.name for v in again.layers[1].weights] == [v.name for v in dense.weights]
    np.testing.assert_allclose(again.predict(rows, verbose=0), expected, rtol=1e-6)
    twin = type(made).from_config(made.get_config())
    assert twin.get_config() == made.get_config()


def test_what_is_asked_for():
    model, structure = model_of()
    with pytest.raises(ValueError, match="'gptq' needs the model's blocks"):
        model.quantize(config=quantizers.GPTQConfig(DATA, None))
    with pytest.raises(ValueError, match="'awq' needs data"):
        model.quantize(config=settings("awq", None, structure))
    with pytest.raises(ValueError, match="holds no example"):
        model.quantize(config=settings("awq", [], structure))
    assert structure["sequential_blocks"][0].out.quantization_mode is None
    with pytest.raises(NotImplementedError, match="call quantize on the model"):
        structure["sequential_blocks"][0].out.quantize(config=settings("gptq", DATA, structure))
    for make, arguments, message in (
        (quantizers.GPTQConfig, {"weight_bits": 5}, "weight_bits is one of"),
        (quantizers.GPTQConfig, {"hessian_damping": 2.0}, "hessian_damping is between 0 and 1"),
        (quantizers.AWQConfig, {"group_size": 0}, "group_size is -1"),
        (quantizers.AWQConfig, {"num_grid_points": 0}, "num_grid_points is an integer"),
        (quantizers.AWQConfig, {"num_samples": 0}, "num_samples is an integer"),
    ):
        with pytest.raises(ValueError, match=message):
            make(DATA, None, **arguments)
