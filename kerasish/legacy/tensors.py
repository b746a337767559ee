"""Making, reading, reshaping and assigning tensors and variables, as in Keras 2's backend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish import config, ops, random
from kerasish.tensor import Tensor, Variable, to_numpy
from kerasish.typing import AnyTensor, Array, TensorLike


def arange(
    start: float, stop: float | None = None, step: float = 1, dtype: str = "int32"
) -> Tensor:
    """Return start, start + step, ... below `stop`; with one argument, from 0 to below it.

    Example:
        >>> arange(3).tolist()
        [0, 1, 2]
    """
    first, last = (0, start) if stop is None else (start, stop)
    return ops.arange(first, last, step, dtype=dtype)


def batch_flatten(x: TensorLike) -> Tensor:
    """Return x (n, ...) as (n, size of a sample).

    Example:
        >>> batch_flatten(ops.ones((2, 3, 4))).shape
        (2, 12)
    """
    x = ops.convert_to_tensor(x)
    return ops.reshape(x, (-1, math.prod(x.shape[1:])))


def batch_get_value(tensors: Sequence[AnyTensor]) -> list[Array]:
    """Return the numbers of several tensors or variables as arrays.

    Example:
        >>> batch_get_value([ops.ones(2)])[0].tolist()
        [1.0, 1.0]
    """
    return [get_value(x) for x in tensors]


def batch_set_value(tuples: Sequence[tuple[Variable, Any]]) -> None:
    """Assign several variables, given as (variable, value) pairs.

    Example:
        >>> v = variable(0.0)
        >>> batch_set_value([(v, 2.0)])
        >>> float(v)
        2.0
    """
    for x, value in tuples:
        x.assign(value)


def cast_to_floatx(x: TensorLike) -> Any:
    """Return x in the default float dtype: an array for an array, else a tensor.

    Example:
        >>> cast_to_floatx(np.array([1, 2])).dtype
        dtype('float32')
    """
    if isinstance(x, np.ndarray):
        return x.astype(config.floatx())
    return ops.cast(x, config.floatx())


def concatenate(tensors: Sequence[TensorLike], axis: int = -1) -> Tensor:
    """Return tensors joined along an axis.

    Example:
        >>> concatenate([[[1]], [[2]]]).tolist()
        [[1, 2]]
    """
    return ops.concatenate(tensors, axis)


def constant(
    value: TensorLike, dtype: str | None = None, shape: Sequence[int] | None = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """Return a tensor of given numbers.

    Args:
        value: a number or an array.
        dtype: None: the default float dtype.
        shape: the shape that a number is repeated to; None: the value's.
        name: kept for programs that give one.

    Example:
        >>> constant(2.0, shape=(2,)).tolist()
        [2.0, 2.0]
    """
    x = ops.convert_to_tensor(value, dtype or config.floatx())
    return x if shape is None else ops.broadcast_to(x, tuple(shape))


def count_params(x: AnyTensor) -> int:
    """Return the number of elements.

    Example:
        >>> count_params(ops.ones((2, 3)))
        6
    """
    return math.prod(x.shape)


def dtype(x: AnyTensor) -> str:
    """Return the name of x's dtype.

    Example:
        >>> dtype(ops.ones(2))
        'float32'
    """
    return str(x.dtype)


def eval(x: AnyTensor) -> Array:
    """Return the numbers of a tensor or a variable as an array.

    Example:
        >>> eval(ops.ones(2)).tolist()
        [1.0, 1.0]
    """
    return to_numpy(ops.convert_to_tensor(x))


get_value = eval


def expand_dims(x: TensorLike, axis: int = -1) -> Tensor:
    """Return x with an axis of size 1.

    Example:
        >>> expand_dims([1, 2]).shape
        (2, 1)
    """
    return ops.expand_dims(x, axis)


def flatten(x: TensorLike) -> Tensor:
    """Return all elements along one axis.

    Example:
        >>> flatten([[1, 2], [3, 4]]).tolist()
        [1, 2, 3, 4]
    """
    return ops.reshape(x, (-1,))


def gather(reference: TensorLike, indices: TensorLike) -> Tensor:
    """Return the rows of `reference` at some indices.

    Example:
        >>> gather([10, 20, 30], [2, 0]).tolist()
        [30, 10]
    """
    return ops.take(reference, indices, axis=0)


def int_shape(x: AnyTensor) -> tuple[int | None, ...] | None:
    """Return the shape as a tuple; None where x has none.

    Example:
        >>> import kerasish
        >>> int_shape(kerasish.Input((3,)))
        (None, 3)
    """
    return tuple(x.shape) if hasattr(x, "shape") else None


def is_sparse(tensor: Any) -> bool:
    """Return whether a tensor keeps only its entries that are not 0.

    Example:
        >>> is_sparse(ops.ones(2))
        False
    """
    return bool(getattr(tensor, "sparse", False))


def ndim(x: AnyTensor) -> int:
    """Return the number of axes.

    Example:
        >>> ndim(ops.ones((2, 3)))
        2
    """
    return len(x.shape)


def ones(shape: Any, dtype: str | None = None, name: str | None = None) -> Tensor:
    """Return a tensor of ones.

    Example:
        >>> ones((2,)).tolist()
        [1.0, 1.0]
    """
    return ops.ones(shape, dtype or config.floatx())


def zeros(shape: Any, dtype: str | None = None, name: str | None = None) -> Tensor:
    """Return a tensor of zeros.

    Example:
        >>> zeros((2,)).tolist()
        [0.0, 0.0]
    """
    return ops.zeros(shape, dtype or config.floatx())


def permute_dimensions(x: TensorLike, pattern: Sequence[int]) -> Tensor:
    """Return x with its axes in another order.

    Example:
        >>> permute_dimensions(ops.ones((2, 3)), (1, 0)).shape
        (3, 2)
    """
    return ops.transpose(x, tuple(pattern))


def random_normal(
    shape: Any, mean: float = 0.0, stddev: float = 1.0, dtype: str | None = None,
    seed: int | None = None,
) -> Tensor:  # fmt: skip
    """Return numbers of a normal distribution.

    Example:
        >>> random_normal((2, 3)).shape
        (2, 3)
    """
    return random.normal(shape, mean, stddev, dtype, seed)


def random_uniform(
    shape: Any, minval: float = 0.0, maxval: float = 1.0, dtype: str | None = None,
    seed: int | None = None,
) -> Tensor:  # fmt: skip
    """Return numbers of a uniform distribution.

    Example:
        >>> random_uniform((2, 3)).shape
        (2, 3)
    """
    return random.uniform(shape, minval, maxval, dtype, seed)


def random_bernoulli(
    shape: Any, p: float = 0.0, dtype: str | None = None, seed: int | None = None
) -> Tensor:
    """Return ones with the probability p, else zeros.

    Example:
        >>> random_bernoulli((2,), 1.0).tolist()
        [1.0, 1.0]
    """
    return ops.cast(ops.less(random.uniform(shape, seed=seed), p), dtype or config.floatx())


def truncated_normal(
    shape: Any, mean: float = 0.0, stddev: float = 1.0, dtype: str | None = None,
    seed: int | None = None,
) -> Tensor:  # fmt: skip
    """Return numbers of a normal distribution within two standard deviations.

    Example:
        >>> truncated_normal((2, 3)).shape
        (2, 3)
    """
    return random.truncated_normal(shape, mean, stddev, dtype, seed)


def repeat(x: TensorLike, n: int) -> Tensor:
    """Return x (samples, features) repeated n times: (samples, n, features).

    Example:
        >>> repeat([[1, 2]], 2).tolist()
        [[[1, 2], [1, 2]]]
    """
    return ops.repeat(ops.expand_dims(x, 1), n, axis=1)


def repeat_elements(x: TensorLike, rep: int, axis: int) -> Tensor:
    """Return x with each element along an axis repeated.

    Example:
        >>> repeat_elements([1, 2], 2, 0).tolist()
        [1, 1, 2, 2]
    """
    return ops.repeat(x, rep, axis=axis)


def reshape(x: TensorLike, shape: Sequence[int]) -> Tensor:
    """Return x's elements in another shape.

    Example:
        >>> reshape([1, 2], (2, 1)).shape
        (2, 1)
    """
    return ops.reshape(x, tuple(shape))


def reverse(x: TensorLike, axes: int | Sequence[int]) -> Tensor:
    """Return x with the order along some axes reversed.

    Example:
        >>> reverse([1, 2, 3], 0).tolist()
        [3, 2, 1]
    """
    return ops.flip(x, axes)


def set_value(x: Variable, value: TensorLike) -> None:
    """Assign a variable.

    Example:
        >>> v = variable(0.0)
        >>> set_value(v, 3.0)
        >>> float(v)
        3.0
    """
    x.assign(value)


def shape(x: TensorLike) -> Any:
    """Return the shape: a tuple, whose sizes are tensors where they are not known.

    Example:
        >>> shape([[1, 2]])
        (1, 2)
    """
    return ops.shape(x)


def to_dense(tensor: Any) -> Any:
    """Return a tensor with all its entries.

    Example:
        >>> to_dense(ops.ones(2)).tolist()
        [1.0, 1.0]
    """
    return tensor.todense() if is_sparse(tensor) else tensor


def update(x: Variable, new_x: TensorLike) -> Variable:
    """Assign a variable, and return it.

    Example:
        >>> float(update(variable(1.0), 5.0))
        5.0
    """
    x.assign(new_x)
    return x


def update_add(x: Variable, increment: TensorLike) -> Variable:
    """Add to a variable, and return it.

    Example:
        >>> float(update_add(variable(1.0), 5.0))
        6.0
    """
    x.assign_add(ops.convert_to_tensor(increment))
    return x


def update_sub(x: Variable, decrement: TensorLike) -> Variable:
    """Subtract from a variable, and return it.

    Example:
        >>> float(update_sub(variable(1.0), 5.0))
        -4.0
    """
    x.assign_sub(ops.convert_to_tensor(decrement))
    return x


def variable(
    value: TensorLike, dtype: str | None = None, name: str | None = None, constraint: Any = None
) -> Variable:
    """Return a variable with a value.

    Args:
        value: a number or an array.
        dtype: None: the default float dtype.
        name: the last part of its path; None: one is made.
        constraint: what is applied after each update; None: nothing.

    Example:
        >>> variable([1, 2]).dtype
        'float32'
    """
    result = Variable(np.asarray(value), dtype=dtype or config.floatx(), name=name)
    if constraint is not None:
        result.constraint = constraint
    return result
