"""Checks of a model and its data before training, and of a loss that came out as NaN."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish import tree
from kerasish.engine.diagnostics.advice import warn_once
from kerasish.engine.diagnostics.graph_walk import last_layer
from kerasish.engine.diagnostics.inputs import check_inputs
from kerasish.engine.diagnostics.labels import check_labels
from kerasish.engine.diagnostics.last_layer import check_last_layer, check_metrics
from kerasish.engine.diagnostics.match import Match
from kerasish.engine.diagnostics.rows import all_finite, first_odd, some_rows
from kerasish.typing import Structure

if TYPE_CHECKING:
    from kerasish.engine.model.model import Model


def check_data(
    model: Model,
    x: Structure,
    matches: list[Match],
    metrics: list[list[Any]],
    sample_weight: Structure = None,
) -> None:
    """Raise or warn where data, loss, metrics and layers do not belong together.

    Args:
        x: the model's inputs, all rows or a batch.
        matches: each output with its loss and targets.
        metrics: the metrics of each of them.
        sample_weight: the rows' weights.

    Raises:
        ValueError: labels or indices outside what the model has; the message names the way out.
    """
    for match, own in zip(matches, metrics):
        layer, activation = last_layer(model, match.index)
        called = layer.display_name() if hasattr(layer, "display_name") else "the last layer"
        check_labels(model, match, called, activation)
        check_last_layer(model, match, called, activation)
        check_metrics(model, match, own, activation)
    check_inputs(model, x)
    _check_weights(model, sample_weight)


def _check_weights(model: Model, sample_weight: Structure) -> None:
    for weights in tree.flatten(sample_weight):
        if not isinstance(weights, np.ndarray) or not weights.size:
            continue
        if not all_finite(some_rows(weights)):
            text = f"sample_weight holds {first_odd(some_rows(weights))}: the loss will be NaN."
            warn_once(model, f"{text} Give each row a number.", "finite")
        elif not weights.any():
            warn_once(model, "sample_weight is 0 for every row, so training changes nothing.")


def check_loss_value(model: Model, logs: dict[str, Any], parts: dict[str, Any]) -> None:
    """Say which number of the data made the loss NaN, if one did.

    Args:
        logs: an epoch's results.
        parts: "x", "y", "sample_weight": all rows, in memory.
    """
    loss = logs.get("loss")
    if not isinstance(loss, float) or math.isfinite(loss):
        return
    for name, part in parts.items():
        for array in tree.flatten(part):
            if isinstance(array, np.ndarray) and not all_finite(array):
                warn_once(
                    model,
                    f"the loss is {loss} because {name} holds {first_odd(array)}. Drop such rows, "
                    "or fill them in.",
                    "finite",
                )
                return
