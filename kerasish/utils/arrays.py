"""Preparation of NumPy arrays for a model: one-hot rows, unit vectors, padded sequences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kerasish import ops
from kerasish.ops import dtypes
from kerasish.tensor import Tensor, Variable
from kerasish.typing import AnyTensor, Array, TensorLike


def to_categorical(x: TensorLike, num_classes: int | None = None) -> AnyTensor:
    """Return one-hot rows: y[..., c] = 1 where x[...] = c, else 0.

    Args:
        x: class numbers, 0 <= x < num_classes.
        num_classes: the number of classes; None: the largest class number + 1.

    Shape:
        (n, ...) or (n, ..., 1) -> (n, ..., num_classes).

    Raises:
        ValueError: a class number outside 0 .. num_classes - 1.

    Example:
        >>> to_categorical([2, 0], num_classes=3)
        array([[0., 0., 1.],
               [1., 0., 0.]])
    """
    if isinstance(x, (Tensor, Variable)):
        count = int(ops.max(x)) + 1 if num_classes is None else num_classes
        return ops.one_hot(ops.squeeze(x, -1) if _is_column(x.shape) else x, count)
    classes = np.asarray(x).astype("int64")
    if _is_column(classes.shape):
        classes = classes[..., 0]
    if num_classes is None:
        num_classes = int(classes.max()) + 1 if classes.size else 0
    if classes.size and not 0 <= classes.min() <= classes.max() < num_classes:
        raise ValueError(
            f"to_categorical: expected classes from 0 to {num_classes - 1} (num_classes="
            f"{num_classes}), got values from {classes.min()} to {classes.max()}."
        )
    return np.eye(num_classes)[classes]


def _is_column(shape: Sequence[int]) -> bool:
    return len(shape) > 1 and shape[-1] == 1


def normalize(x: AnyTensor, axis: int = -1, order: int = 2) -> AnyTensor:
    """Return x / |x|, with the norm along `axis`; where it is 0, x is unchanged.

    Args:
        x: a NumPy array, for a NumPy result; or a tensor or list, for a tensor.
        axis: the axis of the vectors.
        order: the order of the norm: 2 for the Euclidean one.

    Example:
        >>> normalize(np.array([[3.0, 4.0]]))
        array([[0.6, 0.8]])
    """
    if isinstance(x, np.ndarray):
        norms = np.linalg.norm(np.atleast_1d(x), order, axis, keepdims=True)
        return np.atleast_1d(x) / np.where(norms == 0, 1, norms)
    powers = ops.sum(ops.power(ops.absolute(x), order), axis=axis, keepdims=True)
    norm = ops.power(powers, 1 / order)
    return ops.divide(x, ops.where(ops.equal(norm, 0), ops.ones_like(norm), norm))


def pad_sequences(
    sequences: Iterable[Any],
    maxlen: int | None = None,
    dtype: str = "int32",
    padding: str = "pre",
    truncating: str = "pre",
    value: str | float = 0.0,
) -> Array:
    """Return sequences as the rows of one array; shorter ones are padded, longer ones cut.

    Args:
        sequences: sequences of numbers, or of equally shaped arrays.
        maxlen: the length of all; None: that of the longest.
        dtype: the dtype of the result; object for strings of any length.
        padding: "pre" pads at the start, "post" at the end.
        truncating: "pre" drops the first entries, "post" the last.
        value: the padding value.

    Shape:
        n sequences of length l and shape (l, ...) -> (n, maxlen, ...).

    Raises:
        ValueError: a sequence has no length, entries have unequal shapes, or an argument is
            unknown.

    Example:
        >>> pad_sequences([[1], [2, 3, 4]], maxlen=2)
        array([[0, 1],
               [3, 4]], dtype=int32)
    """
    for name, word in (("padding", padding), ("truncating", truncating)):
        if word not in ("pre", "post"):
            raise ValueError(f"pad_sequences: {name} is 'pre' or 'post', got {word!r}.")
    rows = [_row(sequence, i) for i, sequence in enumerate(sequences)]
    longest = max((len(row) for row in rows), default=0) if maxlen is None else int(maxlen)
    if isinstance(value, str) and np.dtype(dtype).kind not in "OSU":
        raise ValueError(
            f"pad_sequences: value {value!r} needs dtype=object or a string dtype, got {dtype!r}."
        )
    inner = next((np.shape(row)[1:] for row in rows if len(row)), ())
    target = dtypes.array_dtype(dtype) if isinstance(dtype, str) else dtype
    padded = np.full((len(rows), longest, *inner), value, dtype=target)
    for i, row in enumerate(rows):
        if not len(row) or not longest:
            continue
        kept = np.asarray(row[-longest:] if truncating == "pre" else row[:longest], dtype=target)
        if kept.shape[1:] != inner:
            raise ValueError(
                f"pad_sequences: sequence {i} has entries of shape {kept.shape[1:]}, those before "
                f"{inner}."
            )
        place = slice(None, len(kept)) if padding == "post" else slice(-len(kept), None)
        padded[i, place] = kept
    return padded


def _row(sequence: int | Sequence[Any], index: int) -> Any:
    if not hasattr(sequence, "__len__"):
        raise ValueError(
            f"pad_sequences: expected a list of sequences, got {sequence!r} at place {index}."
        )
    return sequence
