"""Which layer makes an output, with which activation; which layer an input meets first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kerasish.engine.layer.operation import KerasTensor, Operation
    from kerasish.engine.model.model import Model

# Layers that change the shape of what they get, or nothing in evaluation: looked through.
_THROUGH = frozenset(
    {
        "Reshape", "Flatten", "Permute", "Identity", "Dropout", "SpatialDropout1D",
        "SpatialDropout2D", "SpatialDropout3D", "GaussianNoise", "GaussianDropout", "AlphaDropout",
        "RepeatVector", "Cropping1D", "Cropping2D", "Cropping3D", "ZeroPadding1D", "ZeroPadding2D",
        "ZeroPadding3D", "UpSampling1D", "UpSampling2D", "UpSampling3D",
    }
)  # fmt: skip
DENSE = frozenset({"Dense", "EinsumDense"})
CONV_2D = frozenset({"Conv2D", "Conv2DTranspose", "DepthwiseConv2D", "SeparableConv2D"})
_CONV = CONV_2D | {
    "Conv1D", "Conv3D", "Conv1DTranspose", "Conv3DTranspose", "DepthwiseConv1D", "SeparableConv1D",
}  # fmt: skip
_RECURRENT = frozenset({"LSTM", "GRU", "SimpleRNN", "Bidirectional"})
WEIGHTED = DENSE | _CONV | _RECURRENT | {"BatchNormalization", "LayerNormalization"}
_ACTIVATED = DENSE | _CONV | (_RECURRENT - {"Bidirectional"})
_LAYERS = {"Softmax": "softmax", "ReLU": "relu", "LeakyReLU": "leaky_relu", "ELU": "elu"}


def class_of(operation: Operation) -> str:
    """Return the name of a layer's class if it is one of kerasish's own, else ""."""
    cls = type(operation)
    return cls.__name__ if cls.__module__.startswith("kerasish.layers") else ""


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
        kind, inputs = class_of(operation), operation.inbound_nodes[node].inputs
        own = _activation(operation, kind)
        passes = kind in _THROUGH or (kind == "Activation" and own == "linear")
        if not passes or len(inputs) != 1:
            return operation, own
        t = inputs[0]


def _activation(operation: Any, kind: str) -> str:
    if kind == "TimeDistributed":
        operation = operation.layer
        kind = class_of(operation)
    if kind in _LAYERS:
        return _LAYERS[kind]
    if kind in _ACTIVATED or kind == "Activation":
        return str(getattr(operation.activation, "__name__", ""))
    function = getattr(operation, "function", None)  # a call of an op
    return str(getattr(function, "__name__", "")) if function is not None and not kind else ""


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
        elif class_of(node.operation) in _THROUGH:
            results.extend(_readers(graph, node.outputs))
        else:
            results.append(node.operation)
    return results
