"""Computing with tensors, as in Keras 2's backend."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from kerasish import activations, config, ops, random
from kerasish.errors import ShapeError
from kerasish.tensor import Tensor, Variable
from kerasish.typing import TensorLike


def argmax(x: TensorLike, axis: int = -1) -> Tensor:
    """Return the indices of the largest numbers along an axis.

    Example:
        >>> argmax([[1, 3, 2]]).tolist()
        [1]
    """
    return ops.argmax(x, axis)


def argmin(x: TensorLike, axis: int = -1) -> Tensor:
    """Return the indices of the smallest numbers along an axis.

    Example:
        >>> argmin([[1, 3, 0]]).tolist()
        [2]
    """
    return ops.argmin(x, axis)


def batch_dot(x: TensorLike, y: TensorLike, axes: Any = None) -> Tensor:
    """Return, for each sample, the sum of products over one axis of x and one of y.

    Args:
        x, y: tensors (n, ...), of at least 2 axes.
        axes: one axis of each, or one number for both; None: the last of x, and of y the one before
            the last (the last, where y has 2 axes).

    Example:
        >>> batch_dot(ops.ones((2, 3, 4)), ops.ones((2, 4, 5))).shape
        (2, 3, 5)
    """
    x, y = ops.convert_to_tensor(x), ops.convert_to_tensor(y)
    rank, other = len(x.shape), len(y.shape)
    if rank < 2 or other < 2:
        raise ShapeError(f"batch_dot: at least 2 axes, got shapes {x.shape} and {y.shape}.")
    if axes is None:
        axes = (rank - 1, other - 1 if other == 2 else other - 2)
    first, second = (axes, axes) if isinstance(axes, int) else axes
    x = ops.moveaxis(x, first % rank, -1)
    y = ops.moveaxis(y, second % other, 1)
    rows, columns = x.shape[1:-1], y.shape[2:]
    x = ops.reshape(x, (-1, math.prod(rows), x.shape[-1]))
    y = ops.reshape(y, (-1, y.shape[1], math.prod(columns)))
    return ops.reshape(ops.matmul(x, y), (-1, *(rows + columns or (1,))))


def bias_add(x: TensorLike, bias: TensorLike, data_format: str | None = None) -> Tensor:
    """Return x plus a vector along the axis of channels.

    Args:
        x: tensor (n, ..., channels), or (n, channels, ...) with "channels_first".
        bias: tensor (channels,).
        data_format: "channels_last" or "channels_first"; None: `image_data_format()`.

    Example:
        >>> bias_add([[1.0, 2.0]], [10.0, 20.0]).tolist()
        [[11.0, 22.0]]
    """
    x, bias = ops.convert_to_tensor(x), ops.convert_to_tensor(bias)
    if (data_format or config.image_data_format()) == "channels_first":
        bias = ops.reshape(bias, (-1, *[1] * (len(x.shape) - 2)))
    return ops.add(x, bias)


def binary_crossentropy(
    target: TensorLike, output: TensorLike, from_logits: bool = False
) -> Tensor:
    """Return `ops.binary_crossentropy(target, output, from_logits)`, element by element.

    Example:
        >>> binary_crossentropy([1.0], [1.0]).tolist()[0] < 1e-6
        True
    """
    return ops.binary_crossentropy(target, output, from_logits)


def categorical_crossentropy(
    target: TensorLike, output: TensorLike, from_logits: bool = False, axis: int = -1
) -> Tensor:
    """Return `ops.categorical_crossentropy(target, output, from_logits, axis)`.

    Example:
        >>> categorical_crossentropy([[0.0, 1.0]], [[0.5, 0.5]]).shape
        (1,)
    """
    return ops.categorical_crossentropy(target, output, from_logits, axis)


def sparse_categorical_crossentropy(
    target: TensorLike, output: TensorLike, from_logits: bool = False, axis: int = -1
) -> Tensor:
    """Return `ops.sparse_categorical_crossentropy(target, output, from_logits, axis)`.

    Example:
        >>> sparse_categorical_crossentropy([1], [[0.5, 0.5]]).shape
        (1,)
    """
    return ops.sparse_categorical_crossentropy(target, output, from_logits, axis)


def dropout(
    x: TensorLike, level: float, noise_shape: Sequence[int] | None = None, seed: int | None = None
) -> Tensor:
    """Return x with a share of its elements set to 0, the others scaled up.

    Example:
        >>> dropout(ops.ones((2,)), 0.0).tolist()
        [1.0, 1.0]
    """
    return random.dropout(x, level, noise_shape, seed)


def foldl(
    fn: Callable[[Any, Any], Any],
    elems: TensorLike,
    initializer: Any = None,
    name: str | None = None,
) -> Any:
    """Return fn(...fn(fn(initializer, elems[0]), elems[1])..., elems[-1]).

    Args:
        fn: function (value, element) -> value.
        elems: tensor (n, ...).
        initializer: the first value; None: elems[0], and the rest follows.
        name: kept for programs that give one.

    Example:
        >>> float(foldl(lambda a, x: a + x, [1.0, 2.0, 3.0]))
        6.0
    """
    elems = ops.convert_to_tensor(elems)
    if initializer is None:
        initializer, elems = elems[0], elems[1:]
    return ops.scan(lambda value, x: (fn(value, x), None), initializer, elems)[0]


def foldr(
    fn: Callable[[Any, Any], Any],
    elems: TensorLike,
    initializer: Any = None,
    name: str | None = None,
) -> Any:
    """Return the same as `foldl` with the elements from the last to the first.

    Example:
        >>> float(foldr(lambda a, x: a - x, [1.0, 2.0, 3.0]))
        0.0
    """
    return foldl(fn, ops.flip(elems, 0), initializer)


def gradients(loss: Any, variables: Any) -> Any:
    """Raise: derivatives are from a tape, from `kerasish.grad`, or from `loss.backward()`."""
    raise NotImplementedError(
        "backend.gradients belongs to the graphs of Keras 2. Use kerasish.GradientTape, "
        "kerasish.grad(function), or loss.backward()."
    )


def in_top_k(predictions: TensorLike, targets: TensorLike, k: int) -> Tensor:
    """Return whether each target is among the k most likely classes.

    Example:
        >>> in_top_k([[0.1, 0.7, 0.2]], [2], 2).tolist()
        [True]
    """
    return ops.in_top_k(targets, predictions, k)


def l2_normalize(x: TensorLike, axis: int | None = None) -> Tensor:
    """Return x divided by its Euclidean norm along an axis; None: that of all elements.

    Example:
        >>> l2_normalize([3.0, 4.0]).tolist() == [0.6000000238418579, 0.800000011920929]
        True
    """
    x = ops.convert_to_tensor(x)
    square_sum = ops.sum(ops.square(x), axis=axis, keepdims=True)
    return ops.multiply(x, ops.rsqrt(ops.maximum(square_sum, 1e-12)))


def map_fn(
    fn: Callable[[Any], Any], elems: TensorLike, name: str | None = None, dtype: str | None = None
) -> Any:
    """Return fn of each row, stacked.

    Example:
        >>> map_fn(lambda x: x * 2, [1.0, 2.0]).tolist()
        [2.0, 4.0]
    """
    result = ops.map(fn, ops.convert_to_tensor(elems))
    return result if dtype is None else ops.cast(result, dtype)


def moving_average_update(x: Variable, value: TensorLike, momentum: float) -> Variable:
    """Set x to momentum * x + (1 - momentum) * value, and return it.

    Example:
        >>> float(moving_average_update(Variable(1.0), 3.0, 0.5))
        2.0
    """
    x.assign(ops.add(ops.multiply(x, momentum), ops.multiply(value, 1.0 - momentum)))
    return x


def relu(
    x: TensorLike, alpha: float = 0.0, max_value: float | None = None, threshold: float = 0.0
) -> Tensor:
    """Return `activations.relu(x, negative_slope=alpha, max_value, threshold)`.

    Example:
        >>> relu([-1.0, 2.0], alpha=0.5).tolist()
        [-0.5, 2.0]
    """
    return activations.relu(x, negative_slope=alpha, max_value=max_value, threshold=threshold)


def sqrt(x: TensorLike) -> Tensor:
    """Return the square root, of 0 for negative numbers.

    Example:
        >>> sqrt([4.0, -1.0]).tolist()
        [2.0, 0.0]
    """
    return ops.sqrt(ops.maximum(x, 0.0))


def switch(condition: TensorLike, then_expression: Any, else_expression: Any) -> Any:
    """Return one of two tensors (or what one of two functions gives), by a condition.

    Example:
        >>> float(switch(True, 1.0, 2.0))
        1.0
    """
    if callable(then_expression):
        return ops.cond(condition, then_expression, else_expression)
    condition = ops.convert_to_tensor(condition)
    then = ops.convert_to_tensor(then_expression)
    missing = len(then.shape) - len(condition.shape)
    if missing > 0:
        condition = ops.reshape(condition, (*condition.shape, *[1] * missing))
    return ops.where(condition, then, else_expression)
