"""Numbers rounded to 8-bit floats, and the scales that keep them within range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish import ops
from kerasish.ops.basic.conversion import as_tensor
from kerasish.ops.networks.quantized import round_mantissa
from kerasish.typing import TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

# dtype -> largest number, bits of the mantissa, exponent of the smallest normal number
FORMATS = {"float8_e4m3fn": (448.0, 3, -6), "float8_e5m2": (57344.0, 2, -14)}


def largest_float8(dtype: str) -> float:
    """Return the largest number of an 8-bit float.

    Example:
        >>> largest_float8("float8_e5m2")
        57344.0
    """
    if dtype not in FORMATS:
        raise ValueError(f"an 8-bit float is one of {sorted(FORMATS)}, got {dtype!r}.")
    return FORMATS[dtype][0]


def quantize_and_dequantize(
    inputs: TensorLike, scale: TensorLike, quantized_dtype: str, compute_dtype: str
) -> Tensor:
    """Return inputs rounded to an 8-bit float times a scale.

    Args:
        inputs: float tensor.
        scale: the number that 1 of the 8-bit float represents.
        quantized_dtype: "float8_e4m3fn" or "float8_e5m2"; larger numbers become its largest.
        compute_dtype: dtype of the result.

    Raises:
        ValueError: another dtype.

    Example:
        >>> quantize_and_dequantize([1.03, 500.0], 1.0, "float8_e4m3fn", "float32").tolist()
        [1.0, 448.0]
    """
    limit = largest_float8(quantized_dtype)
    factor = ops.cast(scale, compute_dtype)
    x = ops.clip(ops.divide(ops.cast(inputs, compute_dtype), factor), -limit, limit)
    _, bits, smallest = FORMATS[quantized_dtype]
    y = round_mantissa(ops.cast(x, "float32"), bits=bits, smallest=smallest)
    return ops.multiply(ops.cast(y, compute_dtype), factor)


def compute_float8_scale(
    amax: TensorLike, scale: TensorLike, dtype_max: Any, margin: float = 0
) -> Tensor:
    """Return the scale with which numbers up to `amax` fill an 8-bit float.

    Args:
        amax: the largest absolute number.
        scale: the scale so far, which stays where `amax` is 0 or not finite.
        dtype_max: the largest number of the 8-bit float.
        margin: how many factors of 2 are left free above.

    Example:
        >>> float(compute_float8_scale(896.0, 1.0, 448.0))
        2.0
    """
    most = as_tensor(amax)
    before = ops.reciprocal(as_tensor(scale))
    result = ops.divide(ops.divide(dtype_max, most), 2**margin)
    result = ops.where(ops.greater(most, 0.0), result, before)
    result = ops.where(ops.isfinite(most), result, before)
    return ops.reciprocal(result)


def compute_float8_amax_history(x: TensorLike, amax_history: TensorLike) -> Tensor:
    """Return the largest absolute numbers of the last calls, with that of `x` in the first place.

    Args:
        x: float tensor.
        amax_history: one number for each call; they move, and the oldest one is replaced.

    Example:
        >>> compute_float8_amax_history([-3.0, 1.0], [7.0, 8.0, 9.0]).tolist()
        [3.0, 9.0, 7.0]
    """
    history = as_tensor(amax_history)
    most = ops.cast(ops.max(ops.abs(as_tensor(x))), history.dtype)
    moved = ops.roll(history, -1)
    return ops.concatenate([ops.reshape(most, (1,)), moved[1:]])
