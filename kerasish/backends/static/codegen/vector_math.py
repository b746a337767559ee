"""exp, log, tanh and similar functions as short polynomials over any number of lanes, in LLVM IR.

Stated error, in units in the last place, over every finite argument
(tests/backends/test_vector_math.py):

| function | float32 | float64 | method |
|---|---|---|---|
| exp, expm1 | 2 | 3 | r = x - n ln 2, a polynomial in r, scaling by 2**n in two steps |
| log | 2 | 3 | x = 2**n (1 + f), a polynomial in f (float32) or in f / (2 + f) (float64) |
| log1p | 3 | 4 | log(u) + (x - (u - 1)) / u with u = 1 + x |
| tanh | 5 | 6 | t / (t + 2) with t = expm1(2 abs(x)) |
| sigmoid, softplus | 4 | 6 | from exp(-abs(x)), so that nothing overflows |
| erf | 3 | C library | odd polynomial below 1, 1 - exp(polynomial) above |
| sin, cos | 2 | C library | reduced in float64 by pi/2 in three parts; above 2**30 C library |
| power | 1 | C library | in float64: exp(y log(abs(x))) |

NaN returns NaN; infinities and signed zeros return the results of C's functions. The coefficients
are minimax fits (Lawson's iteration on 4,000 Chebyshev points), and Taylor's for float64. A
function without a polynomial here calls the C library lane by lane through the table of pointers
that every record has, so the code contains no addresses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kerasish.backends.static.machine.assembly import Value, Writer, constant, llvm_type

# The table's words: first the parallel loop, then the C library's functions of float64.
TABLE_PARALLEL = 0
LIBRARY = (
    "exp", "log", "expm1", "log1p", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma", "tgamma", "cbrt",
    "exp2", "pow", "fmod", "atan2", "hypot", "nextafter",
)  # fmt: skip
# Then OpenMP's entry points (0 where there is no OpenMP).
TABLE_OPENMP = 1 + len(LIBRARY)
OPENMP = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
TABLE_WORDS = TABLE_OPENMP + len(OPENMP)

_EXP = {
    "float32": (0.5000000077931004, 0.16666666859559445, 0.04166626987760436,
                0.008333264603940644, 0.0013946076844495849, 0.00019918254760275983),
    "float64": tuple(1.0 / math.factorial(k) for k in range(2, 15)),
}  # fmt: skip
_LOG32 = (
    0.3333331043844109, -0.2499998662568995, 0.20002226703582754, -0.16669249462807326,
    0.14218655431463179, -0.12384370297193792, 0.1187301626881819, -0.11789695577643347,
    0.06915146955419077,
)  # fmt: skip
_LOG64 = tuple(2.0 / (2 * k + 3) for k in range(12))
_ERF_NEAR = (
    1.1283791659137594, -0.3761262713601909, 0.11283600176882454, -0.02685444461868857,
    0.005189535391155769, -0.0008020841741595518, 7.889121074852268e-05,
)  # fmt: skip
_ERFC_LOG = (
    0.00018803746325790627, -1.1295784123592298, -0.633219914686092, -0.10841855594027747,
    0.025208244249214407, -0.004204557579160797, 0.0004413355718087476, -2.16867864639189e-05,
)  # fmt: skip
_SIN = (-0.16666666641426212, 0.008333329362252402, -0.00019839327129074366, 2.718237214633605e-06)
_COS = (
    0.041666666622476346, -0.00138888837225744, 2.4799511752831705e-05, -2.720954695123634e-07
)  # fmt: skip
# ln 2 and pi / 2 in parts whose products with an integer n are exact.
_LN2 = {
    "float32": (0.693145751953125, 1.428606765330187e-06),
    "float64": (0.6931471803691238, 1.9082149292705877e-10),
}
_HALF_PI = (
    float.fromhex("0x1.921fb00000000p+0"),
    float.fromhex("0x1.5110b00000000p-22"),
    float.fromhex("0x1.18469898cc517p-44"),
)
_EXPONENT = {"float32": ("int32", 23, 127), "float64": ("int64", 52, 1023)}
_EXP_RANGE = {"float32": (-104.0, 89.0), "float64": (-746.0, 710.0)}


def polynomial(w: Writer, x: Value, coefficients: Sequence[float]) -> Value:
    """c0 + c1 x + c2 x**2 + ... by Horner's rule."""
    result = w.like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        result = w.fma(result, x, w.like(x, c))
    return result


def maximum(w: Writer, a: Value, b: Value) -> Value:
    """max(a, b); NaN if either is."""
    larger = w.select(w.compare("ogt", a, b), a, b)
    return w.select(w.compare("uno", a, a), a, larger)


def minimum(w: Writer, a: Value, b: Value) -> Value:
    """min(a, b); NaN if either is."""
    smaller = w.select(w.compare("olt", a, b), a, b)
    return w.select(w.compare("uno", a, a), a, smaller)


def clamp(w: Writer, x: Value, low: float, high: float) -> Value:
    """x limited to the range between two constants; NaN stays."""
    lowest, highest = w.like(x, low), w.like(x, high)
    x = w.select(w.compare("olt", x, lowest), lowest, x)
    return w.select(w.compare("ogt", x, highest), highest, x)


def absolute(w: Writer, x: Value) -> Value:
    return w.call("llvm.fabs", x)


def with_sign(w: Writer, magnitude: Value, sign: Value) -> Value:
    return w.call("llvm.copysign", magnitude, sign)


def _power_of_two(w: Writer, n: Value, dtype: str) -> Value:
    """2.0 ** n for an integer n in the range of normal exponents."""
    _, bits, bias = _EXPONENT[dtype]
    return w.bitcast(w.shift_left(w.add(n, w.like(n, bias)), bits), dtype)


def _to_integer(w: Writer, x: Value) -> Value:
    """A float with an integral value as the integer of its width."""
    if x.dtype == "float32":
        return w.convert("fptosi", x, "int32")
    return w.convert("sext", w.convert("fptosi", x, "int32"), "int64")


def _from_integer(w: Writer, n: Value, dtype: str) -> Value:
    if dtype == "float64":
        n = w.convert("trunc", n, "int32")
    return w.convert("sitofp", n, dtype)


def _reduce_by_ln2(w: Writer, x: Value) -> tuple[Value, Value, Value]:
    """(n as a float, n as an integer, x - n ln 2)."""
    n = w.call("llvm.rint", w.mul(x, w.like(x, 1 / math.log(2))))
    high, low = _LN2[x.dtype]
    r = w.fma(n, w.like(x, -low), w.fma(n, w.like(x, -high), x))
    return n, _to_integer(w, n), r


def _expm1_polynomial(w: Writer, r: Value) -> Value:
    return w.fma(w.mul(r, r), polynomial(w, r, _EXP[r.dtype]), r)


def exp(w: Writer, x: Value) -> Value:
    """e**x."""
    x = clamp(w, x, *_EXP_RANGE[x.dtype])
    _, n, r = _reduce_by_ln2(w, x)
    p = w.add(_expm1_polynomial(w, r), w.like(x, 1.0))
    half = w.two("ashr", n, w.like(n, 1))
    scaled = w.mul(p, _power_of_two(w, half, x.dtype))
    return w.mul(scaled, _power_of_two(w, w.sub(n, half), x.dtype))


def exp_of_negative(w: Writer, x: Value) -> Value:
    """e**x for x <= 0, where subnormal results may become 0."""
    lowest = w.like(x, -87.3 if x.dtype == "float32" else -708.0)
    tiny = w.compare("olt", x, lowest)
    x = w.select(tiny, lowest, x)
    _, n, r = _reduce_by_ln2(w, x)
    p = w.add(_expm1_polynomial(w, r), w.like(x, 1.0))
    return w.select(tiny, w.like(x, 0.0), w.mul(p, _power_of_two(w, n, x.dtype)))


def expm1(w: Writer, x: Value) -> Value:
    """e**x - 1 = 2**n (e**r - 1) + (2**n - 1), computed halved to avoid overflow for large x."""
    low = -17.5 if x.dtype == "float32" else -38.0
    inside = clamp(w, x, low, _EXP_RANGE[x.dtype][1])
    _, n, r = _reduce_by_ln2(w, inside)
    scale = _power_of_two(w, w.sub(n, w.like(n, 1)), x.dtype)
    shifted = w.sub(scale, w.like(x, 0.5))
    value = w.fma(scale, _expm1_polynomial(w, r), shifted)
    value = w.add(value, value)
    tiny = w.compare("olt", absolute(w, x), w.like(x, 1e-20))
    return w.select(tiny, x, value)


def log(w: Writer, x: Value) -> Value:
    """ln x; -inf at 0, NaN below."""
    whole, bits, bias = _EXPONENT[x.dtype]
    smallest = 2.0 ** (1 - bias)
    subnormal = w.compare("olt", x, w.like(x, smallest))
    scaled = w.select(subnormal, w.mul(x, w.like(x, 2.0**bits)), x)
    offset = 0x3F3504F3 if x.dtype == "float32" else 0x3FE6A09E667F3BCD
    integer = w.bitcast(scaled, whole)
    e = w.two("ashr", w.sub(integer, w.like(integer, offset)), w.like(integer, bits))
    f = w.sub(w.bitcast(w.sub(integer, w.shift_left(e, bits)), x.dtype), w.like(x, 1.0))
    number = _from_integer(w, e, x.dtype)
    shift = w.select(subnormal, w.like(x, -float(bits)), w.like(x, 0.0))
    value = _log_of(w, f, w.add(number, shift))
    infinity = w.like(x, math.inf)
    value = w.select(w.compare("oeq", x, infinity), infinity, value)
    value = w.select(w.compare("oeq", x, w.like(x, 0.0)), w.like(x, -math.inf), value)
    below = w.compare("ult", x, w.like(x, 0.0))
    return w.select(below, w.like(x, math.nan), value)


def _log_of(w: Writer, f: Value, e: Value) -> Value:
    """ln(1 + f) + e ln 2."""
    high, low = _LN2[f.dtype]
    half_square = w.mul(w.mul(f, f), w.like(f, 0.5))
    if f.dtype == "float32":
        cube = w.mul(w.mul(f, f), f)
        tail = w.fma(cube, polynomial(w, f, _LOG32), w.mul(e, w.like(f, low)))
    else:
        s = w.div(f, w.add(f, w.like(f, 2.0)))
        z = w.mul(s, s)
        series = w.mul(z, polynomial(w, z, _LOG64))
        tail = w.fma(s, w.add(half_square, series), w.mul(e, w.like(f, low)))
    return w.fma(e, w.like(f, high), w.sub(f, w.sub(half_square, tail)))


def log1p(w: Writer, x: Value) -> Value:
    """ln(1 + x)."""
    u = w.add(x, w.like(x, 1.0))
    lost = w.div(w.sub(x, w.sub(u, w.like(x, 1.0))), u)
    small = w.compare("olt", absolute(w, x), w.like(x, 1e-20))
    plain = w.compare("ogt", absolute(w, w.sub(u, w.like(x, 1e18))), w.like(x, 9.99e17))
    value = log(w, u)
    exact = w.compare("oeq", u, w.like(x, 0.0))
    lost = w.select(
        w.bits_or(exact, w.bits_and(plain, w.compare("ogt", x, w.like(x, 1e18)))),
        w.like(x, 0.0),
        lost,
    )
    return w.select(small, x, w.add(value, lost))


def tanh(w: Writer, x: Value) -> Value:
    a = clamp(w, absolute(w, x), 0.0, 20.0)
    t = expm1(w, w.add(a, a))
    return with_sign(w, w.div(t, w.add(t, w.like(x, 2.0))), x)


def sigmoid(w: Writer, x: Value) -> Value:
    """1 / (1 + e**-x)."""
    e = exp(w, w.negative(absolute(w, x)))
    top = w.select(w.compare("olt", x, w.like(x, 0.0)), e, w.like(x, 1.0))
    return w.div(top, w.add(e, w.like(x, 1.0)))


def softplus(w: Writer, x: Value) -> Value:
    """ln(1 + e**x)."""
    positive = w.select(w.compare("olt", x, w.like(x, 0.0)), w.like(x, 0.0), x)
    e = exp(w, w.negative(absolute(w, x)))
    return w.add(positive, log1p_below_one(w, e))


def log1p_below_one(w: Writer, x: Value) -> Value:
    """ln(1 + x) for 0 <= x <= 1 (or NaN), without the cases of infinite or subnormal numbers."""
    one = w.like(x, 1.0)
    u = w.add(x, one)
    large = w.compare("ogt", u, w.like(x, math.sqrt(2)))
    scaled = w.select(large, w.mul(u, w.like(x, 0.5)), u)
    e = w.select(large, one, w.like(x, 0.0))
    lost = w.sub(x, w.sub(u, one))
    return w.add(_log_of(w, w.sub(scaled, one), e), w.div(lost, u))


def erf(w: Writer, x: Value) -> Value:
    if x.dtype == "float64":
        return library(w, "erf", x)
    a = clamp(w, absolute(w, x), 0.0, 4.0)
    near = w.mul(a, polynomial(w, w.mul(a, a), _ERF_NEAR))
    outer = w.select(w.compare("olt", a, w.like(a, 0.98)), w.like(a, 0.98), a)
    far = w.sub(w.like(x, 1.0), exp_of_negative(w, polynomial(w, outer, _ERFC_LOG)))
    value = w.select(w.compare("olt", a, w.like(a, 1.0)), near, far)
    return with_sign(w, value, x)


def sin(w: Writer, x: Value) -> Value:
    return _circular(w, x, "sin", 0)


def cos(w: Writer, x: Value) -> Value:
    return _circular(w, x, "cos", 1)


def _circular(w: Writer, x: Value, name: str, turn: int) -> Value:
    if x.dtype == "float64":
        return library(w, name, x)
    huge = w.compare("ugt", absolute(w, x), w.like(x, 2.0**30))
    any_huge = w.fold(huge, w.bits_or)
    return w.branch(any_huge, lambda: [library(w, name, x)], lambda: [_small_circular(w, x, turn)])[
        0
    ]


def _small_circular(w: Writer, x: Value, turn: int) -> Value:
    wide = w.convert("fpext", x, "float64")
    n = w.call("llvm.rint", w.mul(wide, w.like(wide, 2 / math.pi)))
    r = wide
    for part in _HALF_PI:
        r = w.sub(r, w.mul(n, w.like(wide, part)))
    quadrant = w.add(w.convert("fptosi", n, "int32"), constant(turn, "int32", x.lanes))
    f = w.convert("fptrunc", r, "float32")
    s = w.mul(f, f)
    sine = w.fma(w.mul(f, s), polynomial(w, s, _SIN), f)
    one = w.fma(s, w.like(f, -0.5), w.like(f, 1.0))
    cosine = w.fma(w.mul(s, s), polynomial(w, s, _COS), one)
    odd = w.compare("ne", w.bits_and(quadrant, w.like(quadrant, 1)), w.like(quadrant, 0))
    flip = w.compare("ne", w.bits_and(quadrant, w.like(quadrant, 2)), w.like(quadrant, 0))
    value = w.select(odd, cosine, sine)
    value = w.select(flip, w.negative(value), value)
    if turn == 0:
        return w.select(w.compare("oeq", x, w.like(x, 0.0)), x, value)
    return value


def power(w: Writer, x: Value, y: Value) -> Value:
    """x ** y with C's special cases."""
    if x.dtype == "float64":
        return library(w, "pow", x, y)
    wide_y = w.convert("fpext", y, "float64")
    a = w.convert("fpext", absolute(w, x), "float64")
    wide = exp(w, w.mul(wide_y, log(w, a)))
    value = w.convert("fptrunc", wide, "float32")
    one, zero = w.like(x, 1.0), w.like(x, 0.0)
    whole = w.compare("oeq", w.call("llvm.rint", y), y)
    half = w.mul(y, w.like(y, 0.5))
    odd = w.bits_and(whole, w.compare("une", w.call("llvm.rint", half), half))
    bits = w.bitcast(x, "int32")
    signed = w.bits_and(w.compare("slt", bits, w.like(bits, 0)), odd)
    value = w.select(signed, w.negative(value), value)
    finite_negative = w.bits_and(
        w.compare("olt", x, zero), w.compare("ogt", x, w.like(x, -math.inf))
    )
    invalid = w.bits_and(finite_negative, w.bits_xor(whole, w.like(whole, 1)))
    value = w.select(invalid, w.like(x, math.nan), value)
    unit = w.compare("oeq", absolute(w, x), one)
    endless = w.compare("oeq", absolute(w, y), w.like(y, math.inf))
    always = w.bits_or(w.compare("oeq", y, zero), w.compare("oeq", x, one))
    return w.select(w.bits_or(always, w.bits_and(unit, endless)), one, value)


def library(w: Writer, name: str, *args: Value) -> Value:
    """The C library's float64 function `name`, lane by lane, through the record's table."""
    first = args[0]
    wide = [w.convert("fpext", a, "float64") if a.dtype == "float32" else a for a in args]
    function = Value(w.load_word(w.table, 1 + LIBRARY.index(name), "ptr").text, "ptr")
    if first.lanes == 1:
        result = _call_library(w, function, wide)
    else:
        buffers = [w.allocate("double", a.lanes) for a in wide]
        for a, buffer in zip(wide, buffers, strict=True):
            w.store_value(a, buffer, 8)
        out = w.allocate("double", first.lanes)

        def lane(i: Value, _: list[Value]) -> list[Value]:
            items = [w.load_value(w.address(b, i, 8), "float64") for b in buffers]
            w.store_value(_call_library(w, function, items), w.address(out, i, 8), 8)
            return []

        w.loop(constant(0, "int64"), constant(first.lanes, "int64"), 1, [], lane)
        text = w.load(out, llvm_type("float64", first.lanes), 8)
        result = Value(text, "float64", first.lanes)
    return w.convert("fptrunc", result, "float32") if first.dtype == "float32" else result


def _call_library(w: Writer, function: Value, args: Sequence[Value]) -> Value:
    given = ", ".join(a.typed for a in args)
    return w.let(f"call double {function.text}({given})", "float64")
