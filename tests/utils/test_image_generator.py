"""`ImageDataGenerator` and its iterators: results recorded from Keras, files, fit and errors."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import generator_cases as cases
import numpy as np
import pytest

import kerasish as keras
from kerasish.preprocessing import image

FACTS = Path(__file__).parents[1] / "data" / "generator.npz"
COLORS = {"a": (250, 10, 10), "b": (10, 250, 10), "c": (10, 10, 250)}


@pytest.fixture
def folder(tmp_path):
    """A folder with 4 pictures of each class, one of them a folder deeper, and a text."""
    pytest.importorskip("PIL", reason="pictures in files need Pillow")
    for name, color in COLORS.items():
        (tmp_path / name / "more").mkdir(parents=True)
        for i in range(4):
            at = tmp_path / name / ("more" if i == 3 else "") / f"{i}.png"
            image.save_img(at, np.full((5, 4, 3), color, "float32"), scale=False)
        (tmp_path / name / "notes.txt").write_text("no picture")
    return tmp_path


@pytest.fixture
def table(folder):
    names = [f"{c}/{i}.png" for i in range(3) for c in COLORS]
    return {
        "filename": names,
        "class": [n[0] for n in names],
        "size": [float(i) for i in range(9)],
        "weight": [1.0 + i for i in range(9)],
        "tags": [["a", "c"] if i % 2 else ["b"] for i in range(9)],
    }


def test_results_are_those_of_keras():
    pytest.importorskip("PIL", reason="brightness needs Pillow")
    facts = np.load(FACTS)
    seen = set()

    def compare(name, value):
        seen.add(name)
        scale = max(1.0, float(np.abs(facts[name]).max()))
        # Whitening divides by singular values that rounding determines.
        close = 1e-2 if name.startswith("whitened") else 1e-4
        np.testing.assert_allclose(value, facts[name], atol=close * scale, rtol=0, err_msg=name)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases.results(image, compare)
    assert seen == set(facts.files)


def test_given_pictures_stay_as_they_are():
    x = cases.pictures()
    before = x.copy()
    generator = image.ImageDataGenerator(rescale=0.5, samplewise_center=True, horizontal_flip=True)
    generator.fit(x)
    generator.standardize(x[0])
    next(generator.flow(x, batch_size=7))
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("mode", ["categorical", "sparse", "binary", "input", None])
def test_folders_give_classes_and_targets(folder, mode, capsys):
    classes = ["c", "a"] if mode == "binary" else None
    flow = image.ImageDataGenerator().flow_from_directory(
        folder, (4, 3), classes=classes, class_mode=mode, batch_size=5, shuffle=False
    )
    names = classes or ["a", "b", "c"]
    assert capsys.readouterr().out == (
        f"Found {flow.samples} images belonging to {len(names)} classes.\n"
    )
    assert flow.class_indices == {name: i for i, name in enumerate(names)}
    assert flow.samples == 4 * len(names)
    assert [Path(f).as_posix() for f in flow.filenames[:4]] == [
        f"{names[0]}/{at}" for at in ("0.png", "1.png", "2.png", "more/3.png")
    ]
    assert flow.labels.tolist() == [i for i in range(len(names)) for _ in range(4)]
    batch = next(flow)
    x = batch if mode is None else batch[0]
    assert x.shape == (5, 4, 3, 3)
    assert x.dtype == np.float32
    np.testing.assert_array_equal(x[4, 0, 0], COLORS[names[1]])
    if mode == "categorical":
        np.testing.assert_array_equal(batch[1], np.eye(3)[[0, 0, 0, 0, 1]])
    elif mode == "input":
        np.testing.assert_array_equal(batch[1], x)
    elif mode is not None:
        assert batch[1].tolist() == [0, 0, 0, 0, 1]


def test_folders_are_split_class_by_class(folder):
    generator = image.ImageDataGenerator(validation_split=0.25)
    parts = {
        subset: generator.flow_from_directory(folder, (4, 4), subset=subset, shuffle=False)
        for subset in ("training", "validation")
    }
    assert [Path(f).as_posix() for f in parts["validation"].filenames] == [
        "a/0.png", "b/0.png", "c/0.png",
    ]  # fmt: skip
    assert parts["training"].samples == 9
    assert not set(parts["training"].filenames) & set(parts["validation"].filenames)


def test_links_are_followed_where_wanted(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    image.save_img(elsewhere / "far.png", np.zeros((4, 4, 3)))
    (folder / "a" / "link").symlink_to(elsewhere, target_is_directory=True)
    make = image.ImageDataGenerator().flow_from_directory
    assert make(folder, (4, 4)).samples == 12
    assert make(folder, (4, 4), follow_links=True).samples == 13


@pytest.mark.parametrize("order", ["channels_first", "channels_last"])
@pytest.mark.parametrize(("colors", "channels"), [("rgb", 3), ("rgba", 4), ("grayscale", 1)])
def test_colors_and_layouts(folder, colors, channels, order):
    generator = image.ImageDataGenerator(data_format=order, rotation_range=10)
    flow = generator.flow_from_directory(
        folder, (6, 5), color_mode=colors, interpolation="bilinear", keep_aspect_ratio=True
    )
    shape = (channels, 6, 5) if order == "channels_first" else (6, 5, channels)
    assert flow.image_shape == shape
    assert next(flow)[0].shape == (12, *shape)


def test_tables_give_classes_and_weights(folder, table, capsys):
    table["filename"][4] = "b/none.png"
    with pytest.warns(UserWarning, match="1 of 9 file names in the column 'filename'"):
        flow = image.ImageDataGenerator().flow_from_dataframe(
            table, folder, weight_col="weight", target_size=(4, 4), shuffle=False
        )
    assert capsys.readouterr().out == (
        "Found 8 validated image filenames belonging to 3 classes.\n"
    )
    x, y, weights = flow[0]
    assert x.shape == (8, 4, 4, 3)
    np.testing.assert_array_equal(y, np.eye(3)[[0, 1, 2, 0, 2, 0, 1, 2]])
    assert weights.tolist() == [1, 2, 3, 4, 6, 7, 8, 9]


def test_tables_give_several_classes_of_a_picture(folder, table):
    flow = image.ImageDataGenerator().flow_from_dataframe(
        table, folder, y_col="tags", target_size=(4, 4), shuffle=False
    )
    assert flow.class_indices == {"a": 0, "b": 1, "c": 2}
    assert next(flow)[1][:2].tolist() == [[0, 1, 0], [1, 0, 1]]


def test_tables_give_raw_values_and_several_outputs(folder, table):
    make = image.ImageDataGenerator(validation_split=0.4).flow_from_dataframe
    options = {"target_size": (4, 4), "shuffle": False}
    raw = make(table, folder, y_col="size", class_mode="raw", subset="validation", **options)
    assert next(raw)[1].tolist() == [0, 1, 2]
    both = make(table, folder, y_col=["size", "weight"], class_mode="raw", **options)
    assert next(both)[1].shape == (9, 2)
    many = make(table, folder, y_col=["size", "weight"], class_mode="multi_output", **options)
    assert [v.tolist()[:2] for v in next(many)[1]] == [[0, 1], [1, 2]]
    two = make(table, folder, classes=["c", "a"], class_mode="binary", **options)
    assert two.samples == 6
    assert next(two)[1].tolist() == [1, 0, 1, 0, 1, 0]
    assert next(make(table, folder, class_mode=None, **options)).shape == (9, 4, 4, 3)


def test_frames_of_pandas_are_tables(folder, table):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    flow = image.ImageDataGenerator().flow_from_dataframe(
        pandas.DataFrame(table), str(folder), target_size=(4, 4), class_mode="sparse"
    )
    assert flow.samples == 9


def test_batches_are_written_to_a_folder(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    flow = image.ImageDataGenerator().flow(
        cases.pictures(), batch_size=3, save_to_dir=out, save_prefix="p", save_format="jpeg",
        shuffle=False,
    )  # fmt: skip
    next(flow)
    names = sorted(path.name for path in out.iterdir())
    assert [name.split("_")[:2] for name in names] == [["p", "0"], ["p", "1"], ["p", "2"]]
    assert all(name.endswith(".jpeg") for name in names)


def test_reset_begins_with_the_first_batch():
    flow = image.ImageDataGenerator().flow(cases.pictures(), range(7), 3, shuffle=False)
    assert next(flow)[1].tolist() == [0, 1, 2]
    flow.reset()
    assert flow.next()[1].tolist() == [0, 1, 2]
    assert [len(flow), flow.n] == [3, 7]


def test_other_inputs_stay_beside_the_pictures():
    x, ages = cases.pictures(), np.arange(7.0)
    flow = image.ImageDataGenerator(rescale=0.5).flow(
        (x, ages), ages, 4, shuffle=False, sample_weight=ages + 1
    )
    (pictures, other), y, weights = next(flow)
    np.testing.assert_allclose(pictures, x[:4] / 2)
    assert other.tolist() == y.tolist() == [0, 1, 2, 3]
    assert weights.tolist() == [1, 2, 3, 4]


def test_models_are_trained_on_the_iterators(folder, engine):
    keras.utils.set_random_seed(0)
    generator = image.ImageDataGenerator(rescale=1 / 255, rotation_range=30, validation_split=0.25)
    parts = {
        subset: generator.flow_from_directory(
            folder, (4, 4), class_mode="sparse", batch_size=4, subset=subset, seed=3
        )
        for subset in ("training", "validation")
    }
    model = keras.Sequential(
        [keras.Input((4, 4, 3)), keras.layers.Flatten(), keras.layers.Dense(3)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.05), loss, metrics=["accuracy"])
    history = model.fit(
        parts["training"], epochs=15, validation_data=parts["validation"], verbose=0
    ).history
    assert history["val_accuracy"][-1] == 1.0
    assert model.evaluate(parts["validation"], verbose=0, return_dict=True)["accuracy"] == 1.0
    alone = generator.flow_from_directory(folder, (4, 4), class_mode=None, shuffle=False)
    assert model.predict(alone, verbose=0).argmax(-1).tolist() == alone.classes.tolist()


MISTAKES = {
    "fill_mode is one of": lambda g: g(fill_mode="mirror"),
    "validation_split is from 0": lambda g: g(validation_split=1.5),
    "zoom_range: expected two numbers": lambda g: g(zoom_range=[1, 2, 3]),
    "brightness_range: expected two numbers": lambda g: g(brightness_range=0.5),
    "data_format": lambda g: g(data_format="rows"),
    "x has 7 pictures, y has length 6": lambda g: g().flow(cases.pictures(), range(6)),
    "x has 4 axes, got shape": lambda g: g().flow(np.zeros((3, 4, 4))),
    "batch_size is 1 or more": lambda g: g().flow(cases.pictures(), batch_size=0),
    "needs ImageDataGenerator.validation_split": lambda g: g().flow(
        cases.pictures(), subset="training"
    ),
    'subset is "training"': lambda g: g(validation_split=0.5).flow(cases.pictures(), subset="test"),
    "have different classes": lambda g: g(validation_split=0.5).flow(
        cases.pictures(), range(7), subset="training"
    ),
    "there is no batch 3": lambda g: g().flow(cases.pictures(), batch_size=3)[3],
    "expected 4 axes, got shape": lambda g: g().fit(np.zeros((4, 4, 3))),
    "class_mode is one of": lambda g: g().flow_from_directory(".", class_mode="raw"),
    "there is no folder": lambda g: g().flow_from_directory("nowhere-at-all"),
    "the table has no column 'class', but": lambda g: g().flow_from_dataframe({"filename": []}),
    "needs texts in the column 'class', got 3": lambda g: g().flow_from_dataframe(
        {"filename": ["a.png"], "class": [3]}, validate_filenames=False
    ),
    "needs two classes, got 1": lambda g: g().flow_from_dataframe(
        {"filename": ["a.png"], "class": ["x"]}, class_mode="binary", validate_filenames=False
    ),
    "unexpected argument 'shufle'": lambda g: g().flow_from_dataframe(
        {"filename": [], "class": []}, shufle=True
    ),
    "expected a picture with 3 axes": lambda g: image.random_rotation(np.zeros((4, 4)), 10),
    "each once": lambda g: image.random_zoom(np.zeros((3, 4, 4)), (1, 2), row_axis=2),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_say_what_was_expected(message):
    with pytest.raises((ValueError, TypeError, OSError), match=message.replace("'", ".")):
        MISTAKES[message](image.ImageDataGenerator)


def test_classes_without_a_folder_are_named(folder):
    with pytest.raises(ValueError, match=r"the classes \['d'\] have no folder"):
        image.ImageDataGenerator().flow_from_directory(folder, classes=["a", "d"])


def test_statistics_without_data_warn():
    generator = image.ImageDataGenerator(featurewise_center=True)
    with pytest.warns(UserWarning, match="Call fit"):
        generator.standardize(cases.pictures()[0])
    with pytest.warns(UserWarning, match="turns featurewise_center on"):
        image.ImageDataGenerator(featurewise_std_normalization=True)


def test_a_missing_pillow_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match="pip install pillow"):
        image.apply_brightness_shift(cases.pictures()[0], 0.5)
