"""Layers on pictures against Keras's numbers, and what is drawn for them."""

from __future__ import annotations

import json
from pathlib import Path

import augmentation_cases as cases
import numpy as np
import pytest
from package_values import package_values

import kerasish
from kerasish import backends, layers, ops, registry
from kerasish.layers.augmentation.picture import PictureLayer
from kerasish.tensor import Tensor

FACTS = np.load(Path(__file__).parents[1] / "data" / "augmentation.npz")
NUMBERS = [i for i in range(len(cases.CASES)) if f"{i} name" in FACTS]


@pytest.mark.parametrize("number", [
    pytest.param(i, id=f"{i}-{cases.CASES[i][0]}") for i in NUMBERS
])  # fmt: skip
def test_as_keras(number):
    case = cases.CASES[number]
    assert str(FACTS[f"{number} name"]) == cases.name_of(case)
    result = cases.outputs_of(case, layers, ops.convert_to_tensor)
    for key, value in result.items():
        expected = FACTS[f"{number} {key}"]
        assert value.shape == expected.shape, key
        assert key != "images" or value.dtype == expected.dtype
        scale = max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(value, expected, rtol=0, atol=1e-5 * scale, err_msg=key)


# Layers with their arguments, such that something is drawn and pictures change.
DRAWN = {
    "AugMix": {"num_chains": 2, "chain_depth": 2},
    "RandAugment": {},
    "CutMix": {},
    "MixUp": {"alpha": 1.0},
    "RandomBrightness": {"factor": 0.4},
    "RandomColorDegeneration": {"factor": 0.9},
    "RandomColorJitter": {
        "brightness_factor": 0.3, "contrast_factor": 0.4, "saturation_factor": [0.2, 0.8],
        "hue_factor": 0.5,
    },
    "RandomContrast": {"factor": [0.4, 0.5]},
    "RandomCrop": {"height": 3, "width": 4},
    "RandomElasticTransform": {"factor": [1.0, 1.0]},
    "RandomErasing": {"factor": [1.0, 1.0]},
    "RandomFlip": {},
    "RandomGaussianBlur": {"factor": [1.0, 1.0]},
    "RandomGrayscale": {"factor": 0.5},
    "RandomHue": {"factor": 0.5},
    "RandomInvert": {"factor": [0.5, 0.5]},
    "RandomPerspective": {"factor": [1.0, 1.0]},
    "RandomPosterization": {"factor": [1, 6]},
    "RandomRotation": {"factor": 0.4},
    "RandomSaturation": {"factor": [0.1, 0.9]},
    "RandomSharpness": {"factor": [0.0, 1.0]},
    "RandomShear": {"x_factor": 0.5, "y_factor": 0.3},
    "RandomTranslation": {"height_factor": 0.4, "width_factor": 0.4},
    "RandomZoom": {"height_factor": 0.4},
    "Solarization": {"addition_factor": 0.5, "threshold_factor": 0.9},
}  # fmt: skip
FIXED = {
    "AutoContrast": {}, "Equalization": {}, "CenterCrop": {"height": 3, "width": 4},
    "ContrastLimitedAdaptiveHistogramEqualization": {"tile_grid_size": [2, 2]},
    "Resizing": {"height": 3, "width": 4}, "MaxNumBoundingBoxes": {"max_number": 2},
}  # fmt: skip
every_layer = pytest.mark.parametrize("name", sorted({**DRAWN, **FIXED}))
PICTURES = cases.pictures({"shape": [8, 5, 6, 3]})


def make(name, **options):
    args = {k: tuple(v) if isinstance(v, list) else v for k, v in {**DRAWN, **FIXED}[name].items()}
    return getattr(layers, name)(**args, **({"seed": 3} if name in DRAWN else {}), **options)


def test_every_layer_on_pictures_is_here():
    result = {
        n
        for n, c in package_values(layers).items()
        if isinstance(c, type) and issubclass(c, PictureLayer)
    }
    assert result == set(DRAWN) | set(FIXED)


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_drawn_anew_each_time_from_the_seed(name):
    layer, twin = make(name), make(name)
    first, second = layer(PICTURES).numpy(), layer(PICTURES).numpy()
    assert first.dtype == "float32"
    if name != "RandomCrop":  # few places
        assert not np.array_equal(first, second)
    np.testing.assert_array_equal(twin(PICTURES), first)
    other = getattr(layers, name).from_config(layer.get_config())
    np.testing.assert_array_equal(other(PICTURES), first)
    np.testing.assert_array_equal(twin(PICTURES), second)


@every_layer
def test_at_rest_outside_of_training(name):
    layer = make(name)
    assert layer.compute_output_shape((None, 5, 6, 3)) == (
        (None, 3, 4, 3) if "Crop" in name or name == "Resizing" else (None, 5, 6, 3)
    )
    y = layer(PICTURES, training=False).numpy()
    if not layer.always:
        np.testing.assert_array_equal(y, PICTURES)
    else:
        np.testing.assert_array_equal(y, layer(PICTURES).numpy())


@every_layer
def test_engines_agree(name):
    eager, static = make(name), make(name)
    step = backends.get("static").compile(lambda x: static(x, training=True))
    for _ in range(2):
        expected = eager(PICTURES).numpy()
        result = np.asarray(step(Tensor(PICTURES)))
        # A pixel on the edge between two levels may fall to either side.
        away = np.abs(result - expected) > 1e-2
        assert away.mean() < 0.01, (name, np.abs(result - expected).max())


@every_layer
def test_one_picture_is_a_batch_of_one(name):
    one = make(name)(PICTURES[0]).numpy()
    many = make(name)(PICTURES[:1]).numpy()
    np.testing.assert_allclose(one, many[0], atol=1e-3)


@every_layer
def test_channels_may_come_first(name):
    layer = make(name, data_format="channels_first")
    y = layer(PICTURES.transpose(0, 3, 1, 2)).numpy().transpose(0, 2, 3, 1)
    expected = make(name, data_format="channels_last")(PICTURES).numpy()
    if name != "RandomErasing":  # the noise has the pictures' shape
        np.testing.assert_allclose(y, expected, atol=2e-3)
    assert y.shape == expected.shape


@every_layer
def test_what_belongs_to_the_pictures_goes_with_them(name):
    layer = make(name, bounding_box_format="xywh")
    data = {
        "images": PICTURES,
        "labels": np.eye(8, dtype="float32"),
        "segmentation_masks": np.arange(8 * 30).reshape(8, 5, 6, 1) % 3,
        "weights": np.ones(8, "float32"),
    }
    if name not in ("CutMix", "RandomElasticTransform", "AugMix"):
        boxes = np.tile(np.float32([1, 1, 2, 3]), (8, 2, 1))
        data["bounding_boxes"] = {"boxes": boxes, "labels": np.ones((8, 2), "int32")}
    result = layer(data, training=True)
    assert set(result) == set(data) and result["weights"].shape == (8,)
    size = result["images"].shape[:3]
    if not (name == "RandomCrop" or name == "CenterCrop" or name == "Resizing"):
        assert size == (8, 5, 6)
    assert result["segmentation_masks"].shape == (*size, 1)
    np.testing.assert_allclose(np.asarray(result["labels"]).sum(1), 1, atol=1e-5)
    if "bounding_boxes" in data:
        assert result["bounding_boxes"]["boxes"].shape == (8, 4 if name == "MixUp" else 2, 4)
        alone = {k: v[0] for k, v in data.items() if k != "bounding_boxes"}
        alone["bounding_boxes"] = {k: v[0] for k, v in data["bounding_boxes"].items()}
        one = layer(alone, training=True)
        assert one["bounding_boxes"]["labels"].shape == ((4,) if name == "MixUp" else (2,))
        assert one["images"].shape == (*size[1:], 3)


def test_boxes_follow_what_they_frame():
    """A bright rectangle in a dark picture is where its box says, after each kind of move."""
    picture = np.zeros((1, 40, 40, 1), "float32")
    picture[0, 10:20, 12:28] = 1
    boxes = {"boxes": np.float32([[[12, 10, 28, 20]]]), "labels": np.zeros((1, 1), "int32")}
    for layer in (
        layers.RandomFlip("horizontal", seed=5, bounding_box_format="xyxy"),
        layers.RandomFlip("vertical", seed=5, bounding_box_format="xyxy"),
        layers.RandomTranslation(0.2, 0.2, "constant", seed=1, bounding_box_format="xyxy"),
        layers.RandomZoom(0.3, 0.2, "constant", seed=1, bounding_box_format="xyxy"),
        layers.RandomRotation((0.25, 0.25), "constant", seed=1, bounding_box_format="xyxy"),
        layers.RandomRotation((0.1, 0.1), "constant", seed=1, bounding_box_format="xyxy"),
        layers.RandomPerspective((1, 1), 0.3, seed=1, bounding_box_format="xyxy"),
        layers.RandomCrop(35, 30, seed=1, bounding_box_format="xyxy"),
        layers.CenterCrop(35, 30, bounding_box_format="xyxy"),
        layers.Resizing(80, 60, bounding_box_format="xyxy"),
    ):  # fmt: skip
        result = layer({"images": picture, "bounding_boxes": boxes}, training=True)
        rows, columns = np.nonzero(np.asarray(result["images"])[0, :, :, 0] > 0.5)
        seen = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        box = np.asarray(result["bounding_boxes"]["boxes"])[0, 0]
        np.testing.assert_allclose(box, seen, atol=2.1, err_msg=type(layer).__name__)


def test_unknown_boxes_and_wrong_arguments_are_refused():
    boxes = {"boxes": np.zeros((8, 1, 4)), "labels": np.zeros((8, 1))}
    with pytest.raises(ValueError, match="bounding_box_format"):
        layers.RandomFlip()({"images": PICTURES, "bounding_boxes": boxes})
    with pytest.raises(ValueError, match="rank 3 or 4"):
        layers.RandomFlip()(np.zeros((3, 4)))
    with pytest.raises(ValueError, match=r"\[-1.0, 1.0\]"):
        layers.RandomBrightness(3.0)
    with pytest.raises(ValueError, match="pair"):
        layers.RandomBrightness((0.1, 0.2, 0.3))
    with pytest.raises(ValueError, match="fill_mode"):
        layers.RandomRotation(0.1, fill_mode="mirror")
    with pytest.raises(ValueError, match="interpolation"):
        layers.RandomZoom(0.1, interpolation="bicubic")
    with pytest.raises(ValueError, match="value_range"):
        layers.AutoContrast(value_range=3)
    with pytest.raises(ValueError, match="odd"):
        layers.RandomGaussianBlur(kernel_size=4)
    with pytest.raises(ValueError, match="'diagonal'"):
        layers.RandomFlip("diagonal")
    with pytest.raises(ValueError, match="MixUp"):
        layers.CutMix(bounding_box_format="xyxy")({"images": PICTURES, "bounding_boxes": boxes})


def test_what_is_drawn_lies_in_its_interval():
    many = np.zeros((2000, 4, 4, 3), "float32")
    draw = layers.RandomBrightness((-0.2, 0.4)).get_random_transformation(many)["rgb_delta"].numpy()
    assert -51 <= draw.min() < -45 and 95 < draw.max() <= 102
    draw = layers.RandomContrast(0.4).get_random_transformation(many)["contrast_factor"].numpy()
    assert 1 <= draw.min() < 1.02 and 1.38 < draw.max() <= 1.4
    draw = layers.RandomRotation(0.5).get_random_transformation(many)["angle"].numpy()
    assert -180 <= draw.min() < -170 and 170 < draw.max() <= 180
    draw = layers.RandomPosterization((2, 5)).get_random_transformation(many)["shift_factor"]
    assert set(np.asarray(draw).tolist()) == {4, 5, 6}
    draw = layers.RandomFlip().get_random_transformation(many)["flips"].numpy()
    assert 0.45 < draw.mean() < 0.55
    draw = layers.RandomErasing(scale=(0.1, 0.4)).get_random_transformation(
        np.ones((500, 40, 40, 1))
    )
    share = draw["batch_masks"].numpy().mean((1, 2, 3))
    assert share.min() > 0.09 and share.max() < 0.41
    draw = layers.CutMix().get_random_transformation(np.ones((500, 40, 40, 1)))
    share = draw["batch_masks"].numpy().mean((1, 2, 3))
    np.testing.assert_allclose(share, 1 - draw["mix_weight"].numpy(), atol=0.06)


def test_a_model_learns_from_changed_pictures(tmp_path):
    model = kerasish.Sequential([
        layers.Input((6, 6, 1)), layers.RandomFlip("horizontal", seed=1),
        layers.RandomTranslation(0.1, 0.1, seed=2), layers.Rescaling(1 / 255), layers.Flatten(),
        layers.Dense(2, activation="softmax"),
    ])  # fmt: skip
    x = np.zeros((32, 6, 6, 1), "float32")
    y = np.arange(32) % 2
    x[y == 0, :3], x[y == 1, 3:] = 255, 255
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.optimizer.learning_rate = 0.05
    history = model.fit(x, y, batch_size=8, epochs=6, verbose=0).history
    assert history["loss"][-1] < 0.5 * history["loss"][0]
    model.save(tmp_path / "model.keras")
    other = kerasish.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(other.predict(x, verbose=0), model.predict(x, verbose=0))
    # The seed generators' states are saved with the layers: the same changes come next.
    np.testing.assert_array_equal(
        other.layers[0](x, training=True), model.layers[0](x, training=True)
    )


def test_a_pipeline_is_its_layers_in_turn():
    steps = [layers.RandomBrightness((0.2, 0.2)), layers.Resizing(3, 3), layers.Rescaling(1 / 255)]
    pipeline = layers.Pipeline(steps, name="changes")
    expected = steps[2](steps[1](steps[0](PICTURES)))
    np.testing.assert_allclose(pipeline(PICTURES), expected, atol=1e-6)
    assert pipeline.layers[1] is steps[1]
    text = json.dumps(registry.serialize_keras_object(pipeline))
    again = registry.deserialize_keras_object(json.loads(text))
    np.testing.assert_allclose(again(PICTURES), expected, atol=1e-6)
    np.testing.assert_allclose(
        pipeline(PICTURES, training=False), steps[2](steps[1](PICTURES)), atol=1e-6
    )


def test_boxes_of_one_picture_and_a_seed_in_place_of_ways():
    boxes = {"boxes": np.float32([[2, 1, 4, 3], [6, 4, 8, 6]]), "labels": np.array([[1, 2]])}
    layer = layers.RandomFlip("horizontal", bounding_box_format="xyxy")
    given = {"flips": np.array([[True]]), "input_shape": (10, 8, 3)}
    result = layer.transform_bounding_boxes(boxes, given)
    assert result["boxes"].tolist() == [[4, 1, 6, 3], [0, 4, 2, 6]]
    assert result["labels"].tolist() == [[1, 2]]
    elastic = layers.RandomElasticTransform()
    given = {"apply_transform": np.array([True]), "distortion_factor": 0.9, "seed": 42}
    first, again = (elastic.transform_images(PICTURES[0], given).numpy() for _ in range(2))
    assert np.abs(first - PICTURES[0]).max() > 1
    np.testing.assert_array_equal(first, again)


def test_a_pipeline_hands_masks_on_and_says_what_it_is_made_of():
    seen = []

    class Looking(layers.Layer):
        supports_masking = True

        def call(self, x, mask=None):
            seen.append(mask)
            return 2 * x

    layers.Pipeline([Looking(), Looking()])(np.ones((2, 3)), mask=np.ones((2,), bool))
    assert [np.asarray(mask).tolist() for mask in seen] == [[True, True]] * 2
    for config in ({"name": "a"}, {"name": "a", "layers": None}):
        with pytest.raises(ValueError, match="layers"):
            layers.Pipeline.from_config(config)


@pytest.mark.parametrize(
    "layer",
    [
        layers.RandomRotation(0.2), layers.RandomTranslation(0.2, 0.2), layers.RandomZoom(0.2),
        layers.RandomShear(0.2, 0.2), layers.RandomPerspective(1.0, 0.2),
        layers.RandomElasticTransform(1.0, value_range=(0, 255)),
    ],
    ids=lambda layer: type(layer).__name__,
)  # fmt: skip
@pytest.mark.filterwarnings("error:.*no native code for:RuntimeWarning")
def test_reading_at_computed_places_is_native(layer):
    """A part without native code warns: fit() would go from batch to batch in Python."""
    kerasish.config.set_backend("static")
    layer = type(layer).from_config(layer.get_config())
    model = kerasish.Sequential(
        [kerasish.Input((8, 8, 3)), layer, layers.Flatten(), layers.Dense(1)]
    )
    model.compile("sgd", "mse")
    x = np.random.default_rng(0).uniform(0, 255, (16, 8, 8, 3)).astype("float32")
    losses = model.fit(x, np.ones((16, 1)), verbose=0).history["loss"]
    assert np.isfinite(losses).all() and losses[0] > 0
    (program,) = model.training_program.step("train").executables()
    assert program.is_native
