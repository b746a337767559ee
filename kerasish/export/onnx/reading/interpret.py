"""Runs a record of an ONNX graph in ops: on tensors of either engine, or of a trace."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish.export.onnx.reading.record import MOST_ELEMENTS, Record, decode
from kerasish.export.onnx.reading.registry import MOST_KNOWN, READERS, OnnxNode
from kerasish.ops.op import using_engine
from kerasish.ops.shapes import is_unknown

MOST_STEPS = 40_000  # nodes that one call runs, those of loops counted each time


class Call:
    """What all graphs of one call share.

    Args:
        decoded: arrays of constants that were decoded before, by the id of their record.
    """

    def __init__(self, decoded: dict[int, Any]) -> None:
        self.decoded, self.left = decoded, MOST_STEPS

    def array(self, parts: list[Any]) -> Any:
        """Return the array of a constant."""
        array = self.decoded.get(id(parts))
        if array is None:
            array = self.decoded[id(parts)] = decode(parts)
        return array

    def step(self) -> None:
        """Count one node.

        Raises:
            ValueError: too many have been run.
        """
        self.left -= 1
        if self.left < 0:
            raise ValueError(f"more than {MOST_STEPS:,} steps would be run")


class Interpreter:
    """Runs one graph.

    Args:
        record: of the graph.
        values: values from outside: weights, or those of the graph around it.
        opsets: domain -> version.
        call: what all graphs of a call share.
    """

    def __init__(
        self, record: Record, values: dict[str, Any], opsets: dict[str, int], call: Call
    ) -> None:
        self.record, self.values = record, dict(values)
        self.opsets, self.call = opsets, call
        self.values[""] = None
        self.values.update((n, call.array(c)) for n, c in record["constants"].items())

    def outputs(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the graph's outputs for values of its inputs."""
        values = self.values
        names = [entry[0] for entry in self.record["inputs"]]
        values.update(zip(names, inputs))
        for domain, kind, reads, writes, attrs in self.record["nodes"]:
            missing = [name for name in reads if name not in values]
            if missing:
                raise ValueError(f"the node {kind} reads {missing[0]!r}, which nothing gives")
            given = [values[name] for name in reads]
            opset = self.opsets.get(domain, 1)
            node = OnnxNode(kind, given, attrs, opset, len(writes), self.run)
            values.update(zip(writes, self._apply(domain, node, writes)))
        absent = [n for n in self.record["outputs"] if n not in values]
        if absent:
            raise ValueError(f"the output {absent[0]!r} is given by nothing")
        return [values[name] for name in self.record["outputs"]]

    def run(self, graph: Any, inputs: Sequence[Any]) -> list[Any]:
        """Return the outputs of a graph inside a node, which sees the values of this one."""
        inner = Interpreter(graph["graph"], self.values, self.opsets, self.call)
        return inner.outputs(inputs)

    def _apply(self, domain: str, node: OnnxNode, writes: Sequence[str]) -> list[Any]:
        self.call.step()
        reader = READERS.get((domain, node.kind))
        if reader is None:
            raise ValueError(f"the operator {node.kind} is not known")
        try:
            if _known(node):
                # Sizes and similar values: computed now, so that they are numbers in a trace too.
                with using_engine(None), np.errstate(all="ignore"):
                    result = _listed(reader(node))
                    return [_array(y) for y in result]
            return [_bounded(y) for y in _listed(reader(node))]
        except NodeError:
            raise
        except (
            TypeError,
            ValueError,
            KeyError,
            IndexError,
            AttributeError,
            OverflowError,
        ) as error:
            text = str(error) or type(error).__name__
            raise NodeError(f"node {node.kind} ({', '.join(writes)}): {text}") from error


class NodeError(ValueError):
    """A node of an ONNX graph cannot be computed; the message names it."""


def _known(node: OnnxNode) -> bool:
    """Return whether all inputs of a node are arrays, and no graph inside reads others."""
    if any(isinstance(v, dict) and "graph" in v for v in node.attrs.values()):
        return False
    if not all(v is None or isinstance(v, np.ndarray) for v in node.inputs):
        return False
    # A result has at most as many elements as its inputs have together, multiplied: what could be
    # larger is left to the engine, which knows the sizes before it allocates.
    return math.prod(v.size for v in node.inputs if v is not None and v.size) <= MOST_KNOWN


def _bounded(y: Any) -> Any:
    """Return an output, unless it has too many elements."""
    if y is None or any(is_unknown(s) for s in y.shape):
        return y
    if math.prod(int(s) for s in y.shape) > MOST_ELEMENTS:
        raise ValueError(f"a tensor of shape {tuple(y.shape)} would be made")
    return y


def _listed(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (list, tuple)) else [result]


def _array(value: Any) -> Any:
    if value is None or isinstance(value, np.ndarray):
        return value
    return np.asarray(value)
