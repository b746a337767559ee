"""Recurrent layers in native libraries whose time steps compute the inputs of later ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from native_libraries import Library, needs_linker

import kerasish
from kerasish import layers
from kerasish.backends.static.codegen.interleaved import Interleaved
from kerasish.backends.static.lowering import standalone
from kerasish.backends.static.lowering.standalone_recurrent import RecurrentUnit
from kerasish.backends.static.lowering.standalone_units import Repeat
from kerasish.backends.static.lowering.units import Unit
from kerasish.export.native.link import targets_named
from kerasish.export.native.plan import Weights, calls_of
from kerasish.export.native.save import _plans
from kerasish.export.onnx.save import inference_of

LEVEL = targets_named("native")["native"].level


def sequence(steps: int, features: int, *parts: Any) -> Any:
    return kerasish.Sequential([kerasish.Input((steps, features)), *parts])


def bidirectional() -> Any:
    x = kerasish.Input((24, 9))
    y = layers.Bidirectional(layers.LSTM(64, return_sequences=True))(x)
    y = layers.LSTM(64, go_backwards=True)(layers.Dense(20, "relu")(y))
    return kerasish.Model(x, y)


def masked() -> Any:
    x = kerasish.Input((21,), dtype="int32")
    y = layers.Embedding(30, 33, mask_zero=True)(x)
    return kerasish.Model(x, layers.LSTM(64)(layers.GRU(256, return_sequences=True)(y)))


# The model, and how many of its recurrences compute inputs of later time steps.
MODELS = {
    "lstm": (lambda: sequence(80, 40, layers.LSTM(128), layers.Dense(3)), 1),
    "two": (lambda: sequence(
        17, 5, layers.LSTM(64, return_sequences=True), layers.LSTM(128, return_sequences=True)
    ), 2),
    "long sums": (lambda: sequence(19, 300, layers.LSTM(320)), 1),
    "without a bias": (lambda: sequence(16, 64, layers.LSTM(64, use_bias=False)), 1),
    "gru": (lambda: sequence(30, 12, layers.GRU(256)), 1),
    "simple": (lambda: sequence(16, 7, layers.SimpleRNN(512)), 1),
    "bidirectional": (bidirectional, 3),
    "masked": (masked, 2),
    "few time steps": (lambda: sequence(15, 40, layers.LSTM(64)), 0),
    "few units": (lambda: sequence(20, 40, layers.LSTM(48)), 0),
}  # fmt: skip


def varied(model: Any) -> Any:
    rng = np.random.default_rng(5)
    for v in model.weights:
        v.assign(rng.uniform(-0.08, 0.08, v.shape))
    return model


def data(model: Any, count: int) -> Any:
    rng, shape = np.random.default_rng(count), (count, *model.inputs[0].shape[1:])
    if model.inputs[0].dtype == "int32":
        return rng.integers(0, 30, shape).astype("int32")
    return rng.uniform(-1, 1, shape).astype("float32")


def joined(model: Any) -> int:
    """Return how many recurrences of one row compute inputs of later time steps."""
    plans = _plans(*inference_of(model, None), Weights())
    assert not any(isinstance(s.kernel, Interleaved) for p in plans[:-1] for s in calls_of(p))
    steps = [s for s in plans[-1].steps if isinstance(s, Repeat)]
    return sum(isinstance(call.kernel, Interleaved) for s in steps for call in s.steps)


def exported(model: Any, folder: Path, name: str, **options: Any) -> Callable[[Any], Any]:
    """Return the function of a library."""
    model.export(folder / name, format="native", verbose=False, **options)
    library, shape = Library(folder / f"{name}.so", name), model.output_shape[1:]
    return lambda x: library.predict(x, int(np.prod(shape))).reshape(len(x), *shape)


@needs_linker
@pytest.mark.parametrize("name", MODELS)
def test_bits_are_those_of_the_product_of_all_inputs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, count = MODELS[name]
    model = varied(make())
    assert joined(model) == count
    together = exported(model, tmp_path, "together")
    monkeypatch.setattr(standalone, "join_products", lambda units, *rest: list(units))
    apart = exported(model, tmp_path, "apart")
    for rows in (1, 3):  # three rows are three calls
        x = data(model, rows)
        found = together(x)
        largest = float(np.abs(found).max())
        expected = model.predict(x, verbose=0)
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * largest)
        if LEVEL == "avx512":
            assert found.tobytes() == apart(x).tobytes()


@needs_linker
def test_inputs_that_are_not_numbers(tmp_path: Path) -> None:
    model = varied(sequence(24, 64, layers.LSTM(64, return_sequences=True)))
    x = data(model, 1)
    x[0, 13, 5] = np.nan
    found = exported(model, tmp_path, "m")(x)
    assert np.isfinite(found[0, :13]).all() and np.isnan(found[0, 13:]).all()


def test_what_others_read_or_change_is_computed_before(monkeypatch: pytest.MonkeyPatch) -> None:
    join, counts = standalone.join_products, []

    def joining(units: Any, root: Any, kept: Any) -> Any:
        at = next(i for i, u in enumerate(units) if isinstance(u, RecurrentUnit))
        before, product, recurrence, after = (
            units[: at - 1],
            *units[at - 1 : at + 1],
            units[at + 1 :],
        )
        x = root(recurrence.x)
        assert x in map(root, product.writes)
        reader, writer = Unit("other", [x], []), Unit("other", [], [product.x])
        for order, results in (
            ([*before, product, recurrence, *after], kept | {x}),
            ([*before, product, recurrence, reader, *after], kept),
            ([*before, product, writer, recurrence, *after], kept),
            ([*before, product, recurrence, writer, *after], kept),
        ):
            counts.append(len(order) - len(join(order, root, results)))
        return join(units, root, kept)

    monkeypatch.setattr(standalone, "join_products", joining)
    make, _ = MODELS["lstm"]
    assert joined(make()) == 1
    assert counts[:4] == [0, 0, 0, 1]  # the plan for one row is the first


@needs_linker
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3"])
def test_older_processors(target: str, tmp_path: Path) -> None:
    if LEVEL not in ("avx2", "avx512"):
        pytest.skip(f"this processor does not run code for {target}")
    model = varied(sequence(27, 33, layers.LSTM(64, return_sequences=True), layers.GRU(256)))
    x = data(model, 2)
    found = exported(model, tmp_path, "m", target=target)(x)
    np.testing.assert_allclose(found, model.predict(x, verbose=0), rtol=0, atol=2e-6)
