"""Flowcharts in Mermaid's language as SVG, drawn by kerasish's own writer: no script, no network.

It reads the part of the language that our pages use: `a["text"] --> b{"text"}`, arrows with labels,
`<-->`, and several arrows in a line.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive

from kerasish.diagrams import Arrow, Box, to_svg

_NODE = r'(\w+)(?:[\[{(]+"([^"]*)"[\]})]+)?'
_ARROW = r"\s*<?-->(?:\|([^|]*)\|)?\s*"


def parse(text: str) -> tuple[list[Box], list[Arrow]]:
    """Return the boxes and arrows of a flowchart."""
    labels: dict[str, str] = {}
    arrows: list[tuple[str, str, str]] = []
    for line in text.splitlines()[1:]:  # the first line names the kind and direction
        rest, before, label = line.strip(), "", ""
        while match := re.match(_NODE, rest):
            name, shown = match.groups()
            labels[name] = shown or labels.get(name, name)
            if before:
                arrows.append((before, name, label))
            rest, before = rest[match.end() :], name
            if not (arrow := re.match(_ARROW, rest)):
                break
            label, rest = arrow[1] or "", rest[arrow.end() :]
        if rest:
            raise ValueError(f"A flowchart's line is not understood: {line!r}, from {rest!r} on.")
    numbers = {name: i for i, name in enumerate(labels)}
    boxes = [Box(numbers[name], tuple(label.split("\n"))) for name, label in labels.items()]
    return boxes, [Arrow(numbers[a], numbers[b], label) for a, b, label in arrows]


class Mermaid(Directive):
    """The directive `mermaid`."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the picture."""
        boxes, arrows = parse("\n".join(self.content))
        html = f'<div class="flowchart">{to_svg([("", [*boxes, *arrows])])}</div>'
        return [nodes.raw("", html, format="html")]


def setup(app: Any) -> dict[str, Any]:
    """Add the directive."""
    app.add_directive("mermaid", Mermaid)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
