"""Arguments of applications: weights and their files, inputs, and errors that name the fix."""

from __future__ import annotations

import json

import application_cases as cases
import facts
import h5py
import numpy as np
import pytest

import kerasish as keras
from kerasish import applications
from kerasish.applications import network

SMALL = {"alpha": 0.35, "input_shape": (32, 32, 3), "weights": None}
PUBLISHED = facts.read("applications")["published"]


@pytest.fixture
def asked(monkeypatch):
    """The calls of `get_file`; each fails as it does without a network."""
    calls = []

    def get_file(name, origin, **options):
        calls.append([name, origin, options["file_hash"]])
        raise ConnectionError("no network")

    monkeypatch.setattr(network, "get_file", get_file)
    monkeypatch.setattr(
        keras.initializers.VarianceScaling, "__call__",
        lambda self, shape, dtype=None: np.zeros(shape, "float32"),
    )  # fmt: skip
    return calls


# The smaller networks; to build all takes long.
ORDINARY = ("MobileNet", "MobileNetV2", "MobileNetV3Small")


def check_published(asked, key):
    name, options, top = json.loads(key)
    with pytest.raises(ConnectionError, match="put it at .*models/.*or pass weights="):
        getattr(applications, name)(include_top=top, **options)
    assert asked.pop() == PUBLISHED[key]


@pytest.mark.parametrize("key", [k for k in PUBLISHED if json.loads(k)[0] in ORDINARY])
def test_published_files(asked, key):
    check_published(asked, key)


@pytest.mark.slow
@pytest.mark.parametrize("key", [k for k in PUBLISHED if json.loads(k)[0] not in ORDINARY])
def test_all_published_files(asked, key):
    check_published(asked, key)


def test_without_network_the_error_says_which_file_to_put_where(asked, monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    with pytest.raises(ConnectionError) as caught:
        applications.MobileNetV2(alpha=0.35, input_shape=(96, 96, 3))
    text = str(caught.value)
    file = "mobilenet_v2_weights_tf_dim_ordering_tf_kernels_0.35_96.h5"
    assert f"{network.STORAGE}mobilenet_v2/{file}" in text
    assert str(tmp_path / "models" / file) in text


def old_file(model, path):
    """Write a model's weights as Keras 2 wrote the published files: groups of layers, in order."""
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = [layer.name.encode() for layer in model.layers]
        for layer in model.layers:
            group = file.create_group(layer.name)
            every = layer.weights
            ordered = [v for v in every if v.trainable] + [v for v in every if not v.trainable]
            names = [f"{layer.name}/{v.name}:0" for v in ordered]
            group.attrs["weight_names"] = [name.encode() for name in names]
            for name, variable in zip(names, ordered):
                group.create_dataset(name, data=variable.numpy())


def test_weights_in_keras_2_layout_load_by_order(tmp_path):
    source = applications.MobileNetV2(**SMALL)
    cases.set_weights(source)
    path = tmp_path / "mobilenet.h5"
    old_file(source, path)
    keras.utils.clear_session()
    model = applications.MobileNetV2(**{**SMALL, "weights": str(path)})
    for ours, theirs in zip(model.weights, source.weights):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_weights_of_the_features_load_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    (tmp_path / "models").mkdir()
    source = applications.MobileNetV2(**{**SMALL, "include_top": False})
    cases.set_weights(source)
    name = "mobilenet_v2_weights_tf_dim_ordering_tf_kernels_0.35_96_no_top.h5"
    old_file(source, tmp_path / "models" / name)
    model = applications.MobileNetV2(alpha=0.35, input_shape=(96, 96, 3), include_top=False)
    np.testing.assert_array_equal(model.weights[5].numpy(), source.weights[5].numpy())


def test_input_tensor_is_the_start():
    image = keras.Input((96, 96, 3))
    scaled = keras.layers.Rescaling(2.0)(image)
    model = applications.MobileNetV2(alpha=0.35, weights=None, input_tensor=scaled, classes=3)
    assert model.inputs[0] is image and isinstance(model.layers[1], keras.layers.Rescaling)
    assert model.output_shape == (None, 3) and model.name == "mobilenetv2_0.35_96"


@pytest.mark.parametrize(("pooling", "shape"), [(None, (None, 1, 1, 1280)), ("avg", (None, 1280))])
def test_pooling(pooling, shape):
    model = applications.MobileNetV2(**SMALL, include_top=False, pooling=pooling)
    assert model.output_shape == shape


def test_any_size_without_the_classifier():
    model = applications.MobileNetV2(alpha=0.35, weights=None, include_top=False)
    assert model.input_shape == (None, None, None, 3)
    assert model.predict(np.zeros((1, 40, 72, 3)), verbose=0).shape == (1, 1, 2, 1280)


def test_channels_first():
    last = applications.MobileNetV2(**{**SMALL, "input_shape": (32, 48, 3)}, classes=3)
    cases.set_weights(last)
    keras.config.set_image_data_format("channels_first")
    keras.utils.clear_session()
    first = applications.MobileNetV2(**{**SMALL, "input_shape": (3, 32, 48)}, classes=3)
    cases.set_weights(first)
    x = cases.images((None, 32, 48, 3))
    result = first.predict(np.moveaxis(x, -1, 1), verbose=0)
    np.testing.assert_allclose(result, last.predict(x, verbose=0), rtol=1e-4, atol=1e-6)


def test_models_are_saved_with_layers_of_their_own(tmp_path):
    x = keras.Input((4, 4, 6))
    y = applications.convnext.LayerScale(0.5, 6)(x)
    y = applications.inception_resnet_v2.CustomScaleLayer(0.25)([x, y])
    model = keras.Model(x, y)
    model.save(tmp_path / "model.keras")
    images = np.ones((1, 4, 4, 6), "float32")
    result = keras.models.load_model(tmp_path / "model.keras").predict(images, verbose=0)
    np.testing.assert_allclose(result, 1.125 * images)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": "nowhere.h5"}, "path of a file that exists; got 'nowhere.h5'"),
        ({"weights": "imagenet", "classes": 10, "input_shape": None}, "classes=10; pass classes="),
        ({"weights": "imagenet", "classifier_activation": "relu"}, "is None or 'softmax'"),
        ({"weights": "imagenet", "input_shape": (33, 33, 3)}, r"need input_shape=\(224, 224, 3\)"),
        ({"weights": "imagenet", "alpha": 0.6}, "published for alpha in"),
        ({"pooling": "mean"}, "pooling is None, 'avg' or 'max', got 'mean'"),
        ({"input_shape": (31, 32, 3)}, "at least 32 x 32"),
        ({"input_shape": (32, 32)}, "tuple of three sizes"),
        ({"input_shape": (None, 32, 3)}, "pass include_top=False"),
        ({"weights": "imagenet", "include_top": False, "input_shape": (96, 96, 1)}, "3 channels"),
    ],
)
def test_errors_name_the_fix(options, message):
    with pytest.raises(ValueError, match=message):
        applications.MobileNetV2(**{**SMALL, **options})


def test_unusual_channels_are_warned_of():
    with pytest.warns(UserWarning, match="usually have 1 or 3 channels") as caught:
        applications.MobileNetV2(**{**SMALL, "input_shape": (32, 32, 4)})
    assert caught[0].filename == __file__


def test_families_refuse_what_is_not_published():
    with pytest.raises(ValueError, match="depth_multiplier=2"):
        applications.MobileNet(depth_multiplier=2)
    with pytest.raises(ValueError, match=r"alpha 0\.75 and 1\.0, minimalistic for 1\.0"):
        applications.MobileNetV3Small(alpha=0.75, minimalistic=True)
    keras.config.set_image_data_format("channels_first")
    with pytest.raises(ValueError, match="channels last"):
        applications.ConvNeXtTiny(weights=None)
