"""Classes that a `validation_split` leaves out on one side."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from kerasish.engine.diagnostics.advice import warn_once
from kerasish.engine.diagnostics.match import Match
from kerasish.engine.diagnostics.rows import MANY
from kerasish.typing import Array

if TYPE_CHECKING:
    from kerasish.engine.model.model import Model

_UNLIKELY = 0.01  # chance that a split at random leaves the class out


def check_split(model: Model, train: Match, rest: Match, validation_split: float) -> None:
    """Warn where classes are on one side only, and not by chance.

    The rows kept for validation are the last ones, before shuffling; sorted labels fall apart.
    """
    left, right = _classes(train), _classes(rest)
    if left is None or right is None or not left.size or not right.size:
        return
    count = int(max(left.max(), right.max())) + 1
    here, there = (np.bincount(side, minlength=count) for side in (left, right))
    rows, kept = len(left) + len(right), len(right)
    lost = [int(c) for c in np.flatnonzero((here > 0) & (there == 0))]
    unseen = [int(c) for c in np.flatnonzero((there > 0) & (here == 0))]
    total = here + there
    odd = _is_sorted(left, right) or any(
        [_chance(total[c], 1 - kept / rows) < _UNLIKELY for c in lost]
        + [_chance(total[c], kept / rows) < _UNLIKELY for c in unseen]
    )
    if not (lost or unseen) or not odd:
        return
    said = [f"class {_listed(lost)} not there"] if lost else []
    said += [f"class {_listed(unseen)} only there"] if unseen else []
    warn_once(
        model,
        f"validation_split={validation_split} keeps the last {kept} of {rows} rows, and "
        f"{train.y} has {' and '.join(said)}. Shuffle the rows before fit, or give "
        "validation_data=.",
    )


def _classes(match: Match) -> Array:
    """Return the class number of each row, or None where rows have no class."""
    target = match.target
    if not hasattr(target, "shape") or not target.size or target.size > MANY:
        return None
    target = np.asarray(target)
    if match.values == "one-hot" and target.ndim == 2:
        return target.argmax(-1)
    flat = target.reshape(-1) if target.size == len(target) else None
    if flat is None or match.values not in ("classes", "binary"):
        return None
    if flat.min() < 0 or flat.max() > 10_000:
        return None
    return flat.astype(np.int64) if (flat == np.floor(flat)).all() else None


def _is_sorted(left: Array, right: Array) -> bool:
    whole = np.concatenate([left, right])
    steps = np.diff(whole)
    return bool((steps >= 0).all() or (steps <= 0).all())


def _chance(count: int, share: float) -> float:
    return math.pow(share, int(count))


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:5]))
    return shown if len(numbers) <= 5 else f"{shown} and {len(numbers) - 5} more"
