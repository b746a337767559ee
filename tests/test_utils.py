"""Keras's `utils`, `preprocessing` and `backend`: what they give was compared with Keras 3.15."""

from __future__ import annotations

import gc
import random
import re
import sys
import weakref

import numpy as np
import pytest

import kerasish as keras
from kerasish import utils

# ------------------------------------------------------------------------------------------ arrays


@pytest.mark.parametrize(
    ("x", "classes", "shape"),
    [([0, 1, 3], None, (3, 4)), ([[0], [1]], 4, (2, 4)), ([[0, 1], [1, 2]], None, (2, 2, 3)),
     ([[[1]], [[2]]], None, (2, 1, 3))],
)  # fmt: skip
def test_to_categorical(x, classes, shape):
    rows = utils.to_categorical(x, classes)
    assert rows.shape == shape
    assert rows.dtype == np.float64
    np.testing.assert_array_equal(rows.sum(-1), 1)
    np.testing.assert_array_equal(rows.argmax(-1).ravel(), np.ravel(x))


def test_to_categorical_of_tensors_gives_tensors():
    rows = utils.to_categorical(keras.ops.convert_to_tensor([0, 2]))
    assert isinstance(rows, keras.Tensor)
    assert rows.dtype == "float32"
    np.testing.assert_array_equal(rows, [[1, 0, 0], [0, 0, 1]])


@pytest.mark.parametrize("x", [[0, 5], [-1, 0]])
def test_to_categorical_names_the_bounds(x):
    with pytest.raises(ValueError, match="classes from 0 to 2 .*got values from"):
        utils.to_categorical(x, 3)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("axis", [0, -1])
def test_normalize(order, axis):
    x = np.random.default_rng(0).normal(size=(4, 3))
    x[0] = 0
    created = utils.normalize(x, axis, order)
    norms = (np.abs(created) ** order).sum(axis)
    assert np.all(np.isclose(norms, 1) | (np.abs(x).sum(axis) == 0))
    np.testing.assert_allclose(utils.normalize(keras.ops.array(x), axis, order), created, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [[0, 0, 1], [0, 2, 3], [4, 5, 6]]),
        ({"padding": "post"}, [[1, 0, 0], [2, 3, 0], [4, 5, 6]]),
        ({"maxlen": 2}, [[0, 1], [2, 3], [5, 6]]),
        ({"maxlen": 2, "truncating": "post", "padding": "post", "value": 9},
         [[1, 9], [2, 3], [4, 5]]),
        ({"maxlen": 4, "value": -1.0, "dtype": "float32"},
         [[-1, -1, -1, 1], [-1, -1, 2, 3], [-1, 4, 5, 6]]),
    ],
)  # fmt: skip
def test_pad_sequences(options, expected):
    padded = utils.pad_sequences([[1], [2, 3], [4, 5, 6]], **options)
    assert padded.dtype == options.get("dtype", "int32")
    np.testing.assert_array_equal(padded, expected)


def test_pad_sequences_of_vectors_and_strings():
    vectors = utils.pad_sequences([[], [[1, 2]], [[3, 4], [5, 6]]])
    np.testing.assert_array_equal(vectors, [[[0, 0], [0, 0]], [[0, 0], [1, 2]], [[3, 4], [5, 6]]])
    words = utils.pad_sequences([["a"], ["b", "c"]], dtype=object, value="-")
    assert words.tolist() == [["-", "a"], ["b", "c"]]


@pytest.mark.parametrize(
    ("sequences", "options", "message"),
    [
        ([1, 2], {}, "got 1 at place 0"),
        ([["a"]], {"value": "-"}, "needs dtype=object"),
        ([[1]], {"padding": "left"}, "padding is 'pre' or 'post', got 'left'"),
        ([[[1, 2]], [[1, 2, 3]]], {}, "sequence 1 has entries of shape"),
    ],
)
def test_pad_sequences_says_what_is_wrong(sequences, options, message):
    with pytest.raises(ValueError, match=message):
        utils.pad_sequences(sequences, **options)


# ---------------------------------------------------------------------------------------- data sets

SERIES = np.arange(20.0)


def starts(dataset):
    return [row[0] for batch in dataset for row in batch]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, list(range(18))),
        ({"sequence_stride": 5}, [0, 5, 10, 15]),
        ({"sampling_rate": 4}, list(range(12))),
        ({"start_index": 4, "end_index": 9}, [4, 5, 6]),
    ],
)
def test_windows_of_a_series(options, expected):
    windows = utils.timeseries_dataset_from_array(
        SERIES, None, sequence_length=3, batch_size=4, **options
    )
    assert len(windows) == -(-len(expected) // 4)
    assert starts(windows) == expected
    rate = options.get("sampling_rate", 1)
    assert np.all(np.diff(windows[0]) == rate)


def test_windows_go_with_their_targets_in_any_order():
    windows = utils.timeseries_dataset_from_array(
        SERIES, SERIES * 10, 3, shuffle=True, seed=1, batch_size=5
    )
    first = [(x[0], y) for batch in windows for x, y in zip(*batch)]
    assert all(y == 10 * x for x, y in first)
    assert sorted(x for x, _ in first) == list(range(18)) != [x for x, _ in first]
    assert [x for x, _ in first] != starts(x for x, _ in windows), "each epoch a new order"


def test_single_windows():
    windows = utils.timeseries_dataset_from_array(SERIES, None, 3, batch_size=None)
    assert windows[2].tolist() == [2, 3, 4]


@pytest.mark.parametrize(
    "options",
    [{"sequence_length": 30}, {"sequence_length": 0}, {"sequence_length": 3, "start_index": 25},
     {"sequence_length": 3, "batch_size": 0}],
)  # fmt: skip
def test_windows_that_cannot_be(options):
    with pytest.raises(ValueError, match=r"window|sequence_length|start_index|batch_size"):
        utils.timeseries_dataset_from_array(SERIES, None, **options)


@pytest.mark.parametrize(
    ("sizes", "counts"),
    [((0.8, None), (16, 4)), ((None, 0.25), (15, 5)), ((5, None), (5, 15)), ((3, 4), (3, 4)),
     ((0.5, 0.2), (10, 4))],
)  # fmt: skip
def test_split_dataset(sizes, counts):
    left, right = utils.split_dataset((SERIES, SERIES + 1), *sizes)
    assert (len(left), len(right)) == counts
    assert [x for x, _ in left] == list(range(counts[0]))
    assert [y for _, y in right] == list(range(21 - counts[1], 21))
    x, y = right.batch(3)[0]
    np.testing.assert_array_equal(y, x + 1)


@pytest.mark.parametrize("sizes", [(None, None), (30, None), (12, 9), (1.5, None), (0, None)])
def test_split_dataset_needs_sizes_that_fit(sizes):
    with pytest.raises(ValueError, match="split_dataset"):
        utils.split_dataset(SERIES, *sizes)


def test_split_dataset_of_samples_one_by_one():
    left, right = utils.split_dataset(((i, i * i) for i in range(10)), 0.5, shuffle=True, seed=0)
    assert sorted(x for part in (left, right) for x, _ in part) == list(range(10))


@pytest.fixture
def pictures(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="Pillow comes with the extra plot")
    rng = np.random.default_rng(0)
    for name in ("cats", "dogs"):
        (tmp_path / name).mkdir()
        for i in range(4):
            array = rng.integers(0, 255, (5, 7, 3)).astype("uint8")
            image.fromarray(array).save(tmp_path / name / f"{i}.png")
    (tmp_path / "dogs" / "notes.txt").write_text("no picture")
    return tmp_path


def test_pictures_from_folders(pictures, capsys):
    result = utils.image_dataset_from_directory(
        pictures, image_size=(8, 6), batch_size=3, shuffle=False, label_mode="categorical"
    )
    assert capsys.readouterr().out == "Found 8 files of 2 classes.\n"
    assert result.class_names == ["cats", "dogs"]
    batches = list(result)
    assert [x.shape for x, _ in batches] == [(3, 8, 6, 3), (3, 8, 6, 3), (2, 8, 6, 3)]
    assert [row.argmax() for _, y in batches for row in y] == [0] * 4 + [1] * 4
    assert batches[0][0].dtype == np.float32


def test_pictures_as_they_are_on_disk(pictures):
    result = utils.image_dataset_from_directory(
        pictures, image_size=(5, 7), label_mode=None, batch_size=None, shuffle=False, verbose=False
    )
    expected = utils.img_to_array(utils.load_img(pictures / "cats" / "0.png"))
    np.testing.assert_array_equal(result[0], expected)


def test_pictures_split_without_overlap(pictures):
    options = {"validation_split": 0.3, "seed": 3, "verbose": False}
    parts = [
        utils.image_dataset_from_directory(pictures, subset=subset, **options)
        for subset in ("training", "validation")
    ]
    both = utils.image_dataset_from_directory(pictures, subset="both", **options)
    assert [len(p.file_paths) for p in parts] == [6, 2]
    assert len({path for p in parts for path in p.file_paths}) == 8
    assert [p.file_paths for p in both] == [p.file_paths for p in parts]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"validation_split": 0.5}, "go together"),
        ({"validation_split": 0.5, "subset": "training"}, "give a seed"),
        ({"label_mode": "binar"}, "label_mode"),
        ({"labels": [0, 1]}, "one for each of the 8 files"),
        ({"class_names": ["cats"]}, "are not the sub-folders"),
        ({"color_mode": "hsv", "verbose": False}, "color_mode"),
    ],
)
def test_pictures_that_cannot_be(pictures, options, message):
    with pytest.raises(ValueError, match=message):
        list(utils.image_dataset_from_directory(pictures, **options))


def test_texts_from_folders(tmp_path):
    for name, text in (("bad", "Nein, nein."), ("good", "Ja, schön!")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(text, encoding="utf-8")
    result = utils.text_dataset_from_directory(
        tmp_path, label_mode="binary", shuffle=False, max_length=9, verbose=False
    )
    ((texts, labels),) = result
    assert texts.tolist() == ["Nein, nei", "Ja, schön"]
    assert labels.tolist() == [[0.0], [1.0]]


# ----------------------------------------------------------------------------------------- pictures


def test_pictures_there_and_back(tmp_path):
    pytest.importorskip("PIL", reason="Pillow comes with the extra plot")
    array = np.arange(60, dtype="float32").reshape(4, 5, 3)
    utils.save_img(tmp_path / "a.png", array, scale=False)
    np.testing.assert_array_equal(utils.img_to_array(utils.load_img(tmp_path / "a.png")), array)
    first = utils.img_to_array(utils.load_img(tmp_path / "a.png"), "channels_first", "int32")
    np.testing.assert_array_equal(first, array.transpose(2, 0, 1))
    assert first.dtype == np.int32
    small = utils.load_img(tmp_path / "a.png", "grayscale", (2, 2), keep_aspect_ratio=True)
    assert small.size == (2, 2)
    assert small.mode == "L"


def test_array_to_img_stretches():
    pytest.importorskip("PIL", reason="Pillow comes with the extra plot")
    scaled = np.asarray(utils.array_to_img(np.array([[[1.0], [3.0]]])))
    np.testing.assert_array_equal(scaled, [[0, 255]])


def test_the_largest_number_of_a_stretched_picture_is_255():
    pytest.importorskip("PIL", reason="Pillow comes with the extra plot")
    for largest in np.random.default_rng(0).random(200, "float32") + 0.01:
        picture = utils.array_to_img(np.array([[[0.0], [largest]]], "float32"))
        assert picture.mode == "L"
        np.testing.assert_array_equal(np.asarray(picture), [[0, 255]])


@pytest.mark.parametrize("shape", [(2, 2), (2, 2, 2), (1, 2, 2, 3)])
def test_array_to_img_needs_a_picture(shape):
    with pytest.raises(ValueError, match="array_to_img: expected"):
        utils.array_to_img(np.zeros(shape))


def test_smart_resize_keeps_the_middle():
    x = np.zeros((4, 8, 1), "float32")
    x[:, 2:6] = 1
    resized = keras.preprocessing.image.smart_resize(x, (2, 2))
    assert isinstance(resized, np.ndarray)
    np.testing.assert_array_equal(resized, np.ones((2, 2, 1)))


# ------------------------------------------------------------------------------------------ session


def draws():
    return random.random(), np.random.rand(), float(keras.random.uniform(()))


def test_set_random_seed_covers_all_three():
    utils.set_random_seed(7)
    first = draws()
    assert draws() != first
    utils.set_random_seed(7)
    assert draws() == first


def test_set_random_seed_makes_weights_and_training_repeat():
    def train():
        utils.set_random_seed(3)
        model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dropout(0.5)])
        model.compile("sgd", "mse")
        x = np.random.rand(16, 3).astype("float32")
        return model.fit(x, np.ones((16, 4)), epochs=2, batch_size=4, verbose=0).history["loss"]

    assert train() == train()


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, "1", True, None])
def test_set_random_seed_needs_a_whole_number(seed):
    with pytest.raises(ValueError, match="from 0 to"):
        utils.set_random_seed(seed)


def test_clear_session_numbers_names_from_0():
    utils.clear_session()
    assert [keras.layers.Dense(1).name for _ in range(2)] == ["dense", "dense_1"]
    utils.clear_session()
    assert keras.layers.Dense(1).name == "dense"
    assert [keras.backend.get_uid("a"), keras.backend.get_uid("a")] == [1, 2]
    keras.backend.clear_session()
    assert keras.backend.get_uid("a") == 1


def test_a_dropped_model_is_freed_without_clear_session():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    weights = [weakref.ref(w) for w in model.weights]
    del model
    gc.collect()
    assert [w() for w in weights] == [None, None]


def test_settings_can_be_frozen():
    settings = utils.Config(units=4)
    settings.update(rate=0.1)
    settings["seed"] = 1
    del settings["seed"]
    assert dict(settings.items()) == {"units": 4, "rate": 0.1}
    settings.freeze()
    for change in (lambda: settings.pop("units"), lambda: setattr(settings, "rate", 1)):
        with pytest.raises(ValueError, match="frozen"):
            change()
    assert settings.unfreeze().pop("rate") == 0.1
    with pytest.raises(AttributeError, match="unitz.*units"):
        settings.unitz  # noqa: B018 (asking is the test)
    assert settings.to_json() == '{"units": 4}'


def test_source_inputs():
    a, b = keras.Input((3,)), keras.Input((3,))
    y = keras.layers.Dense(2)(keras.ops.add(a, keras.ops.square(b)))
    assert {id(t) for t in utils.get_source_inputs(y)} == {id(a), id(b)}


# ---------------------------------------------------------------------------------------- drawings


def two_branches():
    x = keras.Input((4,), name="x")
    inner = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="deep")], name="inner")
    left = inner(x)
    right = keras.layers.Dense(3, "relu", name="right")(x)
    return keras.Model(x, keras.layers.Add(name="sum")([left, right]))


@pytest.fixture(params=["pydot", "alone"])
def with_pydot(request, monkeypatch):
    if request.param == "alone":
        monkeypatch.setitem(sys.modules, "pydot", None)
    return request.param == "pydot"


def edges(dot):
    names = dict(re.findall(r"(\d+) \[label=<.*?<b>(\w+)", dot.to_string()))
    return {(names[a], names[b]) for a, b in re.findall(r"(\d+) -> (\d+);", dot.to_string())}


def test_a_model_becomes_a_graph(with_pydot):
    dot = utils.model_to_dot(two_branches(), show_shapes=True, show_layer_activations=True)
    assert edges(dot) == {("x", "inner"), ("x", "right"), ("inner", "sum"), ("right", "sum")}
    assert "Output shape: <b>(None, 3)" in dot.to_string()
    assert "Activation: <b>relu" in dot.to_string()
    assert dot.to_string().count("{") == dot.to_string().count("}")


def test_nested_models_are_expanded(with_pydot):
    dot = utils.model_to_dot(two_branches(), expand_nested=True, show_trainable=True)
    assert 'subgraph "cluster_inner"' in dot.to_string()
    assert edges(dot) == {("x", "deep"), ("x", "right"), ("deep", "sum"), ("right", "sum")}


def test_a_part_of_a_sequential_model(with_pydot):
    layers = [keras.layers.Dense(2, name=f"d{i}") for i in range(4)]
    model = keras.Sequential([keras.Input((2,)), *layers])
    assert edges(utils.model_to_dot(model)) == {("d0", "d1"), ("d1", "d2"), ("d2", "d3")}
    assert edges(utils.model_to_dot(model, layer_range=["d1", "d2"])) == {("d1", "d2")}
    with pytest.raises(ValueError, match="expected two of the layers"):
        utils.model_to_dot(model, layer_range=["d1", "d9"])


def test_drawings_need_graphviz_for_pictures_only(tmp_path, monkeypatch, with_pydot):
    model = two_branches()
    utils.plot_model(model, tmp_path / "model.dot")
    assert (tmp_path / "model.dot").read_text().startswith('digraph "model" {')
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImportError, match="apt install graphviz"):
        utils.plot_model(model, tmp_path / "model.png")
    program = tmp_path / "dot"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    utils.plot_model(model, tmp_path / "model.png")
    assert (tmp_path / "model.png").read_text().startswith("-Tpng")


def test_graphs_are_pydots_where_it_is_installed():
    pydot = pytest.importorskip("pydot")
    dot = utils.model_to_dot(two_branches(), rankdir="LR", expand_nested=True)
    assert type(dot) is pydot.Dot and len(dot.get_nodes()) >= 3 and len(dot.get_edges()) == 4
    whole = two_branches()
    part = utils.model_to_dot(keras.Model(whole.inputs, whole.outputs, name="a b"), subgraph=True)
    assert type(part) is pydot.Cluster and part.get_name() == '"cluster_a b"'
    assert len([n for n in part.get_nodes() if n.get_name().isdigit()]) == 4


def test_a_graph_shows_itself_in_notebooks_without_graphviz(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pydot", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    dot = utils.model_to_dot(two_branches())
    assert b"</svg>" in dot.create(prog="dot", format="svg") and "</svg>" in dot._repr_svg_()
    assert dot.create(format="dot").startswith(b"digraph")


def test_only_built_models_are_drawn():
    with pytest.raises(ValueError, match="build"):
        utils.model_to_dot(keras.Sequential([keras.layers.Dense(1)]))


# --------------------------------------------------------------------------------- config, policies


def test_backend_is_chosen_by_name():
    before = keras.config.backend()
    assert before in ("eager", "static")
    keras.config.set_backend("static" if before == "eager" else "eager")
    assert keras.backend.backend() == keras.config.backend() != before


def test_an_unknown_backend_is_named_when_it_is_needed():
    keras.config.set_backend("statik")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match="statik.*static"):
        model.predict(np.ones((1, 2)), verbose=0)


@pytest.mark.parametrize("name", ["", None, 3])
def test_set_backend_needs_a_name(name):
    with pytest.raises(ValueError, match="name of a backend"):
        keras.config.set_backend(name)


def test_dtype_policy_under_all_its_names():
    before = keras.config.dtype_policy()
    try:
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
        assert keras.config.dtype_policy().name == "mixed_bfloat16"
        assert keras.layers.Dense(1).compute_dtype == "bfloat16"
        keras.config.set_dtype_policy("float64")
        assert keras.dtype_policies.get(None).name == "float64"
    finally:
        keras.config.set_dtype_policy(before)


def test_dtypes_have_names():
    assert keras.backend.standardize_dtype(np.float16) == "float16"
    assert keras.backend.is_float_dtype("bfloat16")
    assert keras.backend.is_int_dtype(np.int8)
    assert not keras.backend.is_int_dtype("bool")
    assert keras.backend.result_type("int32", "bfloat16") == "bfloat16"
