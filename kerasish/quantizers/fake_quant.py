"""Quantization that is only played: numbers rounded to a grid, as floats, with a gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish import ops
from kerasish.ops.basic.conversion import as_tensor
from kerasish.ops.op import function
from kerasish.ops.shapes import normalize_axis
from kerasish.typing import TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor


@function
def fake_quant_with_min_max_vars(
    inputs: TensorLike,
    min_vals: TensorLike,
    max_vals: TensorLike,
    num_bits: int = 8,
    narrow_range: bool = False,
    axis: int | None = None,
) -> Tensor:
    """Return inputs clipped to a range and rounded to 2**num_bits equal steps of it.

    The range is moved so that 0 is one of its steps. The gradient passes through where inputs are
    within the range; outside it goes to the limit that they were clipped to.

    Args:
        inputs: float tensor.
        min_vals: lower limit: one number, or one for each place along `axis`.
        max_vals: upper limit, likewise.
        num_bits: bits of a quantized number, >= 2.
        narrow_range: whether the lowest quantized number is left out.
        axis: axis with separate limits for each place; None: one range for all.

    Source: Jacob et al., CVPR 2018.

    Example:
        >>> fake_quant_with_min_max_vars([-1.0, 0.26, 0.9], 0.0, 0.75, num_bits=2).tolist()
        [0.0, 0.25, 0.75]
    """
    x = as_tensor(inputs)
    place = None if axis is None else normalize_axis(axis, len(x.shape), "fake_quant")
    low, high = 1 if narrow_range else 0, 2 ** int(num_bits) - 1
    return ops.custom_gradient(_fake_quant)(
        x, as_tensor(min_vals), as_tensor(max_vals), low=low, high=high, axis=place
    )


def _fake_quant(
    x: Tensor, least: Tensor, most: Tensor, low: int, high: int, axis: int | None
) -> Any:
    shape = () if axis is None else tuple(-1 if i == axis else 1 for i in range(len(x.shape)))
    first, last = (ops.reshape(ops.cast(v, "float32"), shape) for v in (least, most))
    span, steps = ops.subtract(last, first), float(high - low)
    scale, inverse = ops.divide(span, steps), ops.divide(steps, span)
    zero = ops.subtract(float(low), ops.divide(first, scale))
    zero = ops.round(ops.clip(zero, float(low), float(high)))
    bottom = ops.multiply(ops.subtract(float(low), zero), scale)
    top = ops.multiply(ops.subtract(float(high), zero), scale)
    wide = ops.cast(x, "float32")
    offset = ops.floor(ops.add(ops.multiply(ops.negative(bottom), inverse), 0.5))
    moved = ops.multiply(ops.subtract(ops.minimum(ops.maximum(wide, bottom), top), bottom), inverse)
    number = ops.floor(ops.add(ops.subtract(moved, offset), 0.5))
    result = ops.cast(ops.multiply(number, scale), x.dtype)
    inside = ops.logical_and(ops.greater_equal(wide, bottom), ops.less_equal(wide, top))

    def gradient(*args: Any, upstream: Any = None) -> Any:
        g = args[0] if upstream is None else upstream
        nothing = ops.zeros_like(g)
        axes = None if axis is None else [i for i in range(len(x.shape)) if i != axis]

        def share(where: Any, like: Tensor) -> Tensor:
            total = ops.sum(ops.where(where, g, nothing), axis=axes)
            return ops.cast(ops.reshape(total, like.shape), like.dtype)

        below, above = ops.less_equal(wide, bottom), ops.greater_equal(wide, top)
        return ops.where(inside, g, nothing), share(below, least), share(above, most)

    return result, gradient
