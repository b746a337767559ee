"""Every layer of the catalogue as ONNX: equal to onnxruntime, for several batch sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from layer_examples import EXAMPLES, call, data, flat, shapes_of, started
from package_values import package_values

import kerasish
from kerasish import layers
from kerasish.export.onnx.convert import convert
from kerasish.export.onnx.registry import HOST_LAYERS
from kerasish.export.onnx.save import inference_of

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

# Layers of the catalogue that have no static meaning in ONNX, and why.
NOT_SAID: dict[str, str] = {}
# Operators that a layer has to become, rather than several others.
BECOMES = {
    "Dense": "Gemm", "Conv1D": "Conv", "Conv2D": "Conv", "Conv3D": "Conv",
    "DepthwiseConv2D": "Conv", "Conv2DTranspose": "ConvTranspose", "LSTM": "LSTM", "GRU": "GRU",
    "SimpleRNN": "RNN", "LayerNormalization": "LayerNormalization", "Softmax": "Softmax",
    "BatchNormalization": "BatchNormalization", "MaxPooling2D": "MaxPool", "Resizing": "Resize",
    "AveragePooling2D": "AveragePool", "Embedding": "Gather", "LeakyReLU": "LeakyRelu",
    "ELU": "Elu", "Bidirectional": "GRU", "Permute": "Transpose", "ZeroPadding2D": "Pad",
}  # fmt: skip


def as_model(name: str) -> Any:
    layer = started(name)
    symbols = [
        layers.Input(batch_shape=s, dtype=EXAMPLES[name].get("dtype", "float32"), name=f"x{i}")
        for i, s in enumerate(shapes_of(name, None))
    ]
    return kerasish.Model(symbols, call(layer, name, symbols))


def session_of(proto: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


@pytest.mark.parametrize("name", [n for n in EXAMPLES if n not in NOT_SAID])
def test_equal_for_batches_of_1_2_and_7(name: str) -> None:
    model = as_model(name)
    f, signature = inference_of(model, None)
    named = convert(f, signature, model.input_names, model.output_names)
    onnx.checker.check_model(named.proto, full_check=True)
    kinds = {node.op_type for node in named.proto.graph.node}
    assert BECOMES.get(name, next(iter(kinds))) in kinds
    assert [x[0] for x in named.inputs] == model.input_names
    session = session_of(named.proto)
    for batch in (1, 2, 7):
        inputs = data(name, batch)
        result = session.run(None, {f"x{i}": x for i, x in enumerate(inputs)})
        expected = flat(f(inputs if len(inputs) > 1 else inputs[0]))
        assert len(result) == len(expected)
        for a, b in zip(result, expected):
            assert a.shape == b.shape and a.dtype == b.dtype
            largest = max(float(np.abs(b.astype("float64")).max(initial=0)), 1e-6)
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * largest)


PICTURE = (9, 8, 3)
# Layers without an example of their own. In inference, augmentation does nothing.
OTHERS: dict[str, Any] = {
    "AugMix": {}, "ContrastLimitedAdaptiveHistogramEqualization": {}, "CutMix": {},
    "Equalization": {}, "MixUp": {}, "RandAugment": {}, "RandomColorJitter": {},
    "RandomCrop": {"height": 4, "width": 5}, "RandomElasticTransform": {}, "RandomErasing": {},
    "RandomFlip": {}, "RandomHue": {"factor": 0.1}, "RandomPerspective": {},
    "RandomPosterization": {"factor": 4}, "RandomSaturation": {"factor": 0.1},
    "RandomShear": {"x_factor": 0.1}, "Solarization": {},
    "Pipeline": {"layers": [layers.Rescaling(2.0), layers.Resizing(4, 4)]},
    "Lambda": {"function": lambda x: x * 2.0 - 1.0},
}  # fmt: skip
# Layers whose index of a place begins with that of the example: nothing proves that examples are
# apart, as in a native library they must be.
NOT_NATIVE = {"ContrastLimitedAdaptiveHistogramEqualization"}


@pytest.mark.parametrize("name", OTHERS)
def test_layers_without_an_example(name: str, tmp_path: Any) -> None:
    x = kerasish.Input(PICTURE)
    model = kerasish.Model(x, getattr(layers, name)(**OTHERS[name])(x))
    model.export(tmp_path / "m.onnx", verbose=False)
    session = session_of(onnx.load(tmp_path / "m.onnx"))
    for batch in (1, 2, 7):
        a = np.random.default_rng(batch).uniform(0, 255, (batch, *PICTURE)).astype("float32")
        (result,) = session.run(None, {session.get_inputs()[0].name: a})
        np.testing.assert_allclose(result, model.predict(a, verbose=0), rtol=1e-5, atol=1e-4)
    if name in NOT_NATIVE:
        with pytest.raises(ValueError, match="may depend on several examples of a batch"):
            model.export(tmp_path / "m", format="native")
    else:
        model.export(tmp_path / "m", format="native", verbose=False)
        assert (tmp_path / "m.o").exists()


# What has no translation of its own stands here with its message: a decision for a new layer.
ON_HOST: dict[str, Any] = {
    "Hashing": lambda: layers.Hashing(4, output_mode="one_hot", name="look"),
    "TextVectorization": lambda: layers.TextVectorization(
        vocabulary=["a", "b"], output_mode="multi_hot", name="look"
    ),
}
WRITTEN = {"IntegerLookup", "StringLookup"}


def test_each_layer_has_a_test_of_its_export() -> None:
    """Those without are inside others, of other libraries, or take no tensors."""
    classes = {
        name: cls
        for name, cls in package_values(layers).items()
        if isinstance(cls, type) and issubclass(cls, layers.Layer) and cls.__name__ == name
    }
    cells = {"GRUCell", "LSTMCell", "SimpleRNNCell", "StackedRNNCells", "Wrapper", "Layer"}
    foreign = {"FlaxLayer", "JaxLayer", "TorchModuleWrapper"}
    structures = {"InputLayer", "MaxNumBoundingBoxes", "HashedCrossing"}
    left = classes.keys() - EXAMPLES.keys() - OTHERS.keys() - ON_HOST.keys() - WRITTEN
    assert left == cells | foreign | structures
    on_host = {n for n, cls in classes.items() if getattr(cls, "runs_on_host", False)}
    assert on_host - {"HashedCrossing"} == {*ON_HOST, *WRITTEN}
    assert {cls.__name__ for cls in HOST_LAYERS} == WRITTEN


@pytest.mark.parametrize("name", ON_HOST)
def test_layers_on_the_host_are_refused_and_what_follows_is_written(
    name: str, tmp_path: Any
) -> None:
    words = kerasish.Input((1,), dtype="string")
    host = ON_HOST[name]()
    numbers = host(words)
    model = kerasish.Model(words, layers.Dense(2)(numbers), name="m")
    for path, options in (("m.onnx", {}), ("m", {"format": "native"})):
        with pytest.raises(ValueError, match="'m': layer 'look': it runs on the host"):
            model.export(tmp_path / path, **options)
    assert not list(tmp_path.iterdir())
    rest = kerasish.Model(host.output, model.output)
    rest.export(tmp_path / "m.onnx", verbose=False)
    session = session_of(onnx.load(tmp_path / "m.onnx"))
    given = np.array([["b"], ["c"], ["a"]])
    (result,) = session.run(None, {session.get_inputs()[0].name: np.asarray(host(given))})
    np.testing.assert_allclose(result, model.predict(given, verbose=0), rtol=1e-6)


def test_half_precision() -> None:
    for policy, share in (("mixed_float16", 1e-3), ("mixed_bfloat16", 2e-2)):
        x = inputs = kerasish.Input((8, 8, 3))
        x = layers.Conv2D(4, 3, padding="same", activation="relu", dtype=policy)(x)
        x = layers.BatchNormalization(dtype=policy)(x)
        x = layers.GlobalAveragePooling2D(dtype=policy)(x)
        outputs = layers.Dense(5, dtype=policy)(x)
        model = kerasish.Model(inputs, layers.Activation("linear", dtype="float32")(outputs))
        f, signature = inference_of(model, None)
        named = convert(f, signature, ["x"], ["y"], 18)
        onnx.checker.check_model(named.proto, full_check=True)
        a = np.random.default_rng(1).uniform(-1, 1, (3, 8, 8, 3)).astype("float32")
        from onnx.reference import ReferenceEvaluator

        (result,) = ReferenceEvaluator(named.proto).run(None, {"x": a})
        expected = np.asarray(model(a))
        assert np.abs(result - expected).max() <= share * np.abs(expected).max()
