"""A cost model: the approximate time of a kernel, and the number of threads it should use."""

from __future__ import annotations

from functools import lru_cache

from kerasish.backends.static.codegen.description import Kernel
from kerasish.backends.static.codegen.loop_ops import LOOP_OPS
from kerasish.backends.static.codegen.plan import plan_loops
from kerasish.backends.static.machine.assembly import STORED

_BYTE = 0.02  # nanoseconds to load one byte from the second-level cache
_ROW = 12.0  # nanoseconds to begin a row
GRAIN = 4_000.0  # nanoseconds of work; with less, a thread costs more than it saves


@lru_cache(maxsize=4096)
def _rates(kernel: Kernel) -> tuple[float, float]:
    """Nanoseconds (per element, per row)."""
    plan = plan_loops(kernel)
    element, row = 0.0, _ROW * max(1, len(plan.loops))
    for v in range(plan.count):
        if not plan.is_node(v):
            cost = _BYTE * STORED[kernel.inputs[v].dtype][1]
        else:
            cost = LOOP_OPS[plan.node(v).op].nanoseconds
        if plan.levels.level[v] == "element":
            element += cost
        elif plan.levels.level[v] == "row":
            row += 4 * cost
    for output in kernel.outputs:
        if plan.levels.level[output.value] == "element":
            element += _BYTE * STORED[output.dtype][1]
    return element, row


def estimate(kernel: Kernel, rows: int, columns: int) -> float:
    """Estimated nanoseconds on one thread, accurate to about a factor of two.

    Args:
        columns: C; with segments, the total number of elements.
    """
    element, row = _rates(kernel)
    elements = columns if kernel.segments else rows * columns
    return rows * row + elements * element


def choose_threads(kernel: Kernel, rows: int, columns: int, most: int, grain: float = GRAIN) -> int:
    """The number of threads, 1 to `most`, that should run this record.

    Args:
        grain: nanoseconds of work per thread.
    """
    if most <= 1:
        return 1
    return max(1, min(most, int(estimate(kernel, rows, columns) / grain)))
