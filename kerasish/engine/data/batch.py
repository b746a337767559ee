"""One batch: (x, y, sample_weight), taken apart, put together, checked and converted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kerasish import config, tree
from kerasish.engine.data.convert import map_leaves, to_array
from kerasish.engine.data.weights import class_weights_of, combine
from kerasish.typing import Array, Structure

Batch = tuple[Any, Any, Any]


def unpack_x_y_sample_weight(data: dict[str, Any] | int | Sequence[Any]) -> Batch:
    """Return (x, y, sample_weight) of a batch of any of Keras's forms, None for absent parts.

    Args:
        data: `x`, or a tuple or list (x,), (x, y) or (x, y, sample_weight).

    Example:
        >>> unpack_x_y_sample_weight((1, 2))
        (1, 2, None)
    """
    parts = tuple(data) if isinstance(data, list) else data
    if not isinstance(parts, tuple):
        return parts, None, None
    if not 1 <= len(parts) <= 3:
        raise ValueError(
            "A batch is x, (x,), (x, y) or (x, y, sample_weight); got "
            f"{type(data).__name__} of {len(parts)} parts."
        )
    x, y, sample_weight = (*parts, None, None)[:3]
    return x, y, sample_weight


def pack_x_y_sample_weight(
    x: int | Sequence[int], y: int | None = None, sample_weight: Structure = None
) -> Structure:
    """Return the shortest form that `unpack_x_y_sample_weight` takes apart again.

    Args:
        x: inputs.
        y: targets, or None.
        sample_weight: weights of the rows, or None.

    Example:
        >>> pack_x_y_sample_weight(1, 2), pack_x_y_sample_weight([1, 2]), pack_x_y_sample_weight(1)
        ((1, 2), ([1, 2],), 1)
    """
    if sample_weight is not None:
        return x, y, sample_weight
    if y is not None:
        return x, y
    return (x,) if isinstance(x, (list, tuple)) else x


class BatchConversion:
    """Makes batches of what a source gives, as `to_batch` does.

    Two or three plain arrays are taken as they are where others of the same dtypes were.

    Args:
        class_weight: weight of each class, or None.
    """

    def __init__(self, class_weight: Mapping[Any, Any] | None = None) -> None:
        self._class_weight = class_weight
        self._plain: tuple[Any, ...] | None = None  # dtypes that need no conversion

    def __call__(self, data: Structure, place: str) -> Batch:
        """Return (x, y, sample_weight) of NumPy arrays.

        Args:
            data: what the source gave.
            place: its origin, for errors.
        """
        kinds = _kinds(data)
        if kinds is not None and kinds == self._plain:
            return data if len(data) == 3 else (*data, None)
        batch = to_batch(data, place, self._class_weight)
        if kinds is not None and all(a is b for a, b in zip(batch, (*data, None))):
            self._plain = kinds
        return batch


def _kinds(data: Structure) -> tuple[Any, ...] | None:
    """Return the dtypes of two or three arrays of equally many rows; None for anything else."""
    if type(data) is not tuple or not 2 <= len(data) <= 3:
        return None
    for array in data:
        if type(array) is not np.ndarray or not array.ndim or len(array) != len(data[0]):
            return None
    return config.floatx(), *[array.dtype for array in data]


def to_batch(data: Structure, place: str, class_weight: Structure = None) -> Batch:
    """Return (x, y, sample_weight) of NumPy arrays from a batch that user code made.

    Args:
        data: what the generator, data set or loader gave.
        place: its origin, for errors: "batch 3 of the generator".
        class_weight: weight of each class, or None.

    Raises:
        ValueError: wrong number of parts, no arrays, or parts with unequal numbers of rows.
    """
    if not isinstance(data, (tuple, list)):
        data = (data,)
    if not 1 <= len(data) <= 3:
        raise ValueError(
            f"{place}: expected (x,), (x, y) or (x, y, sample_weight), got "
            f"{type(data).__name__} of {len(data)} parts."
        )
    if data[0] is None:
        raise ValueError(f"{place}: expected x to be an array or a structure of arrays, got None.")
    x, y, sample_weight = (
        map_leaves(part, lambda leaf, name: _leaf(leaf, name, place), name)
        for name, part in zip(("x", "y", "sample_weight"), (*data, None, None))
    )
    _check_rows((x, y, sample_weight), place)
    if class_weight is not None:
        sample_weight = combine(sample_weight, class_weights_of(y, class_weight))
    return x, y, sample_weight


def _leaf(leaf: Any, name: str, place: str) -> Array:
    return to_array(leaf, f"{place}: {name}", strings=name.startswith("x"))


def _check_rows(batch: Batch, place: str) -> None:
    counts = {leaf.shape[0] for leaf in tree.flatten(batch) if leaf is not None and leaf.ndim}
    if len(counts) > 1:
        raise ValueError(f"{place}: expected equal numbers of rows, got {row_counts(batch)}.")


def row_counts(batch: Batch) -> str:
    """Return the number of rows of every array in words: "x: 4, y['a']: 5"."""
    named: list[str] = []
    for part, structure in zip(("x", "y", "sample_weight"), batch):
        for path, leaf in tree.flatten_with_path(structure):
            if leaf is not None and leaf.shape:
                keys = "".join(f"[{key!r}]" for key in path)
                named.append(f"{part}{keys}: {leaf.shape[0]}")
    return ", ".join(named)
