"""The loop ops, of which a kernel's body consists: the dtypes that each takes, and its cost.

Their machine code is in `scalars`. An op of `kerasish.ops` without machine code is composed of
these (see `native` in `Traits`) and has no line here.
"""

from __future__ import annotations

from typing import NamedTuple

from kerasish.backends.static.codegen.vector_math import LIBRARY

CHEAP = 0.03  # nanoseconds: an instruction or two


class LoopOp(NamedTuple):
    """The properties of one loop op.

    Attributes:
        takes: "any" dtype, "floats" or "integers".
        gives: "same" as its arguments, "bool", or "special": see `result_dtype`.
        nanoseconds: per element, on one thread with AVX2, measured in the first-level cache.
    """

    takes: str = "any"
    gives: str = "same"
    nanoseconds: float = CHEAP


def _group(names: str, takes: str = "any", gives: str = "same") -> dict[str, LoopOp]:
    """Read a group of loop ops: their names, each with its nanoseconds unless it is cheap."""
    pairs = (name.partition(":") for name in names.split())
    return {n: LoopOp(takes, gives, float(cost) if cost else CHEAP) for n, _, cost in pairs}


ROW_REDUCTIONS = ("row_sum", "row_max", "row_min", "row_prod", "row_argmax", "row_argmin")
COLUMN_REDUCTIONS = ("column_sum", "column_max", "column_min", "column_prod")
ALL_REDUCTIONS = ("all_sum", "all_max", "all_min", "all_prod")
REDUCTIONS = (*ROW_REDUCTIONS, *COLUMN_REDUCTIONS, *ALL_REDUCTIONS)
SIZES = ("rows", "columns", "group_rows")

LOOP_OPS = {
    **_group("""
        exp:0.5 expm1:0.6 log:0.9 log1p:1.2 log2:2 log10:2 sqrt:0.2 rsqrt:0.3 reciprocal:0.2
        sin:1.3 cos:1.3 tanh:0.9 sigmoid:0.8 softplus:1.7 erf:1.4 erfinv:10 i0:5 i1:5 divide:0.2
        logaddexp:2 floor ceil rint trunc nextafter c_function:10
    """, takes="floats"),
    **_group("""
        bitwise_and bitwise_or bitwise_xor bitwise_not left_shift right_shift gcd:10 lcm:10
    """, takes="integers"),
    **_group("""
        add subtract multiply floor_divide:10 mod:10 power:4 fmod:10 maximum minimum negative
        absolute sign square relu stop_gradient broadcast
    """),
    **_group("""
        equal not_equal less less_equal greater greater_equal isnan isinf isfinite signbit
        logical_and logical_or logical_xor logical_not
    """, gives="bool"),
    **_group("""
        constant column_index row_index outer_index random_bits:1 cast bitcast select uniform pick
    """, gives="special"),
    **_group(" ".join(SIZES), gives="special"),
    **_group(" ".join(REDUCTIONS), gives="special"),
}  # fmt: skip

# Ops that cost more than reading their result back from the first-level cache.
EXPENSIVE = frozenset(name for name, o in LOOP_OPS.items() if o.nanoseconds > 0.1)
# The functions that `c_function` calls.
C_FUNCTIONS = LIBRARY
