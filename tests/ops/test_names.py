"""Every public name of `ops` is declared once, where static tools see it."""

from __future__ import annotations

import ast
import functools
import importlib
import json
import types
from collections import Counter
from pathlib import Path

import pytest

from kerasish import ops

FOLDER = Path(ops.__file__).parent
SPACES = ("", "nn", "numpy", "linalg", "image")
DATA = Path(__file__).parents[1] / "data"
KERAS = json.loads((DATA / "keras_signatures.json").read_text("utf-8"))
# Functions of ours that Keras has only inside its layers and its backends.
OWN = {
    "all_gather",
    "all_sum",
    "crf_decode",
    "crf_log_likelihood",
    "crf_log_norm",
    "crf_score",
    "gru",
    "lstm",
    "print",
    "simple_rnn",
}


def space_name(space: str) -> str:
    return f"kerasish.ops.{space}".rstrip(".")


@functools.cache
def parsed(module: str) -> ast.Module:
    path = FOLDER.joinpath(*module.split(".")[2:])
    return ast.parse(
        (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
    )


def own_list(tree: ast.Module) -> list[str] | None:
    """Return a file's `__all__`, read as text."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    return None


def defined(tree: ast.Module) -> set[str]:
    names = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    return names | {ast.unparse(n.targets[0]) for n in tree.body if isinstance(n, ast.Assign)}


def declared(space: str) -> list[tuple[str, str]]:
    """Return (name, its file) of all names that the source of a name space declares."""
    found = []
    for node in parsed(space_name(space)).body:
        if not isinstance(node, ast.ImportFrom) or node.module == "kerasish.ops":
            continue
        if node.names[0].name != "*":
            assert all(a.name == a.asname for a in node.names), "not seen by strict type checkers"
            found += [(a.name, node.module) for a in node.names]
        elif node.module not in map(space_name, SPACES):
            names = own_list(parsed(node.module))
            assert names, (
                f"{node.module} says by no __all__ which names it gives to {space or 'ops'}"
            )
            found += [(name, node.module) for name in names]
    return found


def public(space: str) -> set[str]:
    """Return the names that a name space has when it is imported."""
    module = importlib.import_module(space_name(space))
    return {
        name for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }  # fmt: skip


DECLARED = {space: declared(space) for space in SPACES}


def test_each_name_is_declared_once():
    count = Counter(name for names in DECLARED.values() for name, _ in names)
    assert len(count) > 300
    assert [name for name, times in count.items() if times > 1] == []


@pytest.mark.parametrize("space", SPACES)
def test_names_are_defined_in_the_file_that_declares_them(space):
    files = {file: defined(parsed(file)) for _, file in DECLARED[space]}
    assert [(n, file) for n, file in DECLARED[space] if n not in files[file]] == []


@pytest.mark.parametrize("space", SPACES)
def test_the_declared_names_are_those_that_are_there(space):
    names = {name for name, _ in DECLARED[space]}
    if not space:
        names |= {n for other in ("nn", "numpy", "linalg") for n, _ in DECLARED[other]}
    assert public(space) == names


@pytest.mark.parametrize("space", SPACES)
def test_the_names_are_those_of_keras(space):
    own = set() if space else OWN
    assert public(space) == set(KERAS[f"ops.{space}".rstrip(".")]) | own


def test_no_list_of_names_is_left_out():
    """A file of ops that lists public names is read by the name space that it is for."""
    read = {file for names in DECLARED.values() for _, file in names}
    listing = {
        ".".join(("kerasish", "ops", *path.relative_to(FOLDER).with_suffix("").parts))
        for path in FOLDER.rglob("*.py")
        if "__all__ =" in path.read_text()
    }
    assert listing - read == {"kerasish.ops.random"}  # what `kerasish.random` is made of
