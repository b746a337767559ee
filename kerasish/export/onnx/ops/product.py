"""Matrix products, and the rounding to short floats before them."""

from __future__ import annotations

import math

from kerasish.export.onnx.registry import Call, translates
from kerasish.export.onnx.writer import Item, Writer
from kerasish.ops import dtypes
from kerasish.ops.basic import product
from kerasish.ops.networks import quantized


@translates(product.matmul)
def _matmul(w: Writer, call: Call) -> Item:
    a, b = call.inputs
    dtype = call.out.dtype
    if a.dtype == "bool":
        y = w.op("MatMul", [w.cast(x, "int32") for x in (a, b)], "int32", call.out.shape)
        return w.cast(y, dtype)
    if a.dtype in ("int8", "uint8") and dtype == "int32":
        return w.op("MatMulInteger", [a, b], "int32", call.out.shape)
    wide = dtype if dtypes.is_inexact(dtype) or dtype in ("int32", "int64") else "int32"
    y = w.op("MatMul", [w.cast(a, wide), w.cast(b, wide)], wide, call.out.shape)
    return w.cast(y, dtype)


@translates(quantized.round_mantissa)
def _round_mantissa(w: Writer, call: Call) -> Item:
    """Write a rounding by the step of each number: 2**(its exponent - bits).

    The exponent is the logarithm without its fraction. Rounded, that may be one off next to a power
    of two, which is the result by both steps.
    """
    wide = call.x.dtype if call.x.dtype == "float64" else "float32"

    def op(name: str, *inputs: Item) -> Item:
        return w.op(name, list(inputs), wide, call.out.shape)

    x = w.cast(call.x, wide)
    size = op("Abs", x)
    smallest = w.like(2.0 ** call.attrs["smallest"], wide)
    logarithm = op("Mul", op("Log", op("Max", size, smallest)), w.like(1 / math.log(2), wide))
    exponent = op("Sub", op("Floor", logarithm), w.like(float(call.attrs["bits"]), wide))
    step = op("Pow", w.like(2.0, wide), exponent)
    return w.cast(op("Mul", op("Round", op("Div", x, step)), step), call.out.dtype)
