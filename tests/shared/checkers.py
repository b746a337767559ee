"""Type checkers run as a user of the installed package runs them, on files of user code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

import kerasish

CHECKOUT = Path(kerasish.__file__).parents[1]


class Report(NamedTuple):
    """What a checker says of one file: texts by line, counted from 1."""

    errors: dict[int, list[str]]
    notes: dict[int, list[str]]


def without_settings(**more: str) -> dict[str, str]:
    """Return the environment, the package on the path, without settings of checkers."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("MYPY", "PYRIGHT"))}
    return {**kept, **more}


def pyright_or_skip() -> None:
    """Skip the test, with a printed reason, where pyright cannot run."""
    pytest.importorskip("pyright", reason="pyright is not installed: extra `types`")
    command = [sys.executable, "-m", "pyright", "--version"]
    report = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=without_settings()
    )
    if report.returncode:
        pytest.skip(f"pyright does not run here: {report.stderr.strip().splitlines()[-1:]}")


def pyright(file: Path, *options: str) -> dict:
    """Return what pyright writes as JSON.

    Args:
        file: the program; or a package's name with `--verifytypes` among the options.
        options: of the command.
    """
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"]
    report = subprocess.run(
        [*command, *options, str(file)], capture_output=True, text=True, timeout=280,
        cwd=file.parent, env=without_settings(PYTHONPATH=str(CHECKOUT)),
    )  # fmt: skip
    assert report.stdout, report.stderr
    return json.loads(report.stdout)


def read_pyright(file: Path) -> Report:
    """Return pyright's errors and notes (`reveal_type`) on a program."""
    errors, notes = defaultdict(list), defaultdict(list)
    for entry in pyright(file)["generalDiagnostics"]:
        kind = {"error": errors, "information": notes}.get(entry["severity"])
        if kind is not None:
            kind[entry["range"]["start"]["line"] + 1].append(entry["message"])
    return Report(dict(errors), dict(notes))


def read_mypy(file: Path, cache: Path) -> Report:
    """Return mypy's errors and notes on a program, with mypy's default settings."""
    report = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", "--follow-imports=silent",
         "--cache-dir", str(cache), str(file)],
        capture_output=True, text=True, timeout=280, cwd=file.parent,
        env=without_settings(MYPYPATH=str(CHECKOUT), PYTHONPATH=""),
    )  # fmt: skip
    assert "1 source file" in report.stdout, report.stdout + report.stderr
    errors, notes = defaultdict(list), defaultdict(list)
    for line, kind, text in re.findall(r":(\d+): (error|note): (.*)", report.stdout):
        (errors if kind == "error" else notes)[int(line)].append(text)
    return Report(dict(errors), dict(notes))
