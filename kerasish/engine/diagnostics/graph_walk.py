"""Which layer makes an output, with which activation; which layer an input meets first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kerasish.engine.layer.interface import LayerGraph
    from kerasish.engine.model.model import Model
    from kerasish.typing import Structure

NORMALIZATIONS = ("normalization", "batch normalization")
_ACTIVATED = ("dense", "convolution", "recurrent", "activation")  # with an activation of their own
WEIGHTED = ("dense", "convolution", "recurrent", *NORMALIZATIONS)


def last_layer(model: Model, index: int) -> tuple[Any, str]:
    """Return the layer that makes an output's numbers and the name of its activation, or "".

    Layers that only change shapes are looked through; "" where it cannot be known.
    """
    if model.layer_graph is None or index >= len(model.outputs):
        return None, ""
    t = model.outputs[index]
    while True:
        operation, node, place = t._keras_history
        inner = operation.layer_graph
        if inner is not None and place < len(inner.outputs):
            t = inner.outputs[place]
            continue
        inputs, own = operation.inbound_nodes[node].inputs, _activation(operation)
        role = operation.layer_role
        passes = role == "pass" or (role == "activation" and own == "linear")
        if not passes or len(inputs) != 1:
            return operation, own
        t = inputs[0]


def _activation(operation: Any) -> str:
    if operation.layer_role == "time distributed":
        operation = operation.layer
    if operation.layer_role in _ACTIVATED:
        return str(getattr(getattr(operation, "activation", None), "__name__", ""))
    return str(operation.result_activation)


def first_layers(model: Model, index: int) -> list[Any]:
    """Return the layers that an input's numbers meet first, layers that change shapes aside."""
    if model.layer_graph is None or index >= len(model.layer_graph.inputs):
        return []
    return _readers(model.layer_graph, model.layer_graph.inputs[index])


def _readers(graph: LayerGraph, t: Structure) -> list[Any]:
    results = []
    for node in graph.nodes:
        if not any(one is t for one in node.inputs):
            continue
        inner = node.operation.layer_graph
        if inner is not None and len(inner.inputs) == 1:
            results.extend(_readers(inner, inner.inputs[0]))
        elif node.operation.layer_role == "pass":
            results.extend(_readers(graph, node.outputs))
        else:
            results.append(node.operation)
    return results
