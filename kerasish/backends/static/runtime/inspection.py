"""What a compiled step shows: the time of its records, with layers and lines, and its memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish.backends.backend import Timing
from kerasish.backends.origins import Origins
from kerasish.backends.static.codegen.driver import RecordError
from kerasish.backends.static.lowering.compiled_plan import CompiledPlan
from kerasish.backends.static.lowering.interpreted import Interpreted
from kerasish.backends.static.lowering.moves import GatherUnit, ScatterUnit
from kerasish.backends.static.lowering.units import Unit, nbytes_of, view_of
from kerasish.backends.static.runtime.program import Executable


def timings(timed: Sequence[tuple[str, Any, float]], origins: Origins) -> list[Timing]:
    """Return what a timed run found out, with layers, lines and work of the records.

    Args:
        timed: (name, unit or None, seconds) of each record. The work of a unit of several records
            counts with the first of them.
        origins: where values come from.
    """
    results = []
    seen: set[Unit] = set()
    computed = {v for _, unit, _ in timed if unit is not None for v in unit.writes}
    for name, unit, seconds in timed:
        if unit is None:
            results.append(Timing(name, "", "", seconds, 0))
            continue
        again = unit in seen
        seen.add(unit)
        values = unit.writes or unit.reads
        shapes = ", ".join(f"{v.dtype}{list(v.shape)}" for v in unit.writes)
        results.append(
            Timing(
                unit.name,
                origins.layer(values),
                shapes,
                seconds,
                0 if again else sum(map(nbytes_of, dict.fromkeys((*unit.reads, *unit.writes)))),
                0 if again else origins.work(unit.writes, computed),
                origins.line(values),
            )
        )
    return results


def explained(error: RecordError, executable: Executable, origins: Origins) -> Exception:
    """Return what to raise for a record that failed: for an index out of range, which, and where.

    Args:
        error: of the executable's last run; its memory is as the record left it.
        executable: what ran.
        origins: where values come from.
    """
    unit = None if error.record is None else executable.unit_of(error.record)
    if not error.out_of_range or not isinstance(unit, (GatherUnit, ScatterUnit)):
        return error
    indices, rows = unit.reads[1], unit.table_rows
    numbers = view_of(executable.locate(indices), indices)
    odd = numbers[(numbers < -rows) | (numbers >= rows)]
    layer = origins.layer(unit.writes or unit.reads)
    where = f"Layer {layer!r}: index" if layer else "Index"
    line = f" ({origins.line(unit.writes)})" if origins.line(unit.writes) else ""
    said = f" {odd.flat[0]}" if odd.size else ""
    return IndexError(
        f"{where}{said} is out of range for {rows} rows{line}. Are all labels or token "
        f"numbers from 0 to {rows - 1}? For larger ones, raise input_dim of an Embedding, or the "
        "units of the last layer."
    )


def memory_of(executable: Executable | Interpreted, variables: int) -> dict[str, int]:
    """Return what a compiled step holds, in bytes.

    Args:
        executable: the step, with its memory.
        variables: the bytes of the variables that it reads and assigns.
    """
    plan = executable.plan
    report = {
        "planned": plan.nbytes,
        "unshared": plan.naive,
        "inputs": sum(array.nbytes for array in executable.inputs),
        "variables": variables,
    }
    if isinstance(executable, Executable):
        compiled: CompiledPlan = executable.compiled_plan
        report["constants"] = sum(place.nbytes for place in compiled.constants.values())
    return report
