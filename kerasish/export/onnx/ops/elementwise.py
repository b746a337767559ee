"""Element-wise ops: arithmetic, functions of one number, comparisons, bits, conversions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kerasish.export.onnx.registry import Call, Translation, translate_by, translates, untranslated
from kerasish.export.onnx.writer import Item, Writer
from kerasish.ops import dtypes
from kerasish.ops.algebra import special
from kerasish.ops.arrays import complexes
from kerasish.ops.basic import (
    arithmetic,
    bits,
    comparison,
    conversion,
    error_function,
    exponentials,
    nonlinearity,
    trigonometry,
)

_LN2, _LN10 = float(np.log(2.0)), float(np.log(10.0))


def unary(w: Writer, x: Item, f: Callable[[Item], Item]) -> Item:
    """Return f(x); of a transposed x the transpose of f: the axes' order comes last."""
    if x.turned is None:
        return f(x)
    source, axes = x.turned
    y = f(source)
    y.shape = source.shape
    return w.transpose(y, axes)


def named(kind: str) -> Translation:
    """Return the translation of an op of one input that ONNX has by name."""
    return lambda w, call: unary(w, call.x, lambda x: w.op(kind, [x]))


def composed(f: Callable[[Writer, Item], Item]) -> Translation:
    """Return the translation of an op of one input that some ONNX operators give together."""
    return lambda w, call: unary(w, call.x, lambda x: f(w, x))


def binary(w: Writer, kind: str, inputs: Sequence[Item], dtype: str | None = None) -> Item:
    """Return an operator of two inputs that broadcast; both transposed alike: the transpose."""
    a, b = inputs
    turned = _alike(w, a, b)
    if turned is None:
        return w.op(kind, [a, b], dtype or a.dtype, ())
    a, b, axes = turned
    y = w.op(kind, [a, b], dtype or a.dtype, a.shape)
    return w.transpose(y, axes)


def _alike(w: Writer, a: Item, b: Item) -> tuple[Item, Item, tuple[int, ...]] | None:
    """Return (a, b, axes) before a transposition that both have, or that numbers can be given."""
    for first, second, swap in ((a, b, False), (b, a, True)):
        if first.turned is None:
            continue
        source, axes = first.turned
        other: Item | None = None
        if second.turned is not None and second.turned[1] == axes:
            other = second.turned[0]
        elif second.array is not None and not second.shape:
            other = second
        elif second.array is not None and len(second.shape) <= len(axes):
            full = (*[1] * (len(axes) - len(second.shape)), *second.shape)
            back = tuple(int(i) for i in np.argsort(axes))
            other = w.transpose(w.reshape(second, full), back)
        if other is not None:
            return (other, source, axes) if swap else (source, other, axes)
    return None


def _two(kind: str) -> Translation:
    return lambda w, call: binary(w, kind, call.inputs)


for _ops, _kind in (
    ((arithmetic.negative,), "Neg"),
    ((arithmetic.absolute,), "Abs"),
    ((arithmetic.ceil,), "Ceil"),
    ((arithmetic.floor,), "Floor"),
    ((arithmetic.reciprocal,), "Reciprocal"),
    ((arithmetic.rint,), "Round"),
    ((arithmetic.sign,), "Sign"),
    ((exponentials.exp,), "Exp"),
    ((exponentials.log,), "Log"),
    ((exponentials.sqrt,), "Sqrt"),
    ((error_function.erf,), "Erf"),
    ((nonlinearity.relu,), "Relu"),
    ((nonlinearity.sigmoid,), "Sigmoid"),
    ((nonlinearity.softplus,), "Softplus"),
    ((trigonometry.arccos,), "Acos"),
    ((trigonometry.arccosh,), "Acosh"),
    ((trigonometry.arcsin,), "Asin"),
    ((trigonometry.arcsinh,), "Asinh"),
    ((trigonometry.arctan,), "Atan"),
    ((trigonometry.arctanh,), "Atanh"),
    ((trigonometry.cos,), "Cos"),
    ((trigonometry.cosh,), "Cosh"),
    ((trigonometry.sin,), "Sin"),
    ((trigonometry.sinh,), "Sinh"),
    ((trigonometry.tan,), "Tan"),
    ((trigonometry.tanh,), "Tanh"),
    ((comparison.logical_not,), "Not"),
    ((bits.bitwise_not,), "BitwiseNot"),
):
    translates(*_ops)(named(_kind))

for _op, _kind in (
    (arithmetic.divide, "Div"),
    (exponentials.power, "Pow"),
):
    translates(_op)(_two(_kind))


def _truths(kind: str, word: str) -> Translation:
    """Return the translation of arithmetic that for truth values is a logical operator."""

    def translate(w: Writer, call: Call) -> Item:
        if call.x.dtype == "bool":
            return binary(w, word, call.inputs)
        return binary(w, kind, call.inputs)

    return translate


translate_by(_truths("Add", "Or"), arithmetic.add)
translate_by(_truths("Mul", "And"), arithmetic.multiply)
translate_by(_truths("Sub", "Xor"), arithmetic.subtract)
translate_by(_truths("Max", "Or"), arithmetic.maximum)
translate_by(_truths("Min", "And"), arithmetic.minimum)


@translates(arithmetic.square)
def _square(w: Writer, call: Call) -> Item:
    return unary(w, call.x, lambda x: w.op("Mul", [x, x]))


@translates(arithmetic.trunc)
def _trunc(w: Writer, call: Call) -> Item:
    if not dtypes.is_inexact(call.x.dtype):
        return call.x
    floor = w.op("Floor", [w.op("Abs", [call.x])])
    return w.op("Mul", [w.op("Sign", [call.x]), floor])


@translates(arithmetic.floor_divide)
def _floor_divide(w: Writer, call: Call) -> Item:
    a, b = call.inputs
    quotient = w.op("Div", [a, b], shape=call.out.shape)
    if dtypes.is_inexact(a.dtype):
        return w.op("Floor", [quotient])
    if a.dtype.startswith("u"):
        return quotient
    # Whole numbers are divided towards 0: one less where a remainder has the other sign.
    rest = w.op("Sub", [a, w.op("Mul", [quotient, b])], shape=call.out.shape)
    zero = w.like(0, a.dtype)
    uneven = w.op("Not", [w.op("Equal", [rest, zero], "bool", call.out.shape)])
    signs = w.op("Less", [w.op("Mul", [w.op("Sign", [rest]), w.op("Sign", [b])]), zero], "bool")
    short = w.cast(w.op("And", [uneven, signs], "bool", call.out.shape), a.dtype)
    return w.op("Sub", [quotient, short], shape=call.out.shape)


@translates(arithmetic.mod)
def _mod(w: Writer, call: Call) -> Item:
    a, b = call.inputs
    if not dtypes.is_inexact(a.dtype):
        return w.op("Mod", [a, b], shape=call.out.shape)
    rest = w.op("Mod", [a, b], shape=call.out.shape, fmod=1)
    zero = w.like(0, a.dtype)
    other = w.op("Less", [w.op("Mul", [rest, b]), zero], "bool", call.out.shape)
    return w.op("Where", [other, w.op("Add", [rest, b]), rest], a.dtype, call.out.shape)


@translates(special.fmod)
def _fmod(w: Writer, call: Call) -> Item:
    return w.op("Mod", call.inputs, shape=call.out.shape, fmod=1)


# --- functions of one number --------------------------------------------------------------------


@translates(exponentials.expm1)
@composed
def _expm1(w: Writer, x: Item) -> Item:
    # 2 exp(x/2) sinh(x/2): exp(x) - 1 loses all digits near 0.
    half = w.op("Mul", [x, w.like(0.5, x.dtype)])
    product = w.op("Mul", [w.op("Exp", [half]), w.op("Sinh", [half])])
    return w.op("Mul", [product, w.like(2, x.dtype)])


@translates(exponentials.log1p)
@composed
def _log1p(w: Writer, x: Item) -> Item:
    # u = 1 + x; log(u) x / (u - 1), which takes the rounding of u back. Source: Goldberg, 1991.
    one = w.like(1, x.dtype)
    u = w.op("Add", [x, one])
    less = w.op("Sub", [u, one])
    tiny = w.op("Equal", [less, w.like(0, x.dtype)], "bool")
    safe = w.op("Where", [tiny, one, less], x.dtype, x.shape)
    ratio = w.op("Div", [w.op("Mul", [w.op("Log", [u]), x]), safe])
    infinite = w.op("IsInf", [u], "bool")
    large = w.op("Where", [infinite, x, ratio], x.dtype, x.shape)
    return w.op("Where", [tiny, x, large], x.dtype, x.shape)


@translates(exponentials.log2)
@composed
def _log2(w: Writer, x: Item) -> Item:
    return w.op("Div", [w.op("Log", [x]), w.like(_LN2, x.dtype)])


@translates(exponentials.log10)
@composed
def _log10(w: Writer, x: Item) -> Item:
    return w.op("Div", [w.op("Log", [x]), w.like(_LN10, x.dtype)])


@translates(exponentials.rsqrt)
@composed
def _rsqrt(w: Writer, x: Item) -> Item:
    return w.op("Reciprocal", [w.op("Sqrt", [x])])


@translates(special.cbrt)
@composed
def _cbrt(w: Writer, x: Item) -> Item:
    root = w.op("Pow", [w.op("Abs", [x]), w.like(1 / 3, x.dtype)])
    return w.op("Mul", [w.op("Sign", [x]), root])


@translates(special.erfc)
@composed
def _erfc(w: Writer, x: Item) -> Item:
    return w.op("Sub", [w.like(1, x.dtype), w.op("Erf", [x])], shape=x.shape)


@translates(special.logaddexp)
def _logaddexp(w: Writer, call: Call) -> Item:
    a, b = call.inputs
    largest = binary(w, "Max", [a, b])
    gap = w.op("Neg", [w.op("Abs", [binary(w, "Sub", [a, b])])])
    return w.op("Add", [largest, _log1p_of(w, w.op("Exp", [gap]))], shape=call.out.shape)


def _log1p_of(w: Writer, x: Item) -> Item:
    return w.op("Log", [w.op("Add", [x, w.like(1, x.dtype)])])


@translates(trigonometry.arctan2)
def _arctan2(w: Writer, call: Call) -> Item:
    y, x = call.inputs
    dtype, shape, zero = y.dtype, call.out.shape, w.like(0, y.dtype)
    straight = w.op("Atan", [w.op("Div", [y, x], shape=shape)])
    pi = w.like(np.pi, dtype)
    below = w.op("Less", [y, zero], "bool", y.shape)
    sign = w.op("Where", [below, w.op("Neg", [pi]), pi], dtype, y.shape)
    left = w.op("Less", [x, zero], "bool", x.shape)
    moved = w.op("Where", [left, w.op("Add", [straight, sign]), straight], dtype, shape)
    upright = w.op("Equal", [x, zero], "bool", x.shape)
    half = w.op("Mul", [w.op("Sign", [y]), w.like(np.pi / 2, dtype)])
    return w.op("Where", [upright, half, moved], dtype, shape)


# --- comparisons --------------------------------------------------------------------------------


def _compared(kind: str, negated: bool = False) -> Translation:
    def translate(w: Writer, call: Call) -> Item:
        inputs = call.inputs
        if call.x.dtype == "bool" and kind != "Equal":
            inputs = [w.cast(x, "int32") for x in inputs]
        y = binary(w, kind, inputs, "bool")
        return w.op("Not", [y], shape=call.out.shape) if negated else y

    return translate


for _op, _kind, _negated in (
    (comparison.equal, "Equal", False),
    (comparison.not_equal, "Equal", True),
    (comparison.greater, "Greater", False),
    (comparison.greater_equal, "GreaterOrEqual", False),
    (comparison.less, "Less", False),
    (comparison.less_equal, "LessOrEqual", False),
):
    translates(_op)(_compared(_kind, _negated))


def _logical(kind: str) -> Translation:
    def translate(w: Writer, call: Call) -> Item:
        return binary(w, kind, [truths(w, x) for x in call.inputs])

    return translate


def truths(w: Writer, x: Item) -> Item:
    """Return whether x is not 0."""
    return w.cast(x, "bool")


translate_by(_logical("And"), comparison.logical_and)
translate_by(_logical("Or"), comparison.logical_or)
translate_by(_logical("Xor"), comparison.logical_xor)


@translates(comparison.select)
def _select(w: Writer, call: Call) -> Item:
    condition, a, b = call.inputs
    return w.op("Where", [truths(w, condition), a, b], a.dtype, call.out.shape)


@translates(comparison.isnan)
def _isnan(w: Writer, call: Call) -> Item:
    return w.op("IsNaN", [call.x], "bool")


@translates(comparison.isinf)
def _isinf(w: Writer, call: Call) -> Item:
    return w.op("IsInf", [_for_isinf(w, call.x)], "bool")


@translates(comparison.isfinite)
def _isfinite(w: Writer, call: Call) -> Item:
    infinite = w.op("IsInf", [_for_isinf(w, call.x)], "bool")
    return w.op("Not", [w.op("Or", [infinite, w.op("IsNaN", [call.x], "bool")])])


def _for_isinf(w: Writer, x: Item) -> Item:
    """Return x in a dtype that `IsInf` takes: 16 bits do since opset 20."""
    return w.cast(x, "float32") if x.dtype in ("float16", "bfloat16") and w.opset < 20 else x


@translates(comparison.signbit)
def _signbit(w: Writer, call: Call) -> Item:
    # 1/x tells -0 from 0.
    zero = w.like(0, call.x.dtype)
    below = w.op("Less", [call.x, zero], "bool")
    inverse = w.op("Less", [w.op("Reciprocal", [call.x]), zero], "bool")
    return w.op("Or", [below, inverse])


# --- bits ---------------------------------------------------------------------------------------


def _bitwise(kind: str, word: str) -> Translation:
    def translate(w: Writer, call: Call) -> Item:
        return binary(w, word if call.x.dtype == "bool" else kind, call.inputs)

    return translate


translate_by(_bitwise("BitwiseAnd", "And"), bits.bitwise_and)
translate_by(_bitwise("BitwiseOr", "Or"), bits.bitwise_or)
translate_by(_bitwise("BitwiseXor", "Xor"), bits.bitwise_xor)


# --- conversions --------------------------------------------------------------------------------


@translates(conversion.alias, conversion.stop_gradient, conversion.optimization_barrier)
def _same(w: Writer, call: Call) -> Item:
    return call.x


@translates(conversion.cast)
def _cast(w: Writer, call: Call) -> Item:
    return unary(w, call.x, lambda x: w.cast(x, call.out.dtype))


_COMPLEX = "ONNX's operators take no complex tensors"
untranslated(_COMPLEX, complexes.join_parts, complexes.reinterpret)


@translates(complexes.conj, complexes.real)
def _real(w: Writer, call: Call) -> Item:
    return _not_complex(call.x)


@translates(complexes.imag)
def _imag(w: Writer, call: Call) -> Item:
    return w.op("Mul", [_not_complex(call.x), w.like(0, call.x.dtype)])


def _not_complex(x: Item) -> Item:
    if x.dtype.startswith("complex"):
        raise ValueError(_COMPLEX)
    return x
