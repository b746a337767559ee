"""Which units of a program must run before which others, by the memory that they use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kerasish.backends.static.lowering.units import Unit
from kerasish.graph.ir import Value


def predecessors(units: Sequence[Unit], key_of: Callable[[Value], Any]) -> list[list[int]]:
    """Return for each unit the numbers of those that must run before it.

    Only direct predecessors are included: what these need themselves is not repeated.

    Args:
        units: in execution order.
        key_of: value -> the key of its memory; values in the same memory have equal keys.
    """
    results: list[list[int]] = []
    writer: dict[Any, int] = {}  # key -> the last unit that wrote it
    readers: dict[Any, list[int]] = {}  # key -> the units that have read it since
    for number, unit in enumerate(units):
        reads, writes = {*map(key_of, unit.reads)}, {*map(key_of, unit.writes)}
        if unit.workspace_key is not None:
            (writes if unit.fills_workspace else reads).add(unit.workspace_key)
        before = [writer[key] for key in reads | writes if key in writer]
        before += [other for key in writes for other in readers.pop(key, ())]
        results.append(sorted({*before}))
        writer.update(dict.fromkeys(writes, number))
        for key in reads - writes:
            readers.setdefault(key, []).append(number)
    return results
