"""Less common functions of one or two numbers: integer division, Bessel functions, nextafter.

Rules as in `scalars`: NaN in, NaN out; integers wrap; nothing traps.
"""

from __future__ import annotations

import math

from kerasish.backends.static.codegen import memory, vector_math
from kerasish.backends.static.machine.assembly import STORED, Value, Writer, is_float, is_signed
from kerasish.ops.basic import bessel

# --- integers -------------------------------------------------------------------------------------


def divide_integers(w: Writer, a: Value, b: Value) -> tuple[Value, Value]:
    """(a / b towards 0, a - that * b); 0 and 0 where b is 0."""
    zero, one = w.like(a, 0), w.like(a, 1)
    absent = w.compare("eq", b, zero)
    safe = w.select(absent, one, b)
    if is_signed(a.dtype):
        minus = w.compare("eq", safe, w.like(a, -1))  # the smallest number / -1 would trap
        quotient = w.two("sdiv", a, w.select(minus, one, safe))
        quotient = w.select(minus, w.negative(a), quotient)
    else:
        quotient = w.two("udiv", a, safe)
    rest = w.sub(a, w.mul(quotient, safe))
    return w.select(absent, zero, quotient), w.select(absent, zero, rest)


def _size(w: Writer, x: Value) -> Value:
    """|x| as an unsigned number of the same width, which also holds that of the smallest number."""
    if not is_signed(x.dtype):
        return x
    positive = w.select(w.compare("slt", x, w.like(x, 0)), w.negative(x), x)
    return Value(positive.text, f"u{x.dtype}", x.lanes)


def _common_divisor(w: Writer, a: Value, b: Value) -> Value:
    """Euclid's algorithm on unsigned numbers, until every lane is done."""

    def more(state: list[Value]) -> Value:
        return w.fold(w.compare("ne", state[1], w.like(state[1], 0)), w.bits_or)

    def body(state: list[Value]) -> list[Value]:
        a, b = state
        done = w.compare("eq", b, w.like(b, 0))
        rest = divide_integers(w, a, b)[1]
        return [w.select(done, a, b), rest]

    return w.repeat([a, b], more, body)[0]


def gcd(w: Writer, a: Value, b: Value) -> Value:
    """The greatest common divisor; 0 for 0 and 0."""
    result = _common_divisor(w, _size(w, a), _size(w, b))
    return Value(result.text, a.dtype, a.lanes)


def lcm(w: Writer, a: Value, b: Value) -> Value:
    """|a / gcd * b|, wrapped; 0 where either is 0."""
    one, other = _size(w, a), _size(w, b)
    quotient, _ = divide_integers(w, one, _common_divisor(w, one, other))
    return Value(w.mul(quotient, other).text, a.dtype, a.lanes)


def fmod(w: Writer, a: Value, b: Value) -> Value:
    """a - trunc(a / b) * b, with the sign of a; exact."""
    if is_float(a.dtype):
        return vector_math.library(w, "fmod", a, b)
    return divide_integers(w, a, b)[1]


# --- floats ---------------------------------------------------------------------------------------


def logaddexp(w: Writer, a: Value, b: Value) -> Value:
    """log(e**a + e**b) = max + log(1 + e**-|a - b|)."""
    apart = w.negative(vector_math.absolute(w, w.sub(a, b)))
    # Equal infinities have no difference.
    apart = w.select(w.compare("oeq", a, b), w.like(a, 0.0), apart)
    more = vector_math.log1p_below_one(w, vector_math.exp(w, apart))
    return w.add(vector_math.maximum(w, a, b), more)


def i0(w: Writer, x: Value) -> Value:
    """The modified Bessel function of order 0, computed in float64."""
    return _in_float64(w, x, 0)


def i1(w: Writer, x: Value) -> Value:
    """The modified Bessel function of order 1, computed in float64."""
    return _in_float64(w, x, 1)


def _in_float64(w: Writer, x: Value, order: int) -> Value:
    wide = w.convert("fpext", x, "float64")
    a = vector_math.absolute(w, wide)
    low = w.compare("olt", a, w.like(a, bessel.SPLIT))
    any_low = w.fold(low, w.bits_or)
    any_far = w.fold(w.compare("uge", a, w.like(a, bessel.SPLIT)), w.bits_or)
    nothing = w.like(a, 0.0)
    near = w.branch(any_low, lambda: [_near(w, a, order)], lambda: [nothing])[0]
    far = w.branch(any_far, lambda: [_far(w, a, order)], lambda: [nothing])[0]
    value = w.select(low, near, far)
    if order:
        value = vector_math.with_sign(w, value, wide)
    return w.convert("fptrunc", value, x.dtype)


def _near(w: Writer, a: Value, order: int) -> Value:
    half = w.mul(vector_math.clamp(w, a, 0.0, bessel.SPLIT), w.like(a, 0.5))
    series = vector_math.polynomial(w, w.mul(half, half), bessel.taylor(order))
    return w.mul(series, half) if order else series


def _far(w: Writer, a: Value, order: int) -> Value:
    a = vector_math.clamp(w, a, bessel.SPLIT, bessel.LARGEST)
    root = vector_math.exp(w, w.mul(a, w.like(a, 0.5)))
    series = vector_math.polynomial(w, w.div(w.like(a, 1.0), a), bessel.asymptotic(order))
    scale = w.call("llvm.sqrt", w.mul(a, w.like(a, 2 * math.pi)))
    return w.mul(w.mul(root, w.div(series, scale)), root)


def nextafter(w: Writer, a: Value, b: Value, dtype: str) -> Value:
    """The number of `dtype` next to a in the direction of b; b where they are equal.

    Args:
        dtype: the dtype of the result in memory; 16-bit a and b are computed in float32.
    """
    if dtype == a.dtype:
        whole = "uint32" if dtype == "float32" else "uint64"
        result = w.bitcast(_next_bits(w, a, b, w.bitcast(a, whole), w.bitcast(b, whole)), dtype)
    else:
        stored = [memory.to_storage(w, x, dtype) for x in (a, b)]
        a, b = (memory.from_storage(w, x, dtype) for x in stored)
        result = memory.from_storage(w, _next_bits(w, a, b, *stored), dtype)
        if dtype == "float16":  # NumPy keeps the sign of the first zero here, unlike C
            result = w.select(w.compare("oeq", a, b), a, result)
    return w.select(w.compare("uno", a, b), w.add(a, b), result)


def _next_bits(w: Writer, a: Value, b: Value, bits: Value, target: Value) -> Value:
    """The bits of the number next to a: sign and magnitude, plus or minus one."""
    one = w.like(bits, 1)
    top = 8 * STORED[bits.dtype][1] - 1
    sign = w.shift_left(w.shift_right(target, top), top)
    smallest = w.bits_or(sign, one)
    zero = w.like(a, 0.0)
    outwards = w.compare("ogt", a, zero)
    grows = w.bits_xor(w.compare("ogt", a, b), outwards)
    moved = w.select(grows, w.add(bits, one), w.sub(bits, one))
    moved = w.select(w.compare("oeq", a, zero), smallest, moved)
    return w.select(w.compare("oeq", a, b), target, moved)
