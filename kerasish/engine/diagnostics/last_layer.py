"""A last layer that does not fit the loss, or metrics that fit neither."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish.engine.diagnostics.advice import warn_once
from kerasish.engine.diagnostics.match import Match
from kerasish.engine.diagnostics.rows import FEW, some_rows

if TYPE_CHECKING:
    from kerasish.engine.model.model import Model

# Activations whose values are no shares: they may be negative, or anything.
_NO_SHARES = frozenset(
    {
        "linear", "relu", "relu6", "leaky_relu", "elu", "selu", "gelu", "silu", "tanh", "mish",
        "softsign", "celu", "log_softmax",
    }
)  # fmt: skip


def check_last_layer(model: Model, match: Match, layer: str, activation: str) -> None:
    """Warn where the last layer's activation and the loss do not belong together."""
    units = match.shape[-1] if match.shape else 0
    if activation == "softmax" and units == 1:
        warn_once(
            model,
            f"activation='softmax' over the 1 unit of {layer} is always 1. For two classes use "
            "activation='sigmoid' and loss='binary_crossentropy'.",
        )
        return
    if match.values in ("classes", "one-hot"):
        wanted, meant = "softmax", frozenset({"softmax"})
    elif match.values == "binary":
        wanted, meant = "sigmoid", frozenset({"sigmoid", "softmax", "hard_sigmoid"})
    else:
        return
    if units == 1 and wanted == "softmax":
        warn_once(
            model,
            f"{match.loss_name} over the 1 unit of {layer} is always 0. For two classes use "
            "activation='sigmoid' and loss='binary_crossentropy'.",
        )
        return
    logits = match.option("from_logits", False)
    if not logits and activation in _NO_SHARES:
        warn_once(
            model,
            f"{match.loss_name} has from_logits=False, but {layer} has activation={activation!r}, "
            f"which gives no shares. Use activation={wanted!r}, or the loss with from_logits=True.",
        )
    elif logits and activation in meant:
        warn_once(
            model,
            f"{match.loss_name} has from_logits=True, but {layer} has activation={activation!r} "
            "already. Use activation='linear', or from_logits=False.",
        )


def check_metrics(model: Model, match: Match, metrics: list[Any], activation: str) -> None:
    """Warn of accuracies that count nothing useful."""
    for metric in metrics:
        if not vars(type(metric)).get("counts_hits"):  # a subclass may count otherwise
            continue
        threshold = metric.hit_threshold
        if match.values == "numbers" and _is_measure(match, activation):
            warn_once(
                model,
                f"metrics: {metric.name!r} counts predictions equal to the target, which says "
                f"nothing next to loss={match.loss_name!r}. Use 'mae' or R2Score().",
            )
        elif threshold is not None and _is_logit(match, activation) and 0 < threshold < 1:
            warn_once(
                model,
                f"metrics: {metric.name!r} takes predictions above {threshold:g} for 1, but with "
                "from_logits=True they are logits. Use BinaryAccuracy(threshold=0.0).",
            )


def _is_logit(match: Match, activation: str) -> bool:
    logits = bool(match.option("from_logits", False))
    return match.values == "binary" and logits and activation == "linear"


def _is_measure(match: Match, activation: str) -> bool:
    """Return whether targets are measured numbers rather than classes."""
    values = some_rows(match.counting(), FEW)
    if values.dtype.kind not in "iuf" or not values.size:
        return False
    if (values != np.floor(values)).any():
        return not _holds_shares(match)
    one = not match.shape or match.shape[-1] == 1
    return one and activation == "linear" and len(np.unique(values)) > 2


def _holds_shares(match: Match) -> bool:
    """Return whether rows are distributions over classes (soft labels)."""
    values = some_rows(match.counting(), FEW)
    if values.ndim < 2 or values.shape[-1] < 2 or values.min() < 0:
        return False
    return bool(np.allclose(values.sum(-1), 1, atol=1e-3))
