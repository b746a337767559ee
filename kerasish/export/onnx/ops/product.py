"""Matrix products."""

from __future__ import annotations

from kerasish.export.onnx.registry import Call, translates
from kerasish.export.onnx.writer import Item, Writer
from kerasish.ops import dtypes
from kerasish.ops.basic import product


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
