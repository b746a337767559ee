"""Products with quantized weights, and the floats that these stand for: `DequantizeLinear`.

Before operator set 21, which has integers of 4 bits, these are computed from bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish.export.onnx import stored
from kerasish.export.onnx.registry import Call, Parts, composed, operator, translate_by, translates
from kerasish.export.onnx.writer import Item, OnnxWriter
from kerasish.ops.basic.conversion import as_tensor
from kerasish.ops.networks import quantized
from kerasish.ops.shapes import Spec
from kerasish.tensor import Variable
from kerasish.typing import Array

_SINCE = 21


translate_by(operator("MatMulInteger"), quantized.integer_matmul)


@translates(quantized.packed_product)
def _packed_product(w: OnnxWriter, call: Call) -> Item:
    x, *parts = call.inputs
    weights = _blocks(w, *parts, **call.attrs)
    y = w.op("MatMul", [w.cast(x, "float32"), weights], "float32", call.out.shape)
    return w.cast(y, call.out.dtype)


# --- composed functions of layers ---------------------------------------------------------------


def _matrix(packed: Spec, *_: Spec, units: int, **__: Any) -> Spec:
    return Spec((packed.shape[0], units), "float32")


@composed(quantized.dequantize, _matrix, _SINCE)
def DEQUANTIZE(  # noqa: N802
    packed: Any, scale: Any, zero: Any, units: int, block: int, bits: int = 4
) -> Parts | None:
    """Return the inputs and attributes for weights in blocks of rows."""
    inputs = [as_tensor(x) for x in (packed, scale, zero)]
    if inputs[1].dtype != "float32":
        return None
    return inputs, {"units": units, "block": block, "bits": bits}


translate_by(lambda w, call: _blocks(w, *call.inputs, **call.attrs), DEQUANTIZE)


@composed(quantized.dequantize_rows, _matrix, _SINCE)
def DEQUANTIZE_ROWS(  # noqa: N802
    packed: Any, scale: Any, zero: Any, group: Any, units: int, bits: int
) -> Parts:
    """Return the inputs and attributes for weights whose rows name their groups."""
    return [as_tensor(x) for x in (packed, scale, zero, group)], {"units": units, "bits": bits}


@translates(DEQUANTIZE_ROWS)
def _dequantize_rows(w: OnnxWriter, call: Call) -> Item:
    packed, scale, zero, group = call.inputs
    units, bits = call.attrs["units"], call.attrs["bits"]
    scale = w.cast(scale, "float32")
    if group.array is not None:
        block = max(int(np.sum(group.array == group.array[:1])), 1)
        if np.array_equal(group.array, np.arange(packed.shape[0]) // block):
            return _blocks(w, packed, scale, zero, units=units, block=block, bits=bits)
    return _by_group(w, packed, scale, zero, group, units, bits)


@composed(quantized.dequantize_columns, _matrix, _SINCE)
def DEQUANTIZE_COLUMNS(  # noqa: N802
    packed: Any, scale: Any, zero: Any, units: int, block: int
) -> Parts | None:
    """Return the inputs and attributes for a table whose rows have scales for blocks.

    Rows that were picked before are computed one by one: ONNX picks no rows of 4-bit integers.
    """
    inputs = [as_tensor(x) for x in (packed, scale, zero)]
    if not isinstance(packed, Variable) or inputs[1].dtype != "float32":
        return None
    return inputs, {"units": units, "block": block}


@translates(DEQUANTIZE_COLUMNS)
def _dequantize_columns(w: OnnxWriter, call: Call) -> Item:
    packed, scale, zero = call.inputs
    units, block = call.attrs["units"], call.attrs["block"]
    q = _numbers(w, packed, units, 4, _short(packed, zero))
    return _linear(w, q, scale, zero, min(block, units))


def _unpacked(packed: Spec, *, units: int, **_: Any) -> Spec:
    return Spec((*packed.shape[:-1], units), packed.dtype)


@composed(quantized.unpack, _unpacked, _SINCE)
def UNPACK(packed: Any, units: int, bits: int = 4, signed: bool = True) -> Parts | None:  # noqa: N802
    """Return the inputs and attributes for the 4-bit integers of a variable."""
    if bits == 8 or not isinstance(packed, Variable) or (packed.dtype == "int8") != signed:
        return None
    return [as_tensor(packed)], {"units": units}


@translates(UNPACK)
def _unpack(w: OnnxWriter, call: Call) -> Item:
    q = _numbers(w, call.x, call.attrs["units"], 4, _short(call.x))
    return _widened(w, q, call.x.dtype)


# --- the parts ----------------------------------------------------------------------------------


def _blocks(
    w: OnnxWriter, packed: Item, scale: Item, zero: Item, *, units: int, block: int, bits: int
) -> Item:
    """Return the floats of weights (rows, units), of which `block` rows share scales."""
    rows = packed.shape[0]
    known = packed.array is not None and zero.array is not None
    if w.opset < _SINCE or not known or not rows * units:
        group = w.numbers([row // block for row in range(rows)])
        return _by_group(w, packed, scale, zero, group, units, bits)
    # As (units, rows), in blocks: onnxruntime joins other forms with the product, and then rounds
    # the inputs to 8 bits.
    short = packed.dtype if bits == 8 else _short(packed, zero)
    q = _numbers(w, packed, units, bits, short, turned=True)
    y = _linear(w, q, w.transpose(scale, (1, 0)), w.transpose(zero, (1, 0)), min(block, rows))
    return w.transpose(y, (1, 0))


def _short(packed: Item, zero: Item | None = None) -> str:
    """Return the dtype for integers in the halves of bytes: one of 4 bits, if `zero` fits it."""
    short = "int4" if packed.dtype == "int8" else "uint4"
    low, high = stored.HALVES[short]
    fits = zero is None or ((zero.array >= low) & (zero.array <= high)).all()
    return short if fits else packed.dtype


def _linear(w: OnnxWriter, q: Item, scale: Item, zero: Item, block: int) -> Item:
    """Return the floats of integers whose rows have scales for blocks of columns."""
    inputs: list[Item | None] = [q, w.cast(scale, "float32")]
    if zero.array.any():
        inputs.append(w.derived(zero, (q.dtype,), lambda a: _narrow(a, q.dtype)))
    return w.op("DequantizeLinear", inputs, "float32", q.shape, axis=1, block_size=block)


def _numbers(
    w: OnnxWriter, packed: Item, units: int, bits: int, short: str, turned: bool = False
) -> Item:
    """Return stored integers: those of 4 bits are packed along the last axis.

    Args:
        short: the dtype in which they are stored.
        turned: whether they are stored with their axes in reverse order.
    """

    def unpacked(a: Array) -> Array:
        if bits == 4:
            pairs = np.stack([a.view("uint8") & 15, a.view("uint8") >> 4], -1)
            flat = pairs.reshape(*a.shape[:-1], -1)[..., :units]
            a = (flat ^ 8).view("int8") - 8 if packed.dtype == "int8" else flat
        return _narrow(a.T if turned else a, short)

    return w.derived(packed, (short, units, turned), unpacked)


def _narrow(array: Array, short: str) -> Array:
    if short in stored.HALVES:
        return stored.halves(array, short)
    return np.ascontiguousarray(array).astype(short)


def _by_group(
    w: OnnxWriter, packed: Item, scale: Item, zero: Item, group: Item, units: int, bits: int
) -> Item:
    """Return the floats of weights (rows, units), as they are computed from bytes."""
    q = packed
    if bits == 4:
        known = w.opset >= _SINCE and packed.array is not None
        q = _numbers(w, packed, units, 4, _short(packed)) if known else _halves(w, packed, units)
    shape = (packed.shape[0], units)

    def spread(part: Item) -> Item:
        if part.shape[0] == 1:
            return part
        return w.op("Gather", [part, group], "float32", shape, axis=0)

    y = _widened(w, q)
    if zero.array is None or zero.array.any():
        y = w.op("Sub", [y, spread(_widened(w, zero))], "float32", shape)
    return w.op("Mul", [y, spread(w.cast(scale, "float32"))], "float32", shape)


def _widened(w: OnnxWriter, q: Item, dtype: str = "float32") -> Item:
    """Return integers in a wider dtype, converted when the file runs: as stored they are small."""
    return w.op("Cast", [q], dtype, to=w.code(dtype))


def _halves(w: OnnxWriter, packed: Item, units: int) -> Item:
    """Return the halves of bytes as int32, with the sign of the bytes' dtype.

    By remainders: ONNX shifts no signed numbers.
    """
    shape, rank = packed.shape, len(packed.shape)
    whole = _widened(w, packed, "int32")
    sixteen, eight = (w.initializer(np.int32(n)) for n in (16, 8))

    def op(name: str, a: Item, b: Item) -> Item:
        return w.op(name, [a, b], "int32", shape)

    low = first = op("Mod", whole, sixteen)
    if packed.dtype == "int8":
        low = op("Sub", op("Mod", op("Add", first, eight), sixteen), eight)
    high = op("Div", op("Sub", whole, first), sixteen)
    pairs = w.concat([w.unsqueeze(part, [rank]) for part in (low, high)], rank, 2)
    flat = w.reshape(pairs, (*shape[:-1], 2 * shape[-1]))
    return flat if flat.shape[-1] == units else w.slice(flat, rank - 1, 0, units, units)
