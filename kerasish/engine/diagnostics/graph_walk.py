"""Which layer makes an output, with which activation; which layer an input meets first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kerasish.engine.layer.operation import KerasTensor, Operation
    from kerasish.engine.model.model import Model

NORMALIZATIONS = ("normalization", "batch normalization")
_ACTIVATED = ("dense", "convolution", "recurrent", "activation")  # with an activation of their own
WEIGHTED = ("dense", "convolution", "recurrent", *NORMALIZATIONS)


def role_of(operation: Operation) -> str:
    """Return what a layer says of itself (`Layer.layer_role`), "" where nothing is known."""
    return _stated(operation, "layer_role")


def _stated(operation: Operation, name: str) -> str:
    """Return a class's statement on what `call` does, "" where there is none.

    A subclass with a `call` of its own may do anything: it must state it again.
    """
    cls = type(operation)
    owner = next((c for c in cls.__mro__ if name in c.__dict__), None)
    if owner is None or getattr(cls, "call", None) is not getattr(owner, "call", None):
        return ""
    return str(owner.__dict__[name])


def last_layer(model: Model, index: int) -> tuple[Any, str]:
    """Return the layer that makes an output's numbers and the name of its activation, or "".

    Layers that only change shapes are looked through; "" where it cannot be known.
    """
    if model.layer_graph is None or index >= len(model.outputs):
        return None, ""
    t = model.outputs[index]
    while True:
        operation, node, place = t._keras_history
        inner = getattr(operation, "layer_graph", None)
        if inner is not None and place < len(inner.outputs):
            t = inner.outputs[place]
            continue
        role, inputs = role_of(operation), operation.inbound_nodes[node].inputs
        own = _activation(operation, role)
        passes = role == "pass" or (role == "activation" and own == "linear")
        if not passes or len(inputs) != 1:
            return operation, own
        t = inputs[0]


def _activation(operation: Any, role: str) -> str:
    if role == "time distributed":
        operation = operation.layer
        role = role_of(operation)
    if role in _ACTIVATED:
        return str(getattr(getattr(operation, "activation", None), "__name__", ""))
    stated = _stated(operation, "result_activation")
    if stated:
        return stated
    function = getattr(operation, "function", None)  # a call of an op
    return str(getattr(function, "__name__", "")) if function is not None and not role else ""


def first_layers(model: Model, index: int) -> list[Any]:
    """Return the layers that an input's numbers meet first, layers that change shapes aside."""
    if model.layer_graph is None or index >= len(model.layer_graph.inputs):
        return []
    return _readers(model.layer_graph, model.layer_graph.inputs[index])


def _readers(graph: Any, t: KerasTensor) -> list[Any]:
    results = []
    for node in graph.nodes:
        if not any(one is t for one in node.inputs):
            continue
        inner = getattr(node.operation, "layer_graph", None)
        if inner is not None and len(inner.inputs) == 1:
            results.extend(_readers(inner, inner.inputs[0]))
        elif role_of(node.operation) == "pass":
            results.extend(_readers(graph, node.outputs))
        else:
            results.append(node.operation)
    return results
