"""Boxes joined by arrows, written as SVG or in Graphviz's language: no program is needed.

Pictures of models (`utils.plot_model`) and of compiled steps (`plot_graph`) are made here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

_LETTER, _LINE = 7.2, 18.0  # width of a letter and height of a line, in pixels
_PAD, _GAP, _ROW = 10.0, 28.0, 44.0  # inside a box, between boxes of a row, between rows


class Box(NamedTuple):
    """One box: its number, its lines of text, the first of them its title, and its color."""

    number: int
    lines: tuple[str, ...]
    color: str = "#e8eef7"

    @property
    def width(self) -> float:
        """Pixels that the text needs."""
        return max(map(len, self.lines)) * _LETTER + 2 * _PAD

    @property
    def height(self) -> float:
        """Pixels that the text needs."""
        return len(self.lines) * _LINE + _PAD

    def table(self) -> str:
        """Return the label in Graphviz's HTML: a title, and below it a row per line."""
        title, *texts = self.lines
        rows = [f'<tr><td bgcolor="{self.color}"><b>{_escaped(title)}</b></td></tr>']
        for text in texts:
            name, _, value = text.partition(": ")
            rows.append(
                f"<tr><td>{_escaped(name)}: <b>{_escaped(value)}</b></td></tr>"
                if value
                else f"<tr><td>{_escaped(name)}</td></tr>"
            )
        return f'<table border="0" cellborder="1" cellspacing="0">{"".join(rows)}</table>'


class Arrow(NamedTuple):
    """An arrow between the boxes of two numbers; SVG leaves out its label."""

    start: int
    end: int
    label: str = ""


class Cluster(NamedTuple):
    """Parts that Graphviz frames together; SVG draws them among the others."""

    name: str
    parts: list[Part]


Part: TypeAlias = "Box | Arrow | Cluster"

# Attributes of all boxes: the text has its own frame.
BOXES = {"shape": "plaintext", "fontname": '"Helvetica"'}


# --- Graphviz's language ----------------------------------------------------------------------


def quoted(text: str) -> str:
    """Return a name as Graphviz's language writes it."""
    return '"' + text.replace('"', "'") + '"'


def cluster_dot(cluster: Cluster) -> list[str]:
    """Return the lines of a cluster."""
    inner = [f"  {line}" for part in cluster.parts for line in _statements(part)]
    head = f"subgraph {quoted(f'cluster_{cluster.name}')} {{"
    return [head, f"  label={quoted(cluster.name)};", *inner, "}"]


def _statements(part: Part) -> list[str]:
    if isinstance(part, Cluster):
        return cluster_dot(part)
    if isinstance(part, Box):
        return [f"{part.number} [label=<{part.table()}>];"]
    label = f" [label={quoted(part.label)}]" if part.label else ""
    return [f"{part.start} -> {part.end}{label};"]


def to_dot(name: str, parts: Sequence[Part], settings: dict[str, object]) -> str:
    """Return a graph in Graphviz's language.

    Args:
        name: the graph's name.
        parts: its boxes, arrows and clusters.
        settings: attributes of the whole graph.
    """
    lines = [f"graph [{_joined(settings)}];"] if settings else []
    lines += [f"node [{_joined(BOXES)}];"]
    lines += [line for part in parts for line in _statements(part)]
    inside = "\n".join(f"  {line}" for line in lines)
    return f"digraph {quoted(name)} {{\n{inside}\n}}\n"


def _joined(settings: dict[str, object] | dict[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in settings.items())


# --- SVG --------------------------------------------------------------------------------------


def ranks(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> list[list[Box]]:
    """Return the boxes in rows: each below all that point to it, near to what points to it.

    Example:
        >>> boxes = [Box(n, ("x",)) for n in range(3)]
        >>> [[b.number for b in row] for row in ranks(boxes, [Arrow(0, 1), Arrow(0, 2)])]
        [[0], [1, 2]]
    """
    sources: dict[int, list[int]] = {box.number: [] for box in boxes}
    for arrow in arrows:
        sources[arrow.end].append(arrow.start)
    depth = dict.fromkeys(sources, 0)
    for _ in boxes:  # one pass where sources precede targets, else at most one per box
        before = dict(depth)
        for number, above in sources.items():
            depth[number] = 1 + max((depth[s] for s in above), default=-1)
        if depth == before:
            break
    rows: list[list[Box]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for box in boxes:
        rows[depth[box.number]].append(box)
    place = {box.number: i for row in rows for i, box in enumerate(row)}
    for row in rows:

        def center(box: Box) -> float:
            near = [place[s] for s in sources[box.number]]
            return sum(near) / len(near) if near else place[box.number]

        row.sort(key=center)
        place.update((box.number, i) for i, box in enumerate(row))
    return rows


def to_svg(pictures: Sequence[tuple[str, Sequence[Part]]], left_to_right: bool = False) -> str:
    """Return one page with pictures below each other.

    Args:
        pictures: (title, parts) of each; "" for no title.
        left_to_right: whether rows become columns.
    """
    wide = top = 0.0
    inside = []
    for title, parts in pictures:
        if title:
            inside.append(f'<text x="{_PAD}" y="{top + _LINE:.1f}">{_escaped(title)}</text>')
            top += _LINE + _PAD
        width, height, drawn = _drawn(list(_flat(parts)), left_to_right)
        inside += [f'<g transform="translate(0,{top:.1f})">', *drawn, "</g>"]
        wide, top = max(wide, width), top + height
    return _PAGE.format(w=wide, h=top, inside="\n".join(inside))


def _flat(parts: Sequence[Part]) -> Iterator[Box | Arrow]:
    for part in parts:
        if isinstance(part, Cluster):
            yield from _flat(part.parts)
        else:
            yield part


def _drawn(parts: list[Box | Arrow], left_to_right: bool) -> tuple[float, float, list[str]]:
    """Return (width, height, elements) of one picture."""
    boxes = [part for part in parts if isinstance(part, Box)]
    arrows = [part for part in parts if isinstance(part, Arrow)]
    rows = ranks(boxes, arrows)
    across: Callable[[Box], float] = (lambda b: b.height) if left_to_right else (lambda b: b.width)
    along: Callable[[Box], float] = (lambda b: b.width) if left_to_right else (lambda b: b.height)
    span = max((sum(map(across, row)) + _GAP * (len(row) - 1) for row in rows), default=0.0)
    corners: dict[int, tuple[float, float, Box]] = {}
    depth = _PAD
    for row in rows:
        side = _PAD + (span - sum(map(across, row)) - _GAP * (len(row) - 1)) / 2
        for box in row:
            corners[box.number] = (depth, side, box) if left_to_right else (side, depth, box)
            side += across(box) + _GAP
        depth += max(map(along, row)) + _ROW
    width, height = span + 2 * _PAD, depth - _ROW + _PAD
    if left_to_right:
        width, height = height, width
    drawn = [_arrow(corners[a.start], corners[a.end], left_to_right) for a in arrows]
    return width, height, drawn + [_box(*corner) for corner in corners.values()]


_PAGE = """<svg xmlns="http://www.w3.org/2000/svg" width="{w:.0f}" height="{h:.0f}" \
viewBox="0 0 {w:.0f} {h:.0f}" font-family="Helvetica, Arial, sans-serif" font-size="12">
<defs><marker id="tip" markerWidth="9" markerHeight="7" refX="8" refY="3.5" orient="auto">\
<path d="M0,0 L9,3.5 L0,7 z"/></marker></defs>
<rect width="100%" height="100%" fill="white"/>
{inside}
</svg>
"""


def _box(x: float, y: float, box: Box) -> str:
    title = _LINE + _PAD / 2
    parts = [
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="3" '
        'fill="white" stroke="black"/>',
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" height="{title:.1f}" rx="3" '
        f'fill="{box.color}" stroke="black"/>',
    ]
    for i, line in enumerate(box.lines):
        bold = ' font-weight="bold"' if i == 0 else ""
        parts.append(
            f'<text x="{x + box.width / 2:.1f}" y="{y + (i + 0.9) * _LINE:.1f}" '
            f'text-anchor="middle"{bold}>{_escaped(line)}</text>'
        )
    return "\n".join(parts)


def _arrow(
    start: tuple[float, float, Box], end: tuple[float, float, Box], left_to_right: bool
) -> str:
    (x1, y1, source), (x2, y2, target) = start, end
    if left_to_right:
        x1, y1, y2 = x1 + source.width, y1 + source.height / 2, y2 + target.height / 2
        bend = f"C{(x1 + x2) / 2:.1f},{y1:.1f} {(x1 + x2) / 2:.1f},{y2:.1f}"
    else:
        x1, y1, x2 = x1 + source.width / 2, y1 + source.height, x2 + target.width / 2
        bend = f"C{x1:.1f},{(y1 + y2) / 2:.1f} {x2:.1f},{(y1 + y2) / 2:.1f}"
    return (
        f'<path d="M{x1:.1f},{y1:.1f} {bend} {x2:.1f},{y2:.1f}" fill="none" stroke="black" '
        'marker-end="url(#tip)"/>'
    )


def _escaped(text: str) -> str:
    import html  # needed only to draw

    return html.escape(text)
