"""No logic is written twice: no run of six lines of statements is in two functions."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import kerasish

PACKAGE = Path(kerasish.__file__).parent
LINES = 6


def renamed(text: str) -> str:
    """Return a dump of statements with names in the order of their use."""
    names: dict[str, int] = {}
    return re.sub(r"id='(\w+)'", lambda m: f"id={names.setdefault(m[1], len(names))}", text)


def blocks(node: ast.AST, inside: bool = False) -> Iterator[list[ast.stmt]]:
    """Yield the lists of statements inside functions, without docstrings."""
    inside = inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    for field in ("body", "orelse", "finalbody"):
        found = getattr(node, field, None)
        if inside and isinstance(found, list) and not isinstance(node, ast.ClassDef):
            yield [s for s in found if not _is_text(s)]
    for child in ast.iter_child_nodes(node):
        yield from blocks(child, inside)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def runs(block: list[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """Yield the shortest runs of statements that have six lines or more, one for each start."""
    for first in range(len(block)):
        for stop in range(first + 1, len(block) + 1):
            run = block[first:stop]
            if (run[-1].end_lineno or 0) - run[0].lineno + 1 >= LINES:
                yield run
                break


def repeated(sources: dict[str, str]) -> list[list[str]]:
    """Return the places of each run that occurs in several places."""
    places = defaultdict(list)
    for name, text in sources.items():
        for block in blocks(ast.parse(text)):
            dumps = {statement: ast.dump(statement) for statement in block}
            for run in runs(block):
                key = renamed("\n".join(dumps[statement] for statement in run))
                places[key].append(f"{name}:{run[0].lineno}")
    return [found for found in places.values() if len(found) > 1]


def test_a_copy_with_other_names_is_seen() -> None:
    body = "    {0} = a + 1\n    {0} *= 2\n    if {0}:\n        b({0})\n    c({0})\n    d({0})\n"
    once, again = (f"def {n}(a):\n{body.format(n * 2)}" for n in "fg")
    assert repeated({"one": once, "two": again}) == [["one:2", "two:2"]]
    assert repeated({"one": once, "two": again.replace("+ 1", "+ 2")}) == []
    assert repeated({"one": once.replace("    d(ff)\n", ""), "two": again}) == []


def test_no_logic_is_written_twice() -> None:
    sources = {str(p.relative_to(PACKAGE)): p.read_text("utf-8") for p in PACKAGE.rglob("*.py")}
    assert repeated(sources) == []
