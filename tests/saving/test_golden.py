"""Files that Keras wrote: the same predictions and next steps, also when saved again by us."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kerasish as keras

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
NAMES = json.loads((GOLDEN / "index.json").read_text())


def described(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_text())


def arrays(name: str) -> tuple[Any, Any, Any]:
    about, stored = described(name), np.load(GOLDEN / f"{name}.npz")

    def pick(letter: str, kind: dict[str, Any]) -> Any:
        if kind["kind"] == "single":
            return stored[f"{letter}0"]
        if kind["kind"] == "list":
            return [stored[f"{letter}{i}"] for i in range(kind["n"])]
        return {key: stored[f"{letter}{i}"] for i, key in enumerate(kind["keys"])}

    return pick("x", about["x"]), pick("p", about["out"]), pick("y", about["y"])


def assert_same(found: Any, wanted: Any) -> None:
    for one, other in zip(keras.tree.flatten(found), keras.tree.flatten(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def next_losses(model: Any, x: Any, y: Any, count: int) -> list[float]:
    result = []
    for _ in range(count):
        model.reset_metrics()
        result.append(float(np.ravel(model.train_on_batch(x, y))[0]))
    return result


WHOLE = [(n, f) for n in NAMES for f in described(n)["formats"] if f != "weights.h5"]


@pytest.mark.parametrize(("name", "ending"), WHOLE)
def test_predictions_and_next_steps_are_keras_s(name: str, ending: str) -> None:
    x, predictions, y = arrays(name)
    about = described(name)
    model = keras.saving.load_model(GOLDEN / f"{name}.{ending}")
    assert model.count_params() == about["params"]
    assert_same(model.predict(x, verbose=0), predictions)
    if about["losses"]:
        result = next_losses(model, x, y, len(about["losses"]))
        np.testing.assert_allclose(result, about["losses"], rtol=about["loss_rtol"])


@pytest.mark.parametrize("ending", ["keras", "h5"])
@pytest.mark.parametrize("name", [n for n in NAMES if "keras" in described(n)["formats"]])
def test_saved_again_nothing_changes(name: str, ending: str, tmp_path: Path) -> None:
    x, _, y = arrays(name)
    first = keras.saving.load_model(GOLDEN / f"{name}.keras")
    path = tmp_path / f"again.{ending}"
    first.save(path)
    again = keras.saving.load_model(path)
    for a, b in zip(first.weights, again.weights, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    assert [layer.name for layer in first.layers] == [layer.name for layer in again.layers]
    losses = described(name)["losses"]
    if losses:
        assert next_losses(first, x, y, 2) == next_losses(again, x, y, 2)


@pytest.mark.parametrize("name", [n for n in NAMES if "weights.h5" in described(n)["formats"]])
def test_weights_alone_fit_the_same_architecture(name: str, tmp_path: Path) -> None:
    x, predictions, _ = arrays(name)
    described_model = keras.saving.load_model(GOLDEN / f"{name}.keras", compile=False).to_json()
    model = keras.saving.model_from_json(described_model)
    model.load_weights(GOLDEN / f"{name}.weights.h5")
    assert_same(model.predict(x, verbose=0), predictions)
    model.save_weights(tmp_path / "own.weights.h5")
    other = keras.saving.model_from_json(described_model)
    other.load_weights(tmp_path / "own.weights.h5")
    assert_same(other.predict(x, verbose=0), predictions)
