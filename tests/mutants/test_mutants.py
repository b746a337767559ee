"""The mutants: each applies to the package as it is, and the machine that runs them is right."""

from __future__ import annotations

import ast
import builtins
import functools
import random
import re
import signal

import mutant_page
import mutant_runs
import mutants
import pytest

ALL = mutants.all_mutants()
DENSE = mutants.Mutant(
    "some/area", "w", "package/a.py", ("test_a.py",), "    return x + 1\n", "    return x + 2\n"
)


@pytest.fixture
def checkout(tmp_path):
    """A checkout with one module and one test."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "a.py").write_text("def f(x):\n    return x + 1\n")
    (tmp_path / "test_a.py").write_text("def test_f():\n    assert f(1) == 2\n")
    return tmp_path


def test_there_are_many_in_every_area():
    assert len(ALL) >= 80
    assert len({m.area for m in ALL}) >= 15


@pytest.mark.parametrize("area", dict.fromkeys(m.area for m in ALL))
def test_each_applies_once_and_compiles(area):
    """A change of the package that breaks this test: write the lines as they are there now."""
    for mutant in ALL:
        if mutant.area == area:
            check_mutant(mutant)


def check_mutant(mutant):
    mutants.check(mutant)
    source = (mutants.ROOT / mutant.file).read_text("utf-8")
    changed = mutants.mutated(mutant, source)
    assert changed != source, mutant.name
    if mutant.file.endswith(".py"):  # a name that is not there fails every test
        module = ast.parse(changed)
        words = {*WORD.findall(mutant.after)} - {*WORD.findall(mutant.before)}
        if words:
            known = {*names_of(mutant.file), *names_in(module, ast.Store), *dir(builtins)}
            assert names_in(module, ast.Load) & words <= known, mutant.name


WORD = re.compile(r"[A-Za-z_]\w*")


@functools.cache
def names_of(file):
    return names_in(ast.parse((mutants.ROOT / file).read_text("utf-8")))


def names_in(module, context=ast.expr_context):
    """Return the names that a module uses in a context; in all: those of imports, functions too."""
    found = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Name) and isinstance(node.ctx, context):
            found.add(node.id)
        elif context is not ast.expr_context:
            continue
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
    return found


def test_a_name_that_is_not_there_is_seen():
    module = ast.parse("import a.b as c\ndef f(x):\n    return g(x)\n")
    assert names_in(module) == {"c", "f", "x", "g"}
    assert names_in(ast.parse("y = g(x)"), ast.Load) == {"g", "x"}


def test_names_and_texts_are_distinct():
    assert len({m.what for m in ALL}) == len(ALL)
    assert len({(m.file, m.before, m.after) for m in ALL}) == len(ALL)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("what: w\nfile: f\n\n-a\n+b\n", "expected the lines"),
        ("what: w\nfile: f\ntests: t\n\n*a\n", "each line of the change"),
        ("what: w\nfile: f\ntests: t\n\n", "each line of the change"),
    ],
)
def test_patches_of_another_form_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        mutants.read_mutant(text, "area/name")


@pytest.mark.parametrize("source", ["", "    return x + 1\n" * 2])
def test_lines_that_are_not_there_once_are_refused(source):
    with pytest.raises(mutants.NotApplicable, match="occur"):
        mutants.mutated(DENSE, source)


def test_a_comment_is_no_mutant(checkout):
    same = DENSE._replace(after="    return x + 1  # two\n")
    with pytest.raises(ValueError, match="stays the same"):
        mutants.check(same, checkout)


def test_a_comment_of_a_kernel_is_no_mutant(checkout):
    (checkout / "package" / "a.cu").write_text("int f(int x) {\n    return x + 1;\n}\n")
    kernel = DENSE._replace(file="package/a.cu", before="    return x + 1;\n")
    mutants.check(kernel._replace(after="    return x + 2;\n"), checkout)
    with pytest.raises(ValueError, match="stays the same"):
        mutants.check(kernel._replace(after="    return x + 1;  // two\n"), checkout)


def test_a_test_that_is_gone_is_noticed(checkout):
    with pytest.raises(ValueError, match="no such test file"):
        mutants.check(DENSE._replace(tests=("test_b.py",)), checkout)


@pytest.mark.parametrize(
    ("answers", "verdict", "by"),
    [
        (
            [(1, "FAILED test_a.py::test_f[x - y] - assert"), (0, "")],
            "killed",
            "test_a.py::test_f[x - y]",
        ),
        ([(1, "FAILED test_a.py::test_f - assert [1]"), (1, "")], "unsound", "test_a.py::test_f"),
        (
            [(1, "FAILED test_a.py::test_f[new]"), (4, "not found"), (0, "")],
            "killed",
            "test_a.py::test_f[new]",
        ),
        (
            [(1, "FAILED test_a.py::test_f[new]"), (4, "not found"), (1, "")],
            "unsound",
            "test_a.py::test_f[new]",
        ),
        ([(2, "ERROR test_a.py"), (0, "")], "killed", "test_a.py"),
        ([(0, "1 passed")], "survived", ""),
        ([(4, "no such file")], "unsound", "no such file"),
        ([(-signal.SIGXCPU, "")], "killed", "the limit of 300 seconds"),
    ],
)
def test_verdicts(checkout, monkeypatch, answers, verdict, by):
    """What pytest answers with the mutant and then, for the test that failed, without it."""
    seen = []

    def answer(copy, *arguments):
        seen.append((copy.root / "package" / "a.py").read_text())
        return answers[len(seen) - 1]

    monkeypatch.setattr(mutant_runs.Copy, "pytest", answer)
    copy = mutant_runs.Copy(checkout)
    try:
        found = copy.run(DENSE)
        assert copy.run(DENSE._replace(before="    return y\n")).verdict == "not applicable"
    finally:
        copy.close()
    assert found.verdict == verdict and found.by == by
    assert [("x + 2" in text) for text in seen] == [True, False, False][: len(answers)]
    assert not copy.root.exists()


def test_the_page_is_up_to_date():
    page = mutant_page.page(ALL, mutant_page.read_record())
    assert mutant_page.PAGE.read_text("utf-8") == page, "run: python -m tests.mutants --missing"


def test_an_outcome_belongs_to_one_change():
    outcome = {"mark": mutant_page.mark_of(DENSE), "test": "", "verdict": "killed", "by": "t"}
    record = {DENSE.name: outcome}
    assert mutant_page.missing([DENSE], record) == []
    other = DENSE._replace(after="    return x + 3\n")
    assert mutant_page.missing([other], record) == [other]
    assert "not run yet" in mutant_page.page([other], record)
    outcome["test"] = "another text"
    assert mutant_page.missing([DENSE], record) == [DENSE]
    assert "not run yet" in mutant_page.page([DENSE], record)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("x = 2\n\n\n@cases\ndef test_f(y):\n    assert y\n\n\ndef test_g():\n    pass", True),
        ("@cases\ndef test_f(y):\n    assert y is True\n", False),
        ("def test_f(y):\n    assert y\n", False),
        ("pytestmark = pytest.mark.slow\n\n\n@cases\ndef test_f(y):\n    assert y\n", False),
        ("def test_h():\n    pass\n", False),
    ],
)
def test_the_mark_of_a_test_is_that_of_its_function(tmp_path, text, same):
    (tmp_path / "a.py").write_text("@cases\ndef test_f(y):\n    assert y\n")
    (tmp_path / "b.py").write_text(text)
    mark, other = (mutant_page.mark_of_test(f"{n}.py::test_f[1-2]", tmp_path) for n in "ab")
    assert len(mark) == 12 and (mark == other) is same
    assert mutant_page.mark_of_test("c.py::test_f", tmp_path) != mark
    assert mutant_page.mark_of_test("the limit of 300 seconds", tmp_path) == ""


def test_recorded_tests_are_ordinary():
    """Decorators show that a test is slow; marks of single cases do not."""
    slow = {
        name: outcome["by"]
        for name, outcome in mutant_page.read_record().items()
        if SLOW.search(mutant_page.text_of_test(outcome["by"]))
    }
    assert slow == {}, "these are run in the slow stage: let an ordinary test kill the mutants"


SLOW = re.compile(r"^(pytestmark = .*|@)pytest\.mark\.slow$", re.MULTILINE)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_sample_is_killed():
    """By the recorded tests, or by others that the patches name, as `python -m tests.mutants`."""
    record = mutant_page.read_record()
    copy = mutant_runs.Copy()
    try:
        found = {
            mutant.name: copy.run_recorded(mutant, record.get(mutant.name, {}).get("by", ""))
            for mutant in random.Random(12).sample(ALL, 3)
        }
    finally:
        copy.close()
    assert {name: f for name, f in found.items() if f.verdict != "killed"} == {}


@pytest.mark.parametrize(("first", "runs"), [("killed", 1), ("survived", 2)])
def test_the_recorded_test_runs_first(checkout, monkeypatch, first, runs):
    seen = []

    def run(copy, mutant):
        seen.append(mutant.tests)
        return mutant_runs.Outcome(first, "", 0.0)

    monkeypatch.setattr(mutant_runs.Copy, "run", run)
    copy = mutant_runs.Copy(checkout)
    try:
        assert copy.run_recorded(DENSE, "test_a.py::test_f").verdict == first
        assert seen == [("test_a.py::test_f",), DENSE.tests][:runs]
        copy.run_recorded(DENSE, "the limit of 300 seconds")
        assert seen[runs:] == [DENSE.tests]
    finally:
        copy.close()
