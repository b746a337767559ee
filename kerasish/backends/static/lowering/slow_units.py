"""Finds the units of a training step that have no native code, and warns about them.

A step with only native units is one call, and `fit` runs many such steps per call. One unit that is
not native divides the step into pieces, and `fit` runs each batch from Python. Control flow
(`ops.cond`, `ops.while_loop`, `ops.scan`) is exempt, because Python decides what runs next, as
documented. So are ops that call Python functions. The units of branches and bodies are checked
separately.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kerasish.backends.static.lowering.units import PythonUnit, Unit
from kerasish.graph.control import ControlOp
from kerasish.graph.ir import Graph, Value


def slow_units(units: Sequence[Unit]) -> list[PythonUnit]:
    """Return the units that NumPy computes, without control flow and calls of Python functions."""
    return [
        unit
        for unit in units
        if isinstance(unit, PythonUnit)
        and not isinstance(unit.node.op, ControlOp)
        and not unit.node.op.calls_python
    ]


def advice(
    step: str, units: Sequence[Unit], paths: Mapping[Value, str], traced: Graph
) -> str | None:
    """Return the warning about a training step's slow units; None if all units are native.

    Args:
        step: the step's name.
        units: the units of the step, or of a branch or loop body in it.
        paths: value of the traced graph -> the layers that computed it.
        traced: the graph as traced, for values that the passes have replaced.
    """
    named = dict.fromkeys(_named(unit, paths, traced) for unit in slow_units(units))
    if not named:
        return None
    return (
        f"{step}: no native code for {', '.join(named)}. Each step computes this by NumPy, and "
        "fit() goes from batch to batch in Python: the numbers are right, the training is slower. "
        "Use other ops there, or do this part before fit(), on the data."
    )


def _named(unit: PythonUnit, paths: Mapping[Value, str], traced: Graph) -> str:
    inner = unit.node.attrs.get("body")
    ops = [node.op.name for node in inner.graph.nodes] if inner is not None else [unit.name]
    path = next((paths[v] for v in unit.writes if v in paths), "")
    if not path:
        shapes = [v.shape for v in unit.writes]
        alike = (
            paths[n.outputs[0]]
            for n in traced.nodes
            if n.op.name == ops[-1]
            and n.outputs[0] in paths
            and [v.shape for v in n.outputs] == shapes
        )
        path = next(alike, "")
    names = " ".join(map(repr, dict.fromkeys(ops)))
    return f"{names} (in {path})" if path else names
