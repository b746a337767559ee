"""Writes docs/mutants.md, the outcome of each mutant, from the recorded outcomes."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
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

**{killed} of {run} mutants that were run are killed ({share:.1f}%).**{rest}
"""


def mark_of(mutant: Mutant) -> str:
    """Return what tells whether an outcome belongs to this very change, wherever its file lies."""
    text = "\0".join((mutant.before, mutant.after))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def read_record() -> dict[str, Any]:
    """Return name -> {"mark", "verdict", "by"} as recorded."""
    return json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}


def missing(mutants: list[Mutant], record: dict[str, Any]) -> list[Mutant]:
    """Return the mutants without a recorded "killed" of their own."""
    known = {n: r["mark"] for n, r in record.items() if r["verdict"] == "killed"}
    return [m for m in mutants if known.get(m.name) != mark_of(m)]


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
    run = sum(record.get(m.name, {}).get("mark") == mark_of(m) for m in mutants)
    left = len(mutants) - run
    rest = f" {left} have not been run yet." if left else ""
    share = 100 * killed / max(run, 1)
    parts = [_HEAD.format(killed=killed, run=run, share=share, rest=rest)]
    for area, those in sorted(areas.items()):
        parts.append(f"\n## {area}\n\n| what is wrong | where | killed by |\n|---|---|---|")
        parts += [_row(mutant, record.get(mutant.name)) for mutant in those]
    return "\n".join(parts) + "\n"


def _row(mutant: Mutant, outcome: dict[str, Any] | None) -> str:
    if outcome is None or outcome["mark"] != mark_of(mutant):
        by = "not run yet"
    elif outcome["verdict"] == "killed":
        by = f"`{outcome['by'].partition('[')[0].removeprefix('tests/')}`"
    else:
        by = f"**{outcome['verdict']}**"
    return f"| {mutant.what} | `{mutant.file.removeprefix('kerasish/')}` | {by} |"
