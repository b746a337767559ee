"""Boxes with arrows between them, laid out in rows and written as SVG: no program needed."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import NamedTuple

_LETTER, _LINE = 7.2, 18.0  # width of a letter and height of a line, in pixels
_PAD, _GAP, _ROW = 10.0, 28.0, 44.0  # inside a box, between boxes of a row, between rows


class Box(NamedTuple):
    """One box: its number and its lines of text, the first of them its title."""

    number: int
    lines: tuple[str, ...]

    @property
    def width(self) -> float:
        """Pixels that the text needs."""
        return max(map(len, self.lines)) * _LETTER + 2 * _PAD

    @property
    def height(self) -> float:
        """Pixels that the text needs."""
        return len(self.lines) * _LINE + _PAD


def ranks(boxes: Sequence[Box], arrows: Sequence[tuple[int, int]]) -> list[list[Box]]:
    """Return the boxes in rows: each below all that point to it, near to what it hangs on.

    Example:
        >>> boxes = [Box(n, ("x",)) for n in range(3)]
        >>> [[b.number for b in row] for row in ranks(boxes, [(0, 1), (0, 2)])]
        [[0], [1, 2]]
    """
    sources: dict[int, list[int]] = {box.number: [] for box in boxes}
    for start, end in arrows:
        sources[end].append(start)
    depth: dict[int, int] = {}
    for _ in boxes:  # as often as the longest path may be long
        for box in boxes:
            depth[box.number] = 1 + max((depth.get(s, -1) for s in sources[box.number]), default=-1)
    rows: list[list[Box]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for box in boxes:
        rows[depth[box.number]].append(box)
    place = {box.number: i for row in rows for i, box in enumerate(row)}
    for row in rows:

        def wanted(box: Box) -> float:
            near = [place[s] for s in sources[box.number]]
            return sum(near) / len(near) if near else place[box.number]

        row.sort(key=wanted)
        place.update((box.number, i) for i, box in enumerate(row))
    return rows


def to_svg(
    boxes: Sequence[Box], arrows: Sequence[tuple[int, int]], left_to_right: bool = False
) -> str:
    """Return the picture's text.

    Args:
        boxes: in the order in which they were made.
        arrows: (number of the box it leaves, number of the box it reaches).
        left_to_right: whether rows become columns.
    """
    rows = ranks(boxes, arrows)
    across = (lambda b: b.height) if left_to_right else (lambda b: b.width)
    along = (lambda b: b.width) if left_to_right else (lambda b: b.height)
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
    drawn = [_arrow(corners[a], corners[b], left_to_right) for a, b in arrows]
    drawn += [_box(*corner) for corner in corners.values()]
    inside = "\n".join(drawn)
    return _PAGE.format(w=width, h=height, inside=inside)


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
        'fill="#e8eef7" stroke="black"/>',
    ]
    for i, line in enumerate(box.lines):
        bold = ' font-weight="bold"' if i == 0 else ""
        parts.append(
            f'<text x="{x + box.width / 2:.1f}" y="{y + (i + 0.9) * _LINE:.1f}" '
            f'text-anchor="middle"{bold}>{html.escape(line)}</text>'
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
