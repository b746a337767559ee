"""A model's layers as named nodes and edges, as TensorBoard draws graphs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kerasish import tree

if TYPE_CHECKING:
    from kerasish.engine.layer.interface import LayerGraph, LayerLike
    from kerasish.engine.model.model import Model


class LayerNode(NamedTuple):
    """One call of a layer.

    Attributes:
        name: "model/part/layer", unique; TensorBoard groups names with a common prefix.
        kind: the layer's class.
        inputs: the names of the nodes whose results it reads.
        shapes: the shapes of its results, None for unknown sizes; empty if they are not known.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    shapes: tuple[tuple[Any, ...], ...]


def list_nodes(model: Model) -> list[LayerNode]:
    """Return the calls of a model's layers in order, including those of nested models.

    The connections of a subclassed model are not known: its layers have no edges.

    Example:
        >>> import kerasish as keras
        >>> parts = [keras.Input((2,), name="x"), keras.layers.Dense(1, name="y")]
        >>> [(node.name, node.inputs) for node in list_nodes(keras.Sequential(parts, name="m"))]
        [('m/x', ()), ('m/y', ('m/x',))]
    """
    results: dict[str, LayerNode] = {}
    graph = model.layer_graph
    if graph is None:
        _add_parts(results, model, model.name)
    else:
        _add_graph(results, graph, model.name, None)
    return list(results.values())


def _add(
    result: dict[str, LayerNode],
    name: str,
    layer: LayerLike,
    inputs: Iterable[str],
    shapes: Sequence[Any],
) -> str:
    free, number = name, 1
    while free in result:
        free, number = f"{name}_{number}", number + 1
    result[free] = LayerNode(free, type(layer).__name__, tuple(inputs), tuple(shapes))
    return free


def _is_layer(operation: Any) -> bool:
    return hasattr(operation, "flatten_layers")  # not the plain operations of a graph


def _add_parts(result: dict[str, LayerNode], layer: LayerLike, name: str) -> None:
    parts = layer.flatten_layers(include_self=False, recursive=False) if _is_layer(layer) else []
    if not parts:
        _add(result, name, layer, (), ())
    for part in parts:
        _add_parts(result, part, f"{name}/{part.name}")


def _add_graph(
    result: dict[str, LayerNode], graph: LayerGraph, prefix: str, feeds: Sequence[str] | None
) -> list[str]:
    """Add a functional model's calls; return the names of the nodes that compute its outputs.

    Args:
        feeds: the nodes that compute its inputs, for a nested model.
    """
    maker: dict[int, str] = {}
    for i, t in enumerate(graph.inputs):
        layer = t.history.operation
        maker[id(t)] = (
            _add(result, f"{prefix}/{layer.name}", layer, (), [t.shape])
            if feeds is None
            else feeds[i]
        )
    for node in graph.nodes:
        outputs = tree.flatten(node.outputs)
        if all(id(t) in maker for t in outputs):
            continue  # the call of an input layer
        inputs = [maker[id(t)] for t in node.inputs if id(t) in maker]
        name = f"{prefix}/{node.operation.name}"
        inner = node.operation.layer_graph
        if inner is not None and len(inner.inputs) == len(inputs):
            names = _add_graph(result, inner, name, inputs)
        else:
            shapes = [t.shape for t in outputs]
            names = [_add(result, name, node.operation, inputs, shapes)] * len(outputs)
        maker.update((id(t), n) for t, n in zip(outputs, names))
    return [maker[id(t)] for t in graph.outputs]
