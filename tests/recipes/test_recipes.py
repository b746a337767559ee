"""The recipes of CONTRIBUTING.md: a change that follows one touches these files, and passes."""

from __future__ import annotations

import mutant_runs
import own_classes
import pytest
from recipe_patches import ROOT, Recipe, all_patches, read_patch, read_recipes

RECIPES = read_recipes((ROOT / "CONTRIBUTING.md").read_text("utf-8"))
PATCHES = all_patches()
each_patch = pytest.mark.parametrize("patch", PATCHES, ids=[p.name for p in PATCHES])


def test_every_recipe_has_a_patch():
    assert len(RECIPES) >= 11
    assert {p.recipe for p in PATCHES} == set(RECIPES)


@each_patch
def test_exactly_the_files_of_the_recipe_are_touched(patch):
    recipe = RECIPES[patch.recipe]
    names = recipe.names_in(patch.touched)
    texts = patch.files()
    assert set(texts) == patch.touched
    for file, text in texts.items():
        if file.endswith(".py"):
            compile(text, file, "exec")
    for argument in recipe.command(names):
        path = argument.partition("::")[0]
        assert argument.startswith("-") or path in texts or (ROOT / path).exists(), argument


@pytest.fixture(scope="module")
def copy():
    created = mutant_runs.Copy()
    yield created
    created.close()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@each_patch
def test_the_tests_pass_after_the_change(patch, copy):
    recipe = RECIPES[patch.recipe]
    command = recipe.command(recipe.names_in(patch.touched))
    words = ["-p", "only_new_cases", f"--new-cases={' '.join(patch.new)}"] if patch.new else []
    with copy.changed(patch.files()):
        status, output = copy.pytest("-m", mutant_runs.ORDINARY, *words, *command)
    assert status == 0, output
    assert all((copy.root / file).exists() == (ROOT / file).exists() for file in patch.touched)


@pytest.mark.parametrize(
    ("touched", "message"),
    [
        ({"a/x.py"}, "does not touch t/test_<file>.py"),
        ({"a/x.py", "t/test_y.py"}, "does not touch t/test_<file>.py"),
        ({"a/x.py", "t/test_x.py", "b.py"}, r"does not name \['b.py'\]"),
        ({"a/x.py", "a/y.py", "t/test_x.py"}, "are all"),
    ],
)
def test_other_files_are_seen(touched, message):
    files = (("a/<file>.py", True), ("t/test_<file>.py", True), ("p.toml", False))
    recipe = Recipe("A loss", files, ("t/test_<file>.py", "-q"))
    with pytest.raises(AssertionError, match=message):
        recipe.names_in(touched)
    names = recipe.names_in({"a/x.py", "t/test_x.py", "p.toml"})
    assert recipe.command(names) == ["t/test_x.py", "-q"]


@pytest.mark.parametrize("text", ["file: a.py\n+x", "recipe: A loss\n\nfile: a.py\nx\n"])
def test_other_texts_are_refused(tmp_path, text):
    (tmp_path / "a.patch").write_text(text)
    with pytest.raises(ValueError, match=r"a\.patch"):
        read_patch(tmp_path / "a.patch")


def test_a_change_that_does_not_fit_is_refused(tmp_path):
    (tmp_path / "a.patch").write_text("recipe: A loss\n\nfile: a.py\n x = 1\n+y = 2\n")
    (tmp_path / "b.patch").write_text("recipe: A loss\n\nfile: a.py\n+y = 2\n")
    (tmp_path / "a.py").write_text("x = 1\n")
    assert read_patch(tmp_path / "a.patch").files(tmp_path) == {"a.py": "x = 1\ny = 2\n"}
    with pytest.raises(ValueError, match="is there already"):
        read_patch(tmp_path / "b.patch").files(tmp_path)
    (tmp_path / "a.py").write_text("x = 2\n")
    with pytest.raises(ValueError, match="occur 0 times"):
        read_patch(tmp_path / "a.patch").files(tmp_path)


def test_a_class_that_keras_does_not_have_needs_a_test_of_its_own():
    class Odd(Exception):
        __module__ = "kerasish.losses.odd"

    with pytest.raises(AssertionError, match=r"tests/losses/test_odd\.py"):
        own_classes.own_tests_of(Odd)
