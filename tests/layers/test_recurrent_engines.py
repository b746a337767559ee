"""Recurrent layers trained on both engines: every option gives the same numbers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import kerasish
from kerasish import layers, ops

KINDS = ("LSTM", "GRU", "SimpleRNN")
OPTIONS = {
    "plain": {},
    "backwards": {"go_backwards": True},
    "sequences": {"return_sequences": True},
    "sequences backwards": {"return_sequences": True, "go_backwards": True},
    "unrolled": {"unroll": True, "return_sequences": True},
    "no bias": {"use_bias": False},
    "other activation": {"activation": "relu"},
    "zero output for mask": {"zero_output_for_mask": True, "return_sequences": True},
    "dropout": {"dropout": 0.3, "seed": 3},
    "recurrent dropout": {"recurrent_dropout": 0.3, "seed": 3, "return_sequences": True},
    "regularized": {"kernel_regularizer": "l2", "activity_regularizer": "l2"},
    "stateful": {"stateful": True},
    "stateful backwards": {"stateful": True, "go_backwards": True, "return_sequences": True},
}
SPECIAL = [
    ("GRU", {"reset_after": False}),
    ("GRU", {"reset_after": False, "return_sequences": True, "go_backwards": True}),
    ("GRU", {"recurrent_activation": "tanh"}),
    ("LSTM", {"unit_forget_bias": False}),
    ("LSTM", {"recurrent_activation": "hard_sigmoid"}),
]
# Every option meets masked and whole sequences at once, each in some of the layers.
QUICK = {("LSTM", "plain", False), ("LSTM", "recurrent dropout", True), ("LSTM", "stateful", False)}
QUICK |= {
    (kind, option, (i + k) % 2 == 0)
    for (i, kind), (k, option) in itertools.product(enumerate(KINDS), enumerate(OPTIONS))
}
CASES = [
    *(pytest.param(k, o, m, id=f"{k}-{n}-{'masked' if m else 'whole'}",
                   marks=[] if (k, n, m) in QUICK else pytest.mark.slow)
      for k, (n, o), m in itertools.product(KINDS, OPTIONS.items(), (False, True))),
    *(pytest.param(k, o, m, id=f"{k}-{'-'.join(o)}-{m}")
      for (k, o), m in itertools.product(SPECIAL, (False, True))),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _engine():
    before = kerasish.config.backend()
    yield
    kerasish.config.set_backend(before)


def data(masked):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(8, 5, 3)).astype("float32")
    if masked:  # in the middle, at the end, at the beginning, and everywhere
        x[0, 2], x[1, 3:], x[2, :2], x[3] = 0, 0, 0, 0
    return x, rng.normal(size=(8, 2)).astype("float32")


def trained(engine, make):
    """Return losses, predictions and all variables after a few steps on an engine."""
    kerasish.config.set_backend(engine)
    kerasish.utils.set_random_seed(4)
    model, (x, y) = make()
    model.compile(kerasish.optimizers.SGD(0.1, momentum=0.9), "mse")
    losses = [float(model.train_on_batch(x, y)) for _ in range(3)]
    losses += model.fit(x, y, batch_size=4, epochs=2, verbose=0, shuffle=False).history["loss"]
    predictions = model.predict(x, batch_size=4, verbose=0)
    return losses, predictions, [np.asarray(v) for v in model.variables]


def assert_engines_agree(make):
    (losses, predicted, values), (own_losses, own_predicted, own_values) = (
        trained(engine, make) for engine in ("eager", "static")
    )
    np.testing.assert_allclose(own_losses, losses, rtol=2e-5)
    np.testing.assert_allclose(own_predicted, predicted, rtol=1e-4, atol=1e-5)
    for a, b in zip(own_values, values, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("kind", "options", "masked"), CASES)
def test_training_agrees(kind, options, masked):
    def make():
        x, y = data(masked)
        stateful = options.get("stateful", False)
        inputs = layers.Input(batch_shape=(4, 5, 3)) if stateful else layers.Input((5, 3))
        h = layers.Masking()(inputs) if masked else inputs
        h = getattr(layers, kind)(4, **options)(h)
        if options.get("return_sequences"):
            h = layers.SimpleRNN(3)(h)
        model = kerasish.Model(inputs, layers.Dense(2)(h))
        return model, (x[:4], y[:4]) if stateful else (x, y)

    assert_engines_agree(make)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("masked", [False, True])
def test_states_go_from_one_layer_to_the_next(kind, masked):
    """An encoder's final states begin the decoder."""

    def make():
        x, y = data(masked)
        inputs = layers.Input((5, 3))
        h = layers.Masking()(inputs) if masked else inputs
        _, *states = getattr(layers, kind)(4, return_state=True)(h)
        out = getattr(layers, kind)(4)(h, initial_state=states)
        return kerasish.Model(inputs, layers.Dense(2)(layers.concatenate([out, *states]))), (x, y)

    assert_engines_agree(make)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("merge", ["concat", "sum", "mul", "ave"])
def test_both_directions(merge, masked):
    def make():
        x, y = data(masked)
        inputs = layers.Input((5, 3))
        h = layers.Masking()(inputs) if masked else inputs
        h = layers.Bidirectional(layers.GRU(4, return_sequences=True), merge_mode=merge)(h)
        h = layers.Bidirectional(layers.LSTM(4), merge_mode=merge)(h)
        return kerasish.Model(inputs, layers.Dense(2)(h)), (x, y)

    assert_engines_agree(make)


class Leaky(layers.Layer):
    """A cell of one's own: h' = h / 2 + tanh(x w + h u), and a sum of all it has seen."""

    def __init__(self, units, **settings):
        super().__init__(**settings)
        self.units, self.state_size = units, [units, 1]
        self.output_size = units

    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], self.units), name="w")
        self.u = self.add_weight(shape=(self.units, self.units), name="u")

    def call(self, x, states):
        h, seen = states
        new = h * 0.5 + ops.tanh(ops.matmul(x, self.w) + ops.matmul(h, self.u))
        return new * ops.sigmoid(seen), [new, seen + ops.sum(x, -1, keepdims=True)]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "options",
    [{}, {"return_sequences": True, "go_backwards": True}, {"unroll": True}, {"stateful": True}],
)
def test_cells_of_ones_own(options, masked):
    def make():
        x, y = data(masked)
        inputs = layers.Input(batch_shape=(4, 5, 3))
        h = layers.Masking()(inputs) if masked else inputs
        h = layers.RNN([Leaky(4), layers.GRUCell(3)], **options)(h)
        if options.get("return_sequences"):
            h = layers.SimpleRNN(3)(h)
        return kerasish.Model(inputs, layers.Dense(2)(h)), (x[:4], y[:4])

    assert_engines_agree(make)


@pytest.mark.parametrize("steps", [3, 60])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans_written_by_hand(steps, reverse):
    """`scan` with gradients to what it carries, to what it walks and to what it closes over."""

    class Scanned(layers.Layer):
        def build(self, shape):
            self.w = self.add_weight(shape=(shape[-1], 4), name="w")
            self.u = self.add_weight(shape=(4, 4), name="u")

        def call(self, x):
            def step(h, row):
                new = ops.tanh(ops.matmul(row, self.w) + ops.matmul(h, self.u))
                return new, ops.sum(new, -1)

            first = ops.zeros((x.shape[0], 4))
            last, sums = ops.scan(step, first, ops.transpose(x, (1, 0, 2)), reverse=reverse)
            return ops.concatenate([last, ops.transpose(sums)[:, :3]], -1)

    def make():
        rng = np.random.default_rng(0)
        x = rng.normal(size=(4, steps, 3)).astype("float32")
        inputs = layers.Input(batch_shape=(4, steps, 3))
        model = kerasish.Model(inputs, layers.Dense(2)(Scanned()(inputs)))
        return model, (x, rng.normal(size=(4, 2)).astype("float32"))

    assert_engines_agree(make)
