"""Writes docs/mutants.md, the outcome of each mutant, from the recorded outcomes."""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import re
import textwrap
from collections import defaultdict
from pathlib import Path
from typing import Any

from mutants import ROOT, Mutant

RECORD = ROOT / "tests" / "mutants" / "outcomes.json"
PAGE = ROOT / "docs" / "mutants.md"

_HEAD = """# Mutants

A mutant is a small wrong change to the package, stored in a file in `tests/mutants/patches/`. The
lists below give for each mutant what is wrong, the changed file, and an ordinary test that fails
with it ("killed by"). `python -m tests.mutants` runs the mutants and writes this page. Options:

- `--only "optimizers/*"`: only the mutants whose "area/name" matches;
- `--new`: only those that have not been run in their current form;
- `--missing`: only those that are not recorded as killed;
- `--jobs N`: N mutants at a time;
- `--seconds N`: start no mutant after N seconds.

The test named here runs first. If it does not fail, all tests that the patch names run.

The result for a mutant is valid as long as its change and the test function that failed stay the
same: the text of the function, its decorators and the file's `pytestmark`. After an edit of such a
function, `--new` runs the mutants that it killed again, one or two on average. Edits of fixtures
and of functions that the test calls are not detected; the slow tests run a sample of the mutants.

**{killed} of {run} mutants that were run are killed ({share:.1f}%).**{rest}
"""


def mark_of(mutant: Mutant) -> str:
    """Return what tells whether an outcome belongs to exactly this change, wherever its file is."""
    return _digest("\0".join((mutant.before, mutant.after)))


def mark_of_test(name: str, root: Path = ROOT) -> str:
    """Return a digest of a test function; "" if the name has no function."""
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
    """Return whether an outcome belongs to this change and to the current text of its test."""
    return (
        outcome is not None
        and outcome["mark"] == mark_of(mutant)
        and outcome.get("test") == mark_of_test(outcome["by"])
    )


def read_record() -> dict[str, Any]:
    """Return name -> {"mark", "test", "verdict", "by"} as recorded."""
    return json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}


def missing(mutants: list[Mutant], record: dict[str, Any]) -> list[Mutant]:
    """Return the mutants that are not recorded as killed in their current form."""
    known = {name: r for name, r in record.items() if r["verdict"] == "killed"}
    return [m for m in mutants if not is_current(m, known.get(m.name))]


def write_record(record: dict[str, Any], mutants: list[Mutant]) -> None:
    """Write the outcomes of the existing mutants."""
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
    rest = f" Not run yet: {left}." if left else ""
    share = 100 * killed / max(run, 1)
    parts = [_HEAD.format(killed=killed, run=run, share=share, rest=rest)]
    for area, those in sorted(areas.items()):
        parts.append(f"\n## {area}\n")
        parts += [_item(mutant, record.get(mutant.name)) for mutant in those]
    return "\n".join(parts) + "\n"


def _item(mutant: Mutant, outcome: dict[str, Any] | None) -> str:
    """Return a list item of lines of at most 100 columns."""
    if outcome is None or not is_current(mutant, outcome):
        result = "not run yet"
    elif outcome["verdict"] == "killed":
        file, _, function = outcome["by"].partition("[")[0].partition("::")
        file = f"`{file.removeprefix('tests/')}`"
        result = f"killed by `{function}` in {file}" if function else f"killed by {file}"
    else:
        result = f"**{outcome['verdict']}**"
    text = f"{mutant.what}. `{mutant.file.removeprefix('kerasish/')}`: {result}."
    # A line that begins with "- " or "1. " would begin another list.
    text = re.sub(r" (?=([-+*#>=]+|\d+[.)]) )", "\0", text)
    lines = textwrap.wrap(
        text, 98, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return ("- " + "\n".join(lines)).replace("\0", " ")
