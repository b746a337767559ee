"""Every layer of the catalogue in a native library, for several batch sizes."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from layer_examples import EXAMPLES, call, data, flat, shapes_of, started

import kerasish
from kerasish import layers, ops
from kerasish.export.native import link
from kerasish.export.onnx.save import inference_of

NATIVE = link.runs_here(link.targets_named("native")["native"])
pytestmark = pytest.mark.skipif(not NATIVE, reason="no code of this machine can be linked here")

QUICK = ["ActivityRegularization", "AdaptiveMaxPooling1D", "Discretization"]
PARTS = 9


def joined(names: list[str]) -> tuple[Any, list[str]]:
    """Return one model with the inputs and outputs of several layers, and each output's layer."""
    inputs, outputs, labels = [], [], []
    for name in names:
        symbols = [
            layers.Input(s[1:], dtype=EXAMPLES[name].get("dtype", "float32"))
            for s in shapes_of(name)
        ]
        result = call(started(name), name, symbols)
        inputs += symbols
        outputs += result if isinstance(result, (list, tuple)) else [result]
        labels += [name] * (len(outputs) - len(labels))
    return kerasish.Model(inputs, outputs), labels


def predicted(path: Path, arrays: list[Any], expected: list[Any]) -> list[Any]:
    results = [np.full(y.shape, 77).astype(y.dtype) for y in expected]
    pointers = [ctypes.c_void_p(v.ctypes.data) for v in (*arrays, *results)]
    predict = ctypes.CDLL(str(path)).m_predict
    assert predict(*pointers, ctypes.c_int64(len(arrays[0])), None) == 0
    return results


def compare(names: list[str], folder: Path, batches: tuple[int, ...] = (1, 2, 7)) -> None:
    model, labels = joined(names)
    model.export(folder / "m", format="native", verbose=False)
    f, _ = inference_of(model, None)
    for batch in batches:
        given = [a for name in names for a in data(name, batch)]
        arrays = [np.ascontiguousarray(a) for a in given]
        expected = flat(f(arrays if len(arrays) > 1 else arrays[0]))
        found = predicted(folder / "m.so", arrays, expected)
        for name, a, b in zip(labels, found, expected, strict=True):
            largest = max(float(np.abs(b.astype("float64")).max(initial=0)), 1e-6)
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-6 * largest, err_msg=name)


def test_layers_with_indices_orders_or_cells(tmp_path: Path) -> None:
    compare(QUICK, tmp_path, (7,))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_layer(part: int, tmp_path: Path) -> None:
    compare(list(EXAMPLES)[part::PARTS], tmp_path)


class Own(layers.Layer):
    """A cell of a user's own."""

    state_size = output_size = 3

    def __init__(self) -> None:
        super().__init__()
        self.of_inputs, self.of_states = layers.Dense(3), layers.Dense(3)

    def call(self, x: Any, states: Any) -> Any:
        h = ops.tanh(self.of_inputs(x) + self.of_states(states[0]))
        return h, [h]


CELLS = {
    "own": lambda: layers.RNN(Own()),
    "stacked": lambda: layers.RNN([layers.LSTMCell(3), layers.GRUCell(2)], return_sequences=True),
    "lstm": lambda: layers.LSTM(3, recurrent_activation="hard_sigmoid", activation="relu"),
    "gru": lambda: layers.Bidirectional(layers.GRU(3, reset_after=False)),
    "simple": lambda: layers.SimpleRNN(3, activation="relu", unroll=True),
}


@pytest.mark.parametrize("name", [n if n == "own" else pytest.param(n, marks=pytest.mark.slow)
                                  for n in CELLS])  # fmt: skip
def test_recurrent_layers_of_any_cell(name: str, tmp_path: Path) -> None:
    x = kerasish.Input((5, 4))
    model = kerasish.Model(x, CELLS[name]()(layers.Masking()(x) if name == "lstm" else x))
    model.export(tmp_path / "m", format="native", verbose=False)
    rng = np.random.default_rng(0)
    for batch in (1, 9):
        given = rng.uniform(-1, 1, (batch, 5, 4)).astype("float32")
        given[0, 3:] = 0
        expected = np.asarray(model(given))
        (found,) = predicted(tmp_path / "m.so", [given], [expected])
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())
