"""Matrix products."""

from __future__ import annotations

import math

import numpy as np

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


@translates(quantized.integer_matmul)
def _integer_matmul(w: Writer, call: Call) -> Item:
    return w.op("MatMulInteger", call.inputs, "int32", call.out.shape)


@translates(quantized.packed_product)
def _packed_product(w: Writer, call: Call) -> Item:
    """Write the weights as they lie in memory, and what makes floats of them."""
    x, packed, scale, zero = call.inputs
    units, block, bits = (call.attrs[name] for name in ("units", "block", "bits"))
    rows = packed.shape[0]
    q = packed if bits == 8 else _halves(w, packed, units)
    shape = (rows, units)
    group = w.numbers([row // block for row in range(rows)])
    zeros, scales = (
        w.op("Gather", [w.cast(part, "float32"), group], "float32", shape, axis=0)
        for part in (zero, scale)
    )
    moved = w.op("Sub", [w.cast(q, "float32"), zeros], "float32", shape)
    weights = w.op("Mul", [moved, scales], "float32", shape)
    y = w.op("MatMul", [w.cast(x, "float32"), weights], "float32", call.out.shape)
    return w.cast(y, call.out.dtype)


def _halves(w: Writer, packed: Item, units: int) -> Item:
    """Return the signed halves of bytes: ONNX shifts no signed numbers, so by remainders."""
    rows, columns = packed.shape
    whole = w.cast(packed, "int32")
    sixteen, eight = (w.initializer(np.int32(n)) for n in (16, 8))

    def op(name: str, a: Item, b: Item) -> Item:
        return w.op(name, [a, b], "int32", (rows, columns))

    first = op("Mod", whole, sixteen)
    low = op("Sub", op("Mod", op("Add", first, eight), sixteen), eight)
    high = op("Div", op("Sub", whole, first), sixteen)
    pairs = w.concat([w.unsqueeze(part, [2]) for part in (low, high)], 2, 2)
    flat = w.reshape(pairs, (rows, 2 * columns))
    return w.slice(flat, 1, 0, units, units)


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
