"""Buckets of sequences: bounds, padding, order, and training with few shapes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import kerasish
from kerasish import layers
from kerasish.callbacks import BackupAndRestore, Callback
from kerasish.data import best_boundaries, bucket_by_length


def sequences(rows=101, longest=40, seed=0):
    rng = np.random.default_rng(seed)
    lengths = np.minimum(1 + rng.geometric(0.1, rows), longest)
    return [rng.integers(1, 9, n).tolist() for n in lengths]


def padding_of(lengths, bounds):
    return sum(min(b for b in bounds if b >= n) - n for n in lengths)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_no_bounds_pad_less(count):
    lengths = np.random.default_rng(1).integers(1, 12, 40)
    kinds = sorted(set(lengths.tolist()))
    least = min(
        padding_of(lengths, [*some, kinds[-1]])
        for some in itertools.combinations(kinds[:-1], count - 1)
    )
    found = best_boundaries(lengths, count)
    assert len(found) == count and found[-1] == max(lengths) and found == sorted(found)
    assert padding_of(lengths, found) == least
    assert best_boundaries(lengths, 50) == kinds


def test_many_kinds_of_lengths():
    lengths = np.arange(1, 6000)
    found = best_boundaries(lengths, 4)
    assert found[-1] == 5999
    np.testing.assert_allclose(found, [1500, 3000, 4500, 6000], atol=15)


def test_each_sequence_comes_once_an_epoch_padded_as_said():
    data, y = sequences(), np.arange(101)
    dataset = bucket_by_length(data, y, 5, 8, seed=3)
    shapes, orders = set(), []
    for _ in range(2):
        seen = []
        for x, rows in dataset:
            assert x.dtype == "int32" and x.shape[1] in dataset.boundaries
            for row, number in zip(x, rows):
                one = data[number]
                assert row[: len(one)].tolist() == one and not row[len(one) :].any()
            shapes.add(x.shape)
            seen += rows.tolist()
        assert sorted(seen) == list(range(101))
        orders.append(seen)
    assert orders[0] != orders[1]
    # One shape for each bucket, and one for the batch that is left over.
    assert len(shapes) <= len(dataset.boundaries) + 1
    again = bucket_by_length(data, y, 5, 8, seed=3)
    assert [r for _, rows in again for r in rows.tolist()] == orders[0]
    assert [r for _, rows in again for r in rows.tolist()] == orders[1]


def test_little_is_padding():
    data = sequences(2000)
    lengths = [len(s) for s in data]
    plain = 1 - np.mean(lengths) / max(lengths)
    dataset = bucket_by_length(data, boundaries=8, batch_size=16)
    assert dataset.padding_share < 0.15 < 0.5 < plain
    assert sum(len(x) for x in dataset) == 2000


def test_ways_to_pad_and_to_cut():
    data = [[1, 2, 3], [4], [5, 6, 7, 8, 9]]
    options = {"boundaries": [2, 4], "batch_size": 3, "shuffle": False}
    cut = bucket_by_length(data, truncating="post", padding="pre", value=-1, **options)
    assert cut[0].tolist() == [[-1, -1, -1, 4], [-1, 1, 2, 3], [5, 6, 7, 8]]
    cut = bucket_by_length(data, truncating="pre", **options)
    assert cut[0][2].tolist() == [6, 7, 8, 9]
    steps = bucket_by_length(
        data, [[1.0, 1, 1], [2.0], [3.0] * 5], 1, 3, [1, 2, 3], pad_targets=True, target_value=9,
        shuffle=False,
    )  # fmt: skip
    x, y, w = steps[0]
    assert y.tolist() == [[1, 1, 1, 9, 9], [2, 9, 9, 9, 9], [3] * 5] and w.tolist() == [1, 2, 3]
    assert y.dtype == "float32" and x.shape == (3, 5)
    pairs = bucket_by_length([np.ones((2, 3)), np.ones((4, 3))], boundaries=1, shuffle=False)
    assert pairs[0].shape == (2, 4, 3) and pairs[0].dtype == "float32"
    rows = bucket_by_length(sequences(50), boundaries=3, batch_size=[16, 8, 4], drop_remainder=True)
    assert {len(x) for x in rows} <= {16, 8, 4}


def test_results_back_in_order():
    data = sequences(37)
    model = kerasish.Sequential([
        layers.Input((None,), dtype="int32"), layers.Embedding(9, 4, mask_zero=True),
        layers.GlobalAveragePooling1D(), layers.Dense(2),
    ])  # fmt: skip
    dataset = bucket_by_length(data, boundaries=4, batch_size=8, shuffle=False)
    found = dataset.in_order(model.predict(dataset, verbose=0))
    width = max(map(len, data))
    whole = np.array([s + [0] * (width - len(s)) for s in data])
    np.testing.assert_allclose(found, model.predict(whole, verbose=0), atol=1e-6)
    assert sorted(dataset.positions().tolist()) == list(range(37))
    longest = max(len(data[i]) for i in dataset.positions(0))
    assert dataset.bound(0) == min(b for b in dataset.boundaries if b >= longest)
    with pytest.raises(ValueError, match="37 sequences"):
        dataset.in_order(found[:5])


@pytest.mark.parametrize("eager", [False, True])
def test_training_with_masks_is_as_without_padding(eager):
    """The loss of one epoch without learning does not depend on how the rows were padded."""
    kerasish.utils.set_random_seed(4)
    data = sequences(60, 20)
    y = np.array([s.count(3) > 0 for s in data], "float32")
    model = kerasish.Sequential([
        layers.Input((None,), dtype="int32"), layers.Embedding(9, 6, mask_zero=True),
        layers.LSTM(8), layers.Dense(1, activation="sigmoid"),
    ])  # fmt: skip
    model.compile(kerasish.optimizers.Adam(0.03), "binary_crossentropy", run_eagerly=eager)
    dataset = bucket_by_length(data, y, 4, 16, seed=1)
    width = max(map(len, data))
    whole = np.array([s + [0] * (width - len(s)) for s in data])
    expected = model.evaluate(whole, y, verbose=0)
    assert model.evaluate(dataset, verbose=0) == pytest.approx(expected, rel=1e-5)
    history = model.fit(dataset, epochs=4 if eager else 25, verbose=0).history["loss"]
    assert history[-1] < (1.0 if eager else 0.6) * history[0]
    assert model.evaluate(dataset, verbose=0) == pytest.approx(
        model.evaluate(whole, y, verbose=0), rel=1e-5
    )


def test_what_does_not_fit():
    with pytest.raises(ValueError, match="sequence 1 has length 3, above the last bound 2"):
        bucket_by_length([[1], [1, 2, 3]], boundaries=[1, 2])
    with pytest.raises(ValueError, match="rising"):
        bucket_by_length([[1]], boundaries=[3, 2])
    with pytest.raises(ValueError, match="at least one"):
        bucket_by_length([])
    with pytest.raises(ValueError, match="each of 2 sequences, got 1"):
        bucket_by_length([[1], [2]], [1])
    with pytest.raises(ValueError, match="sequence 1 has length 1 and its targets 2"):
        bucket_by_length([[1], [2]], [[1], [1, 2]], pad_targets=True)
    with pytest.raises(ValueError, match="padding"):
        bucket_by_length([[1]], padding="middle")
    with pytest.raises(ValueError, match="one for each of 1 buckets"):
        bucket_by_length([[1]], batch_size=[2, 3])
    with pytest.raises(IndexError):
        bucket_by_length([[1]])[1]


class Halt(Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            raise KeyboardInterrupt


def test_a_training_that_stopped_goes_on_with_the_same_batches(tmp_path):
    words = sequences(59, 30)

    def train(*callbacks):
        kerasish.utils.set_random_seed(5)
        model = kerasish.Sequential([
            layers.Input((None,), dtype="int32"), layers.Embedding(9, 4, mask_zero=True),
            layers.LSTM(4), layers.Dense(1),
        ])  # fmt: skip
        model.compile("adam", "mse")
        dataset = bucket_by_length(words, np.arange(59.0), 4, 8, seed=1)
        model.fit(dataset, epochs=4, verbose=0, callbacks=list(callbacks))
        return model.get_weights()

    expected = train()
    with pytest.raises(KeyboardInterrupt):
        train(BackupAndRestore(tmp_path / "backup"), Halt())
    with pytest.warns(UserWarning, match="fit resumes"):
        found = train(BackupAndRestore(tmp_path / "backup"))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
