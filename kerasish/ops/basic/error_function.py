"""erf and its inverse, by rational approximations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kerasish.ops.basic.arithmetic import multiply, negative, square
from kerasish.ops.basic.elementwise import elementwise
from kerasish.ops.basic.examples import between
from kerasish.ops.basic.exponentials import exp
from kerasish.typing import Array, ArrayModule

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["erf", "erfinv"]

# Coefficients of rational approximations, J. Cody, Math. Comp. 22 (1969), 631-637: erf within
# 1e-16 relative on |x| <= 0.5, erfc by scaled exp(-x*x) beyond.
_ERF_P = (3.209377589138469472562e03, 3.774852376853020208137e02, 1.138641541510501556495e02,
          3.161123743870565596947e00, 1.857777061846031526730e-01)  # fmt: skip
_ERF_Q = (2.844236833439170622273e03, 1.282616526077372275645e03, 2.440246379344441733056e02,
          2.360129095234412093499e01)  # fmt: skip
_ERFC_P = (1.23033935479799725272e03, 2.05107837782607146532e03, 1.71204761263407058314e03,
           8.81952221241769090411e02, 2.98635138197400131132e02, 6.61191906371416294775e01,
           8.88314979438837594118e00, 5.64188496988670089180e-01,
           2.15311535474403846343e-08)  # fmt: skip
_ERFC_Q = (1.23033935480374942043e03, 3.43936767414372163696e03, 4.36261909014324715820e03,
           3.29079923573345962678e03, 1.62138957456669018874e03, 5.37181101862009857509e02,
           1.17693950891312499305e02, 1.57449261107098347253e01)  # fmt: skip
_TAIL_P = (6.58749161529837803157e-04, 1.60837851487422766278e-02, 1.25781726111229246204e-01,
           3.60344899949804439429e-01, 3.05326634961232344035e-01,
           1.63153871373020978498e-02)  # fmt: skip
_TAIL_Q = (2.33520497626869185443e-03, 6.05183413124413191178e-02, 5.27905102951428412248e-01,
           1.87295284992346047209e00, 2.56852019228982242072e00)  # fmt: skip

# (numerator, denominator) of the normal quantile of p: in the middle of q = p - 1/2, times q, by
# 0.180625 - q*q; further out, within 1e-12 up to 1 - 2**-54, by sqrt(-log(1 - p)) - 1.6.
# Source: Wichura, Applied Statistics 37 (1988), algorithm AS 241.
QUANTILE_MIDDLE = (
    (3.3871328727963666080, 133.14166789178437745, 1971.5909503065514427, 13731.693765509461125,
     45921.953931549871457, 67265.770927008700853, 33430.575583588128105, 2509.0809287301226727),
    (1.0, 42.313330701600911252, 687.18700749205790830, 5394.1960214247511077,
     21213.794301586595867, 39307.895800092710610, 28729.085735721942674, 5226.4952788528545610),
)  # fmt: skip
QUANTILE_OUTER = (
    (1.42343711074968357734, 4.63033784615654529590, 5.76949722146069140550,
     3.64784832476320460504, 1.27045825245236838258, 0.241780725177450611770,
     0.0227238449892691845833, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187, 1.67638483018380384940, 0.689767334985100004550,
     0.148103976427480074590, 0.0151986665636164571966, 5.47593808499534494600e-4,
     1.05075007164441684324e-9),
)  # fmt: skip
NEAR_EDGE = 5e-8  # closer to 1, as no float32 is, erf is too flat for steps on it


def _polynomial(coefficients: Any, x: Tensor, leading: Any = None) -> Any:
    result = x * 0 + (coefficients[-1] if leading is None else leading)
    for c in coefficients[-2::-1] if leading is None else coefficients[::-1]:
        result = result * x + c
    return result


def _erfc_positive(xp: ArrayModule, a: Array) -> Array:
    middle = _polynomial(_ERFC_P, a) / _polynomial(_ERFC_Q, a, 1.0)
    inverse = 1 / xp.square(xp.maximum(a, 1.0))
    ratio = inverse * _polynomial(_TAIL_P, inverse) / _polynomial(_TAIL_Q, inverse, 1.0)
    tail = (1 / math.sqrt(math.pi) - ratio) / xp.maximum(a, 1.0)
    return xp.exp(-xp.square(a)) * xp.where(a <= 4, middle, tail)


@elementwise(
    lambda g, y, x: (multiply(multiply(g, 2 / math.sqrt(math.pi)), exp(negative(square(x)))),),
    cheaper_than_memory=True,
)
def erf(xp: ArrayModule, x: Array) -> Array:
    """2/sqrt(pi) * the integral of exp(-t*t) from 0 to x. Source: Cody, Math. Comp. 1969.

    Args:
        x: tensor or array.

    Example:
        >>> erf([0.5, 1.0]).tolist()
        [0.5204..., 0.8427...]
    """
    wide = x if x.dtype.itemsize >= 8 else x.astype(xp.float64)
    a = xp.minimum(xp.absolute(wide), 30.0)
    s = xp.square(xp.minimum(a, 0.5))
    near = wide * (_polynomial(_ERF_P, s) / _polynomial(_ERF_Q, s, 1.0))
    far = xp.sign(wide) * (1 - _erfc_positive(xp, a))
    return xp.where(a <= 0.5, near, far).astype(x.dtype)


@elementwise(
    lambda g, y, x: (multiply(multiply(g, math.sqrt(math.pi) / 2), exp(square(y))),),
    examples=between(-0.8, 0.8),
)
def erfinv(xp: ArrayModule, x: Array) -> Array:
    """The number whose erf is x; |x| < 1.

    Source: Giles, GPU Computing Gems 2011, and Newton; next to 1 Wichura, Applied Statistics 1988.

    Args:
        x: tensor or array.

    Example:
        >>> erfinv([0.0, 0.5]).tolist()
        [0.0, 0.4769...]
    """
    wide = x.astype(xp.float64)
    w = -xp.log((1 - wide) * (1 + wide))
    near, far = w - 2.5, xp.sqrt(xp.maximum(w, 5.0)) - 3
    p = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
         -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
    q = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
         -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)  # fmt: skip
    y = wide * xp.where(w < 5, _polynomial(p[::-1], near), _polynomial(q[::-1], far))
    for _ in range(2):
        sure = xp.where(xp.isfinite(y), y, 0.0)
        near_erf = erf.kernel(xp, sure)
        y = y - xp.where(
            xp.absolute(wide) < 1,
            (near_erf - wide) * (math.sqrt(math.pi) / 2) * xp.exp(xp.square(sure)),
            0.0,
        )
    left = 1 - xp.minimum(xp.absolute(wide), 1)
    r = xp.sqrt(-xp.log(left / 2)) - 1.6
    top, bottom = (_polynomial(part, r) for part in QUANTILE_OUTER)
    last = xp.sign(wide) * top / bottom / math.sqrt(2)
    y = xp.where(left < NEAR_EDGE, last, y)
    edge = xp.where(xp.absolute(wide) == 1, xp.sign(wide) * math.inf, math.nan)
    return xp.where(xp.absolute(wide) < 1, y, edge).astype(x.dtype)
