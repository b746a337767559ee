"""Inspection of a compiled step: the time of its records, with layers and lines; its memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from kerasish.backends.backend import Timing
from kerasish.backends.origins import Origins
from kerasish.backends.static.codegen.driver import ALIGNMENT, RecordError
from kerasish.backends.static.lowering.compiled_plan import CompiledPlan
from kerasish.backends.static.lowering.interpreted import Interpreted
from kerasish.backends.static.lowering.moves import GatherUnit, ScatterUnit
from kerasish.backends.static.lowering.units import Unit, nbytes_of, view_of
from kerasish.backends.static.runtime.program import Executable
from kerasish.graph.ir import Value
from kerasish.typing import Array


def timings(timed: Sequence[tuple[str, Any, float]], origins: Origins) -> list[Timing]:
    """Return the timings of a run, one per unit, with layers, lines and work.

    What does not change between runs is computed once.

    Args:
        timed: (name, unit or None, seconds) of each record. The times of the records of one unit
            are added up.
        origins: the origins of values.
    """
    records = [(name, unit) for name, unit, _ in timed]
    if records != origins.described[0]:
        origins.described = records, *_described(records, origins)
    _, rows, row_of = origins.described
    seconds = [0.0] * len(rows)
    for row, record in zip(row_of, timed):
        seconds[row] += record[2]
    return [row._replace(seconds=time) for row, time in zip(rows, seconds)]


def _described(
    records: Sequence[tuple[str, Any]], origins: Origins
) -> tuple[list[Timing], list[int]]:
    """Return the timings of records, without their seconds, and the timing of each record."""
    rows: list[Timing] = []
    row_of: list[int] = []
    known: dict[Unit, int] = {}
    computed = {v for _, unit in records if unit is not None for v in unit.writes}
    for name, unit in records:
        if unit in known:
            row_of.append(known[unit])
            continue
        row_of.append(len(rows))
        if unit is None:
            rows.append(Timing(name, "", "", 0.0, 0))
            continue
        known[unit] = len(rows)
        values = unit.writes or unit.reads
        rows.append(
            Timing(
                unit.name,
                origins.layer(values),
                _shapes(unit.writes),
                0.0,
                sum(map(nbytes_of, dict.fromkeys((*unit.reads, *unit.writes)))),
                origins.work(unit.writes, computed),
                origins.line(values),
            )
        )
    return rows, row_of


def _shapes(values: Sequence[Value]) -> str:
    """Return dtypes and shapes; each that several values share is named once, with their number."""
    counts = Counter(f"{v.dtype}{list(v.shape)}" for v in values)
    return ", ".join(f"{what} x {n}" if n > 1 else what for what, n in counts.items())


def explained(error: RecordError, executable: Executable, origins: Origins) -> Exception:
    """Return the exception for a record that failed: for an index out of range, which, and where.

    Args:
        error: of the executable's last run; its memory is as the record left it.
        executable: what ran.
        origins: the origins of values.
    """
    if not error.out_of_range or error.record is None:
        return error
    unit = executable.unit_of(error.record)  # None: of a loop's body, which is a separate program
    layer = origins.layer(unit.writes or unit.reads) if unit else ""
    line = origins.line(unit.writes or unit.reads) if unit else ""
    where = (f" of layer {layer!r}" if layer else "") + (f" ({line})" if line else "")
    said, rows = "An index", "the size of the table"
    if isinstance(unit, (GatherUnit, ScatterUnit)):
        count, indices = unit.table_rows, unit.reads[1]
        numbers = view_of(executable.locate(indices), indices)
        odd = numbers[(numbers < -count) | (numbers >= count)]
        said, rows = f"Index {odd.flat[0]}" if odd.size else said, str(count)
    return IndexError(
        f"{said}{where} is out of range: {error.record.name}. Are all labels or token numbers "
        f"below {rows}? For larger ones, raise input_dim of the Embedding, or the units of the "
        "last layer."
    )


def memory_of(
    executable: Executable | Interpreted, variables: Sequence[Array], copies: int = 1
) -> dict[str, int]:
    """Return what a compiled step holds, in bytes.

    Args:
        executable: the step, with its memory.
        variables: the memory of the variables that it reads and assigns.
        copies: the number of threads that have such memory, one copy each.
    """
    plan = executable.plan
    report = {
        "planned": copies * plan.nbytes,
        "unshared": copies * plan.naive,
        "inputs": copies * sum(array.nbytes for array in executable.inputs),
        "variables": sum(array.nbytes for array in variables),
    }
    if isinstance(executable, Executable):
        compiled: CompiledPlan = executable.compiled_plan
        constants = sum(place.nbytes for place in compiled.constants.values())
        kept = executable.kept
        report["constants"] = constants + kept.nbytes
        alignment = ALIGNMENT * (copies + kept.blocks + len(variables))
        report["overhead"] = copies * executable.nbytes_of_records + kept.flags.nbytes + alignment
    return report
