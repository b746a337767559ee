"""The CRF layer in models: training, masks, decoding, files."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import kerasish
from kerasish import layers, ops
from kerasish.layers.crf import CRFLoss


def sequences(rows=64, steps=6, seed=0):
    """Return words 1..4 (0 pads) and tags, which say whether the word before was the same."""
    rng = np.random.default_rng(seed)
    x = rng.integers(1, 5, (rows, steps))
    y = np.zeros((rows, steps), int)
    y[:, 1:] = 1 + (x[:, 1:] == x[:, :-1])
    lengths = rng.integers(2, steps + 1, rows)
    past = np.arange(steps) >= lengths[:, None]
    x[past] = y[past] = 0
    return x, y


def tagger(**options):
    inputs = layers.Input((None,), dtype="int32")
    x = layers.Embedding(5, 6, mask_zero=True)(inputs)
    x = layers.LSTM(12, return_sequences=True)(x)
    return kerasish.Model(inputs, layers.CRF(3, name="crf", **options)(x))


@pytest.mark.parametrize("eager", [False, True])
def test_a_tagger_learns(eager):
    kerasish.utils.set_random_seed(1)
    x, y = sequences()
    model = tagger()
    layer = model.get_layer("crf")
    model.compile("adam", loss=layer.loss, metrics=[layer.accuracy], run_eagerly=eager)
    model.optimizer.learning_rate = 0.03
    history = model.fit(x, y, epochs=8 if eager else 40, batch_size=16, verbose=0).history
    assert history["loss"][-1] < 0.6 * history["loss"][0]
    if not eager:
        tags = layer.decode(model(x))
        assert (np.asarray(tags) == y).mean() > 0.93 and history["accuracy"][-1] > 0.9


def test_the_loss_is_that_of_all_paths_and_padding_changes_nothing():
    model = tagger()
    layer = model.get_layer("crf")
    rng = np.random.default_rng(3)
    for v in layer.weights:
        v.assign(rng.normal(size=v.shape))
    x = np.array([[1, 2, 3, 0, 0]])
    potentials = np.asarray(model(x))[0, :3].astype("float64")
    between, start, end = (np.asarray(v, "float64") for v in
                           (layer.transitions, layer.start, layer.end))  # fmt: skip
    scores = {
        tags: sum(potentials[t, k] for t, k in enumerate(tags))
        + between[tags[0], tags[1]] + between[tags[1], tags[2]] + start[tags[0]] + end[tags[2]]
        for tags in itertools.product(range(3), repeat=3)
    }  # fmt: skip
    total = np.log(np.exp(list(scores.values())).sum())
    y = np.array([[2, 0, 1, 0, 0]])
    expected = total - scores[2, 0, 1]
    assert float(layer.loss(y, model(x))) == pytest.approx(expected, rel=1e-5)
    assert float(layer.loss(y[:, :3], model(x[:, :3]))) == pytest.approx(expected, rel=1e-5)
    tags, best = layer.decode(model(x), return_scores=True)
    assert tuple(np.asarray(tags)[0, :3]) == max(scores, key=scores.get)
    assert float(best[0]) == pytest.approx(max(scores.values()), rel=1e-5)
    by_hand = layer.decode(np.asarray(model(x)), mask=x != 0)
    np.testing.assert_array_equal(by_hand, tags)
    half = layer.loss(np.repeat(y, 2, 0), model(np.repeat(x, 2, 0)), np.array([1.0, 0.0]))
    assert float(half) == pytest.approx(expected / 2, rel=1e-5)


def test_a_model_from_a_file_trains_on(tmp_path):
    x, y = sequences(8)
    model = tagger(use_boundary=False)
    model.compile("sgd", loss=model.get_layer("crf").loss)
    model.fit(x, y, verbose=0)
    model.save(tmp_path / "tagger.keras")
    other = kerasish.saving.load_model(tmp_path / "tagger.keras")
    np.testing.assert_array_equal(other.predict(x, verbose=0), model.predict(x, verbose=0))
    assert other.loss._layer is other.get_layer("crf")
    ours, theirs = (m.fit(x, y, shuffle=False, epochs=2, verbose=0) for m in (model, other))
    assert ours.history["loss"] == pytest.approx(theirs.history["loss"])


def test_a_loss_whose_layer_is_not_there_says_so():
    loss = CRFLoss("nowhere")
    loss.bind(tagger())
    assert loss.get_config()["layer"] == "nowhere"
    with pytest.raises(ValueError, match="no layer yet, but 'nowhere'"):
        loss(np.zeros((1, 2)), np.zeros((1, 2, 3), "float32"))


def test_what_does_not_fit():
    with pytest.raises(ValueError, match="last size must be 3"):
        layers.CRF(3, use_kernel=False)(np.zeros((2, 4, 5)))
    with pytest.raises(ValueError, match="call it first"):
        layers.CRF(3).decode(np.zeros((2, 4, 3)))
    potentials = np.random.default_rng(0).normal(size=(2, 4, 3)).astype("float32")
    np.testing.assert_array_equal(layers.CRF(3, use_kernel=False)(potentials), potentials)
    assert (
        ops.crf_decode(potentials, np.zeros((3, 3)))[0].tolist() == potentials.argmax(-1).tolist()
    )
