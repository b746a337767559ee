"""The reference interpreter: runs a graph node by node with the ops' reference kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish.graph.ir import Graph, Value
from kerasish.typing import ArrayModule


def interpret(graph: Graph, inputs: Sequence[Any], xp: ArrayModule = np) -> list[Any]:
    """Return the graph's outputs for the arrays `inputs`."""
    values: dict[Value, Any] = dict(graph.constants)
    values.update(zip(graph.inputs, inputs))
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            out = node.op.kernel(xp, *(values[v] for v in node.inputs), **node.attrs)
            if node.op.outputs == 1:
                values[node.out] = out
            else:
                values.update(zip(node.outputs, out))
    return [values[v] for v in graph.outputs]
