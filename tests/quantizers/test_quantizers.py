"""Quantizers, packing, 8-bit floats and played quantization."""

from __future__ import annotations

import facts
import ml_dtypes
import numpy as np
import pytest
import quantized_cases as cases

import kerasish as keras
from kerasish import config, dtype_policies, ops, quantizers, registry

FACTS = facts.read("quantized")
ENGINES = ("static", "eager")


@pytest.mark.parametrize("on_host", [False, True])
@pytest.mark.parametrize("axis", [0, -1, (0, 1)])
def test_the_largest_number_sets_the_scale(axis, on_host):
    x = cases.wave((6, 5)) * 3
    q, scale = quantizers.abs_max_quantize(x, axis, to_numpy=on_host)
    expected = 127 / (np.abs(x).max(axis=axis, keepdims=True) + np.float32(1e-7))
    assert q.dtype == "int8" and scale.dtype == "float32"
    np.testing.assert_allclose(scale, expected, rtol=1e-6)
    np.testing.assert_array_equal(q, np.rint(x * expected))
    assert np.abs(q.numpy()).max() == 127


def test_zeros_stay_zeros():
    q, scale = quantizers.AbsMaxQuantizer()(np.zeros((2, 3), "float32"))
    assert not q.numpy().any() and np.isfinite(scale.numpy()).all()


@pytest.mark.parametrize("rows", [8, 9, 3])
def test_blocks_have_a_scale_and_a_zero_point(rows):
    x = cases.wave((rows, 5)) + 0.4
    q, scale, zero = quantizers.abs_max_quantize_grouped_with_zero_point(x, 4)
    assert scale.shape == zero.shape == (-(-rows // 4), 5) and zero.dtype == q.dtype == "int8"
    assert q.numpy().min() >= -8 and q.numpy().max() <= 7
    group = np.arange(rows) // 4
    back = (q.numpy().astype("float32") - zero.numpy()[group]) * scale.numpy()[group]
    inside = np.abs(q.numpy()) < 7  # the others may have been clipped
    assert np.abs(back - x)[inside].max() <= 0.51 * scale.numpy().max()
    with pytest.raises(ValueError, match="block_size is an integer >= 1, got 0"):
        quantizers.abs_max_quantize_grouped_with_zero_point(x, 0)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("shape", [(4, 6), (5, 7), (3, 1, 5)])
def test_halves_of_bytes(shape, axis, dtype):
    low, high = (-8, 8) if dtype == "int8" else (0, 16)
    q = np.random.default_rng(0).integers(low, high, shape).astype(dtype)
    packed, packed_shape, size = quantizers.pack_int4(q, axis, dtype)
    assert packed.shape == packed_shape and size == shape[axis]
    assert packed_shape[axis] == -(-size // 2) and packed.dtype == dtype
    for engine in ENGINES:
        config.set_backend(engine)
        np.testing.assert_array_equal(quantizers.unpack_int4(packed, size, axis, dtype), q)
    first = np.take(q, 0, axis).view("uint8") & 15
    np.testing.assert_array_equal(np.take(packed.numpy(), 0, axis).view("uint8") & 15, first)


def test_what_cannot_be_packed():
    with pytest.raises(ValueError, match="dtype is one of"):
        quantizers.pack_int4(np.zeros(2, "int8"), dtype="int4")
    with pytest.raises(TypeError, match="a tensor of int8 was expected, got float32"):
        quantizers.pack_int4(np.zeros(2, "float32"))
    with pytest.raises(TypeError, match="int8 or uint8 was expected, got int32"):
        quantizers.unpack_int4(np.zeros(2, "int32"), 4)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_short_floats(dtype, engine):
    config.set_backend(engine)
    rng = np.random.default_rng(0)
    x = (rng.normal(size=4000) * 10.0 ** rng.uniform(-7, 3, 4000)).astype("float32")
    x[:6] = [0.0, -0.0, 1e30, -1e30, 1.0625, 1.1875]
    kind = getattr(ml_dtypes, dtype)
    largest = float(ml_dtypes.finfo(kind).max)
    expected = np.clip(x / np.float32(0.5), -largest, largest).astype(kind).astype("float32") * 0.5

    def rounded(x):
        return quantizers.quantize_and_dequantize(x, 0.5, dtype, "float32")

    np.testing.assert_array_equal(keras.function(rounded)(x), expected)
    with pytest.raises(ValueError, match="an 8-bit float is one of"):
        quantizers.quantize_and_dequantize(x, 0.5, "float9", "float32")


def test_scales_of_short_floats():
    scale = quantizers.compute_float8_scale
    assert float(scale(448.0, 0.3, 448.0)) == 1.0
    assert float(scale(448.0, 0.3, 448.0, margin=1)) == 2.0
    for most in (0.0, np.inf, np.nan):
        np.testing.assert_allclose(scale(most, 0.3, 448.0), 0.3, rtol=1e-6)
    history = quantizers.compute_float8_amax_history([1.0, -5.0], [4.0, 3.0, 2.0])
    assert history.tolist() == [5.0, 2.0, 4.0] or history.tolist() == [5.0, 3.0, 2.0]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", list(cases.FAKE))
def test_played_quantization(case, engine):
    config.set_backend(engine)
    x, low, high, options = cases.fake_case(case)
    fact = FACTS["fake"][case]
    variables = [keras.Variable(v) for v in (x, low, high)]
    with keras.GradientTape() as tape:
        y = quantizers.fake_quant_with_min_max_vars(*variables, **options)
        loss = ops.sum(y * cases.wave(tuple(y.shape), 2.0))
    facts.expect_close(ops.convert_to_numpy(y), fact["outputs"], case)
    for slope, expected in zip(tape.gradient(loss, variables), fact["slopes"]):
        facts.expect_close(ops.convert_to_numpy(slope), expected, f"{case}, slopes")


def test_played_quantization_of_symbols():
    x = keras.Input((4,))
    model = keras.Model(x, quantizers.fake_quant_with_min_max_vars(x, -1.0, 1.0, num_bits=4))
    y = model.predict(cases.wave((3, 4)), verbose=0)
    assert len(np.unique(y)) > 3 and np.abs(y - cases.wave((3, 4))).max() < 0.1


@pytest.mark.parametrize("engine", ENGINES)
def test_training_with_short_floats(engine):
    config.set_backend(engine)
    model = cases.float8_model(keras)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    x, y = cases.float8_data()
    for loss, weights in FACTS["float8"]:
        # A last bit of a factor may decide how it is rounded to 8 bits, and XLA adds in its order.
        np.testing.assert_allclose(float(model.train_on_batch(x, y)), loss, rtol=2e-3)
        for v in model.weights:
            expected = weights[v.name]
            np.testing.assert_allclose(v.numpy().ravel()[:4], expected, 2e-3, 2e-3, err_msg=v.name)


def test_names_and_configs():
    quantizer = quantizers.get("AbsMaxQuantizer", axis=0, value_range=(-7, 7))
    again = quantizers.deserialize(quantizers.serialize(quantizer))
    assert again.get_config() == quantizer.get_config() and again.axis == (0,)
    assert quantizers.get(None) is None and quantizers.get(quantizer) is quantizer
    with pytest.raises(ValueError, match="abs_max_quantiser"):
        quantizers.get("abs_max_quantiser")
    with pytest.raises(ValueError, match=r"value_range must be within \(-128, 127\)"):
        quantizers.AbsMaxQuantizer(value_range=(-200, 200))
    for settings in (
        quantizers.Int8QuantizationConfig(activation_quantizer=None),
        quantizers.Int4QuantizationConfig(block_size=16), quantizers.Float8QuantizationConfig(),
    ):  # fmt: skip
        twin = registry.deserialize_keras_object(registry.serialize_keras_object(settings))
        assert type(twin) is type(settings) and twin.get_config() == settings.get_config()
    with pytest.raises(ValueError, match="quantizers need block_size=None"):
        quantizers.Int4QuantizationConfig(activation_quantizer=quantizer)
    with pytest.raises(ValueError, match=r"has value_range=\(-8, 7\), got \(-7, 7\)"):
        quantizers.Int4QuantizationConfig(weight_quantizer=quantizer, block_size=None)


@pytest.mark.parametrize(
    ("name", "kind", "facts_"),
    [
        ("int8_from_mixed_bfloat16", "QuantizedDTypePolicy", {}),
        ("int4_from_float32", "QuantizedDTypePolicy", {}),
        ("int4/32_from_float32", "Int4DTypePolicy", {"block_size": 32}),
        ("float8_from_float32", "QuantizedFloat8DTypePolicy", {"amax_history_length": 1024}),
        ("gptq/3/-1_from_float32", "GPTQDTypePolicy", {"weight_bits": 3, "group_size": -1}),
        ("awq/4/8_from_float32", "AWQDTypePolicy", {"weight_bits": 4, "group_size": 8}),
    ],
)
def test_policies(name, kind, facts_):
    policy = dtype_policies.get(name)
    assert type(policy).__name__ == kind and policy.name == name
    assert policy.quantization_mode == name.replace("_", "/").partition("/")[0]
    assert all(getattr(policy, n) == v for n, v in facts_.items())
    again = dtype_policies.deserialize(dtype_policies.serialize(policy))
    assert again == policy and hash(again) == hash(policy) and again != dtype_policies.get(None)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("int8_from_mixed_float16", "int8 products are too large for float16"),
        ("int4/0_from_float32", "block_size is -1 .one group. or >= 1"),
        ("gptq/5/8_from_float32", "weight_bits is one of"),
        ("awq/4_from_float32", "mode is 'awq/<weight_bits>/<group_size>'"),
    ],
)
def test_policies_that_cannot_be(name, message):
    with pytest.raises(ValueError, match=message):
        dtype_policies.get(name)


@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_layers_name_the_quantizer_of_their_inputs(mode):
    layer = keras.layers.Dense(3)
    layer.build((None, 4))
    assert not hasattr(layer, "inputs_quantizer")
    layer.quantize(mode)
    assert (layer.inputs_quantizer is not None) == (mode == "int8")
    chosen = quantizers.AbsMaxQuantizer(value_range=(-100, 100))
    layer = keras.layers.Dense(3)
    layer.build((None, 4))
    settings = quantizers.Int8QuantizationConfig(quantizers.AbsMaxQuantizer(axis=0), chosen)
    layer.quantize(config=settings)
    assert layer.inputs_quantizer is chosen
