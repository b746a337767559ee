"""`validation_split`: the last part of every array set aside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish import tree
from kerasish.engine.data.convert import map_leaves
from kerasish.engine.data.ragged import Ragged
from kerasish.engine.data.rows import RowRange, is_sparse, is_stored
from kerasish.typing import Structure


def train_validation_split(arrays: Sequence[Any], validation_split: float) -> tuple[Any, Any]:
    """Return the structures of the first rows and of the last `validation_split` part of them.

    The cut is at floor(rows * (1 - validation_split)), before any shuffling. Arrays are cut as
    views, data on disk stays there.

    Args:
        arrays: (x, y, sample_weight) or any other structure of arrays; None stays None.
        validation_split: the part for validation, in (0, 1).

    Raises:
        ValueError: something is no array, lengths differ, or one of the parts would be empty.

    Example:
        >>> train_validation_split((np.arange(5), None), 0.4)
        ((array([0, 1, 2]), None), (array([3, 4]), None))
    """
    if not 0 < validation_split < 1:
        raise ValueError(
            f"validation_split: expected a number between 0 and 1, got {validation_split!r}."
        )
    names = ("x", "y", "sample_weight")
    if isinstance(arrays, (tuple, list)) and len(arrays) <= len(names):
        counts = {name: _counts(part, name) for name, part in zip(names, arrays)}
    else:
        counts = {"data": _counts(arrays, "data")}
    lengths = {name: n for part in counts.values() for name, n in part.items()}
    if len(set(lengths.values())) != 1:
        described = ", ".join(f"{name}: {n}" for name, n in lengths.items()) or "no arrays"
        raise ValueError(
            f"validation_split: expected arrays with equal numbers of rows, got {described}."
        )
    count = next(iter(lengths.values()))
    cut = math.floor(count * (1 - validation_split))
    if cut == 0 or cut == count:
        raise ValueError(
            f"validation_split={validation_split} of {count} samples leaves {cut} for training and "
            f"{count - cut} for validation: both need at least one."
        )
    return _part(arrays, 0, cut), _part(arrays, cut, count)


def _part(arrays: Structure, start: int, stop: int) -> Structure:
    if isinstance(arrays, tuple):  # (x, y, ...), of which x may be a list of numbers
        return tuple(_part(part, start, stop) for part in arrays)
    return map_leaves(arrays, lambda leaf, _: _rows(leaf, start, stop), "data")


def _counts(structure: Structure, name: str) -> dict[str, int]:
    named = map_leaves(structure, lambda leaf, at: (at, _count(leaf, at)), name)
    flat = tree.flatten(named)  # (name, count) pairs are flattened too: name, count, name, count
    flat = [entry for entry in flat if entry is not None]
    return dict(zip(flat[::2], flat[1::2]))


def _count(leaf: Any, name: str) -> int:
    if isinstance(leaf, Ragged):
        return len(leaf)
    shape = getattr(leaf, "shape", None)
    if shape is not None and len(shape):
        return int(shape[0])
    if isinstance(leaf, (list, tuple)) or hasattr(leaf, "to_numpy"):
        return len(leaf)
    raise ValueError(
        f"validation_split: expected arrays, got {name} as a {type(leaf).__name__}. "
        "Pass validation_data instead."
    )


def _rows(leaf: Any, start: int, stop: int) -> Any:
    if isinstance(leaf, Ragged):
        return leaf[start:stop]
    if hasattr(leaf, "iloc"):
        return leaf.iloc[start:stop]
    if is_sparse(leaf):
        return leaf.tocsr()[start:stop]
    if is_stored(leaf) and not isinstance(leaf, np.ndarray):
        return RowRange(leaf, start, stop)
    return leaf[start:stop]
