"""The mutants: each applies to the package as it is, and the machine that runs them is right."""

from __future__ import annotations

import random

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
    """A checkout with one module and two tests, one of which notices the mutant."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "a.py").write_text("def f(x):\n    return x + 1\n")
    lines = ("def test_more():\n    assert f(1) > 1\n", "def test_f():\n    assert f(1) == 2\n")
    head = "from package.a import f\n"
    (tmp_path / "test_a.py").write_text(head + "".join(lines))
    (tmp_path / "test_more.py").write_text(head + lines[0])
    (tmp_path / "test_wrong.py").write_text(head + "def test_g():\n    assert f(1) == 9\n")
    return tmp_path


def test_there_are_many_in_every_area():
    assert len(ALL) >= 80
    assert len({m.area for m in ALL}) >= 15


@pytest.mark.parametrize("mutant", ALL, ids=[m.name for m in ALL])
def test_it_applies_once_and_compiles(mutant):
    """A change of the package that breaks this test: write the lines as they are there now."""
    mutants.check(mutant)
    source = (mutants.ROOT / mutant.file).read_text("utf-8")
    assert mutants.mutated(mutant, source) != source


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


def test_a_test_that_is_gone_is_noticed(checkout):
    with pytest.raises(ValueError, match="no such test file"):
        mutants.check(DENSE._replace(tests=("test_b.py",)), checkout)


def test_verdicts(checkout):
    """Killed, survived, not applicable, and tests that fail by themselves."""
    copy = mutant_runs.Copy(checkout)
    try:
        found = [
            copy.run(DENSE._replace(tests=tests, before=before))
            for tests, before in [
                (("test_more.py", "test_a.py"), DENSE.before),
                (("test_more.py",), DENSE.before),
                (("test_more.py",), "    return y\n"),
                (("test_wrong.py",), DENSE.before),
            ]
        ]
        text = (copy.root / "package" / "a.py").read_text()
    finally:
        copy.close()
    assert [f.verdict for f in found] == ["killed", "survived", "not applicable", "unsound"]
    assert found[0].by == "test_a.py::test_f"
    assert text == (checkout / "package" / "a.py").read_text()
    assert not copy.root.exists()


def test_the_page_is_up_to_date():
    page = mutant_page.page(ALL, mutant_page.read_record())
    assert mutant_page.PAGE.read_text("utf-8") == page, "run: python -m tests.mutants --missing"


def test_an_outcome_belongs_to_one_change():
    record = {DENSE.name: {"mark": mutant_page.mark_of(DENSE), "verdict": "killed", "by": "t"}}
    assert mutant_page.missing([DENSE], record) == []
    other = DENSE._replace(after="    return x + 3\n")
    assert mutant_page.missing([other], record) == [other]
    assert "not run yet" in mutant_page.page([other], record)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_sample_is_killed():
    """From the copy of the checkout to the test that fails."""
    sample = random.Random(12).sample(ALL, 6)
    copy = mutant_runs.Copy()
    try:
        found = {m.name: copy.run(m) for m in sample}
    finally:
        copy.close()
    assert {name: f for name, f in found.items() if f.verdict != "killed"} == {}
