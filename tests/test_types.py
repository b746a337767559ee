"""Annotations: how many are exactly Any, what kerasish.typing names, what type checkers see."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kerasish
from kerasish import typing as names

PACKAGE = Path(kerasish.__file__).parent
CHECKOUT = PACKAGE.parent
LARGEST_SHARE = 0.10
# Each means Any, and says why in kerasish/typing.py.
ANY_ON_PURPOSE = {"Array", "Structure"}


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


@pytest.fixture(scope="module")
def functions(trees) -> list[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    return [
        (path, node)
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]


def parameters_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return [a for a in every if a.annotation is not None]


def is_any(annotation: ast.expr) -> bool:
    return ast.unparse(annotation) in ("Any", "typing.Any")


@pytest.mark.slow
def test_few_parameters_are_any(functions):
    parameters = [a for _, node in functions for a in parameters_of(node)]
    unknown = [a for a in parameters if is_any(a.annotation)]
    assert len(parameters) > 10_000
    assert len(unknown) <= LARGEST_SHARE * len(parameters), (
        f"{len(unknown)} of {len(parameters)} parameters are Any; kerasish.typing has real types."
    )


@pytest.mark.slow
def test_few_results_are_any(functions):
    results = [node.returns for _, node in functions if node.returns is not None]
    unknown = [r for r in results if is_any(r)]
    assert len(results) > 5_000
    assert len(unknown) <= LARGEST_SHARE * len(results), (
        f"{len(unknown)} of {len(results)} results are Any; kerasish.typing has real types."
    )


@pytest.mark.slow
def test_models_are_not_any(functions):
    bad = [
        f"{path.relative_to(PACKAGE)}:{a.lineno}"
        for path, node in functions
        for a in parameters_of(node)
        if a.arg == "model" and is_any(a.annotation)
    ]
    assert not bad, f"A model is a Model, or a protocol of what is needed: {bad}"


@pytest.mark.slow
def test_constructors_make_their_own_class(functions):
    bad = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path, node in functions
        if node.name == "__new__" and node.returns is not None and is_any(node.returns)
    ]
    assert not bad, f"Editors know the class of what `__new__` makes from `-> Self`: {bad}"


@pytest.mark.slow
def test_only_arrays_and_structures_stand_for_any(trees):
    tree = trees[PACKAGE / "typing.py"]
    aliases = {
        node.target.id
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value
        if ast.unparse(node.value).strip("'\"") in ("Any", "object")
    }
    assert aliases == ANY_ON_PURPOSE
    elsewhere = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path, other in trees.items()
        if path.name != "typing.py"
        for node in other.body
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Name)
        if node.value.id == "Any"
    ]
    assert not elsewhere, f"Aliases of Any belong into kerasish/typing.py: {elsewhere}"


def test_the_package_says_that_it_is_typed():
    """PEP 561: type checkers read the annotations of packages with this file only."""
    assert (PACKAGE / "py.typed").is_file()


@pytest.mark.slow
def test_names_of_types_need_no_class_at_run_time(trees):
    """Low packages use these names: importing them must not import what they name."""
    code = "import sys; import kerasish.typing as t; print(t.TensorLike, t.Axis)"
    report = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=CHECKOUT
    )
    assert report.returncode == 0, report.stderr
    runtime = [
        node
        for node in trees[PACKAGE / "typing.py"].body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kerasish")
    ]
    assert not runtime
    assert isinstance(names.TensorLike, str)


SEEN_BY_CHECKERS = """
import numpy as np
import kerasish as keras
from kerasish import layers, ops

x = np.ones((2, 3))
reveal_type(ops.add(x, 1))
reveal_type(ops.softmax(x))
reveal_type(layers.Dense(2))
reveal_type(layers.Dense(2)(x))
model = keras.Sequential([layers.Dense(1)])
reveal_type(model)
reveal_type(model(x))
reveal_type(model.fit(x, x))
reveal_type(keras.models.load_model("file.keras"))
reveal_type(keras.Model())
reveal_type(ops.convert_to_tensor(x) + 1.0)
layers.Conv2D(2, 3, kernel_initializer="ones", name="a", input_shape=(8, 8, 1))
layers.LSTM(2, dropout=0.5, return_sequences=True)
layers.Conv2D(2, 3, kernel_initialiser="ones")
layers.LSTM(2, dropout="half")
"""
EXPECTED = [
    "Tensor", "Tensor", "Dense", "Tensor", "Sequential", "Tensor", "History", "Model", "Model",
    "Tensor",
]  # fmt: skip


@pytest.mark.slow
def test_what_editors_show(tmp_path):
    """The results that users meet most have a class, not Any."""
    pytest.importorskip("mypy", reason="mypy is not installed: extra `dev`")
    program = tmp_path / "program.py"
    program.write_text(SEEN_BY_CHECKERS)
    report = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(CHECKOUT / "pyproject.toml"),
         "--cache-dir", str(tmp_path / "cache"), str(program)],
        capture_output=True, text=True, timeout=280, cwd=CHECKOUT,
    )  # fmt: skip
    result = re.findall(r'Revealed type is "([\w.]+)', report.stdout)
    assert [name.rpartition(".")[2] for name in result] == EXPECTED, report.stdout + report.stderr
    errors = re.findall(r"error: (.*)", report.stdout)
    assert len(errors) == 2 and "kernel_initialiser" in errors[0] and "dropout" in errors[1], errors
