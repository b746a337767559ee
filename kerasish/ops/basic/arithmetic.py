"""Arithmetic of one or two numbers, signs and rounding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish.errors import DTypeError
from kerasish.ops.basic.comparison import equal
from kerasish.ops.basic.conversion import cast
from kerasish.ops.basic.examples import PAIRS, SINGLE, between, integers, numbers
from kerasish.ops.op import op
from kerasish.ops.shapes import Spec, broadcast, same
from kerasish.typing import Array, ArrayModule, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = [
    "abs", "absolute", "add", "ceil", "divide", "floor", "floor_divide", "maximum", "minimum",
    "mod", "multiply", "negative", "reciprocal", "sign", "square", "subtract", "true_divide",
    "trunc",
]  # fmt: skip


@op("elementwise", broadcast, lambda g, y, a, b: (g, g), "same", examples=PAIRS, commutative=True)
def add(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """x1 + x2."""
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


@op(
    "elementwise",
    _subtract_shape,
    (lambda g, y, a, b: g, lambda g, y, a, b: negative(g)),
    "same",
    examples=PAIRS,
)
def subtract(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """x1 - x2."""
    return xp.subtract(x1, x2)


@op(
    "elementwise",
    broadcast,
    (lambda g, y, a, b: multiply(g, b), lambda g, y, a, b: multiply(g, a)),
    "same",
    examples=PAIRS,
    commutative=True,
)
def multiply(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """x1 * x2."""
    return xp.multiply(x1, x2)


_divide_grad = (
    lambda g, y, a, b: divide(g, b),
    lambda g, y, a, b: negative(multiply(divide(g, b), y)),
)


@op(
    "elementwise",
    broadcast,
    _divide_grad,
    "float",
    examples=[(((2, 3), numbers(0.5, 2.0)), {}), (((2, 1), numbers(-2.0, -0.5, 3)), {})],
)
def divide(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """x1 / x2, in floating point."""
    return xp.true_divide(x1, x2)


@op("elementwise", broadcast, None, "number", examples=[((integers(-9, 9), integers(1, 5)), {})])
def floor_divide(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """floor(x1 / x2)."""
    return xp.floor_divide(x1, x2)


@op(
    "elementwise",
    broadcast,
    lambda g, y, a, b: (g, negative(multiply(g, floor(divide(a, b))))),
    "number",
    examples=[
        ((numbers(1.1, 1.9), numbers(2.1, 2.9)), {}),
        ((integers(-9, 9), integers(1, 5)), {}),
    ],
)
def mod(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """x1 - floor(x1 / x2) * x2, with the sign of x2."""
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


@op(
    "elementwise",
    broadcast,
    _CHOSEN,
    "same",
    examples=PAIRS,
)
def maximum(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """The larger of x1 and x2; NaN if either is."""
    return xp.maximum(x1, x2)


@op("elementwise", broadcast, _CHOSEN, "same", examples=PAIRS)
def minimum(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """The smaller of x1 and x2; NaN if either is."""
    return xp.minimum(x1, x2)


# --- functions of one number ------------------------------------------------------------------


@op(
    "elementwise", _negative_shape, lambda g, y, x: (negative(g),), examples=SINGLE, keeps_zero=True
)
def negative(xp: ArrayModule, x: Array) -> Array:
    """-x."""
    return xp.negative(x)


@op("elementwise", same, lambda g, y, x: (multiply(g, sign(x)),), examples=SINGLE, keeps_zero=True)
def absolute(xp: ArrayModule, x: Array) -> Array:
    """|x|."""
    return xp.absolute(x)


@op("elementwise", same, None, examples=SINGLE, keeps_zero=True)
def sign(xp: ArrayModule, x: Array) -> Array:
    """-1, 0 or 1 with the sign of x; NaN stays."""
    return xp.sign(x)


@op(
    "elementwise",
    same,
    lambda g, y, x: (multiply(g, multiply(x, 2)),),
    "number",
    examples=SINGLE,
    keeps_zero=True,
)
def square(xp: ArrayModule, x: Array) -> Array:
    """x * x."""
    return xp.square(x)


@op(
    "elementwise",
    same,
    lambda g, y, x: (negative(multiply(g, square(y))),),
    "float",
    examples=between(0.5, 2),
)
def reciprocal(xp: ArrayModule, x: Array) -> Array:
    """1 / x."""
    return xp.reciprocal(x)


@op("elementwise", same, None, "float", examples=SINGLE)
def floor(xp: ArrayModule, x: Array) -> Array:
    """The largest whole number <= x."""
    return xp.floor(x)


@op("elementwise", same, None, "float", examples=SINGLE)
def ceil(xp: ArrayModule, x: Array) -> Array:
    """The smallest whole number >= x."""
    return xp.ceil(x)


@op("elementwise", same, None, "float", examples=SINGLE)
def rint(xp: ArrayModule, x: Array) -> Array:
    """The nearest whole number, halves to even."""
    return xp.rint(x)


@op("elementwise", same, None, examples=SINGLE)
def trunc(xp: ArrayModule, x: Array) -> Array:
    """x without its fraction."""
    if x.dtype.kind in "biu":  # NumPy before 2.1 would make floats of them
        return x.copy()
    return xp.trunc(x)


# Second names, as Keras has them.
abs = absolute
true_divide = divide
