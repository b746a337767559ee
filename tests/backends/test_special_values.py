"""Every element-wise op at NaN, Inf, zeros of both signs, denormals, huge and extreme numbers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kerasish import backends, ops
from kerasish.ops import dtypes
from kerasish.ops.op import REGISTRY

FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 17.0, -33.0, 88.0, -104.0, 1e-40, 1e-20, -1e20,
          3e38, np.inf, -np.inf, np.nan]  # fmt: skip
WHOLE = [0, 1, 2, 3, 5, 7, 31, 100]
SIGNED = [-1, -2, -3, -7, -100]
RELATIVE = {"float32": 2e-6, "float64": 1e-13, "float16": 4e-3, "bfloat16": 3e-2}
ELEMENTWISE = {n: o for n, o in REGISTRY.items() if o.kind == "elementwise" and not o.attr_names}
# Where the engines may differ, and why.
OWN_ZERO = {"sign", "relu", "maximum", "minimum"}  # the sign of a zero that is chosen among zeros


def numbers(dtype):
    if dtypes.is_float(dtype):
        with np.errstate(over="ignore"):
            return np.asarray(FLOATS).astype(dtypes.array_dtype(dtype))
    if dtype == "bool":
        return np.array([False, True])
    low, high = dtypes.limits(dtype)
    return np.array([*WHOLE, high, high - 1, *([*SIGNED, low, low + 1] if low else [])], dtype)


def arguments(op, dtype):
    values = numbers(dtype)
    pairs = list(itertools.product(*[range(len(values))] * op.arity))
    return [values[[p[i] for p in pairs]] for i in range(op.arity)]


OTHERS = ("float64", "float16", "bfloat16", "int8", "int64", "uint8", "uint32", "bool")


@pytest.mark.parametrize(
    "dtype", ["float32", "int32", *(pytest.param(d, marks=pytest.mark.slow) for d in OTHERS)]
)
@pytest.mark.parametrize("name", [n for n, o in ELEMENTWISE.items() if o.arity in (1, 2)])
def test_engines_agree_at_special_values(name, dtype):
    op = ELEMENTWISE[name]
    given = arguments(op, dtype)
    if name in ("floor_divide", "mod", "fmod", "gcd", "lcm") and not dtypes.is_float(dtype):
        kept = given[1] != 0  # a division of whole numbers by zero has no result
        if name in ("gcd", "lcm"):
            low = dtypes.limits(dtype)[0]
            kept = (given[0] != low) & (given[1] != low) if low else given[1] >= 0
        given = [g[kept] for g in given]
    if name in ("left_shift", "right_shift"):
        kept = (given[1] >= 0) & (given[1].astype("float64") < 8 * given[1].dtype.itemsize)
        given = [g[kept] for g in given]
    try:
        with np.errstate(all="ignore"):
            expected = op(*map(ops.convert_to_tensor, given)).numpy()
    except TypeError:
        pytest.skip(f"{name} takes no {dtype}: NumPy says so")
    found = backends.get("static").compile(op)(*given).numpy()
    assert found.dtype == expected.dtype
    if not dtypes.is_float(dtypes.name_of(expected.dtype)):
        np.testing.assert_array_equal(found, expected)
        return
    name_of = dtypes.name_of(expected.dtype)
    a, b = found.astype("float64"), expected.astype("float64")
    smallest = dtypes.normal_range(name_of)[0]
    np.testing.assert_allclose(a, b, rtol=RELATIVE[name_of], atol=smallest)
    if name not in OWN_ZERO:
        zero = (a == 0) & (b == 0)
        assert np.signbit(a[zero]).tolist() == np.signbit(b[zero]).tolist()
