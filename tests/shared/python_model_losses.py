"""One training of a model of `python_models`, the same lines for kerasish and Keras."""

from __future__ import annotations

import functools
import inspect
import itertools
from typing import Any
from unittest import mock

import numpy as np


def losses_of(keras: Any, cls: Any) -> list[float]:
    """Return the loss of each of four epochs, from weights that are the same everywhere.

    Args:
        keras: kerasish or Keras.
        cls: a model of `python_models`.
    """
    numbers = itertools.count()
    original = keras.layers.Dense.__init__

    @functools.wraps(original)  # what reads the signature meanwhile may keep it
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        number = next(numbers)  # of the layer: Keras asks an initializer more than once

        def initial(shape: Any, dtype: Any = None, **options: Any) -> Any:
            values = np.random.default_rng(100 + number).normal(size=tuple(shape))
            return keras.ops.convert_to_tensor((values * 0.7).astype("float32"))

        original(self, *args, kernel_initializer=initial, **kwargs)

    # Keras binds by `signature` and asks `getfullargspec`: both have to say the same.
    construct.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
    rng = np.random.default_rng(3)
    x = rng.normal(size=(40, 3)).astype("float32")
    y = np.sin(x.sum(1, keepdims=True)).astype("float32")
    with mock.patch.object(keras.layers.Dense, "__init__", construct):
        model = cls()
        model(keras.ops.convert_to_tensor(x[:8]))
        model.compile(keras.optimizers.Adam(0.02), "mse", run_eagerly=True)
        losses = []
        for epoch in range(4):
            if hasattr(model, "hard"):
                model.hard = epoch >= 2
            history = model.fit(x, y, batch_size=8, epochs=1, shuffle=False, verbose=0)
            losses.append(float(history.history["loss"][0]))
    return losses
