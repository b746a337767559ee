"""Recurrent layers over 200 steps: Keras's numbers with fixed dropout masks, on both engines."""

from __future__ import annotations

import json
import pathlib
import runpy

import numpy as np
import pytest

import kerasish
from kerasish import backends, layers, ops
from kerasish.autodiff import GradientTape

FOLDER = pathlib.Path(__file__).parent.parent / "data"
_recorder = runpy.run_path(str(FOLDER / "record" / "long_sequences.py"))
CASES = json.loads((FOLDER / "layers_long.json").read_text())


FEW = 24


def _runs_in_python(case):
    """Return whether the time steps are a loop in Python, which the static engine unrolls."""
    args = case["args"]
    in_python = args.get("recurrent_dropout") or case["layer"][:4] in ("Conv", "Stac")
    return bool(in_python or args.get("reset_after") is False)


# The static engine unrolls these, and compiles 200 steps for seconds, 200 steps of several cells
# for a quarter of a minute. What it computes for each of FEW steps it computes for each of 200:
# two cases show that.
_UNROLLED = [number for number, case in enumerate(CASES) if _runs_in_python(case)]
_UNROLLED_IN_FULL = [11, 32]  # GRU with dropped states, ConvLSTM1D


def _case(number, case, engine):
    args, in_python = case["args"], _runs_in_python(case)
    told_apart = case["layer"] == "GRU" and not case["call"].get("mask") and not args.get("dropout")
    slow = in_python if engine == "static" else not in_python or not told_apart
    slow = slow and "merge_mode" not in args
    name = f"{case['layer']}-{number}-{engine}".replace(" ", "-")
    return pytest.param(case, engine, id=name, marks=[pytest.mark.slow] if slow else [])


def fix_masks(cell):
    """Let a cell drop what the recorder dropped."""

    def mask(kind, x, rate):
        kind, _, gate = kind.partition(" ")
        return ops.convert_to_tensor(_recorder["dropout_mask"](kind, int(gate or 0), x.shape))

    cell._mask = mask


def listed(y):
    return list(y) if isinstance(y, (list, tuple)) else [y]


@pytest.mark.parametrize(
    ("case", "engine"),
    [
        _case(i, case, engine)
        for i, case in enumerate(CASES)
        for engine in ("eager", "static")
        if engine == "eager" or i not in _UNROLLED or i in _UNROLLED_IN_FULL
    ],
)
def test_two_hundred_steps_give_what_keras_gives(case, engine):
    outputs, gradients = results(case, engine)
    largest = [np.abs(y).max() for y in outputs]
    np.testing.assert_allclose(largest, case["largest"], rtol=1e-4, atol=1e-5)
    found = _recorder["summary"](outputs, 2.0)
    np.testing.assert_allclose(found, case["outputs"], rtol=2e-4, atol=2e-5)
    found = _recorder["summary"](gradients, 4.0)
    np.testing.assert_allclose(found, case["gradients"], rtol=2e-4, atol=5e-5)


def test_two_cases_are_unrolled_in_full():
    layers = [CASES[number]["layer"] for number in _UNROLLED_IN_FULL]
    assert layers == ["GRU", "ConvLSTM1D"] and {*_UNROLLED_IN_FULL} <= {*_UNROLLED}


@pytest.mark.slow
@pytest.mark.parametrize("number", _UNROLLED)
def test_engines_agree_on_unrolled_steps(number):
    case = CASES[number]
    found, expected = results(case, "static", FEW), results(case, "eager", FEW)
    for ours, theirs in zip(found, expected, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def results(case, engine, steps=None):
    """Return (outputs, gradients) of a case's first time steps."""
    layer = _recorder["make"](layers, case["layer"], case["args"])
    x, options = _recorder["wave"](case["shape"], 0.0), _recorder["arguments"](case["call"])
    x = x[:, :steps]
    if "mask" in options:
        options["mask"] = options["mask"][:, :steps]
    layer.build(x.shape)
    for cell in _recorder["cells_of"](layer):
        fix_masks(cell)
    layer.set_weights(_recorder["weights_like"](layer.weights))

    def step(x):
        x = ops.multiply(x, 1.0)
        with GradientTape() as tape:
            tape.watch(x)
            for _ in range(case["call"].get("calls", 1)):
                y = layer(x, **options)
            ys = listed(y)
            loss = sum(ops.sum(y * _recorder["wave"](y.shape, 3.0 + i)) for i, y in enumerate(ys))
        return ys, tape.gradient(loss, [x, *layer.weights])

    outputs, gradients = backends.get(engine).compile(step)(x)
    return [np.asarray(a) for a in outputs], [np.asarray(a) for a in gradients]


@pytest.mark.parametrize("kind", ["GRU", "LSTM", "SimpleRNN"])
@pytest.mark.parametrize("reset_after", [True, False])
def test_the_state_that_is_carried_on_is_not_dropped(kind, reset_after):
    """A dropped and scaled state in h' = z h + (1 - z) n grows by 1 / (1 - rate) per step."""
    own = {"reset_after": reset_after} if kind == "GRU" else {}
    layer = getattr(layers, kind)(3, recurrent_dropout=0.5, seed=1, return_sequences=True, **own)
    x = np.random.default_rng(0).normal(size=(2, 60, 4)).astype("float32")
    y = np.asarray(layer(x, training=True))
    assert np.abs(y).max() <= 1.0  # a mean of numbers from -1 to 1, or such a number times a gate


def test_each_gate_has_masks_of_its_own_with_recurrent_dropout():
    kerasish.utils.set_random_seed(3)
    x = np.ones((2, 3, 4), "float32")
    masks = {}
    for rates in ({"dropout": 0.5}, {"dropout": 0.5, "recurrent_dropout": 0.5}):
        layer = layers.LSTM(3, **rates)
        kept = layer.cell._mask
        seen = masks.setdefault(len(rates), {})
        layer.cell._mask = lambda kind, x, rate, kept=kept, seen=seen: seen.setdefault(
            kind, kept(kind, x, rate)
        )
        layer(x, training=True)
    assert list(masks[1]) == ["inputs"]
    assert list(masks[2]) == [f"{k} {i}" for k in ("inputs", "state") for i in range(4)]
    drawn = {np.asarray(m).tobytes() for kind, m in masks[2].items() if kind[:6] == "inputs"}
    assert len(drawn) == 4
