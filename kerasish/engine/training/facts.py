"""What defines a training apart from its weights: loss, metrics, optimizer, data, as texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish import tree
from kerasish.engine.data.data import Data
from kerasish.engine.training.program import TrainingProgram

_DEEPEST = 12


def training_facts(program: TrainingProgram, data: Data) -> dict[str, str]:
    """Return what a resumed training must have in common with the one that was saved.

    Args:
        program: compiled, and prepared for training.
        data: the training's data.

    Returns:
        name -> text: loss, metrics, optimizer, learning_rate, data, contents (of arrays).
    """
    loss, metrics = program.objective, program.scores
    parts = None if loss is None else loss.parts
    results = {
        "loss": "none" if loss is None else _text(
            [[list(p.output.path), p.weight, _described(p.loss)] for p in parts]
            if parts is not None else [_described(x) for x in tree.flatten(program.loss)]
        ),
        "metrics": "none" if metrics is None else _text(
            [[list(p.output.path), p.weighted, p.shown, _described(p.metric)]
             for p in metrics.parts or []]
        ),
    }  # fmt: skip
    rates: list[Any] = []
    results["optimizer"] = _text(_without_rates(_described(program.optimizer), rates))
    results["learning_rate"] = _text(rates)
    return {**results, **data.facts()}


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _without_rates(
    described: dict[str, Any] | str | float | Sequence[Any] | None, rates: list[Any]
) -> Any:
    if isinstance(described, list):
        return [_without_rates(part, rates) for part in described]
    if not isinstance(described, dict):
        return described
    if "learning_rate" in described:
        rates.append(described["learning_rate"])
    return {k: _without_rates(v, rates) for k, v in described.items() if k != "learning_rate"}


def _described(value: object, depth: int = 0) -> Any:
    """Return a value of a config as what JSON can hold; objects by class and config."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (float, np.generic)):
        return float(np.float32(value)) if np.ndim(value) == 0 and _is_real(value) else str(value)
    if depth > _DEEPEST:
        return type(value).__name__
    if isinstance(value, dict):
        return {str(k): _described(v, depth + 1) for k, v in value.items() if k != "name"}
    if isinstance(value, (list, tuple)):
        return [_described(v, depth + 1) for v in value]
    name = getattr(value, "__qualname__", None)
    if name is not None:  # a function or class
        return f"{getattr(value, '__module__', '')}.{name}"
    return [type(value).__name__, _described(_config_of(value), depth + 1)]


def _is_real(value: float) -> bool:
    return isinstance(value, float) or np.issubdtype(type(value), np.number)


def _config_of(value: Any) -> Any:
    if not hasattr(value, "get_config"):
        return None
    try:
        return value.get_config()
    except (NotImplementedError, AttributeError, TypeError, ValueError, KeyError):
        return None  # a class of the user's that has none: its name has to do
