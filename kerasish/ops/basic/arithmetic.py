"""Arithmetic of one or two numbers, signs and rounding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish.errors import DTypeError
from kerasish.ops.basic.comparison import equal
from kerasish.ops.basic.conversion import cast
from kerasish.ops.basic.elementwise import elementwise
from kerasish.ops.basic.examples import PAIRS, between, integers, numbers
from kerasish.ops.shapes import Spec, broadcast
from kerasish.typing import Array, ArrayModule, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = [
    "abs", "absolute", "add", "ceil", "divide", "floor", "floor_divide", "maximum", "minimum",
    "mod", "multiply", "negative", "reciprocal", "sign", "square", "subtract", "true_divide",
    "trunc",
]  # fmt: skip


@elementwise(
    lambda g, y, a, b: (g, g),
    "same",
    shape=broadcast,
    examples=PAIRS,
    commutative=True,
    symbol="+",
    cheap=True,
    exact=True,
)
def add(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """x1 + x2.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> add([1.0, 2.0], [3.0, 4.0]).tolist()
        [4.0, 6.0]
    """
    return xp.add(x1, x2)


def _no_bool(what: str) -> None:
    raise DTypeError(f"{what} of truth values has no meaning; use ops.logical_xor or logical_not.")


def _subtract_shape(x1: Spec, x2: Spec) -> Spec:
    if x1.dtype == "bool":
        _no_bool("subtract")
    return broadcast(x1, x2)


def _negative_shape(x: Spec) -> Spec:
    if x.dtype == "bool":
        _no_bool("negative")
    return x


@elementwise(
    (lambda g, y, a, b: g, lambda g, y, a, b: negative(g)),
    "same",
    shape=_subtract_shape,
    examples=PAIRS,
    symbol="-",
    cheap=True,
    exact=True,
)
def subtract(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """x1 - x2.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> subtract([5.0, 4.0], [2.0, 3.0]).tolist()
        [3.0, 1.0]
    """
    return xp.subtract(x1, x2)


@elementwise(
    (lambda g, y, a, b: multiply(g, b), lambda g, y, a, b: multiply(g, a)),
    "same",
    shape=broadcast,
    examples=PAIRS,
    commutative=True,
    symbol="*",
    cheap=True,
    exact=True,
)
def multiply(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """x1 * x2.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> multiply([2.0, 3.0], [4.0, 5.0]).tolist()
        [8.0, 15.0]
    """
    return xp.multiply(x1, x2)


_divide_grad = (
    lambda g, y, a, b: divide(g, b),
    lambda g, y, a, b: negative(multiply(divide(g, b), y)),
)


@elementwise(
    _divide_grad,
    shape=broadcast,
    examples=[(((2, 3), numbers(0.5, 2.0)), {}), (((2, 1), numbers(-2.0, -0.5, 3)), {})],
    symbol="/",
    cheaper_than_memory=True,
    exact=True,
)
def divide(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """x1 / x2, in floating point.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> divide([6.0, 7.0], [2.0, 2.0]).tolist()
        [3.0, 3.5]
    """
    return xp.true_divide(x1, x2)


@elementwise(
    None, "number", shape=broadcast, examples=[((integers(-9, 9), integers(1, 5)), {})], symbol="//"
)
def floor_divide(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """floor(x1 / x2).

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> floor_divide([7, -7], [2, 2]).tolist()
        [3, -4]
    """
    return xp.floor_divide(x1, x2)


@elementwise(
    lambda g, y, a, b: (g, negative(multiply(g, floor(divide(a, b))))),
    "number",
    shape=broadcast,
    examples=[
        ((numbers(1.1, 1.9), numbers(2.1, 2.9)), {}),
        ((integers(-9, 9), integers(1, 5)), {}),
    ],
    symbol="%",
)
def mod(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """x1 - floor(x1 / x2) * x2, with the sign of x2.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> mod([7, -7], [3, 3]).tolist()
        [1, 2]
    """
    return xp.remainder(x1, x2)


def _chosen_grad(first: Any) -> Any:
    def grad(g: Tensor, y: TensorLike, a: TensorLike, b: TensorLike) -> Tensor:
        # A tie shares the gradient, as the limit of the smooth maximum does.
        mine, other = (a, b) if first else (b, a)
        half = multiply(cast(equal(mine, other), dtype=g.dtype), 0.5)
        won = cast(equal(mine, y), dtype=g.dtype)
        return multiply(g, subtract(won, half))

    return grad


_CHOSEN = (_chosen_grad(True), _chosen_grad(False))


@elementwise(_CHOSEN, "same", shape=broadcast, examples=PAIRS, cheap=True, exact=True)
def maximum(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """The larger of x1 and x2; NaN if either is.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> maximum([1, 5], [3, 2]).tolist()
        [3, 5]
    """
    return xp.maximum(x1, x2)


@elementwise(_CHOSEN, "same", shape=broadcast, examples=PAIRS, cheap=True, exact=True)
def minimum(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """The smaller of x1 and x2; NaN if either is.

    Args:
        x1: tensor or array.
        x2: tensor or array; broadcasts with `x1`.

    Example:
        >>> minimum([1, 5], [3, 2]).tolist()
        [1, 2]
    """
    return xp.minimum(x1, x2)


# --- functions of one number ------------------------------------------------------------------


@elementwise(
    lambda g, y, x: (negative(g),),
    None,
    shape=_negative_shape,
    keeps_zero=True,
    symbol="-",
    cheap=True,
    exact=True,
)
def negative(xp: ArrayModule, x: Array) -> Array:
    """-x.

    Args:
        x: tensor or array.

    Example:
        >>> negative([-1.0, 2.0]).tolist()
        [1.0, -2.0]
    """
    return xp.negative(x)


@elementwise(lambda g, y, x: (multiply(g, sign(x)),), None, keeps_zero=True, exact=True)
def absolute(xp: ArrayModule, x: Array) -> Array:
    """|x|.

    Args:
        x: tensor or array.

    Example:
        >>> absolute([-2.0, 3.0]).tolist()
        [2.0, 3.0]
    """
    return xp.absolute(x)


@elementwise(None, None, keeps_zero=True)
def sign(xp: ArrayModule, x: Array) -> Array:
    """-1, 0 or 1 with the sign of x; NaN stays.

    Args:
        x: tensor or array.

    Example:
        >>> sign([-3.0, 0.0, 2.0]).tolist()
        [-1.0, 0.0, 1.0]
    """
    return xp.sign(x)


@elementwise(
    lambda g, y, x: (multiply(g, multiply(x, 2)),),
    "number",
    keeps_zero=True,
    cheap=True,
    exact=True,
)
def square(xp: ArrayModule, x: Array) -> Array:
    """x * x.

    Args:
        x: tensor or array.

    Example:
        >>> square([-1.0, 2.0]).tolist()
        [1.0, 4.0]
    """
    return xp.square(x)


@elementwise(
    lambda g, y, x: (negative(multiply(g, square(y))),),
    examples=between(0.5, 2),
    cheaper_than_memory=True,
    exact=True,
)
def reciprocal(xp: ArrayModule, x: Array) -> Array:
    """1 / x.

    Args:
        x: tensor or array.

    Example:
        >>> reciprocal([2.0, 4.0]).tolist()
        [0.5, 0.25]
    """
    return xp.reciprocal(x)


@elementwise(None)
def floor(xp: ArrayModule, x: Array) -> Array:
    """The largest integer <= x.

    Args:
        x: tensor or array.

    Example:
        >>> floor([1.2, -1.2]).tolist()
        [1.0, -2.0]
    """
    return xp.floor(x)


@elementwise(None)
def ceil(xp: ArrayModule, x: Array) -> Array:
    """The smallest integer >= x.

    Args:
        x: tensor or array.

    Example:
        >>> ceil([1.2, -1.2]).tolist()
        [2.0, -1.0]
    """
    return xp.ceil(x)


@elementwise(None)
def rint(xp: ArrayModule, x: Array) -> Array:
    """The nearest integer, halves to even."""
    return xp.rint(x)


@elementwise(None, None)
def trunc(xp: ArrayModule, x: Array) -> Array:
    """x without its fraction.

    Args:
        x: tensor or array.

    Example:
        >>> trunc([1.7, -1.7]).tolist()
        [1.0, -1.0]
    """
    if x.dtype.kind in "biu":  # NumPy before 2.1 would make floats of them
        return x.copy()
    return xp.trunc(x)


# Second names, as Keras has them.
abs = absolute
true_divide = divide
