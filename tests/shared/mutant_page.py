"""Writes docs/mutants.md, the outcome of each mutant, from the recorded outcomes."""

from __future__ import annotations

import ast
import functools
import hashlib
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from mutants import ROOT, Mutant

RECORD = ROOT / "tests" / "mutants" / "outcomes.json"
PAGE = ROOT / "docs" / "mutants.md"

_HEAD = """# Mutants

A mutant is a small wrong change of the package, kept in a file of `tests/mutants/patches/`. The
table names the ordinary test that fails with it. `python -m tests.mutants` runs the mutants and
writes this page. Its options: `--only "optimizers/*"` runs some of them, `--new` those that were
not run in their current form, `--missing` those that are not killed on this page, `--jobs N` runs
several at once, and `--seconds N` starts none after that time. The test named here runs first;
if it does not fail, all tests that the patch names run.

A mutant counts as run while its change is the same, and the test function that failed: its own text
with its decorators and the file's `pytestmark`. After an edit of such a function, `--new` runs the
mutants that it had killed again, one or two on average. Edits of what a function calls, and of
fixtures, are not noticed: the slow tests run a sample of the mutants.

**{killed} of {run} mutants that were run are killed ({share:.1f}%).**{rest}
"""


def mark_of(mutant: Mutant) -> str:
    """Return what tells whether an outcome belongs to exactly this change, wherever its file is."""
    return _digest("\0".join((mutant.before, mutant.after)))


def mark_of_test(name: str, root: Path = ROOT) -> str:
    """Return what tells whether a test function is still the same; "" where none is named."""
    return _digest(text_of_test(name, root)) if "::" in name else ""


def text_of_test(name: str, root: Path = ROOT) -> str:
    """Return the text of a test function, decorators and the file's `pytestmark` included.

    Args:
        name: "FILE::FUNCTION", with or without the case in brackets.
        root: the checkout.

    Returns:
        "" where there is none.
    """
    file, _, function = name.partition("[")[0].partition("::")
    if not function or not (root / file).is_file():
        return ""
    return _functions((root / file).read_text("utf-8")).get(function, "")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@functools.cache
def _functions(source: str) -> dict[str, str]:
    """Return name -> text of a file's test functions; each begins with the file's `pytestmark`."""
    lines, body = source.splitlines(), ast.parse(source).body
    marks = [
        line
        for node in body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
        for line in lines[node.lineno - 1 : node.end_lineno]
    ]
    result = {}
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            first = min(n.lineno for n in (node, *node.decorator_list))
            result[node.name] = "\n".join([*marks, *lines[first - 1 : node.end_lineno]])
    return result


def is_current(mutant: Mutant, outcome: dict[str, Any] | None) -> bool:
    """Return whether an outcome is that of this change, by a test that is still the same."""
    return (
        outcome is not None
        and outcome["mark"] == mark_of(mutant)
        and outcome.get("test") == mark_of_test(outcome["by"])
    )


def read_record() -> dict[str, Any]:
    """Return name -> {"mark", "test", "verdict", "by"} as recorded."""
    return json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}


def missing(mutants: list[Mutant], record: dict[str, Any]) -> list[Mutant]:
    """Return the mutants without a recorded "killed" of their own."""
    known = {name: r for name, r in record.items() if r["verdict"] == "killed"}
    return [m for m in mutants if not is_current(m, known.get(m.name))]


def write_record(record: dict[str, Any], mutants: list[Mutant]) -> None:
    """Keep the outcomes of the mutants that there are."""
    kept = {m.name: record[m.name] for m in mutants if m.name in record}
    RECORD.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", "utf-8")


def page(mutants: list[Mutant], record: dict[str, Any]) -> str:
    """Return the page."""
    areas: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        areas[mutant.area].append(mutant)
    killed = len(mutants) - len(missing(mutants, record))
    run = sum(is_current(m, record.get(m.name)) for m in mutants)
    left = len(mutants) - run
    rest = f" {left} have not been run yet." if left else ""
    share = 100 * killed / max(run, 1)
    parts = [_HEAD.format(killed=killed, run=run, share=share, rest=rest)]
    for area, those in sorted(areas.items()):
        parts.append(f"\n## {area}\n\n| what is wrong | where | killed by |\n|---|---|---|")
        parts += [_row(mutant, record.get(mutant.name)) for mutant in those]
    return "\n".join(parts) + "\n"


def _row(mutant: Mutant, outcome: dict[str, Any] | None) -> str:
    if outcome is None or not is_current(mutant, outcome):
        by = "not run yet"
    elif outcome["verdict"] == "killed":
        by = f"`{outcome['by'].partition('[')[0].removeprefix('tests/')}`"
    else:
        by = f"**{outcome['verdict']}**"
    return f"| {mutant.what} | `{mutant.file.removeprefix('kerasish/')}` | {by} |"
