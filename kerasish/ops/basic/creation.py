"""Ops that make tensors out of nothing: full, arange; and what is composed of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kerasish.errors import ShapeError
from kerasish.ops import dtypes
from kerasish.ops.basic.arithmetic import add
from kerasish.ops.basic.comparison import equal, greater_equal
from kerasish.ops.basic.conversion import cast, stop_gradient
from kerasish.ops.basic.movement import broadcast_to, reshape, sizes
from kerasish.ops.op import function, op
from kerasish.ops.shapes import Shape, Spec
from kerasish.typing import Array, ArrayModule, DTypeLike, ScalarLike, ShapeLike, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = [
    "arange", "empty", "empty_like", "eye", "full", "full_like", "identity", "ones",
    "ones_like", "tri", "zeros", "zeros_like",
]  # fmt: skip


def _fill_canonical(shapes: list[Shape], attrs: dict[str, Any]) -> dict[str, Any]:
    shape = sizes(attrs["shape"], "full")
    if any(s is None or s < 0 for s in shape):
        raise ShapeError(f"full: the sizes must be known and >= 0, got {shape}.")
    value = attrs["value"]
    return {
        "shape": shape,
        "value": value.item() if hasattr(value, "item") else value,
        "dtype": dtypes.name_of(attrs["dtype"]),
    }


@op(
    "creation",
    lambda shape, value, dtype: Spec(shape, dtype),
    None,
    canonical=_fill_canonical,
    examples=[
        ((), {"shape": (2, 3), "value": 1.5}),
        ((), {"shape": (), "value": 1, "dtype": "int32"}),
    ],
    repeats=True,
)
def fill(xp: ArrayModule, *, shape: ShapeLike, value: Any, dtype: DTypeLike | None = None) -> Array:
    """A tensor of `shape` whose elements are all the number `value`."""
    return xp.full(shape, value, dtype=dtypes.array_dtype(dtype))


def _range_canonical(shapes: list[Shape], attrs: dict[str, Any]) -> dict[str, Any]:
    start, stop, step = attrs["start"], attrs["stop"], attrs["step"]
    dtype = attrs["dtype"]
    if dtype is None:
        floating = any(isinstance(v, float) for v in (start, stop, step))
        dtype = float if floating else "int32"
    return {"start": start, "stop": stop, "step": step, "dtype": dtypes.name_of(dtype)}


def _range_shape(start: float, stop: float, step: float, dtype: str) -> Spec:
    return Spec((max(0, math.ceil((stop - start) / step)),), dtype)


@op(
    "creation",
    _range_shape,
    None,
    canonical=_range_canonical,
    examples=[((), {"start": 0, "stop": 5}), ((), {"start": 1.0, "stop": 2.0, "step": 0.25})],
)
def count_up(
    xp: ArrayModule, *, start: Any, stop: Any, step: Any = 1, dtype: DTypeLike | None = None
) -> Array:
    """The numbers start, start + step, ... below stop."""
    return xp.arange(start, stop, step, dtype=dtypes.array_dtype(dtype))


def _number(x: Any) -> Any:
    return x.item() if hasattr(x, "item") else x


def full(shape: ShapeLike, fill_value: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Return a tensor of `shape` filled with `fill_value` (a number, or what broadcasts to it).

    Args:
        shape: shape of the result: integers.
        fill_value: a number, or a tensor that broadcasts to the shape.
        dtype: dtype of the result; None: chosen by the inputs.

    Example:
        >>> full((2, 2), 7).tolist()
        [[7.0, 7.0], [7.0, 7.0]]
    """
    if isinstance(fill_value, (bool, int, float)):
        return fill(sizes(shape, "full"), fill_value, dtype)
    return cast(broadcast_to(fill_value, sizes(shape, "full")), dtypes.name_of(dtype))


def zeros(shape: ShapeLike, dtype: DTypeLike | None = None) -> Tensor:
    """Return zeros of `shape`.

    Args:
        shape: shape of the result: integers.
        dtype: dtype of the result; None: chosen by the inputs.

    Example:
        >>> zeros((2,)).tolist()
        [0.0, 0.0]
    """
    return fill(sizes(shape, "zeros"), 0, dtype)


def ones(shape: ShapeLike, dtype: DTypeLike | None = None) -> Tensor:
    """Return ones of `shape`.

    Args:
        shape: shape of the result: integers.
        dtype: dtype of the result; None: chosen by the inputs.

    Example:
        >>> ones((2,), "int32").tolist()
        [1, 1]
    """
    return fill(sizes(shape, "ones"), 1, dtype)


def empty(shape: ShapeLike, dtype: DTypeLike | None = None) -> Tensor:
    """Return a tensor of `shape` whose numbers do not matter (they are zeros).

    Args:
        shape: shape of the result: integers.
        dtype: dtype of the result; None: chosen by the inputs.

    Example:
        >>> empty((2, 3)).shape
        (2, 3)
    """
    return zeros(shape, dtype)


@function
def zeros_like(x: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Return zeros of x's shape, and of its dtype unless another is given.

    Args:
        x: tensor or array.
        dtype: dtype of the result; None: chosen by the inputs.

    Example:
        >>> zeros_like([1.0, 2.0]).tolist()
        [0.0, 0.0]
    """
    return full_like(x, 0, dtype)


@function
def ones_like(x: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Return ones of x's shape, and of its dtype unless another is given.

    Args:
        x: tensor or array.
        dtype: dtype of the result; None: chosen by the inputs.

    Example:
        >>> ones_like([1.0, 2.0]).tolist()
        [1.0, 1.0]
    """
    return full_like(x, 1, dtype)


@function
def empty_like(x: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Return a tensor of x's shape whose numbers do not matter (they are zeros).

    Args:
        x: tensor or array.
        dtype: dtype of the result; None: chosen by the inputs.

    Example:
        >>> empty_like([[1.0, 2.0]]).shape
        (1, 2)
    """
    return full_like(x, 0, dtype)


@function
def full_like(x: TensorLike, fill_value: float, dtype: DTypeLike | None = None) -> Tensor:
    """Return `fill_value` in x's shape, and in its dtype unless another is given.

    Args:
        x: tensor or array.
        fill_value: a number, or a tensor that broadcasts to the shape.
        dtype: dtype of the result; None: chosen by the inputs.

    Example:
        >>> full_like([1.0, 2.0], 7.0).tolist()
        [7.0, 7.0]
    """
    x = x if hasattr(x, "shape") and hasattr(x, "dtype") else stop_gradient(x)  # a tensor of it
    return full(tuple(x.shape), fill_value, dtypes.name_of(dtype or x.dtype))


def arange(
    start: ScalarLike,
    stop: ScalarLike | None = None,
    step: ScalarLike | None = None,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Return the numbers from `start` up to but without `stop`, `step` apart.

    Args:
        start: first number; if `stop` is None, the bound.
        stop: the bound, which is not reached; None: `start` is the bound, and 0 the start.
        step: difference of neighbors, not 0; None: 1.
        dtype: dtype of the result; None: chosen by the inputs.

    Example:
        >>> arange(3).tolist(), arange(1, 2, 0.5).tolist()
        ([0, 1, 2], [1.0, 1.5])
    """
    if start is None:
        raise TypeError("arange: a number was expected for start, got None.")
    start, stop, step = (_number(v) for v in (start, stop, step))
    if stop is None:
        start, stop = 0, start
    return count_up(start, stop, 1 if step is None else step, dtype)


def unsized(shape: Shape, dtype: str) -> Tensor:
    """Return a tensor of `shape` without numbers, for shape inference; None: any size."""
    return broadcast_to(fill((1,) * len(shape), 0, dtype), shape)


def tri(N: int, M: int | None = None, k: int = 0, dtype: DTypeLike | None = None) -> Tensor:  # noqa: N803
    """Return ones on and below the k-th diagonal of an (N, M) matrix, zeros above.

    Args:
        N: number of rows, >= 0.
        M: number of columns; None: N.
        k: the diagonal: 0 the main one, above it > 0, below it < 0.
        dtype: dtype of the result; None: chosen by the inputs.

    Example:
        >>> tri(2).tolist()
        [[1.0, 0.0], [1.0, 1.0]]
    """
    rows, columns = reshape(arange(N), (-1, 1)), arange(N if M is None else M)
    return cast(greater_equal(add(rows, k), columns), dtypes.name_of(dtype))


def eye(N: int, M: int | None = None, k: int = 0, dtype: DTypeLike | None = None) -> Tensor:  # noqa: N803
    """Return ones on the k-th diagonal of an (N, M) matrix, zeros elsewhere.

    Args:
        N: number of rows, >= 0.
        M: number of columns; None: N.
        k: the diagonal: 0 the main one, above it > 0, below it < 0.
        dtype: dtype of the result; None: chosen by the inputs.

    Example:
        >>> eye(2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    if any(isinstance(size, float) for size in (N, M, k)):
        raise TypeError(f"eye: integers were expected, got {N!r}, {M!r} and k={k!r}.")
    rows, columns = reshape(arange(N), (-1, 1)), arange(N if M is None else M)
    return cast(equal(add(rows, k), columns), dtypes.name_of(dtype))


def identity(n: int, dtype: DTypeLike | None = None) -> Tensor:
    """Return the (n, n) identity matrix.

    Args:
        n: number of rows and columns.
        dtype: dtype of the result; None: chosen by the inputs.

    Example:
        >>> identity(2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    return eye(n, dtype=dtype)
