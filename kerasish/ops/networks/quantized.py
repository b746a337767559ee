"""Products with quantized weights: integers of 8 bits, or packed ones; rounding to short floats.

Weights of 4 bits are stored two per byte, along the last axis: the low half first. `packed_product`
reads them in this form; the static engine unpacks them by blocks on the way into the product.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kerasish.errors import ShapeError
from kerasish.ops import rows
from kerasish.ops.basic.arithmetic import multiply, subtract
from kerasish.ops.basic.bits import bitwise_and, bitwise_xor, right_shift
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.creation import ones_like
from kerasish.ops.basic.examples import integers
from kerasish.ops.basic.indexing import take_rows
from kerasish.ops.basic.movement import reshape, transpose
from kerasish.ops.basic.product import matmul
from kerasish.ops.basic.reduce import reduce_sum
from kerasish.ops.basic.reshaping import pad, repeat, stack
from kerasish.ops.basic.selection import get_item
from kerasish.ops.op import function, op
from kerasish.ops.shapes import Spec, agree
from kerasish.typing import AnyTensor, Array, ArrayModule, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

EXACT_ROWS = 1024  # a float32 sum of up to 1024 products of int8 is exact: 1024 * 128**2 = 2**24


def _integer_shape(a: Spec, b: Spec) -> Spec:
    if {a.dtype, b.dtype} != {"int8"}:
        raise TypeError(f"integer_matmul: both factors are int8, got {a.dtype} and {b.dtype}.")
    if len(b.shape) != 2 or not a.shape or not agree(a.shape[-1], b.shape[0]):
        raise ShapeError(
            "integer_matmul: shapes (..., inputs) and (inputs, units) were expected, got "
            f"{a.shape} and {b.shape}."
        )
    return Spec((*a.shape[:-1], b.shape[1]), "int32")


@op(
    "linalg",
    _integer_shape,
    None,  # rounded numbers have no gradient; layers define that of the whole product
    examples=[
        ((integers(-127, 128, 2, 3, dtype="int8"), integers(-127, 128, 3, 4, dtype="int8")), {}),
        ((integers(-9, 9, 2, 1, 5, dtype="int8"), integers(-9, 9, 5, 3, dtype="int8")), {}),
        ((integers(-9, 9, 0, 5, dtype="int8"), integers(-9, 9, 5, 3, dtype="int8")), {}),
    ],
    flops=lambda inputs, results: 2 * math.prod(results[0]) * inputs[0][-1],
    rows=rows.matmul,
)
def integer_matmul(xp: ArrayModule, x1: Array, x2: Array) -> Array:
    """Return x1 @ x2 of int8 as int32, over the last axis of x1.

    Args:
        x1: int8 tensor (..., inputs).
        x2: int8 tensor (inputs, units).

    Returns:
        int32 tensor (..., units). Where the processor multiplies no integers of 8 bits, sums above
        2**24 are rounded to the precision of float32.

    Example:
        >>> import numpy as np
        >>> integer_matmul(np.int8([[100, 100]]), np.int8([[100], [1]])).tolist()
        [[10100]]
    """
    total = xp.zeros((*x1.shape[:-1], x2.shape[1]), "int32")
    # By BLAS: NumPy's own product of integers is a hundred times slower.
    for start in range(0, x1.shape[-1], EXACT_ROWS):
        part = slice(start, start + EXACT_ROWS)
        y = xp.matmul(x1[..., part].astype("float32"), x2[part].astype("float32"))
        total += y.astype("int32")
    return total


def _packed_shape(
    x: Spec, packed: Spec, scale: Spec, zero: Spec, units: int, block: int, bits: int
) -> Spec:
    if bits not in (4, 8):
        raise ValueError(f"packed_product: bits is 4 or 8, got {bits!r}.")
    rows = x.shape[-1] if x.shape else 0
    if len(packed.shape) != 2 or not agree(packed.shape[0], rows):
        raise ShapeError(
            f"packed_product: {rows} rows of weights were expected, got shape {packed.shape}."
        )
    columns = -(-units * bits // 8)
    groups = None if rows is None else -(-rows // block)
    expected = [(packed, (rows, columns)), (scale, (groups, units)), (zero, (groups, units))]
    for spec, shape in expected:
        if len(spec.shape) != 2 or not all(agree(a, b) for a, b in zip(spec.shape, shape)):
            raise ShapeError(f"packed_product: shape {shape} was expected, got {spec.shape}.")
    return Spec((*x.shape[:-1], units), x.dtype)


@function
def unpack(packed: TensorLike, units: int, bits: int = 4, signed: bool = True) -> Tensor:
    """Return weights of `bits` bits, packed along the last axis, as int8 (or uint8).

    Args:
        packed: int8 or uint8 tensor (..., units * bits / 8, rounded up).
        units: size of the result's last axis.
        bits: 4, or 8: nothing is packed.
        signed: whether 4 bits mean -8 to 7; else 0 to 15.

    Example:
        >>> import numpy as np
        >>> unpack(np.int8([[45, 1]]), 3).tolist()
        [[-3, 2, 1]]
    """
    x = as_tensor(packed)
    if bits == 8:
        return x
    halves = cast(x, "uint8")  # without a sign, which ONNX could not shift
    both = [bitwise_and(halves, 15), right_shift(halves, 4)]
    if signed:
        both = [subtract(bitwise_xor(cast(part, "int8"), 8), 8) for part in both]
    pairs = stack(both, -1)
    size = x.shape[-1]
    flat = reshape(pairs, (*x.shape[:-1], -1 if size is None else 2 * size))
    return flat if size is not None and 2 * size == units else get_item(flat, (..., slice(units)))


@function
def dequantize(
    packed: AnyTensor, scale: AnyTensor, zero: AnyTensor, units: int, block: int, bits: int = 4
) -> Tensor:
    """Return packed weights as floats (inputs, units): (q - zero) * scale.

    Args:
        packed: the packed weights (inputs, units * bits / 8, rounded up).
        scale: float tensor (groups, units); a group is `block` rows.
        zero: int8 tensor (groups, units).
        units, block, bits: as for `packed_product`.

    Example:
        >>> import numpy as np
        >>> packed, zero = np.int8([[0x21]]), np.int8([[0, 1]])
        >>> dequantize(packed, np.float32([[0.5, 2.0]]), zero, 2, 1).tolist()
        [[0.5, 2.0]]
    """
    q, scale = unpack(packed, units, bits), as_tensor(scale)
    rows = q.shape[0]
    if scale.shape[0] == 1:
        return multiply(subtract(cast(q, scale.dtype), cast(zero, scale.dtype)), scale)
    scales, zeros = (
        get_item(repeat(part, block, 0), slice(rows)) for part in (scale, cast(zero, scale.dtype))
    )
    return multiply(subtract(cast(q, scale.dtype), zeros), scales)


@function
def dequantize_columns(
    packed: AnyTensor, scale: AnyTensor, zero: AnyTensor, units: int, block: int
) -> Tensor:
    """Return the floats (..., units) that rows of packed 4-bit integers stand for.

    Args:
        packed: int8 tensor (..., units / 2, rounded up).
        scale: float tensor (..., groups); a group is `block` columns.
        zero: int8 or float tensor (..., groups): what the number 0 is quantized to.
        units: size of the result's last axis.
        block: columns of a group.

    Example:
        >>> import numpy as np
        >>> packed, scale = np.int8([[0x21, 0x03]]), np.float32([[0.5, 2.0]])
        >>> dequantize_columns(packed, scale, np.int8([[0, 1]]), 3, 2).tolist()
        [[0.5, 1.0, 4.0]]
    """
    scale = as_tensor(scale)
    q, zero = cast(unpack(packed, units), scale.dtype), cast(zero, scale.dtype)
    if scale.shape[-1] != 1:
        scale, zero = (
            get_item(repeat(part, block, -1), (..., slice(units))) for part in (scale, zero)
        )
    return multiply(subtract(q, zero), scale)


@function
def dequantize_rows(
    packed: AnyTensor, scale: AnyTensor, zero: AnyTensor, group: AnyTensor, units: int, bits: int
) -> Tensor:
    """Return the weights (inputs, units) of which each row names its group, in float32.

    Args:
        packed: uint8 tensor (inputs, units * bits / 8, rounded up): numbers without a sign.
        scale: tensor (groups, units).
        zero: tensor (groups, units): what the number 0 is quantized to.
        group: int32 tensor (inputs,).
        units: size of the result's last axis.
        bits: 4 or 8.

    Example:
        >>> import numpy as np
        >>> packed, zero = np.uint8([[0x21], [0x43]]), np.uint8([[0, 1], [2, 0]])
        >>> dequantize_rows(packed, np.float32([[0.5, 1], [2, 1]]), zero, [1, 0], 2, 4).tolist()
        [[-2.0, 2.0], [1.5, 3.0]]
    """
    q = unpack(packed, units, bits, signed=False)
    scale, zero = (take_rows(cast(v, "float32"), group, axis=0) for v in (scale, zero))
    return multiply(subtract(cast(q, "float32"), zero), scale)


def _packed_gradient(
    g: Tensor, y: Tensor, x: Tensor, packed: Tensor, scale: Tensor, zero: Tensor, **attrs: Any
) -> Any:
    weights = dequantize(packed, scale, zero, **attrs)
    return matmul(g, transpose(cast(weights, g.dtype), (1, 0)))


def _scale_gradient(
    g: Tensor, y: Tensor, x: Tensor, packed: Tensor, scale: Tensor, zero: Tensor, **attrs: Any
) -> Any:
    rows, units, block = x.shape[-1], attrs["units"], attrs["block"]
    flat, gradient = reshape(x, (-1, rows)), reshape(g, (-1, units))
    numbers = cast(dequantize(packed, ones_like(scale), zero, **attrs), g.dtype)
    each = multiply(matmul(transpose(flat, (1, 0)), gradient), numbers)
    groups = scale.shape[0]
    whole = pad(each, [(0, groups * block - rows), (0, 0)])
    return reduce_sum(reshape(whole, (groups, block, units)), 1)


def _none(*args: Any, **attrs: Any) -> None:
    return None


@op(
    "linalg",
    _packed_shape,
    (_packed_gradient, _none, _scale_gradient, _none),  # integers have no gradient
    examples=[
        (
            (
                (2, 6), integers(-128, 128, 6, 2, dtype="int8"), (2, 3),
                integers(-8, 8, 2, 3, dtype="int8"),
            ),
            {"units": 3, "block": 4, "bits": 4},
        ),
        (
            (
                (2, 2, 5), integers(-128, 128, 5, 4, dtype="int8"), (1, 4),
                integers(-3, 3, 1, 4, dtype="int8"),
            ),
            {"units": 4, "block": 5, "bits": 8},
        ),
    ],
    flops=lambda inputs, results: 2 * math.prod(results[0]) * inputs[0][-1],
    rows=rows.packed,
)  # fmt: skip
def packed_product(
    xp: ArrayModule, x: Array, packed: Array, scale: Array, zero: Array, *, units: int, block: int,
    bits: int = 4,
) -> Array:  # fmt: skip
    """Return x @ ((q - zero) * scale) for weights q packed in 4 bits each (or 8).

    Args:
        x: float tensor (..., inputs).
        packed: int8 tensor (inputs, units * bits / 8, rounded up): along the last axis the low half
            of a byte is first.
        scale: float tensor (groups, units): a factor for each group of `block` rows and column.
        zero: int8 tensor (groups, units): what the number 0 is quantized to.
        units: size of the result's last axis, >= 1.
        block: rows of a group, >= 1; the last group may have fewer.
        bits: 4 or 8.

    Returns:
        tensor (..., units) of x's dtype. The gradient flows to x and scale.

    Example:
        >>> import numpy as np
        >>> packed, zero = np.int8([[0x21], [0x43]]), np.int8([[0, 0]])
        >>> packed_product(
        ...     np.float32([[1.0, 1.0]]), packed, np.float32([[0.5, 2.0]]), zero, units=2, block=2
        ... ).tolist()
        [[2.0, 12.0]]
    """
    if bits == 4:
        both = [xp.bitwise_and(packed, 15), xp.bitwise_and(xp.right_shift(packed, 4), 15)]
        pairs = xp.stack([xp.bitwise_xor(part, 8) - 8 for part in both], axis=-1)
        packed = pairs.reshape(packed.shape[0], -1)[:, :units]
    wide = "float64" if x.dtype == "float64" else "float32"
    group = xp.arange(packed.shape[0]) // block
    weights = (packed.astype(wide) - zero.astype(wide)[group]) * scale.astype(wide)[group]
    return xp.matmul(x.astype(wide), weights).astype(x.dtype)


def _rounded_in_loop(loop: Any, x: Any, bits: int, smallest: int) -> Any:
    whole, mantissa = ("int32", 23) if x.dtype == "float32" else ("int64", 52)
    width = 8 if whole == "int32" else 11
    exponent = (2**width - 1) << mantissa
    both = loop.op("bitwise_and", loop.op("bitcast", x, dtype=whole), exponent)
    # 2**e for numbers from 2**e to 2**(e + 1); 0 for those below all normal ones.
    power = loop.op("bitcast", both, dtype=x.dtype)
    step = loop.op("maximum", power, 2.0**smallest) * 2.0**-bits
    return loop.op("rint", x / step) * step


@op(
    "elementwise",
    lambda x, **attrs: x,
    lambda g, y, x, **attrs: (g,),  # straight through
    "float",
    examples=[((integers(-90, 90, 2, 3, dtype="float32"),), {"bits": 3, "smallest": -6})],
    native=_rounded_in_loop,
    keeps_zero=True,
)
def round_mantissa(xp: ArrayModule, x: Array, *, bits: int, smallest: int) -> Array:
    """Return x rounded to a float with fewer bits, of two nearest to the even one.

    Args:
        x: finite float tensor within the range of that float.
        bits: of the mantissa, without the leading one.
        smallest: exponent of the smallest normal number, at least -100; numbers below it have its
            step.

    Returns:
        tensor of x's shape and dtype. The gradient passes straight through.

    Example:
        >>> round_mantissa([1.03, 1.07, 100.0], bits=3, smallest=-6).tolist()
        [1.0, 1.125, 96.0]
    """
    _, exponent = xp.frexp(x.astype("float64" if x.dtype == "float64" else "float32"))
    step = xp.ldexp(xp.ones_like(x), xp.maximum(exponent - 1, smallest) - bits).astype(x.dtype)
    return xp.rint(x / step) * step
