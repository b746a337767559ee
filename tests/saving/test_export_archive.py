"""Archives for inference: they say the same on either engine, and let nothing in."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kerasish as keras
from kerasish import layers, ops
from kerasish.export import ExportArchive, load_archive
from kerasish.saving.formats.tensor_file import opened, write_arrays

COUNT = int(os.environ.get("KERASISH_FUZZ", "60"))
Spec = keras.InputSpec


class Doubled(keras.Layer):
    """A class that no file can know."""

    def call(self, x: Any) -> Any:
        return 2 * x


def dense() -> Any:
    return keras.Sequential(
        [
            keras.Input((3,)), layers.Dense(4, "gelu"), layers.BatchNormalization(), Doubled(),
            layers.Dropout(0.5), layers.Dense(2, "softmax"),
        ]
    )  # fmt: skip


def convolution() -> Any:
    return keras.Sequential(
        [
            keras.Input((8, 8, 3)), layers.Conv2D(4, 3, strides=2, padding="same"),
            layers.MaxPooling2D(), layers.Flatten(), layers.Dense(2, dtype="bfloat16"),
        ]
    )  # fmt: skip


def any_picture() -> Any:
    return keras.Sequential(
        [
            keras.Input((None, None, 3)), layers.Conv2D(4, 3, padding="same", activation="relu"),
            layers.GlobalAveragePooling2D(),
        ]
    )  # fmt: skip


def lstm() -> Any:
    return keras.Sequential(
        [keras.Input((5, 3)), layers.LSTM(4, return_sequences=True), layers.GRU(3)]
    )


def own_cell() -> Any:
    cells = layers.StackedRNNCells([layers.LSTMCell(3), layers.GRUCell(2)])
    return keras.Sequential([keras.Input((12, 3)), layers.RNN(cells)])


def embedding() -> Any:
    return keras.Sequential(
        [keras.Input((None,), dtype="int32"), layers.Embedding(9, 4, mask_zero=True), layers.GRU(3)]
    )


def attention() -> Any:
    x = keras.Input((None, 4))
    y = layers.MultiHeadAttention(2, 3)(x, x, use_causal_mask=True)
    return keras.Model(x, layers.LayerNormalization()(x + y))


def branches() -> Any:
    x = keras.Input((3,))
    either = layers.Lambda(lambda t: ops.cond(ops.sum(t) > 0, lambda: t * 2, lambda: t - 1))
    return keras.Model(x, either(x))


def scanned() -> Any:
    def run(x: Any) -> Any:
        rows = ops.transpose(x, (1, 0, 2))
        last, every = ops.scan(lambda c, r: (c * 0.5 + r, c), ops.zeros_like(rows[0]), rows)
        return last + ops.sum(every, axis=0)

    return keras.Sequential([keras.Input((12, 3)), layers.Lambda(run)])


def looped() -> Any:
    def run(x: Any) -> Any:
        def grows(t: Any) -> Any:
            return ops.max(t) < 100.0

        return ops.while_loop(grows, lambda t: (t * 2.0 + 1.0,), (x,))[0]

    return keras.Sequential([keras.Input((3,)), layers.Lambda(run)])


MODELS = {
    dense: (3,), convolution: (8, 8, 3), any_picture: (7, 5, 3), lstm: (5, 3), own_cell: (12, 3),
    embedding: (6,), attention: (6, 4), branches: (3,),
    scanned: (12, 3), looped: (3,),
}  # fmt: skip


def data(model: Any, shape: Any, rows: int) -> Any:
    random = np.random.default_rng(rows)
    if model.inputs[0].dtype == "int32":
        return random.integers(0, 9, (rows, *shape)).astype("int32")
    return random.normal(size=(rows, *shape)).astype("float32")


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_models_come_back_with_any_batch(make: Any, tmp_path: Path, engine: str) -> None:
    model = make()
    for v in model.weights:
        if "moving" in v.path:
            v.assign(np.random.default_rng(0).random(v.shape) + 0.5)
    model.export(tmp_path / "a", verbose=False)
    served = load_archive(tmp_path / "a")
    assert list(served) == ["serve"]
    for rows in (1, 2, 19, 20):
        x = data(model, MODELS[make], rows)
        result, wanted = served.serve(x), model(x)
        assert result.dtype == wanted.dtype
        result, wanted = (np.asarray(ops.cast(y, "float32")) for y in (result, wanted))
        close = 2e-2 if make is convolution else 1e-5  # bfloat16 there
        np.testing.assert_allclose(result, wanted, rtol=close, atol=close)


def test_what_one_engine_writes_the_other_reads(tmp_path: Path) -> None:
    model, x = lstm(), np.random.default_rng(0).normal(size=(3, 5, 3)).astype("float32")
    model.export(tmp_path / "a", verbose=False)
    before = keras.config.backend()
    result = {}
    for name in ("static", "eager"):
        keras.config.set_backend(name)
        result[name] = np.asarray(load_archive(tmp_path / "a").serve(x))
    keras.config.set_backend(before)
    np.testing.assert_allclose(result["static"], result["eager"], rtol=1e-5, atol=1e-6)


def test_structures_in_and_out_and_shared_weights(tmp_path: Path, engine: str) -> None:
    layer = layers.Dense(2)
    layer.build((None, 3))
    archive = ExportArchive()
    archive.track(layer)
    assert len(archive.variables) == len(archive.trainable_variables) == 2

    def both(given: Any, scale: Any) -> Any:
        return {"sum": layer(given["a"]) + given["b"], "rest": [scale * 2, None, "text", 3]}

    rows = {"a": Spec(shape=(None, 3)), "b": Spec(shape=(None, 2))}
    archive.add_endpoint("both", both, [rows, Spec(shape=(), dtype="int32")])
    here = archive.track_and_add_endpoint("alone", layer, [Spec(shape=(None, 3))])
    archive.add_variable_collection("biases", [layer.bias])
    archive.write_out(tmp_path / "a", verbose=False)
    loaded = load_archive(tmp_path / "a")
    assert len(loaded.variables) == 2
    np.testing.assert_array_equal(loaded.collections["biases"][0], layer.bias)
    a, b = np.ones((4, 3), "float32"), np.full((4, 2), 5.0)
    result = loaded["both"]({"b": b, "a": a}, 7)
    np.testing.assert_allclose(result["sum"], np.asarray(layer(a)) + 5, rtol=1e-6)
    assert int(result["rest"][0]) == 14
    assert result["rest"][1:] == [None, "text", 3]
    np.testing.assert_array_equal(loaded.alone(a), here(a))
    with pytest.raises(ValueError, match=r"both: expected a dict of \['a', 'b'\]"):
        loaded.both({"a": a}, 7)
    with pytest.raises(ValueError, match="both: expected 2 arguments"):
        loaded.both({"a": a, "b": b})
    with pytest.raises(ValueError, match="equally many examples"):
        loaded.both({"a": a, "b": b[:2]}, 7)
    with pytest.raises(ValueError, match=r"alone: input 0 has the shape \(None, 3\), got \(4, 2\)"):
        loaded.alone(b)
    with pytest.raises(AttributeError, match=r"no endpoint 'serve', but \['alone', 'both'\]"):
        loaded.serve(a)
    with pytest.raises(KeyError, match="no endpoint 'x'"):
        loaded["x"]


def test_the_file_is_as_the_weights_are_when_it_is_written(tmp_path: Path, capsys: Any) -> None:
    model, x = dense(), np.ones((2, 3), "float32")
    archive = ExportArchive()
    archive.track_and_add_endpoint("serve", model)
    model.layers[0].kernel.assign(np.ones((3, 4)))
    archive.write_out(tmp_path / "a")
    assert "serve" in capsys.readouterr().out
    np.testing.assert_allclose(load_archive(tmp_path / "a").serve(x), model(x), rtol=1e-5)


@pytest.mark.parametrize("format", ["tf_saved_model", "openvino", "litert", "zip"])
def test_other_formats_say_what_to_use(format: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"'{format}'.*save\('model.keras'\)"):
        dense().export(tmp_path / "a", format=format)
    with pytest.raises(ValueError, match=format):
        ExportArchive(format)
    assert not list(tmp_path.iterdir())


class Counting(keras.Layer):
    def build(self, shape: Any) -> None:
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False, name="count")

    def call(self, x: Any) -> Any:
        self.count.assign_add(1.0)
        return x


def rounded() -> Any:
    x = keras.Input((None, 3))
    return keras.Model(x, layers.Conv1D(2, 3, strides=2, padding="same")(x))


def table_of_sizes() -> Any:
    return keras.Sequential(
        [keras.Input((None,)), layers.Lambda(lambda x: x + np.arange(x.shape[1], dtype="float32"))]
    )


def five_sizes() -> Any:
    return keras.Sequential([keras.Input((None,) * 5), layers.Lambda(lambda x: x + 1)])


def text() -> Any:
    x = keras.Input((1,), dtype="string")
    return keras.Model(x, layers.StringLookup(vocabulary=["a", "b"])(x))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: keras.Sequential([keras.Input((3,)), Counting()]), "assigns to variables.*count"),
        (rounded, "say these sizes"),
        (table_of_sizes, "say these sizes"),
        (text, "string|host"),
        (lambda: keras.Sequential([layers.Dense(2)]), "not built"),
        (five_sizes, "6 sizes are open.* at most 4"),
    ],
)
def test_what_no_archive_can_hold(make: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises((ValueError, RuntimeError, TypeError), match=message):
        make().export(tmp_path / "a", verbose=False)
    assert not list(tmp_path.iterdir())


def test_arguments_are_checked(tmp_path: Path) -> None:
    archive = ExportArchive()
    with pytest.raises(ValueError, match="no endpoints"):
        archive.write_out(tmp_path / "a")
    with pytest.raises(ValueError, match="expected a layer or variables, got int"):
        archive.track(3)
    with pytest.raises(ValueError, match="input_signature is needed"):
        archive.add_endpoint("f", lambda x: x)
    with pytest.raises(ValueError, match="input_signature is a list"):
        archive.add_endpoint("f", lambda x: x, Spec(shape=(3,)))
    with pytest.raises(ValueError, match="expected InputSpec"):
        archive.add_endpoint("f", lambda x: x, ["x"])
    with pytest.raises(ValueError, match="a name such as"):
        archive.add_endpoint("__init__", dense())
    with pytest.raises(ValueError, match="list of variables"):
        archive.add_variable_collection("a", [1])
    with pytest.raises(ValueError, match="a set among inputs or outputs"):
        archive.add_endpoint("f", lambda x: {3}, [Spec(shape=(3,))])
    archive.add_endpoint("f", dense())
    with pytest.raises(ValueError, match="'f' is taken"):
        archive.add_endpoint("f", dense())
    with pytest.raises(ValueError, match="options"):
        archive.write_out(tmp_path / "a", options={})


# --- hostile files ----------------------------------------------------------------------------


def parts_of(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    with opened(str(path)) as file:
        arrays = {name: file.read(name) for name in file.places}
        own = ("format", "endpoints", "collections", "variables")
        return arrays, {name: file.metadata[name] for name in own}


def rewrite(path: Path, edit: Any, key: str = "endpoints") -> None:
    """Change what the file says; its checksums are right again."""
    arrays, texts = parts_of(path)
    said = json.loads(texts[key])
    said = edit(said) or said
    texts[key] = json.dumps(said)
    write_arrays(str(path), arrays, texts)


def graph_of(said: Any) -> Any:
    return said["serve"]["graph"]


def set_node(place: int, value: Any) -> Any:
    return lambda said: graph_of(said)["nodes"][0].__setitem__(place, value)


def set_in_graph(key: str, value: Any) -> Any:
    return lambda said: graph_of(said).__setitem__(key, value)


def set_in(key: str, value: Any) -> Any:
    return lambda said: said["serve"].__setitem__(key, value)


FILL = ["fill", [], {"shape": [2**20, 2**20], "value": 0.0, "dtype": "float32"}]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (set_node(0, "os.system"), "no op 'os.system'"),
        (set_node(0, ["matmul"]), "damaged"),
        (set_node(1, [0, 10**9]), "none of the"),
        (set_node(1, [0, -1]), "none of the"),
        (set_node(1, [0, True]), "none of the"),
        (set_node(1, [0]), "damaged"),
        (set_node(2, {"strange": 1}), "has the attributes"),
        (set_node(2, {"graph": {"pickle": "x"}}), "has the attributes|damaged"),
        (lambda said: graph_of(said).update(nodes=[FILL], outputs=[0]), "elements would be made"),
        (set_in_graph("constants", [["float32", [2**40], 1.0]]), "elements would be made"),
        (set_in_graph("constants", ["nothing"]), "damaged"),
        (set_in_graph("outputs", [10**6]), "none of the"),
        (set_in_graph("inputs", [["float32", [{"size": [[1, [7]]]}, 3]]]), "not open"),
        (set_in_graph("inputs", [["object", [3]]]), "damaged"),
        (set_in_graph("inputs", []), "damaged|not those"),
        (set_in("sample", [10**9]), "no size"),
        (set_in("open", [[[0, 1]]]), "not those of the signature"),
        (set_in("variables", ["variable/none"]), "damaged"),
        (set_in("variables", []), "not those that are stored"),
        (set_in("outputs", {"tensor": 99}), "no tensor 99"),
        (set_in("outputs", {"exec": "x"}), "no kind of structure"),
        (lambda said: {"__class__": said["serve"]}, "__class__"),
        (lambda said: [said], "no model"),
    ],
)
def test_hostile_archives_are_refused(edit: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.archive"
    keras.Sequential([keras.Input((3,)), layers.Dense(2)]).export(path, verbose=False)
    rewrite(path, edit)
    with pytest.raises(ValueError, match=message) as error:
        load_archive(path)
    assert "a.archive" in str(error.value)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("branch", {"graphs": []}),
        ("branch", {"graphs": 3}),
        ("scan_along", {"length": 10**7}),
        ("scan_along", {"carried": 2}),
        ("scan_along", {"scanned": 0}),
        ("scan_along", {"carried": -1}),
    ],
)
def test_control_flow_is_checked_as_well(name: str, changes: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.archive"
    (branches if name == "branch" else scanned)().export(path, verbose=False)

    def edit(said: Any) -> None:
        node = next(n for n in graph_of(said)["nodes"] if n[0] == name)
        node[2].update(changes)

    rewrite(path, edit)
    with pytest.raises(ValueError, match=r"a\.archive"):
        load_archive(path)


def test_other_files_and_damaged_ones(tmp_path: Path) -> None:
    path = tmp_path / "a.archive"
    model = dense()
    model.save_weights(tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match="no archive"):
        load_archive(tmp_path / "w.safetensors")
    model.export(path, verbose=False)
    whole = path.read_bytes()
    for at in range(8, len(whole), 41):
        broken = bytearray(whole)
        broken[at] ^= 1 << at % 8
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=r"a\.archive"):
            load_archive(path)
    path.write_bytes(whole)
    rewrite(path, lambda said: said.append("variable/none"), "variables")
    with pytest.raises(ValueError, match=r"a\.archive"):
        load_archive(path)


STRANGE = [None, True, -1, 0, 1, 2, 3, 7, 2**31, 2**63, 1e308, float("nan"), "", "x", [], {}, [[]]]


def places(said: Any) -> list[tuple[Any, Any]]:
    """Return (container, key) of everything in a JSON value."""
    result = []
    for key in said if isinstance(said, dict) else range(len(said)):
        result.append((said, key))
        if isinstance(said[key], (dict, list)):
            result += places(said[key])
    return result


@pytest.mark.parametrize("make", [dense, convolution, lstm, scanned, attention, branches])
def test_archives_with_strange_parts_load_or_are_refused(
    make: Any, tmp_path: Path, engine: str
) -> None:
    path = tmp_path / "a.archive"
    model = make()
    model.export(path, verbose=False)
    arrays, texts = parts_of(path)
    said = json.loads(texts["endpoints"])
    random = np.random.default_rng(7)
    x = data(model, MODELS[make], 2)
    refused = 0
    for _ in range(COUNT // 6):
        broken = copy.deepcopy(said)
        for _ in range(random.integers(1, 3)):
            every = places(broken["serve"])
            holder, key = every[random.integers(len(every))]
            holder[key] = STRANGE[random.integers(len(STRANGE))]
        write_arrays(str(path), arrays, {**texts, "endpoints": json.dumps(broken)})
        try:
            served = load_archive(path)
        except ValueError as error:
            assert "a.archive" in str(error)  # noqa: PT017 (it may load as well)
            refused += 1
            continue
        with np.errstate(all="ignore"):
            answer(served.serve, x)
    assert refused > COUNT // 12


def answer(serve: Any, x: Any) -> None:
    """Call what was loaded: any numbers, or an error of Python's, will do; a crash will not."""
    try:
        serve(x)
    except Exception as error:  # noqa: BLE001
        assert not isinstance(error, (SystemError, MemoryError)), error  # noqa: PT017
