"""The same numbers in another form: other dtypes, tensors, without a gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish.ops import dtypes, rows
from kerasish.ops.basic.elementwise import elementwise
from kerasish.ops.basic.examples import SINGLE
from kerasish.ops.op import op
from kerasish.ops.shapes import Spec, same
from kerasish.typing import Array, ArrayModule, DTypeLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["cast", "stop_gradient"]


def _cast_shape(x: Spec, dtype: str) -> Spec:
    return Spec(x.shape, dtype)


def _cast_grad(g: Tensor, y: Tensor, x: Tensor, dtype: str) -> tuple[Any, ...]:
    smooth = dtypes.is_inexact(x.dtype) and dtypes.is_inexact(dtype)
    return (cast(g, dtype=x.dtype) if smooth else None,)


@elementwise(
    _cast_grad,
    None,
    shape=_cast_shape,
    examples=[(((2, 3),), {"dtype": "float64"}), (((2, 3),), {"dtype": "int32"})],
    canonical=lambda shapes, attrs: {"dtype": dtypes.name_of(attrs["dtype"])},
    keeps_zero=True,
    cheap=True,
    flops=lambda inputs, results: 0,
)
def cast(xp: ArrayModule, x: Array, *, dtype: DTypeLike) -> Array:
    """x as `dtype`; floats lose their fraction on the way to integers.

    Args:
        x: tensor or array.
        dtype: dtype of the result; None: chosen by the inputs.

    Example:
        >>> cast([1.7, -1.7], "int32").tolist()
        [1, -1]
    """
    return x.astype(dtypes.array_dtype(dtype))


@elementwise(None, None, native=None, aliases=True)
def stop_gradient(xp: ArrayModule, variable: Array) -> Array:
    """The same value, through which no gradient flows.

    Args:
        variable: tensor or variable.

    Example:
        >>> stop_gradient([1.0]).tolist()
        [1.0]
    """
    return variable


@elementwise(lambda g, y, x: (g,), None, native=None, aliases=True, keeps_zero=True)
def alias(xp: ArrayModule, x: Array) -> Array:
    """The same value: what turns arrays, lists, numbers and variables into tensors."""
    return x


@op(
    "movement", same, lambda g, y, x, pieces: (g,), examples=SINGLE, aliases=True, rows=rows.same
)  # fmt: skip
def optimization_barrier(xp: ArrayModule, x: Array, *, pieces: int = 1) -> Array:
    """The same value, to be computed again: passes do not see that the results are known.

    Args:
        x: any array.
        pieces: how many pieces of x, of some rows each, may be computed, and sent to other ranks,
            one after the other. A product of floats may have other bits in pieces.
    """
    return x


def as_tensor(x: Any) -> Tensor:
    """Return x (tensor, variable, array, list, number) as a tensor, uncopied if it can be."""
    if hasattr(type(x), "maker"):  # of the class: a variable looks names up in its value
        return x
    value: Any = getattr(x, "value", None)  # of a variable
    return value if hasattr(type(value), "maker") else alias(x)
