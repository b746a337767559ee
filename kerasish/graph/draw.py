"""Pictures of graphs: Graphviz's language, and SVG without Graphviz."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from kerasish.graph.ir import Graph, Node, Value

_COLOURS = {
    "matmul": "#ffd9b3", "convolution": "#ffd9b3", "fused": "#cfe8cf", "reduce": "#d6e4ff",
    "movement": "#eeeeee", "indexing": "#f3d9f3",
}  # fmt: skip


def _label(node: Node) -> str:
    body = node.attrs.get("body")
    if body is not None:
        names = [n.op.name for n in body.graph.nodes]
        shown = " ".join(names[:4]) + (f" … ({len(names)})" if len(names) > 4 else "")
        return f"loop {shown}"
    return node.op.name


def _size(v: Value) -> str:
    return f"{v.dtype}[{','.join(map(str, v.shape))}]"


def _colour(node: Node) -> str:
    for key, colour in _COLOURS.items():
        if node.op.name.startswith(key) or node.op.kind.startswith(key):
            return colour
    return "#ffffff"


def to_dot(graph: Graph, title: str = "graph") -> str:
    """Return the graph in Graphviz's language: boxes are nodes, arrows carry shapes."""
    lines = [
        f'digraph "{title}" {{',
        '  node [shape=box, style="rounded,filled", fontname="sans-serif", fontsize=10];',
        '  edge [fontname="sans-serif", fontsize=8];',
    ]
    maker: dict[Value, str] = {}
    for i, v in enumerate(graph.inputs):
        maker[v] = f"input{i}"
        lines.append(f'  input{i} [label="input {_size(v)}", fillcolor="#fff7c2"];')
    for i, node in enumerate(graph.nodes):
        label = _label(node).replace('"', "'")
        lines.append(f'  node{i} [label="{label}", fillcolor="{_colour(node)}"];')
        for v in node.inputs:
            if v in maker:
                lines.append(f'  {maker[v]} -> node{i} [label="{_size(v)}"];')
        maker.update((v, f"node{i}") for v in node.outputs)
    for i, v in enumerate(graph.outputs):
        lines.append(f'  output{i} [label="output {_size(v)}", fillcolor="#fff7c2"];')
        if v in maker:
            lines.append(f"  {maker[v]} -> output{i};")
    return "\n".join([*lines, "}"])


def _layers(graph: Graph) -> list[list[tuple[str, str, list[Any]]]]:
    """Return (label, colour, things it reads) of inputs, nodes and outputs, by depth."""
    depth: dict[Value, int] = dict.fromkeys(graph.inputs, 0)
    rows: list[list[tuple[str, str, list[Any]]]] = [
        [(f"input {_size(v)}", "#fff7c2", [("make", v)]) for v in graph.inputs]
    ]

    def put(at: int, item: tuple[str, str, list[Any]]) -> None:
        while len(rows) <= at:
            rows.append([])
        rows[at].append(item)

    for node in graph.nodes:
        at = 1 + max((depth[v] for v in node.inputs if v in depth), default=0)
        depth.update(dict.fromkeys(node.outputs, at))
        links = [("read", v) for v in node.inputs if v in depth]
        put(at, (_label(node), _colour(node), [*links, *(("make", v) for v in node.outputs)]))
    last = len(rows)
    for v in graph.outputs:
        put(last, (f"output {_size(v)}", "#fff7c2", [("read", v)]))
    return rows


def to_svg(graph: Graph, title: str = "graph") -> str:
    """Return the graph as an SVG picture, inputs at the top."""
    width, height, gap_x, gap_y = 190, 26, 16, 34
    rows = _layers(graph)
    most = max((len(row) for row in rows), default=1)
    total = most * (width + gap_x) + gap_x
    place: dict[Value, tuple[float, float]] = {}
    boxes: list[str] = []
    arrows: list[str] = []
    for i, row in enumerate(rows):
        y = 36 + i * (height + gap_y)
        left = (total - len(row) * (width + gap_x) + gap_x) / 2
        for j, (label, colour, links) in enumerate(row):
            x = left + j * (width + gap_x)
            boxes.append(_box(x, y, width, height, label, colour))
            for what, v in links:
                if what == "read" and v in place:
                    x0, y0 = place[v]
                    x1, y1 = x + width / 2, y
                    middle = (y0 + y1) / 2
                    arrows.append(
                        f'<path d="M{x0:.0f},{y0:.0f} C{x0:.0f},{middle:.0f} {x1:.0f},{middle:.0f} '
                        f'{x1:.0f},{y1:.0f}" fill="none" stroke="#888"/>'
                    )
                elif what == "make":
                    place[v] = (x + width / 2, y + height)
    bottom = 36 + len(rows) * (height + gap_y)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="{bottom}" '
            'font-family="sans-serif" font-size="10">',
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            f'<text x="12" y="20" font-size="13">{html.escape(title)}</text>',
            *arrows,
            *boxes,
            "</svg>",
        ]
    )


def _box(x: float, y: float, width: int, height: int, label: str, colour: str) -> str:
    shown = label if len(label) <= 34 else label[:33] + "…"
    return (
        f'<g><title>{html.escape(label)}</title><rect x="{x:.0f}" y="{y:.0f}" width="{width}" '
        f'height="{height}" rx="5" fill="{colour}" stroke="#666"/><text x="{x + width / 2:.0f}" '
        f'y="{y + height / 2 + 3:.0f}" text-anchor="middle">{html.escape(shown)}</text></g>'
    )


def write_picture(graphs: Sequence[tuple[str, Graph]], path: str) -> None:
    """Write graphs to a `.svg` or `.dot` file, one below the other.

    Raises:
        ValueError: another suffix.
    """
    if path.endswith(".dot"):
        text = "\n".join(to_dot(graph, title) for title, graph in graphs)
    elif path.endswith(".svg"):
        text = _below([to_svg(graph, title) for title, graph in graphs])
    else:
        raise ValueError(f"A graph is drawn as .svg or .dot, got {path!r}.")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def _below(pictures: Sequence[str]) -> str:
    top, parts, width = 0, [], 0
    for picture in pictures:
        head = picture.split("\n", 1)[0]
        own = [int(float(head.split(f'{name}="')[1].split('"')[0])) for name in ("width", "height")]
        parts.append(picture.replace("<svg ", f'<svg y="{top}" ', 1))
        top += own[1]
        width = max(width, own[0])
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top}">'
    return "\n".join([head, *parts, "</svg>"])
