"""Sequences of different lengths: one flat array and the place where each row starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kerasish.engine.data.convert import to_array
from kerasish.typing import Array, Structure

_NESTED = (list, tuple, np.ndarray)


class Ragged:
    """Rows of different lengths, as `fit`, `evaluate` and `predict` take them.

    A list of lists or arrays of different lengths becomes one by itself; a `Ragged` says so where
    the lengths may all be equal, or where a list could mean several inputs.

    Args:
        rows: sequences, each of shape (length, ...), numbers; lengths >= 0.
        name: how errors call them.

    Raises:
        ValueError: there is no row, or rows differ in more than their lengths.

    Example:
        >>> Ragged([[1, 2, 3], [4]]).lengths.tolist()
        [3, 1]
    """

    def __init__(self, rows: Sequence[Any], name: str = "x") -> None:
        if not len(rows):
            raise ValueError(f"{name}: expected at least one sequence, got none.")
        lengths = [_length(row, i, name) for i, row in enumerate(rows)]
        parts = [row for row in rows if len(row)]
        self.name = name
        self.values = _joined(parts, name)
        self.starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)

    @classmethod
    def of_parts(cls, values: Array, starts: Array, name: str = "x") -> Ragged:
        """Return rows from all steps in one array, and where each row starts.

        Args:
            values: (steps of all rows, ...).
            starts: integers, (rows + 1,), increasing; the last is the number of steps.
            name: how errors call them.

        Example:
            >>> Ragged.of_parts(np.arange(3), np.array([0, 2, 3]))[0].tolist()
            [0, 1]
        """
        result = cls.__new__(cls)
        result.values, result.starts, result.name = values, np.asarray(starts, np.int64), name
        return result

    @property
    def lengths(self) -> Array:
        """The number of steps of each row."""
        return np.diff(self.starts)

    @property
    def shape(self) -> tuple[Any, ...]:
        """(rows, None, ...)."""
        return (len(self), None, *self.values.shape[1:])

    @property
    def dtype(self) -> Any:
        """The dtype of the steps."""
        return self.values.dtype

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, key: Any) -> Any:
        """Return a row, or the rows of a slice."""
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step == 1:
                low, high = self.starts[start], self.starts[max(start, stop)]
                starts = self.starts[start : max(start, stop) + 1] - low
                return Ragged.of_parts(self.values[low:high], starts, self.name)
            key = np.arange(start, stop, step)
        if isinstance(key, np.ndarray):
            return Ragged([self[int(i)] for i in key], self.name)
        key = range(len(self))[key]
        return self.values[self.starts[key] : self.starts[key + 1]]

    def padded(self, rows: Array, bound: int) -> Array:
        """Return some rows as one array, with zeros behind the end of each.

        Args:
            rows: their indices.
            bound: the length of the result's rows; none may be longer.
        """
        lengths = self.lengths[rows]
        steps = np.arange(bound)
        real = steps < lengths[:, None]
        result = np.zeros((len(rows), bound, *self.values.shape[1:]), self.values.dtype)
        result[real] = self.values[(self.starts[rows][:, None] + steps)[real]]
        return result


def _length(row: Any, index: int, name: str) -> int:
    if not hasattr(row, "__len__") or isinstance(row, (str, bytes, Mapping)):
        raise ValueError(
            f"{name}: expected sequences of numbers, each a list or an array, got "
            f"{type(row).__name__} {row!r} as row {index}."
        )
    return len(row)


def _joined(parts: Sequence[Any], name: str) -> Array:
    if not parts:
        return np.zeros(0, "int32")
    if all(isinstance(part, (list, tuple)) for part in parts):
        flat = [step for part in parts for step in part]
        return to_array(flat, name)
    arrays = [np.asarray(to_array(part, name)) for part in parts]
    shapes = {a.shape[1:] for a in arrays}
    if len(shapes) > 1:
        raise ValueError(
            f"{name}: sequences may differ only in their lengths, got steps of the shapes "
            f"{sorted(shapes)}."
        )
    return np.concatenate(arrays)


def find_ragged(x: Structure, inputs: int | None, name: str = "x") -> Structure:
    """Return x with each list of sequences of different lengths as a `Ragged`.

    Args:
        x: what the user gave as x, y or sample_weight.
        inputs: the number of the model's inputs (or outputs); None: unknown.
        name: how errors call it.

    Example:
        >>> type(find_ragged([[1], [2, 3]], 1)).__name__, find_ragged([[1], [2]], 1)
        ('Ragged', [[1], [2]])
    """
    if isinstance(x, Mapping):
        return {k: _leaf(v, f"{name}[{k!r}]") for k, v in x.items()}
    if isinstance(x, (list, tuple)) and _is_structure(x, inputs):
        parts = [_leaf(part, f"{name}[{i}]") for i, part in enumerate(x)]
        if all(new is old for new, old in zip(parts, x)):
            return x
        return tuple(parts) if isinstance(x, tuple) else parts
    return _leaf(x, name, inputs == 1)


def _is_structure(x: Sequence[Any], inputs: int | None) -> bool:
    """Return whether a list or tuple holds the inputs of a model, rather than rows."""
    if any(isinstance(part, (Ragged, Mapping)) for part in x):
        return True
    if inputs is None:
        return isinstance(x, tuple) and len(x) > 0 and all(map(_holds_sequences, x))
    return inputs > 1 and len(x) == inputs or len(x) == 1 and isinstance(x[0], np.ndarray)


def _holds_sequences(x: Any) -> bool:
    if isinstance(x, np.ndarray) and x.dtype.kind != "O":
        return x.ndim > 1
    return isinstance(x, _NESTED) and len(x) > 0 and isinstance(x[0], _NESTED)


def _leaf(x: Any, name: str, one: bool = False) -> Any:
    """Return an input as it is, or as a `Ragged`; a list of arrays of equal length as an array."""
    if isinstance(x, np.ndarray):
        rows = x.dtype.kind == "O" and x.ndim == 1 and len(x) > 0
        if not (rows and all(isinstance(row, _NESTED) for row in x)):
            return x
        x = list(x)
        one = True
    if not isinstance(x, (list, tuple)) or not x or not isinstance(x[0], _NESTED):
        return x
    if not all(isinstance(row, _NESTED) and not _is_scalar(row) for row in x):
        return x
    lengths = {len(row) for row in x}
    if len(lengths) > 1:
        return Ragged(x, name)
    if one and len(x) > 1 and all(isinstance(row, np.ndarray) for row in x):
        return np.stack(x) if len({row.shape for row in x}) == 1 else x
    return x


def _is_scalar(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.ndim == 0
