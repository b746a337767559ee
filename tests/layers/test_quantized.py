"""Quantized layers: weights, results, gradients and files as in Keras, on both engines."""

from __future__ import annotations

import copy
from pathlib import Path

import facts
import numpy as np
import pytest
import quantized_cases as cases

import kerasish as keras
from kerasish import config, layers, ops, quantizers

FACTS = facts.read("quantized")
DATA = Path(__file__).parents[1] / "data"
ENGINES = ("static", "eager")


def close(found, expected, what):
    found = ops.convert_to_numpy(found)
    assert tuple(np.shape(found)) == tuple(np.shape(expected)), what
    largest = max(float(np.abs(expected).max(initial=0)), 0.1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * largest, err_msg=what)


def expect_stored(store, expected, what):
    assert sorted(store) == sorted(expected), what
    for name, array in expected.items():
        close(store[name].astype("float32"), array, f"{what}, {name}")


def stored(layer):
    store = {}
    layer.save_own_variables(store)
    return store


@pytest.mark.parametrize("case", list(cases.CASES))
def test_as_keras(case):
    config.set_backend("eager")
    name, mode = cases.CASES[case]
    fact = FACTS["cases"][case]
    layer, x = cases.layer_of(name, mode, keras), cases.inputs_of(name)
    described = [[v.name, list(v.shape), v.dtype, v.trainable] for v in layer.weights]
    assert described == fact["weights"]
    assert layer.quantization_mode == layer.weight_format == mode.partition(" ")[0]
    expect_stored(stored(layer), fact["stored"], case)
    close(layer(x), fact["outputs"], case)
    if "scores" in fact:
        close(layer(cases.wave((2, 3, 13), 4.0), reverse=True), fact["scores"], f"{case}, scores")
    if "slope" in fact:
        source = keras.Variable(x)
        with keras.GradientTape() as tape:
            y = layer(source)
            loss = ops.sum(y * cases.wave(tuple(y.shape), 2.0))
        close(tape.gradient(loss, source), fact["slope"], f"{case}, slope")
    if "adapted" in fact:
        cases.adapt(layer)
        close(layer(x), fact["adapted"], f"{case}, LoRA")
        expect_stored(stored(layer), fact["merged"], f"{case}, merged")


@pytest.mark.parametrize("case", [c for c in cases.CASES if "joined" not in c])
def test_engines_agree(case):
    name, mode = cases.CASES[case]
    layer, x = cases.layer_of(name, mode, keras), cases.inputs_of(name)
    config.set_backend("static")
    close(keras.function(layer)(x), FACTS["cases"][case]["outputs"], case)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_files_of_keras_load(mode, engine):
    config.set_backend(engine)
    expected, x = FACTS["outputs"][mode], cases.model_inputs()
    model = keras.models.load_model(DATA / f"quantized_{mode}.keras")
    assert {model.get_layer(n).quantization_mode for n in ("table", "mix", "out")} == {mode}
    close(model.predict(x, verbose=0), expected, mode)
    other = keras.models.clone_model(model)
    other.load_weights(DATA / f"quantized_{mode}.weights.h5")
    close(other.predict(x, verbose=0), expected, f"{mode}, weights")


@pytest.mark.parametrize("ending", ["keras", "weights.h5", "safetensors"])
@pytest.mark.parametrize("mode", ["int8", "int8 weights", "int4 blocks", "int4 columns"])
def test_files_both_ways(mode, ending, tmp_path):
    model, x = cases.model_of(keras), cases.model_inputs()
    floats = model.predict(x, verbose=0)
    size = sum(v.numpy().nbytes for v in model.weights)
    model.quantize(config=cases.config_of(mode, quantizers))
    expected = model.predict(x, verbose=0)
    assert 0 < np.abs(expected - floats).max() < 0.5  # compiled again, and not far away
    assert sum(v.numpy().nbytes for v in model.weights) < size
    path = tmp_path / f"model.{ending}"
    if ending == "keras":
        model.save(path)
        again = keras.models.load_model(path)
        settings = again.get_layer("mix").quantization_config
        assert settings.get_config() == model.get_layer("mix").quantization_config.get_config()
    else:
        model.save_weights(path)
        again = cases.model_of(keras)
        again.quantize(config=cases.config_of(mode, quantizers))
        again.get_layer("mix").kernel_scale.assign(ops.zeros_like(again.layers[2].kernel_scale))
        again.load_weights(path)
    np.testing.assert_array_equal(again.predict(x, verbose=0), expected)


@pytest.mark.parametrize("policy", ["int8_from_float32", "int4/4_from_float32"])
def test_built_with_a_policy(policy):
    source = layers.Dense(6)
    source.build((None, 10))
    source.quantize(config=None if "int8" in policy else quantizers.Int4QuantizationConfig(
        block_size=4), mode=policy[:4])  # fmt: skip
    layer = layers.Dense(6, dtype=policy)
    layer.build((None, 10))
    assert [v.name for v in layer.weights] == [v.name for v in source.weights]
    layer.set_weights(source.get_weights())
    x = cases.wave((3, 10))
    np.testing.assert_array_equal(layer(x), source(x))
    assert layer.dtype_policy == source.dtype_policy and layer.dtype_policy.name == policy
    twin = copy.deepcopy(layer)
    np.testing.assert_array_equal(twin(x), source(x))


@pytest.mark.parametrize("engine", ENGINES)
def test_lora_is_trained_on_quantized_layers(engine):
    config.set_backend(engine)
    model = keras.Sequential([keras.Input((8,)), layers.Dense(16, "tanh"), layers.Dense(1)])
    model.quantize("int8")
    for layer in model.layers:
        layer.enable_lora(2)
    frozen = [v.numpy().copy() for v in model.non_trainable_variables]
    x, y = cases.wave((64, 8)), cases.wave((64, 1), 5.0) * 0.2
    model.compile(keras.optimizers.Adam(0.03), "mse")
    before = model.evaluate(x, y, verbose=0)
    model.fit(x, y, epochs=30, verbose=0, shuffle=False)
    assert model.evaluate(x, y, verbose=0) < 0.7 * before
    for v, old in zip(model.non_trainable_variables, frozen):
        np.testing.assert_array_equal(v.numpy(), old)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mode", ["int8", "int4"])
@pytest.mark.parametrize(
    "make", [lambda: layers.Dense(16), lambda: layers.EinsumDense("ab,bc->ac", 16)]
)
def test_layers_with_lora_are_quantized(make, mode, engine):
    """As in Keras, the small weights stay floats next to the integers; files hold the sum."""
    config.set_backend(engine)
    layer, plain, x = make(), make(), cases.wave((4, 8))
    for one in (layer, plain):
        one.build((None, 8))
    plain.set_weights(layer.get_weights())
    layer.enable_lora(2)
    layer.lora_kernel_b.assign(cases.wave((2, 16), 3.0))
    product = ops.matmul(layer.lora_kernel_a, layer.lora_kernel_b)
    small = ops.convert_to_numpy(product)
    for one in (layer, plain):
        one.quantize(mode)
    close(layer(x), plain(x) + ops.matmul(x, small), "the integers and the product")
    assert {v.name for v in layer.trainable_weights} >= {"lora_kernel_a", "lora_kernel_b"}

    plain.load_own_variables(stored(layer))  # a file fits a layer without LoRA
    error = np.abs(ops.convert_to_numpy(plain(x)) - ops.convert_to_numpy(layer(x))).max()
    assert error < (0.05 if mode == "int8" else 0.6) * float(np.abs(layer(x)).max())


def test_a_model_is_quantized_by_name():
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(3, name="a"), layers.Dense(3, name="b")]
    )
    model.quantize("int8", filters="a")
    assert [layer.quantization_mode for layer in model.layers] == ["int8", None]
    with pytest.raises(ValueError, match="is quantized already, by the dtype policy 'int8_from_"):
        model.quantize("int4")
    assert model.layers[1].quantization_mode is None  # nothing was half-done
    model.quantize("int4", filters=lambda layer: layer.name == "b")
    assert model.layers[1].quantization_mode == "int4"
    with pytest.warns(UserWarning, match="nothing was quantized: no layer was chosen"):
        model.quantize("int4", filters=["none"])


@pytest.mark.parametrize("mode", list(cases.MODES))
def test_onnx_and_archives(mode, tmp_path):
    pytest.importorskip("onnx", reason="the package onnx is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    model, x = cases.model_of(keras), cases.model_inputs()
    model.quantize(config=cases.config_of(mode, quantizers))
    expected = model.predict(x, verbose=0)
    model.export(tmp_path / "model.onnx", verbose=False)
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"))
    (y,) = session.run(None, {session.get_inputs()[0].name: x})
    close(y, expected, mode)
    model.export(tmp_path / "model", verbose=False)
    close(keras.saving.load_archive(tmp_path / "model").serve(x), expected, mode)


def test_the_summary_says_bytes_by_dtype():
    model, lines = cases.model_of(keras), []
    model.summary(print_fn=lines.append)
    assert "By dtype" not in lines[0]
    model.quantize("int8")
    model.summary(print_fn=lines.append)
    sizes = {"float32": 0, "int8": 0}
    for v in model.weights:
        sizes[v.dtype] += v.numpy().nbytes
    float_, small = (f"{kind} {size:.2f} B" for kind, size in sizes.items())
    assert f" By dtype: {float_}, {small}" in lines[1] or f"{small}, {float_}" in lines[1]


def test_what_cannot_be_quantized():
    dense = layers.Dense(3)
    with pytest.raises(ValueError, match="build the layer or call it on data first"):
        dense.quantize("int8")
    dense.build((None, 4))
    for arguments, message in (
        ({"mode": "int7"}, "mode is one of"), ({}, "give `mode` or `config`"),
        ({"mode": "gptq"}, "give config=quantizers.GPTQConfig"),
        ({"mode": "int8", "config": quantizers.Int4QuantizationConfig()}, "the config's mode is"),
        ({"config": 3}, "config is a QuantizationConfig, got int"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            dense.quantize(**arguments)
    convolution = layers.Conv2D(3, 3)
    convolution.build((None, 8, 8, 1))
    with pytest.raises(NotImplementedError, match="Conv2D cannot be quantized; Dense, EinsumDense"):
        convolution.quantize("int8")

    class Own(layers.Dense):
        pass

    own = Own(3)
    own.build((None, 4))
    with pytest.raises(
        NotImplementedError, match="a subclass may compute in another way than its parent"
    ):
        own.quantize("int8")
    own.quantize("int8", type_check=False)
    assert own.weight_format == "int8"
    dense.enable_lora(2)
    with pytest.raises(ValueError, match="supports floats, int8 and int4, not 'float8'"):
        dense.quantize("float8")


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16"])
@pytest.mark.parametrize("mode", ["int8", "int8 weights", "int4", "int4 columns"])
def test_half_precision(mode, policy):
    layer = layers.Dense(6, dtype=policy)
    x = cases.wave((3, 10))
    expected = ops.convert_to_numpy(ops.cast(layer(x), "float32"))
    layer.quantize(config=cases.config_of(mode, quantizers))
    y = keras.function(layer)(x)
    assert str(y.dtype) == "bfloat16"
    np.testing.assert_allclose(ops.convert_to_numpy(ops.cast(y, "float32")), expected, atol=0.3)


def test_digits_lose_no_accuracy():
    (x, y), (xt, yt) = keras.datasets.digits.load_data()
    x, xt = (a.reshape(-1, 8, 8, 1).astype("float32") / 16 for a in (x, xt))
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)), layers.Conv2D(16, 3, activation="relu"), layers.Flatten(),
            layers.Dense(64, "relu"), layers.Dense(10, "softmax"),
        ]
    )  # fmt: skip
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(x, y, batch_size=64, epochs=8, verbose=0)
    before = np.mean(model.predict(xt, verbose=0).argmax(1) == yt)
    model.quantize("int8")
    after = np.mean(model.predict(xt, verbose=0).argmax(1) == yt)
    assert before > 0.93 and abs(before - after) <= 0.005
