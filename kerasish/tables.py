"""How tables look: colors in terminals that have them, HTML in notebooks."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Sequence

# `style(kind, text)` -> the text as it is shown; the kind is a column's title, or "title".
Style = Callable[[str, str], str]
_CODES = {"title": "1", "Param #": "32", "Bytes": "32", "FLOPs": "32", "Output Shape": "36"}
_TYPE = re.compile(r"\(\w*\)?|\w*\)")  # of a layer, or the part of it that a line holds
_MARGIN = "padding:2px 10px"


def plain_style(kind: str, text: str) -> str:
    """Return the text as it is."""
    return text


def colored_style(kind: str, text: str) -> str:
    """Return a cell with the codes of its color; they take no place on the screen.

    Example:
        >>> [len(colored_style(kind, "10")) for kind in ("Param #", "Connected to")]
        [11, 2]
    """
    if kind == "Layer (type)":
        return _TYPE.sub(lambda match: f"\x1b[34m{match.group()}\x1b[0m", text)
    code = _CODES.get(kind)
    return text if code is None else f"\x1b[{code}m{text}\x1b[0m"


def terminal_style() -> Style:
    """Return the style for what is printed: colors on a terminal, unless NO_COLOR forbids them."""
    shown = bool(getattr(sys.stdout, "isatty", lambda: False)())
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return colored_style if shown and not plain else plain_style


def html_table(
    caption: str,
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str] = (),
    numeric: Collection[str] = (),
) -> str:
    """Return a table as HTML; every text is escaped.

    Args:
        caption: the line above it.
        titles: of the columns.
        rows: the cells.
        notes: the lines below it.
        numeric: titles of columns whose cells are aligned at the right.

    Example:
        >>> text = html_table("a", ["b"], [["<c>"]])
        >>> "<td style" in text, "&lt;c&gt;" in text
        (True, True)
    """
    import html

    sides = ["right" if title in numeric else "left" for title in titles]

    def line(tag: str, cells: Sequence[str]) -> str:
        pairs = zip(cells, [*sides, *["left"] * len(cells)])
        inner = "".join(
            f'<{tag} style="text-align:{side};{_MARGIN}">{html.escape(cell)}</{tag}>'
            for cell, side in pairs
        )
        return f"<tr>{inner}</tr>"

    body = "".join(line("td", row) for row in rows)
    below = "".join(f"<div>{html.escape(note.strip())}</div>" for note in notes)
    return (
        f"<div><b>{html.escape(caption)}</b><table><thead>{line('th', titles)}</thead>"
        f"<tbody>{body}</tbody></table>{below}</div>"
    )
