"""Element-wise ops: arithmetic, functions of one number, comparisons, bits, conversions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kerasish.export.onnx.registry import Call, Translation, operator, translates, untranslated
from kerasish.export.onnx.writer import Item, OnnxWriter
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


def unary(w: OnnxWriter, x: Item, f: Callable[[Item], Item]) -> Item:
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


def composed(f: Callable[[OnnxWriter, Item], Item]) -> Translation:
    """Return the translation of an op of one input that some ONNX operators give together."""
    return lambda w, call: unary(w, call.x, lambda x: f(w, x))


def binary(w: OnnxWriter, kind: str, inputs: Sequence[Item], dtype: str | None = None) -> Item:
    """Return an operator of two inputs that broadcast; both transposed alike: the transpose."""
    a, b = inputs
    turned = _alike(w, a, b)
    if turned is None:
        return w.op(kind, [a, b], dtype or a.dtype, ())
    a, b, axes = turned
    y = w.op(kind, [a, b], dtype or a.dtype, a.shape)
    return w.transpose(y, axes)


def _alike(w: OnnxWriter, a: Item, b: Item) -> tuple[Item, Item, tuple[int, ...]] | None:
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


def _two(kind: str, of_truths: str = "") -> Translation:
    """Return the translation of an op of two inputs: for truth values a logical operator."""

    def translate(w: OnnxWriter, call: Call) -> Item:
        word = of_truths if of_truths and call.x.dtype == "bool" else kind
        return binary(w, word, call.inputs)

    return translate


@translates(arithmetic.trunc)
def _trunc(w: OnnxWriter, call: Call) -> Item:
    if not dtypes.is_inexact(call.x.dtype):
        return call.x
    floor = w.op("Floor", [w.op("Abs", [call.x])])
    return w.op("Mul", [w.op("Sign", [call.x]), floor])


@translates(arithmetic.floor_divide)
def _floor_divide(w: OnnxWriter, call: Call) -> Item:
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
def _mod(w: OnnxWriter, call: Call) -> Item:
    a, b = call.inputs
    if not dtypes.is_inexact(a.dtype):
        return w.op("Mod", [a, b], shape=call.out.shape)
    rest = w.op("Mod", [a, b], shape=call.out.shape, fmod=1)
    zero = w.like(0, a.dtype)
    other = w.op("Less", [w.op("Mul", [rest, b]), zero], "bool", call.out.shape)
    return w.op("Where", [other, w.op("Add", [rest, b]), rest], a.dtype, call.out.shape)


# --- functions of one number --------------------------------------------------------------------


@translates(exponentials.expm1)
@composed
def _expm1(w: OnnxWriter, x: Item) -> Item:
    # 2 exp(x/2) sinh(x/2): exp(x) - 1 loses all digits near 0.
    half = w.op("Mul", [x, w.like(0.5, x.dtype)])
    product = w.op("Mul", [w.op("Exp", [half]), w.op("Sinh", [half])])
    return w.op("Mul", [product, w.like(2, x.dtype)])


@translates(exponentials.log1p)
@composed
def _log1p(w: OnnxWriter, x: Item) -> Item:
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


def _logarithm(base: float) -> Translation:
    number = float(np.log(base))
    return composed(lambda w, x: w.op("Div", [w.op("Log", [x]), w.like(number, x.dtype)]))


@translates(special.cbrt)
@composed
def _cbrt(w: OnnxWriter, x: Item) -> Item:
    root = w.op("Pow", [w.op("Abs", [x]), w.like(1 / 3, x.dtype)])
    return w.op("Mul", [w.op("Sign", [x]), root])


@translates(special.logaddexp)
def _logaddexp(w: OnnxWriter, call: Call) -> Item:
    a, b = call.inputs
    largest = binary(w, "Max", [a, b])
    gap = w.op("Neg", [w.op("Abs", [binary(w, "Sub", [a, b])])])
    more = w.op("Log", [w.op("Add", [w.op("Exp", [gap]), w.like(1, a.dtype)])])
    return w.op("Add", [largest, more], shape=call.out.shape)


@translates(trigonometry.arctan2)
def _arctan2(w: OnnxWriter, call: Call) -> Item:
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
    def translate(w: OnnxWriter, call: Call) -> Item:
        inputs = call.inputs
        if call.x.dtype == "bool" and kind != "Equal":
            inputs = [w.cast(x, "int32") for x in inputs]
        y = binary(w, kind, inputs, "bool")
        return w.op("Not", [y], shape=call.out.shape) if negated else y

    return translate


def _logical(kind: str) -> Translation:
    return lambda w, call: binary(w, kind, [w.cast(x, "bool") for x in call.inputs])


@translates(comparison.select)
def _select(w: OnnxWriter, call: Call) -> Item:
    condition, a, b = call.inputs
    return w.op("Where", [w.cast(condition, "bool"), a, b], a.dtype, call.out.shape)


@translates(comparison.isinf)
def _isinf(w: OnnxWriter, call: Call) -> Item:
    x = call.x
    if x.dtype in ("float16", "bfloat16") and w.opset < 20:
        x = w.cast(x, "float32")  # `IsInf` has no 16-bit floats before opset 20
    return w.op("IsInf", [x], "bool")


@translates(comparison.isfinite)
def _isfinite(w: OnnxWriter, call: Call) -> Item:
    return w.op("Not", [w.op("Or", [_isinf(w, call), w.op("IsNaN", [call.x], "bool")])])


@translates(comparison.signbit)
def _signbit(w: OnnxWriter, call: Call) -> Item:
    # 1/x tells -0 from 0.
    zero = w.like(0, call.x.dtype)
    below = w.op("Less", [call.x, zero], "bool")
    inverse = w.op("Less", [w.op("Reciprocal", [call.x]), zero], "bool")
    return w.op("Or", [below, inverse])


# --- conversions --------------------------------------------------------------------------------


@translates(conversion.alias, conversion.stop_gradient, conversion.optimization_barrier)
def _same(w: OnnxWriter, call: Call) -> Item:
    return call.x


@translates(conversion.cast)
def _cast(w: OnnxWriter, call: Call) -> Item:
    return unary(w, call.x, lambda x: w.cast(x, call.out.dtype))


_COMPLEX = "ONNX's operators take no complex tensors"
untranslated(_COMPLEX, complexes.join_parts, complexes.reinterpret)


@translates(complexes.conj, complexes.real)
def _real(w: OnnxWriter, call: Call) -> Item:
    return _not_complex(call.x)


@translates(complexes.imag)
def _imag(w: OnnxWriter, call: Call) -> Item:
    return w.op("Mul", [_not_complex(call.x), w.like(0, call.x.dtype)])


def _not_complex(x: Item) -> Item:
    if x.dtype.startswith("complex"):
        raise ValueError(_COMPLEX)
    return x


# --- operators that take the inputs as they are ------------------------------------------------

for _op, _rule in (
    (arithmetic.negative, named("Neg")),
    (arithmetic.absolute, named("Abs")),
    (arithmetic.ceil, named("Ceil")),
    (arithmetic.floor, named("Floor")),
    (arithmetic.reciprocal, named("Reciprocal")),
    (arithmetic.rint, named("Round")),
    (arithmetic.sign, named("Sign")),
    (exponentials.exp, named("Exp")),
    (exponentials.log, named("Log")),
    (exponentials.sqrt, named("Sqrt")),
    (error_function.erf, named("Erf")),
    (nonlinearity.relu, named("Relu")),
    (nonlinearity.sigmoid, named("Sigmoid")),
    (nonlinearity.softplus, named("Softplus")),
    (trigonometry.arccos, named("Acos")),
    (trigonometry.arccosh, named("Acosh")),
    (trigonometry.arcsin, named("Asin")),
    (trigonometry.arcsinh, named("Asinh")),
    (trigonometry.arctan, named("Atan")),
    (trigonometry.arctanh, named("Atanh")),
    (trigonometry.cos, named("Cos")),
    (trigonometry.cosh, named("Cosh")),
    (trigonometry.sin, named("Sin")),
    (trigonometry.sinh, named("Sinh")),
    (trigonometry.tan, named("Tan")),
    (trigonometry.tanh, named("Tanh")),
    (comparison.logical_not, named("Not")),
    (bits.bitwise_not, named("BitwiseNot")),
    (arithmetic.divide, _two("Div")),
    (exponentials.power, _two("Pow")),
    (arithmetic.add, _two("Add", "Or")),
    (arithmetic.multiply, _two("Mul", "And")),
    (arithmetic.subtract, _two("Sub", "Xor")),
    (arithmetic.maximum, _two("Max", "Or")),
    (arithmetic.minimum, _two("Min", "And")),
    (arithmetic.square, composed(lambda w, x: w.op("Mul", [x, x]))),
    (special.fmod, operator("Mod", fmod=1)),
    (exponentials.log2, _logarithm(2.0)),
    (exponentials.log10, _logarithm(10.0)),
    (exponentials.rsqrt, composed(lambda w, x: w.op("Reciprocal", [w.op("Sqrt", [x])]))),
    (special.erfc, composed(lambda w, x: w.op("Sub", [w.like(1, x.dtype), w.op("Erf", [x])]))),
    (comparison.equal, _compared("Equal")),
    (comparison.not_equal, _compared("Equal", negated=True)),
    (comparison.greater, _compared("Greater")),
    (comparison.greater_equal, _compared("GreaterOrEqual")),
    (comparison.less, _compared("Less")),
    (comparison.less_equal, _compared("LessOrEqual")),
    (comparison.logical_and, _logical("And")),
    (comparison.logical_or, _logical("Or")),
    (comparison.logical_xor, _logical("Xor")),
    (comparison.isnan, operator("IsNaN")),
    (bits.bitwise_and, _two("BitwiseAnd", "And")),
    (bits.bitwise_or, _two("BitwiseOr", "Or")),
    (bits.bitwise_xor, _two("BitwiseXor", "Xor")),
):
    translates(_op)(_rule)
