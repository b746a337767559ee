"""Which unit computes a recurrence, and what the units of a recurrence and its gradient share."""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from kerasish.backends import onednn
from kerasish.backends.onednn import native
from kerasish.backends.static.lowering.masked_recurrent import MaskedBackwardUnit, MaskedForwardUnit
from kerasish.backends.static.lowering.recurrent import (
    GATES,
    BackwardUnit,
    ForwardUnit,
    RecurrentUnit,
    is_short,
)
from kerasish.backends.static.lowering.time_steps import make_all_steps, takes
from kerasish.graph.ir import Graph, Node, Value
from kerasish.graph.passes.recurrences import described


def make_recurrent(node: Node, private: Collection[str] = ()) -> RecurrentUnit | None:
    """Return the unit for a recurrence; None if oneDNN does not support it.

    Args:
        node: the recurrence or its gradient, with or without fused products.
        private: the names of results or inputs that hold content only where time steps count.
    """
    what = described(node)
    name = what.leader.op.name
    if name.removesuffix("_gradient") not in GATES or native.available():
        return None
    if any(v.dtype != "float32" or v.size == 0 for v in (*node.inputs, *node.outputs)):
        return None
    with contextlib.suppress(onednn.OneDnnError, ValueError):
        if "mask" in what.inputs:
            kind = MaskedForwardUnit if name in GATES else MaskedBackwardUnit
            return kind(node, private)
        if takes(node):
            return make_all_steps(node)
        return ForwardUnit(node) if name in GATES else BackwardUnit(node)
    return None


def meets_in_steps(node: Node) -> bool:
    """Return whether threads of OpenMP synchronize in each time step of a recurrence.

    Its products are oneDNN's, and are too large for one thread.
    """
    if node.op.kind != "recurrent":
        return False
    what = described(node)
    return ("mask" in what.inputs or not takes(node)) and not is_short(node)


class Recurrences:
    """Creates the units of a graph's recurrences; a pair may share values that no other unit reads.

    Args:
        graph: fused.
    """

    def __init__(self, graph: Graph) -> None:
        self._readers, self._outputs = graph.readers(), set(graph.outputs)
        self._units: dict[Node, RecurrentUnit | None] = {}

    def unit(self, node: Node) -> RecurrentUnit | None:
        """Return the unit of a node; None if oneDNN does not support it."""
        if node not in self._units:
            self._make(node)
        return self._units[node]

    def _make(self, node: Node) -> None:
        what = described(node)
        if what.leader.op.name not in GATES or "mask" not in what.inputs:
            self._units[node] = make_recurrent(node)
            return
        private: dict[str, str] = {}
        partner: Node | None = None
        for result, given in {"lstm": {"1": "cells", "2": "gates"}, "gru": {"1": "gates"}}.get(
            what.leader.op.name, {}
        ).items():
            v = node.outputs[what.outputs.index(result)]
            readers = self._readers.get(v, [])
            if v in self._outputs or len(readers) > 1:
                continue
            if readers and not self._reads(readers[0], given, v, node.inputs[-1]):
                continue
            if readers and partner not in (None, readers[0]):
                continue
            partner = readers[0] if readers else partner
            private[result] = given if readers else ""
        if partner is not None:
            shared = [name for name in private.values() if name]
            self._units[partner] = make_recurrent(partner, shared)
            if self._units[partner] is None:
                private = {}
        self._units[node] = make_recurrent(node, private)

    def _reads(self, reader: Node, name: str, v: Value, mask: Value) -> bool:
        """Return whether a node is a gradient with this mask that reads v under this name."""
        if reader.op.kind != "recurrent":
            return False
        what = described(reader)
        inputs = dict(zip(what.inputs, reader.inputs))
        return inputs.get("mask") is mask and inputs.get(name) is v
