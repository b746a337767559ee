"""Nonlinearities of networks that are ops themselves; `activation` composes the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kerasish.ops.basic.arithmetic import multiply, subtract
from kerasish.ops.basic.comparison import greater
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.elementwise import elementwise
from kerasish.ops.op import function
from kerasish.typing import Array, ArrayModule, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["relu", "sigmoid", "softplus"]


@elementwise(
    lambda g, y, x: (multiply(g, multiply(y, subtract(1, y))),),
    cheaper_than_memory=True,
)
def sigmoid(xp: ArrayModule, x: Array) -> Array:
    """1 / (1 + exp(-x)), in [0, 1].

    Args:
        x: tensor or array.

    Example:
        >>> sigmoid([0.5, 1.0]).tolist()
        [0.6224..., 0.7310...]
    """
    # exp(-|x|) neither overflows nor loses the digits of a small result.
    if x.dtype.kind == "c":
        return 1 / (1 + xp.exp(-x))
    small = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, xp.ones((), x.dtype), small) / (small + 1)


@elementwise(lambda g, y, x: (multiply(g, sigmoid(x)),))
def softplus(xp: ArrayModule, x: Array) -> Array:
    """log(1 + exp(x)).

    Args:
        x: tensor or array.

    Example:
        >>> softplus([0.5, 1.0]).tolist()
        [0.9740..., 1.3132...]
    """
    return xp.logaddexp(x, xp.zeros((), dtype=x.dtype))


@function
def relu_gradient(g: TensorLike, y: TensorLike) -> Tensor:
    """Return g where y, a result of relu, is above 0, else g * 0."""
    g = as_tensor(g)
    return multiply(g, cast(greater(y, 0), dtype=g.dtype))


@elementwise(lambda g, y, x: (relu_gradient(g, y),), None, cheap=True, exact=True)
def relu(xp: ArrayModule, x: Array) -> Array:
    """max(x, 0). Source: Nair & Hinton, ICML 2010.

    Args:
        x: tensor or array.

    Example:
        >>> relu([-1.0, 2.0]).tolist()
        [0.0, 2.0]
    """
    return xp.maximum(x, xp.zeros((), dtype=x.dtype))
