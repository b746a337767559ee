"""The code of the documentation's pages runs, and gives what the pages say."""

from __future__ import annotations

import ast
import builtins
import re
from pathlib import Path

import numpy as np
import pytest

import kerasish

DOCS = Path(__file__).parent.parent / "docs"
# tests/data/test_data_guide.py runs the one; the other's lines set up a job of several processes,
# as the programs of tests/distribution do.
ELSEWHERE = ("data", "distribution")
PAGES = sorted(
    path
    for path in (DOCS / "index.md", DOCS / "start.md", *DOCS.glob("guides/*.md"),
                 *DOCS.glob("coming_from/*.md"))
    if "```python\n" in path.read_text("utf-8")
    and path.stem not in ELSEWHERE
)  # fmt: skip


def blocks(text: str) -> list[str]:
    """Return the page's blocks of Python."""
    return re.findall(r"```python\n(.*?)```", text, re.S)


def run(page: str, text: str) -> int:
    """Run a page's blocks in one name space; return how many values and errors it stated.

    `expression  # -> value` gives that value, and `statement  # raises Error` raises that error.
    """
    names: dict = {"__name__": page}
    stated = 0
    for block in blocks(text):
        lines = block.splitlines()
        for statement in ast.parse(block).body:
            code = ast.get_source_segment(block, statement)
            first = min((d.lineno for d in getattr(statement, "decorator_list", ())), default=0)
            if first:  # get_source_segment leaves decorators out
                code = "\n".join(lines[first - 1 : statement.end_lineno])
            comment = lines[statement.end_lineno - 1].rpartition("  # ")[2]
            if comment.startswith("-> "):
                value = eval(code, names)
                wanted = ast.literal_eval(comment[3:])
                assert type(value) is type(wanted) or np.ndim(value) == 0, f"{page}: {code}"
                assert np.array_equal(value, wanted), f"{page}: {code} gives {value!r}"
                stated += 1
            elif comment.startswith("raises "):
                with pytest.raises(getattr(builtins, comment[7:])):
                    exec(code, names)
                stated += 1
            else:
                exec(compile(code, page, "exec", dont_inherit=True), names)
    return stated


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_code_of_a_page_runs_and_gives_what_it_says(path, tmp_path, monkeypatch, recwarn):
    for package in re.findall(r"^import (onnxruntime)$", path.read_text("utf-8"), re.M):
        pytest.importorskip(package, reason=f"{package} is not installed: extra onnx")
    monkeypatch.chdir(tmp_path)
    stated = run(path.name, path.read_text("utf-8"))
    assert stated or path.stem == "index", f"{path.name} states no value that could be wrong"
    kerasish.config.explain_compiles(False)


def test_a_wrong_value_fails():
    with pytest.raises(AssertionError, match="gives 2"):
        run("page.md", "```python\n1 + 1  # -> 3\n```")
    with pytest.raises(pytest.fail.Exception):
        run("page.md", "```python\nx = 1  # raises ValueError\n```")
    assert run("page.md", "```python\nint('x')  # raises ValueError\n```") == 1
