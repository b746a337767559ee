"""Class numbers and indices that a model does not have: refused wherever they come in."""

from __future__ import annotations

import numpy as np
import pytest

import kerasish as keras
from kerasish import layers
from kerasish.engine.diagnostics.batches import batch_check, within

pytestmark = pytest.mark.usefixtures("engine")

X = np.random.default_rng(0).normal(size=(24, 4)).astype("float32")
Y = np.arange(24) % 3


def make(**loss):
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3, activation="softmax")])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(**loss))
    return model


def with_label(label, at=17):
    y = Y.copy()
    y[at] = label
    return y


class Batches(keras.utils.PyDataset):
    def __init__(self, y):
        super().__init__()
        self.y = y

    def __len__(self):
        return 3

    def __getitem__(self, index):
        rows = slice(8 * index, 8 * index + 8)
        return X[rows], self.y[rows]


class Iterable:
    """An iterable like a tf.data.Dataset or a torch DataLoader."""

    def __init__(self, y):
        self.y = y

    def __iter__(self):
        return (Batches(self.y)[i] for i in range(3))


WAYS = {
    "fit on arrays": lambda m, y: m.fit(X, y, verbose=0),
    "fit on a generator": lambda m, y: m.fit(iter(Iterable(y)), verbose=0),
    "fit on an iterable": lambda m, y: m.fit(Iterable(y), verbose=0),
    "fit on a PyDataset": lambda m, y: m.fit(Batches(y), verbose=0),
    "validation": lambda m, y: m.fit(X, Y, verbose=0, validation_data=(X, y)),
    "validation on batches": lambda m, y: m.fit(X, Y, verbose=0, validation_data=Batches(y)),
    "evaluate": lambda m, y: m.evaluate(X, y, verbose=0),
    "evaluate on a generator": lambda m, y: m.evaluate(iter(Iterable(y)), verbose=0),
    "train_on_batch": lambda m, y: (m.train_on_batch(X, Y), m.train_on_batch(X, y)),
    "test_on_batch": lambda m, y: (m.test_on_batch(X, Y), m.test_on_batch(X, y)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("label", [3, -1])
def test_labels_out_of_range_are_refused(way, label):
    model = make()
    with pytest.raises(ValueError, match=r"takes class numbers 0 to 2 for the 3 output.*got"):
        WAYS[way](model, with_label(label))
    steps = {"fit on arrays": 0, "train_on_batch": 1, "validation": 0}
    if way in steps:
        assert int(model.optimizer.iterations) == steps[way]
    elif way.startswith("fit on"):
        assert int(model.optimizer.iterations) <= 2  # the batch with it is not trained on


def test_what_is_left_out_may_be_any_number():
    y = with_label(-1)
    weights = (y >= 0).astype("float32")
    make(ignore_class=-1).fit(iter(Iterable(y)), verbose=0)
    model = make()
    model.train_on_batch(X, Y)
    assert np.isfinite(model.train_on_batch(X, y, sample_weight=weights))
    batches = ((X[i : i + 8], y[i : i + 8], weights[i : i + 8]) for i in range(0, 24, 8))
    model.fit(batches, verbose=0)


def test_every_row_of_large_arrays_is_looked_at():
    """Not only some of them, evenly spread."""
    y = np.zeros(2**20 + 7, "int32")
    y[-6] = 5
    model = keras.Sequential([keras.Input((1,)), layers.Dense(3)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    with pytest.raises(ValueError, match="class numbers 0 to 2 .*got 0 to 5"):
        model.fit(np.zeros((len(y), 1), "float32"), y, batch_size=2**18, verbose=0)


@pytest.mark.parametrize("index", [5, -1])
def test_indices_beyond_a_table_are_refused(index):
    model = keras.Sequential(
        [keras.Input((2,), dtype="int32"), layers.Embedding(5, 2), layers.Flatten(),
         layers.Dense(1)]
    )  # fmt: skip
    model.compile("sgd", "mse")
    good, y = np.ones((4, 2), "int32"), np.ones((4, 1), "float32")
    bad = good.copy()
    bad[2, 1] = index
    model.fit(iter([(good, y), (good, y)]), verbose=0)
    with pytest.raises(ValueError, match="input_dim=5, so indices 0 to 4"):
        model.fit(iter([(good, y), (bad, y)]), verbose=0)
    with pytest.raises(ValueError, match="input_dim=5, so indices 0 to 4"):
        model.train_on_batch(bad, y)


def test_two_outputs_are_both_looked_at():
    inputs = keras.Input((4,))
    heads = {name: layers.Dense(n, name=name)(inputs) for name, n in (("a", 3), ("b", 2))}
    model = keras.Model(inputs, heads)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", {"a": loss, "b": loss})
    model.train_on_batch(X, {"a": Y, "b": Y % 2})
    with pytest.raises(ValueError, match="y of output 'b'.*0 to 1 for the 2 output"):
        model.train_on_batch(X, {"a": Y, "b": Y})


def test_models_without_class_numbers_check_nothing():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    model.compile("sgd", "mse")
    model.train_on_batch(X, np.ones((24, 3), "float32"))
    assert batch_check(model) is None


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "float32"])
def test_within(dtype):
    values = np.array([0, 1, 2, 2], dtype)
    assert within(values, 3) and within(values[:0], 1) and within(values[::2], 3)
    assert not within(values, 2)
    assert dtype == "uint8" or not within(values - np.array(1, dtype), 3)
