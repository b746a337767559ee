"""Joins nodes: a product and its bias become `Gemm`, a convolution takes its bias in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from kerasish.export.onnx.writer import OnnxWriter


def fused(w: OnnxWriter, nodes: Sequence[Any], outputs: set[str]) -> list[Any]:
    """Return the nodes with biases taken into the products and convolutions before them."""
    readers = Counter(dict.fromkeys(outputs, 2))
    for node in nodes:
        readers.update(inputs_of(node))
    makers = {name: node for node in nodes for name in node.output}
    dropped = set()
    replaced = {}
    for node in nodes:
        if node.op_type != "Add":
            continue
        for x, bias in (tuple(node.input), tuple(node.input)[::-1]):
            maker = makers.get(x)
            if maker is None or readers.get(x) != 1 or bias not in w.initializers:
                continue
            joined = _joined(w, maker, node, bias)
            if joined is not None:
                dropped.add(maker.name)
                replaced[node.name] = joined
                makers[node.output[0]] = joined
                break
    kept = [n for n in nodes if n.name not in dropped]
    return [replaced.get(n.name, n) for n in kept]


def graphs_of(node: Any) -> list[Any]:
    """Return the graphs that a node's attributes hold."""
    return [graph for a in node.attribute for graph in (a.g, *a.graphs)]


def inputs_of(node: Any) -> list[str]:
    """Return the names that a node reads, those inside its graphs included."""
    names = list(node.input)
    for graph in graphs_of(node):
        for inner in graph.node:
            names += inputs_of(inner)
        names += [v.name for v in graph.output]
    return names


def _joined(w: OnnxWriter, maker: Any, node: Any, bias: str) -> Any:
    array = w.initializers[bias]
    make = w.onnx.helper.make_node
    if maker.op_type == "MatMul" and len(maker.input) == 2:
        x, kernel = maker.input
        weights = w.initializers.get(kernel)
        if weights is None or weights.ndim != 2 or array.shape != (weights.shape[1],):
            return None
        if w.ranks.get(x) != 2 or weights.dtype.kind != "f":
            return None
        return make("Gemm", [x, kernel, bias], list(node.output), name=node.name)
    if maker.op_type == "Conv" and len(maker.input) == 2:
        weights = w.initializers.get(maker.input[1])
        if weights is None or array.size != weights.shape[0]:
            return None
        axes = len(weights.shape)
        if array.shape not in ((1, weights.shape[0], *[1] * (axes - 2)),):
            return None
        flat = w.initializer(array.reshape(-1), f"{bias}/flat")
        w.initializers[flat.name] = flat.array
        joined = make("Conv", [*maker.input, flat.name], list(node.output), name=node.name)
        joined.attribute.extend(maker.attribute)
        return joined
    return None


def renamed(nodes: Sequence[Any]) -> list[Any]:
    """Return the nodes of the outermost graph without those that only give an output its name."""
    produced = {name for node in nodes for name in node.output}
    names: dict[str, str] = {}
    kept = []
    for node in nodes:
        if node.op_type == "Identity" and node.input[0] in produced and node.input[0] not in names:
            names[node.input[0]] = node.output[0]
        else:
            kept.append(node)
    for node in kept:
        _rename(node, names)
    return kept


def _rename(node: Any, names: dict[str, str]) -> None:
    for field in (node.input, node.output):
        for i, name in enumerate(field):
            field[i] = names.get(name, name)
    if node.name in names:
        node.name = names[node.name]
    for graph in graphs_of(node):
        for inner in graph.node:
            _rename(inner, names)
        for value in graph.output:
            value.name = names.get(value.name, value.name)
