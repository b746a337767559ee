"""The order of units behind the last sum over ranks: what waits for the first sums runs first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kerasish.backends.static.lowering import overlap
from kerasish.backends.static.lowering.exchange import ExchangeUnit
from kerasish.backends.static.lowering.overlap import first_sums_first
from kerasish.backends.static.lowering.segments import SegmentsUnit
from kerasish.backends.static.lowering.units import Unit
from kerasish.graph.ir import Value

LARGE = (512, 512)


class Exchange(ExchangeUnit):
    def __init__(self, summand: Value, total: Value) -> None:
        Unit.__init__(self, "sum", (summand,), (total,))


def value(shape: Sequence[int] = LARGE) -> Value:
    return Value(tuple(shape), "float32")


def unit(name: str, *reads: Value, writes: Sequence[Value] = (), movable: bool = True) -> Any:
    result = Unit(name, reads, writes)
    result.movable = movable
    return result


def ordered(units: Sequence[Unit]) -> list[Any]:
    results = first_sums_first(units, lambda v: v)
    return [[p.name for p in u.parts] if isinstance(u, SegmentsUnit) else u.name for u in results]


def test_updates_are_divided_by_the_sums_they_wait_for() -> None:
    grads, sums = [value() for _ in range(3)], [value() for _ in range(3)]
    sums[2] = value((7,))
    updates = SegmentsUnit([unit(f"update {i}", sums[i]) for i in (2, 1, 0)])
    exchanges = [Exchange(g, s) for g, s in zip(grads, sums)]
    result = ordered([*exchanges, updates])
    assert result == ["sum", "sum", "sum", ["update 0"], ["update 1"], ["update 2"]]


def test_small_updates_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    sums = [value((7,)) for _ in range(3)]
    updates = SegmentsUnit([unit(f"update {i}", sums[i]) for i in (2, 1, 0)])
    units = [*[Exchange(value((7,)), s) for s in sums], updates]
    assert ordered(units)[3:] == [["update 0", "update 1", "update 2"]]
    monkeypatch.setattr(overlap, "PART_BYTES", 1)
    assert ordered(units)[3:] == [["update 0"], ["update 1"], ["update 2"]]


def test_what_is_read_is_written_before() -> None:
    """A unit waits for the sums that its inputs wait for; units with effects keep their order."""
    first, second, slice_, scaled = value(), value(), value(), value()
    units = [
        Exchange(value(), first),
        unit("between", first),
        Exchange(value(), second),
        unit("slice", second, writes=[slice_]),
        unit("print", slice_, movable=False),
        unit("scale", first, writes=[scaled]),
        unit("ask", scaled, movable=False),
        unit("update", slice_),
        unit("other", scaled),
    ]
    assert ordered(units) == [
        "sum", "between", "sum", "scale", "other", "slice", "print", "ask", "update",
    ]  # fmt: skip
