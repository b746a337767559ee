"""Indices as rows of ones or counts: "one_hot", "multi_hot", "count"; and CategoryEncoding."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish import ops
from kerasish.engine.layer.layer import Layer
from kerasish.errors import UnknownNameError
from kerasish.layers.options import LayerOptions
from kerasish.signatures import Unpack
from kerasish.tensor import Tensor
from kerasish.typing import Array, Shape, TensorLike


def check_mode(who: str, mode: str, known: tuple[str, ...]) -> None:
    """Raise ValueError unless `mode` is among the known ones."""
    if mode not in known:
        raise UnknownNameError.of(f"{who}: output_mode", mode, known)


def refuse_sparse(who: str, sparse: bool) -> None:
    """Raise ValueError where a sparse result is asked for."""
    if sparse:
        raise ValueError(f"{who}: sparse=True is not supported; results are dense.")


def encoded_shape(shape: Shape, depth: int | None, mode: str) -> tuple[Any, ...]:
    """Return the shape of `encode`'s result for indices of a shape."""
    if mode == "int":
        return tuple(shape)
    if mode == "one_hot":
        kept = shape[:-1] if shape and shape[-1] == 1 else shape
        return (*kept, depth) if shape else (1, depth)
    return (*shape[:-1], depth)


def encode(indices: Tensor, depth: int, mode: str, dtype: str, weights: Array = None) -> Tensor:
    """Return one-hot rows, or what occurs (multi_hot) or how often (count) along the last axis.

    Args:
        indices: an integer tensor; those outside 0 <= index < depth count nowhere.
        depth: number of categories.
        mode: "int" (as they are), "one_hot", "multi_hot", "count".
        dtype: the result's dtype.
        weights: of a shape with the indices: what each adds to a count, instead of 1.
    """
    if mode == "int":
        return ops.cast(indices, dtype)
    if not indices.shape:
        indices = ops.reshape(indices, (1,))
        weights = None if weights is None else ops.reshape(weights, (1,))
    elif mode == "one_hot" and indices.shape[-1] == 1:
        indices = ops.squeeze(indices, -1)
    hot = ops.one_hot(indices, depth, dtype=dtype)
    if mode == "one_hot":
        return hot
    if mode == "multi_hot":
        return ops.max(hot, axis=-2)
    if weights is not None:
        hot = ops.multiply(hot, ops.expand_dims(ops.cast(weights, dtype), -1))
    return ops.sum(hot, axis=-2)


def encode_array(indices: Array, depth: int, mode: str, dtype: str) -> Array:
    """Return `encode` of a NumPy array of int64, in memory for many categories, too.

    Negative indices count nowhere.
    """
    if mode == "int":
        return indices
    shape = encoded_shape(indices.shape, depth, mode)
    length = 1 if mode == "one_hot" else (indices.shape or (1,))[-1]
    count = indices.size // max(length, 1) if length else int(np.prod(indices.shape[:-1]))
    rows = np.repeat(np.arange(count), length)
    return count_in_rows(indices.ravel(), rows, count, depth, mode, dtype).reshape(shape)


def count_in_rows(
    numbers: Array, rows: Array, count: int, depth: int, mode: str, dtype: str
) -> Array:
    """Return how often each number occurs in each row, or (multi_hot) whether it does.

    Args:
        numbers: integers below `depth`; negative ones count nowhere.
        rows: the row of each of them.
        count: number of rows.
        depth: number of categories.

    Shape: (count, depth)
    """
    if numbers.size and numbers.max() >= depth:
        raise ValueError(f"Expected indices below {depth}, got {numbers.max()}.")
    places = (rows * depth + numbers)[numbers >= 0]
    if mode == "multi_hot":
        result = np.zeros(count * depth, dtype)
        result[places] = 1
    else:
        result = np.bincount(places, minlength=count * depth).astype(dtype, copy=False)
    return result.reshape(count, depth)


class CategoryEncoding(Layer):
    """Integer categories as vectors: one-hot, or what occurs in a row, or how often.

    Args:
        num_tokens: number of categories, >= 1; integers outside 0 <= x < num_tokens count nowhere;
            None is an error.
        output_mode: "one_hot" (a last axis of size 1 is replaced by the vector), "multi_hot" or
            "count" (over the last axis).
        sparse: must be false; accepted for compatibility with Keras.

    Shape: (..., length) -> (..., num_tokens); one_hot (..., length) -> (..., length, num_tokens).

    Example:
        >>> CategoryEncoding(3)([[0, 1], [2, 2]]).numpy().tolist()
        [[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """

    example = {"args": {"num_tokens": 4}, "shape": (2, 3), "dtype": "int32", "high": 4}

    def __init__(
        self, num_tokens: int | None = None, output_mode: str = "multi_hot", sparse: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        who = self.display_name()
        if num_tokens is None:
            raise ValueError(
                f"{who}: num_tokens must be given; where it is not known, use IntegerLookup."
            )
        if num_tokens < 1:
            raise ValueError(f"{who}: num_tokens is a number >= 1, got {num_tokens!r}.")
        output_mode = "multi_hot" if output_mode == "binary" else output_mode
        check_mode(who, output_mode, ("one_hot", "multi_hot", "count"))
        refuse_sparse(who, sparse)
        self.num_tokens, self.output_mode, self.sparse = num_tokens, output_mode, sparse
        self.autocast = False  # categories stay what they are

    def call(self, inputs: Tensor, count_weights: TensorLike | None = None) -> Tensor:
        """Encode."""
        if count_weights is not None and self.output_mode != "count":
            raise ValueError(
                f"{self.display_name()}: count_weights go with output_mode='count', not with "
                f"{self.output_mode!r}."
            )
        indices = ops.cast(inputs, "int32")
        return encode(indices, self.num_tokens, self.output_mode, self.compute_dtype, count_weights)
