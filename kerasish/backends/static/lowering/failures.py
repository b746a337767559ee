"""Which units of a program may end a run. No variable may have changed before that."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from kerasish.backends.static.lowering.units import Unit
from kerasish.graph.ir import Value


def failing(units: Sequence[Unit], root: Callable[[Value], Value]) -> list[int]:
    """Return the numbers of the units that may end the run.

    A unit whose indices an earlier one has checked is not among them: the gradient of an embedding
    reads the indices that the forward pass has read. Units that exchange data with other ranks are
    not either: where one fails, all ranks end.

    Args:
        units: in execution order; none overwrites indices that a later one reads.
        root: value -> the value whose memory it uses.
    """
    results = []
    checked: dict[Value, float] = {}  # indices -> they are known to be below this number
    for number, unit in enumerate(units):
        if unit.communicates or not unit.may_fail():
            continue
        indices = [(root(v), rows) for v, rows in unit.indices()]
        if not indices or any(checked.get(v, math.inf) > rows for v, rows in indices):
            results.append(number)
        for v, rows in indices:
            checked[v] = min(rows, checked.get(v, math.inf))
    return results
