"""Quantized tensors and products of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish import ops
from kerasish.export.onnx.reading.ops.arithmetic import dtype_named
from kerasish.export.onnx.reading.ops.windows import convolved
from kerasish.export.onnx.reading.registry import (
    OnnxNode,
    axis_of,
    dtype_of,
    rank_of,
    read_by,
    reads,
    tensor,
)
from kerasish.ops import dtypes
from kerasish.typing import Structure

_RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "uint16": (0, 65535)}


def _spread(v: Any, x: Any, axis: int, block: int) -> Any:
    """Return scales ready to broadcast against x: one, one along an axis, or one a block."""
    v = tensor(v)
    if rank_of(v) == 0 or (rank_of(v) == 1 and int(v.shape[0]) == 1 and not block):
        return ops.reshape(v, ())
    axis = axis_of(axis, rank_of(x))
    if rank_of(v) == 1 and not block:
        return ops.reshape(v, [-1 if i == axis else 1 for i in range(rank_of(x))])
    repeats = block or -(-int(x.shape[axis]) // int(v.shape[axis]))
    whole = ops.repeat(v, repeats, axis=axis)
    size = int(x.shape[axis])
    return whole[tuple(slice(0, size) if i == axis else slice(None) for i in range(rank_of(x)))]


def _saturated(x: Any, zero: Any, dtype: str) -> Any:
    """Return rounded numbers, moved by the zero point, within a dtype."""
    low, high = _RANGES[dtype]
    moved = ops.add(ops.round(x), ops.cast(zero, x.dtype))
    return ops.cast(ops.clip(moved, low, high), dtype)


@reads("QuantizeLinear")
def _quantize(n: OnnxNode) -> Structure:
    x, scale, zero = tensor(n.x), tensor(n.need(1)), n.get(2)
    dtype = "uint8" if zero is None else dtype_of(zero)
    if zero is None and n.attr("output_dtype", 0):
        dtype = dtype_named(n.attr("output_dtype"))
    if dtype not in _RANGES:
        raise ValueError(f"tensors are not quantized to {dtype}")
    axis, block = n.attr("axis", 1), n.attr("block_size", 0)
    wide = ops.cast(x, "float32")
    step = ops.cast(_spread(scale, x, axis, block), "float32")
    offset = np.array(0, dtype) if zero is None else _spread(zero, x, axis, block)
    return _saturated(ops.divide(wide, step), offset, dtype)


@reads("DequantizeLinear")
def _dequantize(n: OnnxNode) -> Structure:
    x, scale, zero = tensor(n.x), tensor(n.need(1)), n.get(2)
    axis, block = n.attr("axis", 1), n.attr("block_size", 0)
    dtype = dtype_named(n.attr("output_dtype")) if n.attr("output_dtype", 0) else scale.dtype
    whole = x if dtypes.is_float(x.dtype) else ops.cast(x, "int32")  # read from 8-bit floats
    if zero is not None and whole is not x:
        whole = ops.subtract(whole, ops.cast(_spread(zero, x, axis, block), "int32"))
    y = ops.multiply(
        ops.cast(whole, "float32"), ops.cast(_spread(scale, x, axis, block), "float32")
    )
    return ops.cast(y, dtype)


@reads("DynamicQuantizeLinear")
def _dynamic(n: OnnxNode) -> Structure:
    x = tensor(n.x)
    low, high = ops.minimum(ops.min(x), 0.0), ops.maximum(ops.max(x), 0.0)
    scale = ops.divide(ops.subtract(high, low), 255.0)
    safe = ops.where(ops.equal(scale, 0), ops.ones_like(scale), scale)
    zero = ops.cast(ops.clip(ops.round(ops.divide(ops.negative(low), safe)), 0, 255), "uint8")
    return [_saturated(ops.divide(x, safe), zero, "uint8"), scale, zero]


def _moved(x: Any, zero: Any, along_rows: bool = False) -> Any:
    """Return x - zero as int32."""
    whole = ops.cast(tensor(x), "int32")
    if zero is None:
        return whole
    zero = ops.cast(tensor(zero), "int32")
    if along_rows and rank_of(zero) == 1 and int(zero.shape[0]) > 1:
        zero = ops.expand_dims(zero, -1)
    return ops.subtract(whole, zero)


def _product(a: Any, a_zero: Any, b: Any, b_zero: Any) -> Any:
    """Return the product of matrices less their zero points as int32."""
    return ops.matmul(_moved(a, a_zero, True), _moved(b, b_zero))


def _factor(*scales: Any) -> Any:
    """Return by what the sums of products are multiplied, of the inputs' and results' scales."""
    a, b, y = (ops.cast(tensor(s), "float32") for s in scales)
    return ops.divide(ops.multiply(a, b), y)


@reads("QLinearMatMul")
def _quantized_matmul(n: OnnxNode) -> Structure:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (n.need(i) for i in range(8))
    total = ops.cast(_product(a, a_zero, b, b_zero), "float32")
    y = ops.multiply(total, _factor(a_scale, b_scale, y_scale))
    return _saturated(y, tensor(y_zero), dtype_of(y_zero))


def _filters(kernel: Any, zero: Any) -> Any:
    """Return filters less their zero points, one for each result where there are several."""
    if zero is not None and rank_of(zero) == 1 and int(zero.shape[0]) > 1:
        zero = ops.reshape(tensor(zero), (-1, *[1] * (rank_of(kernel) - 1)))
    return _moved(kernel, zero)


def _integer_convolution(n: OnnxNode, x: Any, kernel: Any) -> Any:
    # Sums of products of 8-bit numbers are exact in float64, for which there are kernels.
    wide = convolved(n, ops.cast(x, "float64"), ops.cast(kernel, "float64"), None)
    return ops.cast(wide, "int32")


read_by(lambda n: _product(n.x, n.get(2), n.need(1), n.get(3)), "MatMulInteger")
read_by(
    lambda n: _integer_convolution(n, _moved(n.x, n.get(2)), _filters(n.need(1), n.get(3))),
    "ConvInteger",
)


@reads("QLinearConv")
def _quantized_conv(n: OnnxNode) -> Structure:
    x, x_scale, x_zero, kernel, k_scale, k_zero, y_scale, y_zero = (n.need(i) for i in range(8))
    total = _integer_convolution(n, _moved(x, x_zero), _filters(kernel, k_zero))
    if n.get(8) is not None:
        total = ops.add(total, ops.reshape(tensor(n.get(8)), (-1, *[1] * (rank_of(total) - 2))))
    factor = _factor(x_scale, k_scale, y_scale)
    if rank_of(factor) == 1 and int(factor.shape[0]) > 1:
        factor = ops.reshape(factor, (-1, *[1] * (rank_of(total) - 2)))
    y = ops.multiply(ops.cast(total, "float32"), factor)
    if not dtypes.is_integer(dtype_of(y_zero)):
        raise ValueError(f"results are not quantized to {dtype_of(y_zero)}")
    return _saturated(y, tensor(y_zero), dtype_of(y_zero))
