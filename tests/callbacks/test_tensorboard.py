"""TensorBoard's event files, read back by the real tensorboard."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys

import numpy as np
import pytest

import kerasish as keras
from kerasish.callbacks import TensorBoard
from kerasish.callbacks.layer_graph import list_nodes

MISSING = [n for n in ("tensorboardX", "tensorboard") if importlib.util.find_spec(n) is None]
needs_packages = pytest.mark.skipif(
    bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (extra tensorboard, and its reader)"
)
# What those two packages themselves use and Python 3.12 or protobuf frown at is not ours to mend.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:google"),
]

X = np.linspace(-1, 1, 64, dtype="float32").reshape(32, 2)
Y = (X[:, :1] > 0).astype("float32")


def make():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((2,), name="rows")
    x = keras.layers.Dense(4, activation="relu", name="hidden")(inputs)
    part = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(1, activation="sigmoid", name="last")], name="head"
    )
    model = keras.Model(inputs, part(x), name="small")
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    return model


def train(callback, model=None, **options):
    model = model or make()
    history = model.fit(
        X, Y, batch_size=8, epochs=3, verbose=0, validation_data=(X[:8], Y[:8]),
        callbacks=[callback], **options,
    )  # fmt: skip
    return model, history.history


def read(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder), size_guidance={"scalars": 0, "histograms": 0}).Reload()


def curve(events, tag):
    return [e.step for e in events.Scalars(tag)], [e.value for e in events.Scalars(tag)]


@needs_packages
def test_epochs(tmp_path):
    _, history = train(TensorBoard(tmp_path, write_steps_per_second=True))
    training, validation = read(tmp_path / "train"), read(tmp_path / "validation")
    for events, prefix in ((training, ""), (validation, "val_")):
        for name in ("loss", "accuracy"):
            steps, values = curve(events, f"epoch_{name}")
            assert steps == [0, 1, 2]
            np.testing.assert_allclose(values, history[prefix + name], rtol=1e-6)
    np.testing.assert_allclose(curve(training, "epoch_learning_rate")[1], 0.001, rtol=1e-5)
    assert min(curve(training, "epoch_steps_per_second")[1]) > 0
    steps, values = curve(validation, "evaluation_loss_vs_iterations")
    assert steps == [4, 8, 12]
    np.testing.assert_allclose(values, history["val_loss"], rtol=1e-6)
    assert not any(tag.startswith("batch_") for tag in training.Tags()["scalars"])


@needs_packages
@pytest.mark.parametrize(("frequency", "expected"), [("batch", range(12)), (5, [0, 5, 10])])
def test_batches(tmp_path, frequency, expected):
    seen = []
    note = keras.callbacks.LambdaCallback(on_train_batch_end=lambda b, logs: seen.append(logs))
    model = make()
    board = TensorBoard(tmp_path, update_freq=frequency, write_steps_per_second=True)
    model.fit(X, Y, batch_size=8, epochs=3, verbose=0, callbacks=[note, board])
    events = read(tmp_path / "train")
    steps, values = curve(events, "batch_loss")
    assert steps == list(expected)
    np.testing.assert_allclose(values, [seen[i]["loss"] for i in expected], rtol=1e-6)
    assert min(curve(events, "batch_steps_per_second")[1]) > 0


@needs_packages
def test_weights(tmp_path):
    model, _ = train(TensorBoard(tmp_path, histogram_freq=2, write_images=True))
    events = read(tmp_path / "train")
    tags = {f"{w.path}/histogram" for w in model.weights}
    assert set(events.Tags()["histograms"]) == tags
    for tag in tags:
        result = events.Histograms(tag)
        assert [h.step for h in result] == [0, 2]
    last = events.Histograms("hidden/kernel/histogram")[-1].histogram_value
    kernel = model.get_layer("hidden").kernel.numpy()
    assert last.num == kernel.size
    np.testing.assert_allclose([last.sum, last.max], [kernel.sum(), kernel.max()], rtol=1e-5)
    picture = events.Images("hidden/kernel/image")[0]
    assert (picture.height, picture.width) == (2, 4)
    assert picture.encoded_image_string.startswith(b"\x89PNG")


@needs_packages
def test_graph(tmp_path):
    from tensorboard.compat.proto.graph_pb2 import GraphDef

    train(TensorBoard(tmp_path))
    events = read(tmp_path / "train")
    graph = events.Graph()
    assert isinstance(graph, GraphDef)
    assert [(n.name, n.op, list(n.input)) for n in graph.node] == [
        ("small/rows", "InputLayer", []),
        ("small/hidden", "Dense", ["small/rows"]),
        ("small/head/last", "Dense", ["small/hidden"]),
    ]
    sizes = [d.size for d in graph.node[1].attr["_output_shapes"].list.shape[0].dim]
    assert sizes == [-1, 4]
    text = events.Tensors("keras/text_summary")[0].tensor_proto.string_val[0].decode()
    assert '"name": "hidden"' in text


@needs_packages
def test_hyper_parameters(tmp_path):
    from tensorboard.plugins.hparams import metadata

    settings = {"units": 4, "rate": 0.001, "kind": "small", "deep": False, "shape": (2, 3)}
    board = TensorBoard(tmp_path)
    board.hparams = settings
    _, history = train(board)
    events = read(tmp_path / "train")
    result = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    start = metadata.parse_session_start_info_plugin_data(result)
    given = {k: getattr(v, v.WhichOneof("kind")) for k, v in start.hparams.items()}
    assert given == {**settings, "shape": "(2, 3)"}
    final = events.Scalars("final_val_loss")[0].value
    assert final == pytest.approx(history["val_loss"][-1], rel=1e-6)


@needs_packages
def test_embeddings(tmp_path):
    model = keras.Sequential(
        [keras.Input((3,), dtype="int32"), keras.layers.Embedding(5, 2, name="words"),
         keras.layers.Flatten(), keras.layers.Dense(1)]
    )  # fmt: skip
    model.compile("sgd", "mse")
    labels = tmp_path / "labels.txt"
    labels.write_text("a\nb\nc\nd\ne\n")
    board = TensorBoard(
        tmp_path / "logs", embeddings_freq=1, embeddings_metadata={"words": str(labels)}
    )
    model.fit(np.ones((4, 3), "int32"), np.ones((4, 1)), verbose=0, callbacks=[board])
    folder = tmp_path / "logs" / "train"
    assert "words" in (folder / "projector_config.pbtxt").read_text()
    table = np.loadtxt(next(folder.rglob("tensors.tsv")))
    np.testing.assert_allclose(table, model.get_layer("words").embeddings.numpy(), rtol=1e-4)
    assert next(folder.rglob("metadata.tsv")).read_text().split() == list("abcde")
    board.embeddings_metadata = {"wrods": str(labels)}
    with pytest.raises(ValueError, match=r"'wrods'.*'words'"):
        board.on_train_begin()
    labels.write_text("a\n")
    board.embeddings_metadata = str(labels)
    with pytest.raises(ValueError, match="1 lines for the 5 rows"):
        board._write_embeddings(9)
    board._release()


@needs_packages
def test_evaluate_alone(tmp_path):
    model = make()
    loss, _ = model.evaluate(X, Y, verbose=0, callbacks=[TensorBoard(tmp_path)])
    _, values = curve(read(tmp_path / "validation"), "evaluation_loss_vs_iterations")
    np.testing.assert_allclose(values, [loss], rtol=1e-6)


def test_without_the_package_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ImportError, match=r"pip install tensorboardX"):
        train(TensorBoard(tmp_path))


@pytest.mark.parametrize("frequency", [0, "epochs", 1.5])
def test_frequencies(frequency):
    with pytest.raises(ValueError, match="update_freq"):
        TensorBoard(update_freq=frequency)


def fields(data):
    """Yield (number, value) of the fields of a message in the wire format of protocol buffers."""
    place = 0

    def varint():
        nonlocal place
        number = shift = 0
        while True:
            byte = data[place]
            place += 1
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number

    while place < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            assert key & 7 == 2
            size = varint()
            yield key >> 3, data[place : place + size]
            place += size


@pytest.mark.parametrize("batches", [(2, 3), "2,3", 4])
def test_profiled_batches_for_the_trace_viewer(tmp_path, batches):
    train(TensorBoard(tmp_path, profile_batch=batches, write_graph=False))
    (trace,) = tmp_path.glob("plugins/profile/*/*.trace.json.gz")
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    count = 1 if batches == 4 else 2
    assert sum(e["ph"] == "X" and e["tid"] == 2 for e in events) == count
    parts = [e for e in events if e["ph"] == "X" and e["tid"] == 1]
    (space,) = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    (plane,) = [value for number, value in fields(space.read_bytes()) if number == 1]
    assert (2, b"/host:CPU") in fields(plane)
    lines = [dict(fields(value)) for number, value in fields(plane) if number == 3]
    assert [line[2] for line in lines] == [b"steps", b"parts"]
    names = {}
    for number, entry in fields(plane):
        if number == 4:
            names[dict(fields(entry))[1]] = dict(fields(dict(fields(entry))[2]))[2].decode()
    raw = [value for number, value in fields(plane) if number == 3][1]
    shown = [names[dict(fields(e))[1]] for number, e in fields(raw) if number == 4]
    assert shown == [e["name"] for e in parts] and len(shown) >= 5 * count


def test_a_wrong_range_to_profile():
    for wrong in ((3, 2), (1, 2, 3), "2-3", (0, 4), -1, "x"):
        with pytest.raises(ValueError, match="profile_batch"):
            TensorBoard(profile_batch=wrong)


def test_batches_stay_in_native_hands_unless_asked_for():
    assert not TensorBoard().wants_updates("train")
    assert TensorBoard(update_freq=10).wants_batches("train")


def test_layers_called_twice_and_subclassed_models():
    a, b = keras.Input((2,), name="a"), keras.Input((2,), name="b")
    dense = keras.layers.Dense(2, name="shared")
    model = keras.Model([a, b], dense(a) + dense(b), name="twins")
    nodes = {n.name: n for n in list_nodes(model)}
    assert {"twins/shared", "twins/shared_1"} <= set(nodes)
    [last] = [n for n in nodes.values() if len(n.inputs) == 2]
    assert last.inputs == ("twins/shared", "twins/shared_1")

    class Own(keras.Model):
        def __init__(self):
            super().__init__(name="own")
            self.first = keras.layers.Dense(2, name="first")

        def call(self, x):
            return self.first(x)

    assert [(n.name, n.kind, n.inputs) for n in list_nodes(Own())] == [("own/first", "Dense", ())]


@needs_packages
@pytest.mark.parametrize("moment", [("on_train_batch_end", 1, 2), ("on_epoch_end", 1)])
def test_a_resumed_training_writes_no_event_twice(tmp_path, moment):
    class Cut(keras.callbacks.Callback):
        epoch = 0

        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

        def on_train_batch_end(self, batch, logs=None):
            if moment == ("on_train_batch_end", self.epoch, batch):
                raise KeyboardInterrupt

        def on_epoch_end(self, epoch, logs=None):
            if moment == ("on_epoch_end", epoch):
                raise KeyboardInterrupt

    def run(folder, *more, resume=None):
        board = TensorBoard(folder, update_freq=1, histogram_freq=1)
        make().fit(
            X, Y, batch_size=8, epochs=3, verbose=0, validation_data=(X[:8], Y[:8]),
            callbacks=[board, *more], resume=resume,
        )  # fmt: skip

    run(tmp_path / "whole")
    states = keras.callbacks.Resume(tmp_path / "states", every=3, background=False)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut", Cut(), resume=states)
    (tmp_path / "cut" / "train" / "notes.txt").write_text("stays")
    run(tmp_path / "cut", resume=tmp_path / "states")
    assert (tmp_path / "cut" / "train" / "notes.txt").exists()
    for part in ("train", "validation"):
        wanted, result = (read(tmp_path / kind / part) for kind in ("whole", "cut"))
        assert result.Tags() == wanted.Tags()
        for tag in wanted.Tags()["scalars"]:
            assert curve(result, tag) == curve(wanted, tag), tag
        for tag in wanted.Tags()["histograms"]:
            assert len(result.Histograms(tag)) == len(wanted.Histograms(tag)) == 3
    before = read(tmp_path / "cut" / "train")
    run(tmp_path / "cut", resume=tmp_path / "states")  # it had ended: nothing is added
    after = read(tmp_path / "cut" / "train")
    assert curve(after, "epoch_loss") == curve(before, "epoch_loss")
    for path in (tmp_path / "cut" / "train").glob("events*"):
        path.unlink()
    with pytest.warns(UserWarning, match="the curves have a gap"):
        run(tmp_path / "cut", resume=tmp_path / "states")
