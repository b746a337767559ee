"""Targets whose values do not fit the loss or the last layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kerasish.engine.diagnostics.advice import warn_once
from kerasish.engine.diagnostics.match import Match
from kerasish.engine.diagnostics.rows import all_finite, first_odd, number, some_rows, span
from kerasish.typing import Array

if TYPE_CHECKING:
    from kerasish.engine.model.model import Model

# activation -> the range of its values
_RANGES = {
    "relu": (0.0, np.inf), "softplus": (0.0, np.inf), "exponential": (0.0, np.inf),
    "sigmoid": (0.0, 1.0), "softmax": (0.0, 1.0), "hard_sigmoid": (0.0, 1.0),
    "tanh": (-1.0, 1.0), "softsign": (-1.0, 1.0),
}  # fmt: skip


def check_labels(model: Model, match: Match, layer: str, activation: str) -> None:
    """Raise or warn where a target's values cannot be meant.

    Args:
        layer: what messages call the last layer.
        activation: the name of its activation, "" where unknown.

    Raises:
        ValueError: class numbers that are none, or beyond the model's outputs.
    """
    if not match.takes or not hasattr(match.target, "shape"):
        return
    every = match.counting()
    values = some_rows(every)
    if not values.size or values.dtype.kind not in "biuf":
        return
    if not all_finite(values):
        warn_once(
            model,
            f"{match.y} holds {first_odd(values)}: the loss will be NaN. Drop such rows, or fill "
            "them in.",
            "finite",
        )
        return
    if match.values == "classes":
        _check_numbers(model, match, every, layer)
    elif match.values == "one-hot":
        _check_one_hot(model, match, values)
    elif match.values == "binary":
        _check_binary(model, match, values)
    else:
        _check_range(model, match, values, layer, activation)


def _check_numbers(model: Model, match: Match, values: Array, layer: str) -> None:
    axis = match.option("axis", -1)
    count = match.shape[axis] if match.shape else 0
    ignored = match.option("ignore_class")
    if ignored is not None:
        values = values[values != ignored]
    if count < 1 or not values.size or values.dtype.kind == "b":
        return
    expected = (
        f"{match.y}: {match.loss_name} takes class numbers 0 to {count - 1} for the {count} "
        f"output(s) of {layer}"
    )
    if values.dtype.kind == "f" and (values != np.floor(values)).any():
        odd = values[values != np.floor(values)][0].item()
        raise ValueError(
            f"{expected}, got {number(odd)}. For numbers that are no classes use a regression loss "
            "such as 'mse'; for one-hot rows loss='categorical_crossentropy'."
        )
    low, high = span(values)
    if low >= 0 and high < count:
        return
    got = f"{expected}, got {number(low)} to {number(high)}."
    if low == 1 and high == count:
        raise ValueError(f"{got} Count classes from 0: y = y - 1.")
    if count == 1:
        raise ValueError(
            f"{got} For two classes and one unit use activation='sigmoid' and "
            f"loss='binary_crossentropy'; else give the last layer {number(high + 1)} units."
        )
    if low < 0:
        text = (
            f"{got} If {number(low)} marks what shall not count, say "
            f"loss=SparseCategoricalCrossentropy(ignore_class={number(low)})."
        )
        if match.target.ndim > 1 and match.target.shape[-1] != 1 and high < count:
            warn_once(model, text)  # a mask may leave those steps out
            return
        raise ValueError(text)
    raise ValueError(
        f"{got} Give the last layer {number(high + 1)} units, or renumber the classes: "
        "y = np.unique(y, return_inverse=True)[1]."
    )


def _check_one_hot(model: Model, match: Match, values: Array) -> None:
    if values.ndim < 2 or not np.isin(values, (0, 1)).all():
        return
    ones = values.sum(match.option("axis", -1))
    if (ones > 1).any():
        warn_once(
            model,
            f"{match.y} has rows with {number(ones.max().item())} classes at once, and "
            f"{match.loss_name} takes one per row. For several labels per row use "
            "activation='sigmoid' and loss='binary_crossentropy'.",
        )


def _check_binary(model: Model, match: Match, values: Array) -> None:
    low, high = span(values)
    if low >= 0 and high <= 1:
        return
    whole = bool((values == np.floor(values)).all())
    if whole and low == -1 and high <= 1:
        fix = "Map -1 to 0: y = (y + 1) / 2, or use loss='hinge'."
    elif whole and low == 1 and high == 2:
        fix = "Count classes from 0: y = y - 1."
    elif whole and low >= 0:
        fix = (
            f"For {number(high + 1)} classes use {number(high + 1)} units with softmax and "
            "loss='sparse_categorical_crossentropy'."
        )
    else:
        fix = "For numbers that are no shares use a regression loss such as 'mse'."
    warn_once(
        model,
        f"{match.y}: {match.loss_name} takes targets from 0 to 1, got {number(low)} to "
        f"{number(high)}. {fix}",
    )


def _check_range(model: Model, match: Match, values: Array, layer: str, activation: str) -> None:
    low, high = span(values)
    takes, name = match.takes, match.loss_name
    assert takes is not None
    if takes.values == "signs" and not np.isin(values, (-1, 0, 1)).all():
        text = f"takes labels -1 and 1 (or 0 and 1), got {number(low)} to {number(high)}"
        warn_once(model, f"{match.y}: {name} {text}. For more classes use a cross-entropy.")
    elif takes.lowest is not None and low < takes.lowest:
        text = f"takes targets >= {number(takes.lowest)}, got {number(low)}"
        warn_once(model, f"{match.y}: {name} {text}. Use 'mse' or 'mae' for negative numbers.")
    elif not takes.zero and (values == 0).any():
        text = "divides by the targets, and some are 0: the loss will be huge. Use 'mae' instead."
        warn_once(model, f"{match.y}: {name} {text}")
    elif takes.values == "numbers" and activation in _RANGES:
        least, most = _RANGES[activation]
        outside = (values < least - 1e-3) | (values > most + 1e-3)
        if outside.mean() > 0.05:
            bounds = f"from {number(least)} to {number(most)}".replace(" to inf", " up")
            warn_once(
                model,
                f"{match.y} reaches from {number(low)} to {number(high)}, which activation="
                f"{activation!r} of {layer} cannot: its values go {bounds}. Use "
                "activation='linear', or scale the targets.",
            )
