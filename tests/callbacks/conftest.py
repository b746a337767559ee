"""A model small enough to see through: what callbacks may ask of a model, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kerasish.tensor import Variable


class Optimizer:
    def __init__(self, rate: Any):
        self.learning_rate = Variable(rate) if isinstance(rate, float) else rate
        self.iterations = 3

    @property
    def rate(self) -> float:
        return float(np.asarray(self.learning_rate))


class FakeModel:
    """Its one weight is a number; files hold that number as text."""

    def __init__(self, rate: Any = 0.5, metrics: tuple[Any, ...] = ()):
        self.stop_training = False
        self.optimizer = Optimizer(rate)
        self.metrics = list(metrics)
        self.weight = np.array(0.0)
        self.saved: list[str] = []

    def get_weights(self) -> list[np.ndarray]:
        return [self.weight]

    def set_weights(self, weights: list[np.ndarray]) -> None:
        self.weight = np.array(weights[0])

    def save(self, filepath: str, overwrite: bool = True) -> None:
        self.saved.append(Path(filepath).name)
        Path(filepath).write_text(f"model {float(self.weight)}")

    def save_weights(self, filepath: str, overwrite: bool = True) -> None:
        self.saved.append(Path(filepath).name)
        Path(filepath).write_text(str(float(self.weight)))

    def load_weights(self, filepath: str) -> None:
        self.weight = np.array(float(Path(filepath).read_text()))

    def remove_partial_saves(self, pattern: str) -> None:
        """Nothing is ever cut off here."""


@pytest.fixture
def make_model():
    return FakeModel


@pytest.fixture
def model():
    return FakeModel()


@pytest.fixture
def attach(model):
    """Give a callback the model, and begin training."""

    def begin(callback, to=None):
        callback.set_model(to or model)
        callback.on_train_begin()
        return callback

    return begin


class Late:
    """A value that becomes a number only when asked, as the engine's running means do."""

    def __init__(self, value: float):
        self.value = value

    def __float__(self) -> float:
        return self.value


@pytest.fixture
def late():
    return Late
