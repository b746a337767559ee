"""Functions that ONNX has no operator for, by series and fractions in the dtype of the numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kerasish.export.onnx.ops.elementwise import composed
from kerasish.export.onnx.registry import Call, translate_by, translates
from kerasish.export.onnx.writer import Item, OnnxWriter
from kerasish.ops.algebra import special
from kerasish.ops.basic import bessel, error_function


def _wide(dtype: str) -> str:
    """Return the dtype in which a function of numbers of a dtype is computed."""
    return "float64" if dtype == "float64" else "float32"


def horner(w: OnnxWriter, coefficients: Sequence[float], x: Item) -> Item:
    """Return the sum of coefficients[k] * x**k."""
    result = w.like(coefficients[-1], x.dtype)
    for c in coefficients[-2::-1]:
        product = w.op("Mul", [x, result], shape=x.shape)
        result = w.op("Add", [product, w.like(c, x.dtype)], shape=x.shape)
    return result


def _one(w: OnnxWriter, kind: str, x: Item, number: float) -> Item:
    """Return an operator of x and one number."""
    return w.op(kind, [x, w.like(number, x.dtype)])


def _test(w: OnnxWriter, kind: str, x: Item, number: float) -> Item:
    return w.op(kind, [x, w.like(number, x.dtype)], "bool")


def _chosen(w: OnnxWriter, condition: Item, a: Item, b: Item) -> Item:
    return w.op("Where", [condition, a, b], a.dtype, condition.shape)


# --- Bessel functions ---------------------------------------------------------------------------

# dtype -> (from where the asymptotic series is used, terms of Taylor's, terms of the other, a
# number whose result is infinite)
_SERIES = {
    "float32": (10.0, 17, 12, 96.0),
    "float64": (bessel.SPLIT, 42, 34, bessel.LARGEST),
}


def _bessel(w: OnnxWriter, given: Item, order: int) -> Item:
    """Return a modified Bessel function of the first kind."""
    x = w.cast(given, _wide(given.dtype))
    split, near_terms, far_terms, largest = _SERIES[x.dtype]
    size = w.op("Abs", [x])
    # In powers of x / split and split / x: runtimes take constants below 1e-45 for 0.
    inner = _one(w, "Mul", _one(w, "Min", size, split), 1 / split)
    scaled = [c * (split / 2) ** (2 * k) for k, c in enumerate(bessel.taylor(order)[:near_terms])]
    near = horner(w, scaled, w.op("Mul", [inner, inner]))
    outer = _one(w, "Min", _one(w, "Max", size, split), largest)
    root = w.op("Exp", [_one(w, "Mul", outer, 0.5)])  # its square may be infinite too early
    scaled = [c / split**k for k, c in enumerate(bessel.asymptotic(order)[:far_terms])]
    terms = horner(w, scaled, w.op("Div", [w.like(split, x.dtype), outer], shape=x.shape))
    under = w.op("Sqrt", [_one(w, "Mul", outer, 2 * math.pi)])
    far = w.op("Mul", [w.op("Mul", [root, w.op("Div", [terms, under])]), root])
    if order:
        near = w.op("Mul", [near, _one(w, "Mul", x, 0.5)])
        far = w.op("Mul", [far, w.op("Sign", [x])])
    value = _chosen(w, _test(w, "Less", size, split), near, far)
    return w.cast(_chosen(w, w.op("IsNaN", [x], "bool"), x, value), given.dtype)


translate_by(composed(lambda w, x: _bessel(w, x, 0)), bessel.i0)
translate_by(composed(lambda w, x: _bessel(w, x, 1)), bessel.i1)


# --- the inverse of erf -------------------------------------------------------------------------


@translates(error_function.erfinv)
@composed
def _erfinv(w: OnnxWriter, given: Item) -> Item:
    x = w.cast(given, _wide(given.dtype))
    size = w.op("Abs", [x])

    def fraction(parts: tuple[tuple[float, ...], ...], at: Item) -> Item:
        return w.op("Div", [horner(w, part, at) for part in parts])

    # The normal quantile of (1 + x) / 2, by x / 2 in the middle, and further out by the logarithm
    # of what is left to the edge.
    half = _one(w, "Mul", x, 0.5)
    rest = _one(w, "Add", w.op("Neg", [w.op("Mul", [half, half])]), 0.180625)
    middle = w.op("Mul", [half, fraction(error_function.QUANTILE_MIDDLE, rest)])
    left = w.op("Sub", [w.like(0.5, x.dtype), _one(w, "Mul", size, 0.5)], shape=x.shape)
    root = w.op("Sqrt", [w.op("Neg", [w.op("Log", [left])])])
    outer = fraction(error_function.QUANTILE_OUTER, _one(w, "Sub", root, 1.6))
    outer = w.op("Mul", [outer, w.op("Sign", [x])])
    quantile = _chosen(w, _test(w, "LessOrEqual", size, 0.85), middle, outer)
    inside = _one(w, "Mul", quantile, math.sqrt(0.5))
    infinite = _one(w, "Mul", w.op("Sign", [x]), math.inf)
    beyond = _chosen(w, _test(w, "Equal", size, 1.0), infinite, w.like(math.nan, x.dtype))
    return w.cast(_chosen(w, _test(w, "Less", size, 1.0), inside, beyond), given.dtype)


# --- neighboring floats -------------------------------------------------------------------------


@translates(special.nextafter)
def _nextafter(w: OnnxWriter, call: Call) -> Item:
    """Add or subtract what rounds to the next number.

    Source: Rump, Zimmermann, Boldo & Melquiond, BIT 49 (2009), algorithm 2.
    """
    x, to = call.inputs
    if x.dtype not in ("float32", "float64"):
        raise ValueError(f"neighbors of {x.dtype} are not written")
    facts = np.finfo(x.dtype)
    unit, tiny = float(facts.eps) / 2, float(facts.smallest_subnormal)
    share = unit * (1 + 2 * unit)

    def op(kind: str, *parts: Item) -> Item:
        return w.op(kind, list(parts), x.dtype, call.out.shape)

    def number(value: float) -> Item:
        return w.like(value, x.dtype)

    def test(kind: str, *parts: Item) -> Item:
        return w.op(kind, list(parts), "bool", call.out.shape)

    up = op("Where", test("Greater", to, x), number(1.0), number(-1.0))
    size = op("Abs", x)
    large = op("Add", x, op("Mul", up, op("Mul", size, number(share))))
    scaled = op("Mul", x, number(1 / unit))
    step = op("Mul", up, op("Mul", op("Abs", scaled), number(share)))
    between = op("Mul", op("Add", scaled, step), number(unit))
    small = op("Add", x, op("Mul", up, number(tiny)))
    y = op("Where", test("Less", size, number(tiny / unit)), small, between)
    is_large = test("GreaterOrEqual", size, number(tiny / unit / unit / 2))
    y = op("Where", is_large, large, y)
    limit = op("Mul", op("Sign", x), number(float(facts.max)))
    y = op("Where", test("IsInf", x), limit, y)
    y = op("Where", test("Equal", x, to), to, y)
    strange = w.op("Or", [test("IsNaN", x), test("IsNaN", to)], "bool", call.out.shape)
    return op("Where", strange, number(math.nan), y)
