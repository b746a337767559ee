"""The paths of parts in weight files: Keras's rules, by names of attributes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import kerasish as keras
from kerasish import layers

X = np.ones((1, 3), "float32")


class Parts:
    """Holds one part by several names, and parts in a list."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._first = self.zone = layers.Dense(2)
        self.blocks = [layers.Dense(2), layers.Dropout(0.1), layers.Dense(2)]
        self._last = layers.Dense(1)

    def call(self, x: Any) -> Any:
        """Run all parts in turn."""
        for part in (self.zone, *self.blocks, self._last):
            x = part(x)
        return x


class Shared(Parts, layers.Layer):
    """As a layer."""


class Whole(Parts, keras.Model):
    """As a model."""


# As Keras 3.15.1 writes them: public names before private ones, each in the alphabet's order, and
# a part at the first of its places. A model's own list of layers is public.
PATHS = {
    "layer": [
        "layers/shared/_last", "layers/shared/blocks/dense", "layers/shared/blocks/dense_1",
        "layers/shared/zone",
    ],
    "model": ["blocks/dense", "blocks/dense_1", "layers/dense", "layers/dense_3"],
}  # fmt: skip


def make(kind: str) -> Any:
    model = Whole() if kind == "model" else keras.Sequential([keras.Input((3,)), Shared()])
    model(X)
    return model


@pytest.mark.parametrize("kind", PATHS)
def test_paths_are_keras_s(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "shared.weights.h5"
    model = make(kind)
    model.save_weights(path)
    result: list[str] = []
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: result.append(name) if name.endswith("/vars/0") else None
        )
    assert result == [f"{place}/vars/0" for place in PATHS[kind]]
    again = make(kind)
    again.load_weights(path)
    np.testing.assert_array_equal(again(X).numpy(), model(X).numpy())
