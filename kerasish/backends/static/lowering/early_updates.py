"""Updates of large variables right after their gradients, instead of at the end of the step.

The memory of a gradient is free as soon as its variable is updated, so a training step needs less
memory: at the end of the reverse pass there are few activations, and all gradients otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kerasish.backends.static.lowering.failures import failing
from kerasish.backends.static.lowering.loops import LoopUnit
from kerasish.backends.static.lowering.units import Unit, nbytes_of
from kerasish.graph.ir import Value

LARGE = 2 << 20  # bytes of a variable; updates of smaller ones are merged into few loops


def updated_early(
    first: Sequence[Unit],
    last: Sequence[Unit],
    updated: Mapping[Value, Value],
    root: Callable[[Value], Value],
) -> tuple[list[Unit], list[Unit]]:
    """Move updates of large variables from `last` to `first`; return both lists.

    An update runs after all units that use what it reads, the variable too, so its result can be
    written in place. It also runs after all units that may end the run: an error leaves every
    variable as it was. Where several ranks train together, the order is left to `overlapped`.

    Args:
        first: units in execution order.
        last: units that no unit reads the results of. They run after `first`.
        updated: new value of a variable -> the variable.
        root: value -> the value whose memory it uses.
    """
    start = 1 + max(failing([*first, *last], root), default=-1)
    if not updated or start >= len(first) or any(unit.communicates for unit in first):
        return list(first), list(last)
    used: dict[Value, int] = {}
    for i, unit in enumerate(first):
        used.update(dict.fromkeys(map(root, (*unit.reads, *unit.writes)), i))
    readers: dict[Value, int] = {}
    for unit in last:
        for v in {*map(root, unit.reads)}:
            readers[v] = readers.get(v, 0) + 1
    moved: dict[int, list[Unit]] = {}
    rest = []
    for unit in last:
        overwritten = [updated[v] for v in unit.writes if v in updated]
        place = max([start, *(used.get(root(v), -1) + 1 for v in (*unit.reads, *overwritten))])
        if place < len(first) and _is_large_update(unit, updated, root, readers):
            moved.setdefault(place, []).append(unit)
        else:
            rest.append(unit)
    results: list[Unit] = []
    for i, unit in enumerate(first):
        results += [*moved.get(i, ()), unit]
    return results, rest


def _is_large_update(
    unit: Unit,
    updated: Mapping[Value, Value],
    root: Callable[[Value], Value],
    readers: Mapping[Value, int],
) -> bool:
    """Return whether a unit updates large variables that no other of the last units reads."""
    if type(unit) is not LoopUnit or unit.may_fail():
        return False
    if not all(v in updated and nbytes_of(v) >= LARGE for v in unit.writes):
        return False
    own = set(map(root, unit.reads))
    variables = [root(updated[v]) for v in unit.writes]
    return all(readers.get(v, 0) == (v in own) for v in variables)
