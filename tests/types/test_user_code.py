"""pyright and mypy on user code: each mistake is an error on its line, good code has none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from checkers import CHECKOUT, pyright_or_skip, read_mypy, read_pyright, without_settings

FOLDER = Path(__file__).parents[1] / "data" / "types"
BAD = (FOLDER / "bad_lines.py.txt").read_text("utf-8")
GOOD = (FOLDER / "good_code.py.txt").read_text("utf-8")
MARK = "# --- mistakes ---"


def bad_lines() -> dict[int, str]:
    """Return number -> text of the lines that are mistakes."""
    lines = dict(enumerate(BAD.splitlines(), 1))
    start = next(number for number, line in lines.items() if line == MARK)
    return {number: line for number, line in lines.items() if number > start and line}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    pytest.importorskip("mypy", reason="mypy is not installed: extra `dev`")
    return tmp_path_factory.mktemp("mypy")


def check_mistakes(errors: dict[int, list[str]]) -> None:
    expected = bad_lines()
    assert len(expected) == 40
    missed = {number: line for number, line in expected.items() if number not in errors}
    assert not missed, f"no error: {missed}"
    extra = {number: text for number, text in errors.items() if number not in expected}
    assert not extra, f"errors on lines without a mistake: {extra}"


@pytest.mark.slow
def test_pyright_reports_each_mistake(tmp_path):
    pyright_or_skip()
    program = tmp_path / "program.py"
    program.write_text(BAD)
    check_mistakes(read_pyright(program).errors)


@pytest.mark.slow
def test_pyright_accepts_good_code(tmp_path):
    pyright_or_skip()
    program = tmp_path / "program.py"
    program.write_text(GOOD)
    assert read_pyright(program).errors == {}


@pytest.mark.slow
def test_mypy_reports_each_mistake(tmp_path, cache):
    program = tmp_path / "program.py"
    program.write_text(BAD)
    check_mistakes(read_mypy(program, cache).errors)


@pytest.mark.slow
def test_mypy_accepts_good_code(tmp_path, cache):
    program = tmp_path / "program.py"
    program.write_text(GOOD)
    assert read_mypy(program, cache).errors == {}


@pytest.mark.slow
def test_good_code_runs(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(GOOD)
    report = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=200, cwd=tmp_path,
        env=without_settings(PYTHONPATH=str(CHECKOUT)),
    )  # fmt: skip
    assert report.returncode == 0, report.stderr
