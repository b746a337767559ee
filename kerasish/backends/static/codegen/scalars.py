"""One op on one vector of values: the instructions of each op of a kernel's body.

`apply(w, node, args)` returns the node's value. These rules hold for all ops: NaN in, NaN out;
`maximum` and `minimum` propagate NaN as in NumPy; integers wrap; division by the integer 0 gives 0,
as in NumPy, and never traps; `mod` and `floor_divide` round down as in Python.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from kerasish.backends.static.codegen import functions, vector_math
from kerasish.backends.static.codegen.description import LoopNode
from kerasish.backends.static.machine.assembly import (
    STORED,
    Value,
    Writer,
    computed,
    constant,
    is_float,
    is_signed,
)
from kerasish.ops.basic.error_function import NEAR_EDGE, QUANTILE_OUTER

Rule = Callable[..., Value]

_PREDICATES = {
    "equal": ("oeq", "eq", "eq"),
    "not_equal": ("une", "ne", "ne"),
    "less": ("olt", "slt", "ult"),
    "less_equal": ("ole", "sle", "ule"),
    "greater": ("ogt", "sgt", "ugt"),
    "greater_equal": ("oge", "sge", "uge"),
}
_INTRINSICS = {
    "floor": "llvm.floor", "ceil": "llvm.ceil", "rint": "llvm.rint", "trunc": "llvm.trunc",
    "sqrt": "llvm.sqrt",
}  # fmt: skip
_VECTOR_MATH: dict[str, Rule] = {
    "exp": vector_math.exp,
    "expm1": vector_math.expm1,
    "log": vector_math.log,
    "log1p": vector_math.log1p,
    "tanh": vector_math.tanh,
    "sigmoid": vector_math.sigmoid,
    "softplus": vector_math.softplus,
    "erf": vector_math.erf,
    "sin": vector_math.sin,
    "cos": vector_math.cos,
}


def apply(w: Writer, node: LoopNode, args: list[Value]) -> Value:
    """The value of `node` for these arguments (all of the same number of lanes)."""
    op = node.op
    if op in _PREDICATES:
        return compare(w, op, *args)
    if op in _VECTOR_MATH:
        return _VECTOR_MATH[op](w, *args)
    if op == "c_function":
        return vector_math.library(w, node.attr("function"), *args)
    if op in _INTRINSICS:
        return w.call(_INTRINSICS[op], *args)
    if op == "cast":
        return cast(w, args[0], computed(node.dtype))
    if op == "bitcast":
        return w.bitcast(args[0], computed(node.dtype))
    if op == "nextafter":
        return functions.nextafter(w, args[0], args[1], node.attr("stored", node.dtype))
    return _RULES[op](w, *args)


def compare(w: Writer, op: str, a: Value, b: Value) -> Value:
    """A comparison, signed or unsigned according to the dtype."""
    floats, signed, unsigned = _PREDICATES[op]
    kind = floats if is_float(a.dtype) else signed if is_signed(a.dtype) else unsigned
    return w.compare(kind, a, b)


def maximum(w: Writer, a: Value, b: Value) -> Value:
    if is_float(a.dtype):
        return vector_math.maximum(w, a, b)
    return w.select(compare(w, "greater", a, b), a, b)


def minimum(w: Writer, a: Value, b: Value) -> Value:
    if is_float(a.dtype):
        return vector_math.minimum(w, a, b)
    return w.select(compare(w, "less", a, b), a, b)


def cast(w: Writer, x: Value, dtype: str) -> Value:
    """x as `dtype` by NumPy's rules: truncation toward 0, wrapping, True where not 0."""
    if x.dtype == dtype:
        return x
    if dtype == "bool":
        return w.compare("une" if is_float(x.dtype) else "ne", x, w.like(x, 0))
    if x.dtype == "bool":
        if is_float(dtype):  # a select is one instruction, a conversion three
            return w.select(x, constant(1, dtype, x.lanes), constant(0, dtype, x.lanes))
        return w.convert("zext", x, dtype)
    if is_float(x.dtype):
        if is_float(dtype):
            return w.convert("fpext" if dtype == "float64" else "fptrunc", x, dtype)
        return _float_to_integer(w, x, dtype)
    if is_float(dtype):
        return w.convert("sitofp" if is_signed(x.dtype) else "uitofp", x, dtype)
    if STORED[dtype][1] > STORED[x.dtype][1]:
        return w.convert("sext" if is_signed(x.dtype) else "zext", x, dtype)
    return w.convert("trunc", x, dtype)


def _float_to_integer(w: Writer, x: Value, dtype: str) -> Value:
    size = STORED[dtype][1]
    if dtype == "uint64":
        return w.convert("fptoui", x, dtype)
    wide = "int64" if size == 8 or dtype == "uint32" else "int32"
    whole = w.convert("fptosi", x, wide)
    return whole if wide == dtype else w.convert("trunc", whole, dtype)


def _logical(instruction: str) -> Rule:
    def rule(w: Writer, a: Value, b: Value) -> Value:
        return w.two(instruction, cast(w, a, "bool"), cast(w, b, "bool"))

    return rule


def _not(w: Writer, a: Value) -> Value:
    a = cast(w, a, "bool")
    return w.bits_xor(a, w.like(a, 1))


def _absolute(w: Writer, x: Value) -> Value:
    if is_float(x.dtype):
        return vector_math.absolute(w, x)
    if not is_signed(x.dtype):
        return x
    return w.select(w.compare("slt", x, w.like(x, 0)), w.negative(x), x)


def _sign(w: Writer, x: Value) -> Value:
    zero, one = w.like(x, 0), w.like(x, 1)
    if is_float(x.dtype):
        ordered = vector_math.with_sign(w, one, x)
        moved = w.compare("one", x, zero)
        return w.select(moved, ordered, x)
    if not is_signed(x.dtype):
        return w.select(w.compare("eq", x, zero), zero, one)
    positive = w.select(w.compare("sgt", x, zero), one, zero)
    return w.select(w.compare("slt", x, zero), w.like(x, -1), positive)


def _relu(w: Writer, x: Value) -> Value:
    zero = w.like(x, 0)
    return w.select(compare(w, "less", x, zero), zero, x)


def _multiply(w: Writer, a: Value, b: Value) -> Value:
    return w.bits_and(a, b) if a.dtype == "bool" else w.mul(a, b)


def _add(w: Writer, a: Value, b: Value) -> Value:
    return w.bits_or(a, b) if a.dtype == "bool" else w.add(a, b)


def _integer_division(w: Writer, a: Value, b: Value) -> tuple[Value, Value]:
    """(floor(a / b), a - floor(a / b) * b); 0 and 0 where b is 0."""
    quotient, rest = functions.divide_integers(w, a, b)
    if not is_signed(a.dtype):
        return quotient, rest
    zero = w.like(a, 0)
    apart = w.compare("slt", w.bits_xor(rest, b), zero)
    low = w.bits_and(apart, w.compare("ne", rest, zero))
    quotient = w.select(low, w.sub(quotient, w.like(a, 1)), quotient)
    return quotient, w.select(low, w.add(rest, b), rest)


def _mod(w: Writer, a: Value, b: Value) -> Value:
    if not is_float(a.dtype):
        return _integer_division(w, a, b)[1]
    rest, apart = _remainder(w, a, b)
    zero = w.like(a, 0)
    signed = w.select(w.compare("oeq", rest, zero), vector_math.with_sign(w, zero, b), rest)
    return w.select(apart, w.add(rest, b), signed)


def _remainder(w: Writer, a: Value, b: Value) -> tuple[Value, Value]:
    """C's fmod, which has the sign of a, and whether it is nonzero and b has the other sign."""
    rest = vector_math.library(w, "fmod", a, b)
    zero = w.like(a, 0)
    apart = w.bits_xor(w.compare("olt", rest, zero), w.compare("olt", b, zero))
    return rest, w.bits_and(apart, w.compare("one", rest, zero))


def _floor_divide(w: Writer, a: Value, b: Value) -> Value:
    if not is_float(a.dtype):
        return _integer_division(w, a, b)[0]
    # One less where the signs differ. The remainder plus b would be wrong, since b may be infinite.
    rest, apart = _remainder(w, a, b)
    quotient = w.div(w.sub(a, rest), b)
    quotient = w.select(apart, w.sub(quotient, w.like(a, 1)), quotient)
    down = w.call("llvm.floor", quotient)
    near = w.compare("ogt", w.sub(quotient, down), w.like(a, 0.5))
    whole = w.select(near, w.add(down, w.like(a, 1)), down)
    exact = w.div(a, b)
    whole = w.select(
        w.compare("oeq", whole, w.like(a, 0)), vector_math.with_sign(w, w.like(a, 0), exact), whole
    )
    return w.select(w.compare("oeq", b, w.like(a, 0)), exact, whole)


def _power(w: Writer, a: Value, b: Value) -> Value:
    if is_float(a.dtype):
        return vector_math.power(w, a, b)
    one, zero = w.like(a, 1), w.like(a, 0)
    result, base, rest = one, a, b
    for _ in range(8 * STORED[a.dtype][1]):
        odd = w.compare("ne", w.bits_and(rest, one), zero)
        result = w.select(odd, w.mul(result, base), result)
        base, rest = w.mul(base, base), w.shift_right(rest, 1)
    if is_signed(a.dtype):
        # 1 / a ** -b without its fraction, which is 0 except for powers of 1 and -1.
        minus = w.like(a, -1)
        even = w.compare("eq", w.bits_and(b, one), zero)
        unit = w.select(w.compare("eq", a, minus), w.select(even, one, minus), zero)
        unit = w.select(w.compare("eq", a, one), one, unit)
        result = w.select(w.compare("slt", b, zero), unit, result)
    return result


def _shift(instruction: str) -> Rule:
    def rule(w: Writer, a: Value, b: Value) -> Value:
        bits = 8 * STORED[a.dtype][1]
        inside = w.compare("ult", b, w.like(b, bits))
        count = w.select(inside, b, w.like(b, 0))
        kind = "ashr" if instruction == "right" and is_signed(a.dtype) else "lshr"
        shifted = w.two("shl" if instruction == "left" else kind, a, count)
        beyond = w.like(a, 0)
        if kind == "ashr" and instruction == "right":
            beyond = w.two("ashr", a, w.like(a, bits - 1))
        return w.select(inside, shifted, beyond)

    return rule


def _isnan(w: Writer, x: Value) -> Value:
    return w.compare("uno", x, x) if is_float(x.dtype) else constant(0, "bool", x.lanes)


def _isinf(w: Writer, x: Value) -> Value:
    if not is_float(x.dtype):
        return constant(0, "bool", x.lanes)
    return w.compare("oeq", vector_math.absolute(w, x), w.like(x, math.inf))


def _isfinite(w: Writer, x: Value) -> Value:
    if not is_float(x.dtype):
        return constant(1, "bool", x.lanes)
    return w.compare("olt", vector_math.absolute(w, x), w.like(x, math.inf))


def _signbit(w: Writer, x: Value) -> Value:
    if is_float(x.dtype):
        x = w.bitcast(x, "int32" if x.dtype == "float32" else "int64")
    return w.compare("slt", x, w.like(x, 0))


def _uniform(w: Writer, bits: Value) -> Value:
    """Bits -> a float32 in [0, 1): the high 24 bits times 2**-24."""
    high = Value(w.shift_right(bits, 8).text, "int32", bits.lanes)
    return w.mul(w.convert("sitofp", high, "float32"), constant(2.0**-24, "float32", bits.lanes))


def _select(w: Writer, condition: Value, a: Value, b: Value) -> Value:
    return w.select(cast(w, condition, "bool"), a, b)


def _scaled_log(number: float) -> Rule:
    def rule(w: Writer, x: Value) -> Value:
        if x.dtype == "float64":
            return vector_math.library(w, "log2" if number == 2 else "log10", x)
        wide = vector_math.log(w, w.convert("fpext", x, "float64"))
        return w.convert("fptrunc", w.mul(wide, w.like(wide, 1 / math.log(number))), "float32")

    return rule


def _erfinv(w: Writer, x: Value) -> Value:
    """The number whose erf is x: Giles's estimate (GPU Computing Gems, 2011), then Newton steps."""
    wide = w.convert("fpext", x, "float64")
    one = w.like(wide, 1.0)
    inner = w.mul(w.sub(one, wide), w.add(one, wide))
    t = w.negative(vector_math.log(w, inner))
    large = w.compare("olt", t, w.like(t, 5.0))
    near = vector_math.polynomial(w, w.sub(t, w.like(t, 2.5)), _GILES_NEAR[::-1])
    root = w.call("llvm.sqrt", vector_math.maximum(w, t, w.like(t, 5.0)))
    far = vector_math.polynomial(w, w.sub(root, w.like(t, 3.0)), _GILES_FAR[::-1])
    y = w.mul(wide, w.select(large, near, far))
    for _ in range(2 if x.dtype == "float64" else 1):
        off = w.sub(vector_math.library(w, "erf", y), wide)
        slope = w.mul(vector_math.exp(w, w.mul(y, y)), w.like(y, math.sqrt(math.pi) / 2))
        y = w.sub(y, w.mul(off, slope))
    size = vector_math.absolute(w, wide)
    if x.dtype == "float64":
        y = w.select(w.compare("olt", w.sub(one, size), w.like(one, NEAR_EDGE)), _last(w, wide), y)
    edge = w.select(
        w.compare("oeq", size, one), w.mul(wide, w.like(wide, math.inf)), w.like(wide, math.nan)
    )
    y = w.select(w.compare("olt", size, one), y, edge)
    return w.convert("fptrunc", y, "float32") if x.dtype == "float32" else y


def _last(w: Writer, x: Value) -> Value:
    """erfinv of float64 next to 1 or -1: by the normal quantile there."""
    left = w.mul(w.sub(w.like(x, 1.0), vector_math.absolute(w, x)), w.like(x, 0.5))
    r = w.call("llvm.sqrt", w.negative(vector_math.log(w, left)))
    r = w.sub(r, w.like(r, 1.6))
    top, bottom = (vector_math.polynomial(w, r, part) for part in QUANTILE_OUTER)
    y = w.mul(w.div(top, bottom), w.like(r, math.sqrt(0.5)))
    return w.select(w.compare("olt", x, w.like(x, 0.0)), w.negative(y), y)


_GILES_NEAR = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_GILES_FAR = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
    -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip

_RULES: dict[str, Rule] = {
    "add": _add,
    "subtract": lambda w, a, b: w.bits_xor(a, b) if a.dtype == "bool" else w.sub(a, b),
    "multiply": _multiply,
    "divide": lambda w, a, b: w.div(a, b),
    "floor_divide": _floor_divide,
    "mod": _mod,
    "power": _power,
    "maximum": maximum,
    "minimum": minimum,
    "fmod": functions.fmod,
    "gcd": functions.gcd,
    "lcm": functions.lcm,
    "logaddexp": functions.logaddexp,
    "i0": functions.i0,
    "i1": functions.i1,
    "negative": lambda w, x: w.negative(x),
    "absolute": _absolute,
    "sign": _sign,
    "square": lambda w, x: _multiply(w, x, x),
    "relu": _relu,
    "stop_gradient": lambda w, x: x,
    "broadcast": lambda w, x: x,
    "rsqrt": lambda w, x: w.div(w.like(x, 1.0), w.call("llvm.sqrt", x)),
    "reciprocal": lambda w, x: w.div(w.like(x, 1.0), x),
    "log2": _scaled_log(2.0),
    "log10": _scaled_log(10.0),
    "erfinv": _erfinv,
    "isnan": _isnan,
    "isinf": _isinf,
    "isfinite": _isfinite,
    "signbit": _signbit,
    "logical_and": _logical("and"),
    "logical_or": _logical("or"),
    "logical_xor": _logical("xor"),
    "logical_not": _not,
    "bitwise_and": lambda w, a, b: w.bits_and(a, b),
    "bitwise_or": lambda w, a, b: w.bits_or(a, b),
    "bitwise_xor": lambda w, a, b: w.bits_xor(a, b),
    "bitwise_not": lambda w, a: w.bits_xor(a, w.like(a, 1 if a.dtype == "bool" else -1)),
    "left_shift": _shift("left"),
    "right_shift": _shift("right"),
    "select": _select,
    "uniform": _uniform,
}


def reduction(name: str, w: Writer, a: Value, b: Value) -> Value:
    """Two partial results of row_, column_ or all_ `sum`, `max`, `min`, `prod` combined."""
    kind = name.rsplit("_", 1)[1]
    if kind == "sum":
        return _add(w, a, b)
    if kind == "prod":
        return _multiply(w, a, b)
    return maximum(w, a, b) if kind == "max" else minimum(w, a, b)


def neutral(name: str, dtype: str, lanes: int) -> Value:
    """The neutral element of a reduction."""
    kind = name.rsplit("_", 1)[1]
    if kind == "sum":
        return constant(0, dtype, lanes)
    if kind == "prod":
        return constant(1, dtype, lanes)
    if is_float(dtype):
        return constant(-math.inf if kind == "max" else math.inf, dtype, lanes)
    if dtype == "bool":
        return constant(kind == "min", dtype, lanes)
    bits = 8 * STORED[dtype][1]
    if is_signed(dtype):
        return constant(-(2 ** (bits - 1)) if kind == "max" else 2 ** (bits - 1) - 1, dtype, lanes)
    return constant(0 if kind == "max" else 2**bits - 1, dtype, lanes)


def philox(w: Writer, counter: list[Value], key: list[Value], rounds: int = 10) -> list[Value]:
    """Philox4x32: four random words for each counter. Source: Salmon et al., SC 2011."""

    def one_round(_: Value, state: list[Value]) -> list[Value]:
        c0, c1, c2, c3, k0, k1 = state
        high0, low0 = _multiply_wide(w, c0, 0xD2511F53)
        high1, low1 = _multiply_wide(w, c2, 0xCD9E8D57)
        first = w.bits_xor(w.bits_xor(high1, c1), k0)
        third = w.bits_xor(w.bits_xor(high0, c3), k1)
        k0, k1 = w.add(k0, w.like(k0, 0x9E3779B9)), w.add(k1, w.like(k1, 0xBB67AE85))
        return [first, low1, third, low0, k0, k1]

    start, stop = constant(0, "int64"), constant(rounds, "int64")
    return w.loop(start, stop, 1, [*counter, *key], one_round)[:4]


def _multiply_wide(w: Writer, a: Value, factor: int) -> tuple[Value, Value]:
    wide = w.convert("zext", a, "uint64")
    product = w.mul(wide, w.like(wide, factor))
    low = w.convert("trunc", product, "uint32")
    return w.convert("trunc", w.shift_right(product, 32), "uint32"), low
