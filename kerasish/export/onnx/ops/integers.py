"""Whole numbers: their divisors, multiples and shifts."""

from __future__ import annotations

from kerasish.export.onnx.ops.control import subgraph
from kerasish.export.onnx.registry import Call, Translation, translate_by, translates
from kerasish.export.onnx.writer import Item, Writer
from kerasish.ops.algebra import special
from kerasish.ops.basic import bits
from kerasish.ops.shapes import Spec

# Dtypes in which runtimes have remainders and comparisons of numbers of other dtypes.
_SIGNED = {
    "bool": "int32", "int8": "int32", "int16": "int32", "int32": "int32", "int64": "int64",
    "uint8": "int32", "uint16": "int32", "uint32": "int64",
}  # fmt: skip


def _pair(w: Writer, call: Call) -> list[Item]:
    """Return both numbers without signs, broadcast, in a dtype with remainders."""
    dtype = _SIGNED.get(call.x.dtype)
    if dtype is None:
        raise ValueError(f"runtimes have no remainders of {call.x.dtype}")
    shape = call.out.shape
    sizes = [w.op("Abs", [w.cast(x, dtype)]) for x in call.inputs]
    return [
        x if x.shape == shape else w.op("Expand", [x, w.shape(shape)], shape=shape) for x in sizes
    ]


def _divisor(w: Writer, a: Item, b: Item) -> Item:
    """Return the greatest common divisors by Euclid's algorithm, all at once, in a loop."""
    dtype, shape = a.dtype, a.shape
    zero = w.like(0, dtype)

    def going(at: Writer, rest: Item) -> Item:
        some = at.cast(at.cast(rest, "bool"), "int64")
        flat = at.op("Reshape", [some, at.numbers([-1])], shape=(None,))
        count = at.op("ReduceSum", [flat, at.numbers([0])], shape=(), keepdims=0)
        return at.cast(count, "bool")

    def body(inner: Writer, given: list[Item]) -> list[Item]:
        x, y = given[2:]
        done = inner.op("Equal", [y, zero], "bool", shape)
        safe = inner.op("Where", [done, inner.like(1, dtype), y], dtype, shape)
        # The smallest number has no positive one of its size: its remainders may be negative.
        rest = inner.op("Abs", [inner.op("Mod", [x, safe])])
        divisor = inner.op("Where", [done, x, y], dtype, shape)
        left = inner.op("Where", [done, zero, rest], dtype, shape)
        return [going(inner, left), divisor, left]

    specs = [Spec((), "int64"), Spec((), "bool"), Spec(shape, dtype), Spec(shape, dtype)]
    graph, _ = subgraph(w, "divisor", specs, body)
    results = [(dtype, shape)] * 2
    return w.ops("Loop", [None, going(w, b), a, b], results, body=graph)[0]


@translates(special.gcd)
def _gcd(w: Writer, call: Call) -> Item:
    return w.cast(_divisor(w, *_pair(w, call)), call.out.dtype)


@translates(special.lcm)
def _lcm(w: Writer, call: Call) -> Item:
    a, b = _pair(w, call)
    dtype, shape, zero = a.dtype, a.shape, w.like(0, a.dtype)
    divisor = _divisor(w, a, b)
    both_zero = w.op("Equal", [divisor, zero], "bool", shape)
    safe = w.op("Where", [both_zero, w.like(1, dtype), divisor], dtype, shape)
    return w.cast(w.op("Mul", [w.op("Div", [a, safe]), b]), call.out.dtype)


def _shift(left: bool) -> Translation:
    """Return the translation of a shift: ONNX has those of unsigned numbers.

    Shifts by as many bits as a number has, or more, and by negative numbers leave nothing but the
    sign, as in NumPy.
    """

    def translate(w: Writer, call: Call) -> Item:
        x, by = call.inputs
        dtype, shape = x.dtype, call.out.shape
        word = "uint64" if dtype.endswith("64") else "uint32"
        width = int(dtype.lstrip("uint"))
        places = w.cast(by, "int64")
        inside = w.op(
            "And",
            [
                w.op("GreaterOrEqual", [places, w.like(0, "int64")], "bool"),
                w.op("Less", [places, w.like(width, "int64")], "bool"),
            ],
            "bool",
        )
        most = w.op("Where", [inside, places, w.like(width - 1, "int64")], "int64", by.shape)
        count = w.cast(most, word)
        if left or dtype.startswith("u"):
            y = w.op(
                "BitShift", [w.cast(x, word), count], shape=shape,
                direction="LEFT" if left else "RIGHT",
            )  # fmt: skip
            y = w.op("Mul", [y, w.cast(inside, word)], shape=shape)
            return w.cast(y, dtype)
        # Of negative numbers the bits that are not set are shifted.
        ones = w.op("Neg", [w.cast(w.op("Less", [x, w.like(0, dtype)], "bool"), dtype)])
        flipped = w.cast(w.op("BitwiseXor", [x, ones]), word)
        y = w.cast(w.op("BitShift", [flipped, count], shape=shape, direction="RIGHT"), dtype)
        return w.op("BitwiseXor", [y, ones], shape=shape)

    return translate


translate_by(_shift(True), bits.left_shift)
translate_by(_shift(False), bits.right_shift)
