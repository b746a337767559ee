"""Recurrent layers on the eager engine: all time steps in one call, against NumPy step by step."""

from __future__ import annotations

import numpy as np
import pytest

import kerasish
from kerasish import config, layers, ops
from kerasish.backends.eager import loop_recurrent
from kerasish.backends.eager.numpy_kernels import KERNELS
from kerasish.backends.loops import compile_time_steps

pytestmark = pytest.mark.skipif(
    compile_time_steps("lstm", False) is None, reason="no loops can be compiled here"
)

KINDS = {"LSTM": ("lstm", 4), "GRU": ("gru", 3), "SimpleRNN": ("simple_rnn", 1)}
# Options of the layer, and whether its computation is that of the op.
OPTIONS = {
    "plain": ({}, True),
    "backwards": ({"go_backwards": True}, True),
    "sequences": ({"return_sequences": True, "return_state": True}, True),
    "unrolled": ({"unroll": True}, True),
    "stateful": ({"stateful": True}, True),
    "dropout": ({"dropout": 0.3, "seed": 3}, True),
    "recurrent dropout": ({"recurrent_dropout": 0.3, "seed": 3}, False),
    "no bias": ({"use_bias": False}, True),
    "relu": ({"activation": "relu"}, False),
}


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


@pytest.fixture
def calls(monkeypatch):
    """Return the list of the native calls, as (kind, backward, masked)."""
    seen = []

    def compiled(cell, backward, masked):
        run = compile_time_steps(cell, backward, masked)

        def counted(*args):
            seen.append((cell, backward, masked))
            return run(*args)

        return counted

    monkeypatch.setattr(loop_recurrent, "_compiled", {})
    monkeypatch.setattr(loop_recurrent, "compile_time_steps", compiled)
    monkeypatch.setattr(loop_recurrent, "LEAST", 2)
    return seen


@pytest.fixture(autouse=True)
def _engine():
    before = config.backend()
    config.set_backend("eager")
    yield
    config.set_backend(before)


def close(results, wanted, rtol=1e-4, atol=1e-5):
    for a, b in zip(results, wanted, strict=True):
        assert a.dtype == b.dtype
        scale = max(1.0, np.abs(np.asarray(b, "float64")).max(initial=0))
        a, b = np.asarray(a, "float64"), np.asarray(b, "float64")
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol * scale)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("steps", "rows", "units"), [(1, 3, 5), (4, 33, 20), (3, 1, 64)])
@pytest.mark.parametrize("kind", KINDS)
def test_kernels_are_those_of_numpy(kind, steps, rows, units, masked, calls, monkeypatch):
    cell, gates = KINDS[kind]
    count = 2 if cell == "lstm" else 1
    x, recurrent = normal(rows, steps, gates * units), normal(gates * units, units) / 8
    x, recurrent = x.swapaxes(0, 1), recurrent.T  # not in C order
    given = [x, recurrent, *[normal(3 * units, seed=1)][: cell == "gru"]]
    given += [normal(rows, units, seed=i) for i in range(count)]
    mask = [np.random.default_rng(1).random((rows, steps)).T < 0.5] if masked else []
    arriving = [normal(rows, steps, units, seed=i).swapaxes(0, 1) for i in range(count)]

    def compute():
        results = KERNELS[cell](*given, *mask)
        results = results if isinstance(results, tuple) else (results,)
        more = (recurrent, *given[-count:], *results, *mask)
        return *results, *KERNELS[f"{cell}_gradient"](*arriving, *more)

    results = compute()
    skips = masked and not mask[0].all()
    assert calls == [(cell, False, skips), (cell, True, skips)]
    monkeypatch.setattr(loop_recurrent, "LEAST", 1 << 40)
    close(results, compute())
    assert len(calls) == 2


def trained(layer, masked, dtype):
    """Return outputs, gradients and weights of a few training steps of a model with a layer."""
    kerasish.utils.set_random_seed(4)
    x, y = normal(4, 7, 5), normal(4, 2, seed=1)
    if masked:  # in the middle, at the end, at the beginning, and everywhere
        x[0, 2], x[1, 3:], x[2, :2], x[3] = 0, 0, 0, 0
    inputs = layers.Input(batch_shape=(4, 7, 5), dtype=dtype)
    h = layers.Masking(dtype=dtype)(inputs) if masked else inputs
    outputs = layer()(h)
    parts = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    mean = layers.GlobalAveragePooling1D(dtype=dtype)
    parts = [mean(t) if len(t.shape) == 3 else t for t in parts]
    h = layers.Concatenate(dtype=dtype)(parts) if len(parts) > 1 else parts[0]
    model = kerasish.Model(inputs, layers.Dense(2, dtype=dtype)(h))
    model.compile(kerasish.optimizers.SGD(0.1), "mse")
    losses = [np.asarray(model.train_on_batch(x, y)) for _ in range(3)]
    with kerasish.GradientTape() as tape:
        loss = ops.sum(model(ops.cast(x, dtype), training=True) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    values = [ops.convert_to_numpy(v) for v in (*gradients, *model.variables)]
    return [*losses, model.predict(x, batch_size=4, verbose=0), *values]


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_layers_train_as_step_by_step(kind, options, masked, calls, monkeypatch):
    given, native = OPTIONS[options]

    def compute():
        return trained(lambda: getattr(layers, kind)(9, **given), masked, "float32")

    results = compute()
    gradients = {call for call in calls if call[1]}
    assert gradients == ({(KINDS[kind][0], True, masked)} if native else set())
    assert {call[2] for call in calls} <= {masked}
    count = len(calls)
    monkeypatch.setattr(loop_recurrent, "LEAST", 1 << 40)
    close(results, compute())
    assert len(calls) == count


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_other_dtypes(kind, dtype, calls, monkeypatch):
    """16-bit floats are computed in float32, and float64 by NumPy."""

    def compute():
        return trained(lambda: getattr(layers, kind)(9, dtype=dtype), False, dtype)

    results = compute()
    assert bool(calls) == (dtype != "float64")
    monkeypatch.setattr(loop_recurrent, "LEAST", 1 << 40)
    limit = {"float16": 4e-3, "bfloat16": 4e-2, "float64": 1e-12}[dtype]
    close(results, compute(), limit, limit)


@pytest.mark.parametrize("kind", KINDS)
def test_both_directions_and_no_reset_after(kind, calls, monkeypatch):
    def compute(options):
        def make():
            layer = getattr(layers, kind)(6, return_sequences=True, **options)
            return layers.Bidirectional(layer)

        return trained(make, True, "float32")

    special = [{"reset_after": False}] if kind == "GRU" else []
    results = [compute(options) for options in ({}, *special)]
    assert calls
    monkeypatch.setattr(loop_recurrent, "LEAST", 1 << 40)
    for result, options in zip(results, ({}, *special), strict=True):
        close(result, compute(options))


@pytest.mark.parametrize("kind", KINDS)
def test_nan_stays_in_its_row(kind, calls):
    cell, gates = KINDS[kind]
    x = normal(4, 3, gates * 8)
    x[1, 2, 0] = np.nan
    more = [np.zeros(24, "float32")] if cell == "gru" else []
    states = [np.zeros((3, 8), "float32")] * (2 if cell == "lstm" else 1)
    result = KERNELS[cell](x, normal(8, gates * 8), *more, *states)
    result = result[0] if isinstance(result, tuple) else result
    assert np.isfinite(result[:, :2]).all() and np.isfinite(result[0]).all()
    assert np.isnan(result[2, 2]).all() and calls


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(0, 2), (3, 0)], ids=["no steps", "no rows"])
def test_empty_sequences(kind, shape, calls):
    cell, gates = KINDS[kind]
    steps, rows = shape
    more = [np.zeros(24, "float32")] if cell == "gru" else []
    states = [np.ones((rows, 8), "float32")] * (2 if cell == "lstm" else 1)
    result = KERNELS[cell](normal(steps, rows, gates * 8), normal(8, gates * 8), *more, *states)
    result = result[0] if isinstance(result, tuple) else result
    assert result.shape == (steps, rows, 8) and not calls


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [0.0, np.inf])
def test_a_first_state_of_zeros_counts_where_a_gradient_is_not_finite(kind, number):
    cell, gates = KINDS[kind]
    steps, rows, units = 3, 5, 8
    more = [np.zeros(24, "float32")] if cell == "gru" else []
    states = [np.zeros((rows, units), "float32")] * (2 if cell == "lstm" else 1)
    recurrent = normal(units, gates * units) / 8
    results = KERNELS[cell](normal(steps, rows, gates * units), recurrent, *more, *states)
    results = results if isinstance(results, tuple) else (results,)
    arriving = [normal(steps, rows, units, seed=i) for i in range(len(states))]
    arriving[0][0, 1, 2] = number
    with np.errstate(all="ignore"):  # as the engine does
        dx, weights, *_ = KERNELS[f"{cell}_gradient"](*arriving, recurrent, *states, *results)
    assert np.isfinite(dx).all() == np.isfinite(weights).all() == (number == 0)
