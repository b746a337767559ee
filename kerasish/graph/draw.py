"""Pictures of graphs: inputs, nodes and outputs as boxes, values as arrows."""

from __future__ import annotations

from collections.abc import Sequence

from kerasish.diagrams import Arrow, Box, Cluster, Part, to_dot, to_svg
from kerasish.graph.ir import Graph, Node, Value

_COLORS = {
    "matmul": "#ffd9b3", "convolution": "#ffd9b3", "fused": "#cfe8cf", "reduce": "#d6e4ff",
    "movement": "#eeeeee", "indexing": "#f3d9f3",
}  # fmt: skip
_END = "#fff7c2"  # color of inputs and outputs


def _label(node: Node) -> str:
    body = node.attrs.get("body")
    if body is not None:
        names = [n.op.name for n in body.graph.nodes]
        shown = " ".join(names[:4]) + (f" … ({len(names)})" if len(names) > 4 else "")
        return f"loop {shown}"
    return node.op.name


def _size(v: Value) -> str:
    return f"{v.dtype}[{','.join(map(str, v.shape))}]"


def _color(node: Node) -> str:
    for key, color in _COLORS.items():
        if node.op.name.startswith(key) or node.op.kind.startswith(key):
            return color
    return "#ffffff"


def parts_of(graph: Graph, first: int = 0) -> list[Part]:
    """Return a graph's boxes and arrows; arrows are labeled with dtypes and shapes.

    Args:
        graph: the graph.
        first: the number of its first box.
    """
    boxes: list[Box] = []
    arrows: list[Arrow] = []
    maker: dict[Value, int] = {}

    def put(text: str, color: str, reads: Sequence[Value], makes: Sequence[Value]) -> None:
        number = first + len(boxes)
        boxes.append(Box(number, (text,), color))
        arrows.extend(Arrow(maker[v], number, _size(v)) for v in reads if v in maker)
        maker.update(dict.fromkeys(makes, number))

    for v in graph.inputs:
        put(f"input {_size(v)}", _END, (), (v,))
    for node in graph.nodes:
        put(_label(node), _color(node), node.inputs, node.outputs)
    for v in graph.outputs:
        put(f"output {_size(v)}", _END, (v,), ())
    return [*boxes, *arrows]


def write_picture(graphs: Sequence[tuple[str, Graph]], path: str) -> None:
    """Write graphs to a `.svg` file, one below the other, or to a `.dot` file, one cluster each.

    Raises:
        ValueError: another suffix.
    """
    drawn: list[tuple[str, list[Part]]] = []
    for title, graph in graphs:
        drawn.append((title, parts_of(graph, sum(len(parts) for _, parts in drawn))))
    if path.endswith(".dot"):
        text = to_dot("graph", [Cluster(title, parts) for title, parts in drawn], {})
    elif path.endswith(".svg"):
        text = to_svg(drawn)
    else:
        raise ValueError(f"A graph is drawn as .svg or .dot, got {path!r}.")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
