"""Sequences of different lengths straight into fit, evaluate and predict."""

from __future__ import annotations

import numpy as np
import pytest

import kerasish as keras
from kerasish import config, layers
from kerasish.callbacks import Resume
from kerasish.data import Ragged
from kerasish.engine.data import make_data
from kerasish.engine.data.ladder import ladder, next_size
from kerasish.engine.data.ragged import find_ragged
from kerasish.engine.data.sequences import SequenceData

DRAWS = np.random.default_rng(0)
LENGTHS = DRAWS.permutation(np.repeat(np.arange(1, 60), 2))  # 59 different lengths
X = [DRAWS.integers(1, 20, size=n).tolist() for n in LENGTHS]
Y = (LENGTHS / 60).astype("float32")


def a_model(sequences=False, recurrent=layers.LSTM):
    keras.utils.set_random_seed(1)
    stack = [keras.Input((None,)), layers.Embedding(20, 4)]
    stack += [recurrent(3, return_sequences=sequences), layers.Dense(2 if sequences else 1)]
    model = keras.Sequential(stack)
    model.compile("sgd", "mse", metrics=["mae"])
    return model


# --- reading ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "x",
    [
        [[1, 2], [3]],
        ([1, 2], [3]),
        [np.array([1, 2]), np.array([3])],
        np.array([[1, 2], [3]], dtype=object),
        [[], [3]],
    ],
)
def test_lists_of_different_lengths_are_ragged(x):
    found = find_ragged(x, 1)
    assert isinstance(found, Ragged)
    assert [row.tolist() for row in found] == [list(row) for row in x]


@pytest.mark.parametrize("x", [[1, 2], [[1], [2]], np.ones((2, 3)), ["a", "bc"], None, [], "ab"])
def test_other_data_stay_as_they_are(x):
    assert find_ragged(x, 1) is x


def test_a_list_for_several_inputs_is_no_list_of_rows():
    two = [np.ones((3, 2)), np.ones((2, 2))]
    assert find_ragged(two, 2) is two
    assert isinstance(find_ragged(two, 1), Ragged)
    pairs = find_ragged([[[1], [2, 3]], [[1, 2], [3]]], 2)
    assert [type(part) for part in pairs] == [Ragged, Ragged]
    named = find_ragged({"a": [[1], [2, 3]], "b": np.ones(2)}, 2)
    assert type(named["a"]) is Ragged and type(named["b"]) is np.ndarray


def test_arrays_of_equal_length_for_one_input_are_rows():
    rows = find_ragged([np.array([1, 2]), np.array([3, 4])], 1)
    assert rows.tolist() == [[1, 2], [3, 4]]


def test_ragged_rows_parts_and_padding():
    ragged = Ragged([[[1.0, 2.0]], [], [[3.0, 4.0], [5.0, 6.0]]])
    assert ragged.shape == (3, None, 2) and ragged.dtype == "float32"
    assert ragged.lengths.tolist() == [1, 0, 2]
    assert ragged[1:].lengths.tolist() == [0, 2] and ragged[::2].lengths.tolist() == [1, 2]
    assert ragged[-1].tolist() == [[3.0, 4.0], [5.0, 6.0]]
    padded = ragged.padded(np.array([2, 0]), 3)
    assert padded.tolist() == [[[3, 4], [5, 6], [0, 0]], [[1, 2], [0, 0], [0, 0]]]


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([], "at least one sequence"),
        ([[1], 2], "as row 1"),
        ([np.ones((1, 2)), np.ones((2, 3))], "differ only in their lengths"),
        ([["a"], ["b", "c"]], "numbers"),
    ],
)
def test_what_is_not_ragged_is_refused(rows, text):
    with pytest.raises(ValueError, match=text):
        Ragged(rows)


# --- batches ------------------------------------------------------------------------------------


def test_sizes_of_the_ladder_hold_their_sizes_and_are_few():
    for size in range(3000):
        assert size <= next_size(size) <= max(8, 1.5 * size)
    for most in (1, 2, 7):
        bounds = ladder(LENGTHS, most)
        assert len(bounds) <= most and bounds[-1] >= 59 and bounds == sorted(set(bounds))


@pytest.mark.parametrize("shuffle", [True, False, "batch"])
def test_each_row_comes_once_an_epoch_at_its_length(shuffle):
    data = SequenceData(Ragged(X), np.arange(len(X)), batch_size=16, shuffle=shuffle, seed=3)
    orders = []
    for epoch in range(2):
        seen = []
        for (values, lengths), y, weights in data.epoch(epoch):
            assert weights is None and values.shape[1] in data.bounds[0]
            for row, length, number in zip(values, lengths, y):
                assert row[:length].tolist() == X[number] and not row[length:].any()
            seen += y.tolist()
        assert sorted(seen) == list(range(len(X)))
        orders.append(seen)
    assert (orders[0] != orders[1]) == bool(shuffle)
    shapes = {x[0].shape for epoch in range(3) for x, _, _ in data.epoch(epoch)}
    assert len(shapes) <= 8


def test_an_epoch_is_a_function_of_seed_and_number():
    def read(seed, epoch, start=0):
        data = SequenceData(Ragged(X), Y, batch_size=16, shuffle=True, seed=seed)
        with data.epoch(epoch, start) as batches:
            return [x[0].tolist() for x, _, _ in batches]

    assert read(1, 2) == read(1, 2) and read(1, 2)[3:] == read(1, 2, 3)
    assert read(1, 2) != read(2, 2)


def test_pairs_share_buckets():
    first, second = Ragged(X), Ragged([x[: 1 + len(x) // 3] for x in X])
    data = SequenceData((first, second), second, batch_size=16, shuffle=True)
    shapes = set()
    for (a, b), y, _ in data.epoch(0):
        assert y.shape == b.values.shape
        shapes.add((a.values.shape, b.values.shape))
    assert len(shapes) <= 8


def test_unequal_counts_and_ragged_targets_of_arrays_are_refused():
    with pytest.raises(ValueError, match="same number of samples"):
        make_data(Ragged(X), Y[:3])
    with pytest.raises(ValueError, match="y: expected rows of equal length"):
        make_data(np.ones((2, 3)), Ragged([[1], [2, 3]]))
    with pytest.raises(ValueError, match="class_weight: expected one class per row"):
        make_data(Ragged(X), Ragged(X), class_weight={1: 2.0})


# --- training -----------------------------------------------------------------------------------


def test_predict_equals_rows_one_by_one_in_their_order(engine):
    model = a_model()
    alone = [model.predict(np.array([x]), verbose=0)[0] for x in X[:12]]
    got = model.predict(X, verbose=0)
    np.testing.assert_allclose(got[:12], alone, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(model.predict_on_batch(X[:5]).shape, (5, 1))
    np.testing.assert_allclose(model.predict_on_batch(X[:5]), got[:5], rtol=1e-5, atol=1e-6)


def test_outputs_with_steps_come_back_at_their_lengths(engine):
    model = a_model(sequences=True)
    got = model.predict(X, verbose=0)
    assert [len(row) for row in got] == LENGTHS.tolist()
    alone = model.predict(np.array([X[3]]), verbose=0)[0]
    np.testing.assert_allclose(got[3], alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("recurrent", [layers.LSTM, layers.GRU, layers.SimpleRNN])
def test_the_loss_and_its_gradient_are_those_of_unpadded_rows(engine, recurrent):
    rows = X[:4]
    model = a_model(recurrent=recurrent)
    before = [w.numpy().copy() for w in model.weights]
    loss = model.train_on_batch(rows, Y[:4])[0]
    after = [w.numpy() - b for w, b in zip(model.weights, before)]
    steps = []
    losses = []
    for row, y in zip(rows, Y):
        for w, b in zip(model.weights, before):
            w.assign(b)
        losses.append(model.train_on_batch(np.array([row]), np.array([y]))[0])
        steps.append([w.numpy() - b for w, b in zip(model.weights, before)])
    np.testing.assert_allclose(loss, np.mean(losses), rtol=1e-5)
    for got, parts in zip(after, zip(*steps)):
        np.testing.assert_allclose(got, np.mean(parts, axis=0), rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("kind", ["functional", "loaded", "nested", "sequential", "twice"])
def test_a_layer_that_makes_a_mask_keeps_the_padding_out(kind, engine, tmp_path):
    """A functional model's graph holds the mask of Masking; the lengths are known in the call."""
    inputs = keras.Input((None, 2))
    stack = [layers.Masking(-9.0), layers.GlobalAveragePooling1D()]
    if kind == "twice":
        stack.insert(1, layers.Masking(-8.0))
    if kind == "sequential":
        model = keras.Sequential([inputs, *stack])
    else:
        x = inputs
        for layer in stack:
            x = layer(x)
        model = keras.Model(inputs, x)
    if kind == "loaded":
        model.save(tmp_path / "m.keras")
        model = keras.saving.load_model(tmp_path / "m.keras")
    if kind == "nested":
        outer = keras.Input((None, 2))
        model = keras.Model(outer, model(layers.Activation("linear")(outer)))
    rows = [np.ones((3, 2)), np.full((2, 2), 2.0), np.array([[-9.0, -9.0], [5.0, 5.0]])]
    result = model.predict(Ragged(rows), verbose=0)
    np.testing.assert_allclose(result, [[1, 1], [2, 2], [5, 5]], rtol=1e-6)


def test_losses_of_steps_leave_padding_out(engine):
    targets = [[[float(i), 1.0] for i in range(len(x))] for x in X]
    model = a_model(sequences=True)
    predicted = model.predict(X, verbose=0)
    errors = [np.mean((p - t) ** 2, -1) for p, t in zip(predicted, targets)]
    loss = model.evaluate(X[:8], targets[:8], verbose=0)[0]
    np.testing.assert_allclose(loss, np.concatenate(errors[:8]).mean(), rtol=1e-5)
    weights = [[1.0] + [0.0] * (len(x) - 1) for x in X]
    model.evaluate(X, targets, sample_weight=weights, verbose=0)
    model.fit(X, targets, verbose=0, validation_split=0.25)


def test_few_programs_compile_for_many_lengths(capsys):
    before = config.backend()
    config.set_backend("static")
    model = a_model()
    config.explain_compiles(True)
    try:
        model.fit(X, Y, batch_size=16, epochs=3, verbose=0)
    finally:
        config.explain_compiles(False)
        config.set_backend(before)
    printed = capsys.readouterr()
    compiled = [s for s in (printed.out + printed.err).splitlines() if "train sequential" in s]
    assert 2 <= len(compiled) <= 8, compiled


@pytest.mark.parametrize("options", [
    {"sample_weight": np.arange(len(X), dtype="float32")},
    {"class_weight": {0: 2.0, 1: 0.5}},
    {"validation_split": 0.3},
    {"steps_per_epoch": 2},
    {"validation_data": (X[:9], Y[:9]), "shuffle": False},
])  # fmt: skip
def test_arguments_of_fit(options, engine):
    model = a_model()
    history = model.fit(X, Y, batch_size=32, epochs=2, verbose=0, **options).history
    assert np.isfinite(history["loss"]).all()
    assert ("val_loss" in history) == any(name.startswith("validation") for name in options)


def test_weights_change_the_loss_as_they_should(engine):
    model = a_model()
    weights = np.arange(8, dtype="float32")
    errors = (model.predict(X[:8], verbose=0)[:, 0] - Y[:8]) ** 2
    loss = model.evaluate(X[:8], Y[:8], sample_weight=weights, verbose=0)[0]
    np.testing.assert_allclose(loss, np.mean(errors * weights), rtol=1e-5)


def test_a_subclassed_model_and_named_inputs(engine):
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.embed, self.pool = layers.Embedding(20, 4), layers.GlobalAveragePooling1D()
            self.last = layers.Dense(1)

        def call(self, x):
            return self.last(self.pool(self.embed(x["words"]))) + x["more"]

    model = Own()
    model.compile("sgd", "mse")
    x = {"words": X, "more": Y[:, None]}
    model.fit(x, Y, verbose=0)
    got = model.predict(x, verbose=0)
    words, more = np.array([X[7]]), Y[7:8, None]
    np.testing.assert_allclose(got[7:8], model({"words": words, "more": more}), rtol=1e-5)


def test_named_inputs_are_told_apart_by_name_in_any_order():
    words, more = keras.Input((None,), name="words"), keras.Input((2,), name="more")
    read = layers.GlobalAveragePooling1D()(layers.Embedding(20, 4)(words))
    last = layers.Dense(1)(layers.Concatenate()([read, more]))
    model = keras.Model({"words": words, "more": more}, last)
    model.compile("sgd", "mse")
    x = {"words": X, "more": np.ones((len(X), 2))}
    model.fit(x, Y, verbose=0)
    assert model.predict(x, verbose=0).shape == (len(X), 1)
    with pytest.raises(ValueError, match=r"takes 'more' of shape \(None, 2\)"):
        model.fit({"words": X, "more": X}, Y, verbose=0)


def test_a_training_that_is_cut_off_goes_on_with_the_same_bits(tmp_path):
    def run(epochs, **options):
        model = a_model()
        model.fit(X, Y, epochs=epochs, verbose=0, batch_size=16, **options)
        return [w.numpy() for w in model.weights]

    class Cut(BaseException):
        pass

    class CutIn(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if self.epoch == 1 and batch == 3:
                raise Cut

        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

    whole = run(3, resume=Resume(tmp_path / "whole", every=1))
    with pytest.raises(Cut):
        run(3, resume=Resume(tmp_path / "cut", every=1), callbacks=[CutIn()])
    again = run(3, resume=Resume(tmp_path / "cut", every=1))
    for a, b in zip(whole, again):
        np.testing.assert_array_equal(a, b)


def test_text_models_refuse_ragged_rows():
    text = layers.TextVectorization(output_sequence_length=4)
    text.adapt(["a b", "c"])
    model = keras.Sequential([keras.Input((1,), dtype="string"), text, layers.Embedding(9, 2)])
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="first layers run on the host"):
        model.predict([[1, 2], [3]], verbose=0)


def test_data_parallel_training_cuts_sequences(engine):
    losses = []
    for shards in (1, 3):
        model = a_model(sequences=True)
        targets = [[[1.0, 0.5]] * len(x) for x in X]
        with keras.distribution.DataParallel(shards=shards).scope():
            history = model.fit(X, targets, epochs=2, verbose=0, shuffle=False)
            losses.append([*history.history["loss"], *model.predict(X, verbose=0)[5].ravel()])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3, atol=1e-5)
