"""The public names: documented, Keras's where Keras has them; and the tests themselves."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import importlib.util
import inspect
import json
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kerasish
from kerasish.ops.op import REGISTRY

TESTS = Path(__file__).parent
# The signatures of Keras 3.15: module -> name -> [[parameter, kind, default?], ...]: the default as
# its repr, the kind one of plain, keyword, * and **.
KERAS = json.loads((TESTS / "data" / "keras_signatures.json").read_text("utf-8"))
KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "plain",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "plain",
    inspect.Parameter.KEYWORD_ONLY: "keyword",
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


def public_modules() -> Iterator[types.ModuleType]:
    """Yield the modules that users import names from: Keras's, as far as we have them, and ours."""
    packages = "data datasets autodiff callbacks testing wrappers wrappers.sklearn"
    ours = ["", *packages.split()]
    theirs = [module for module in KERAS if module != "keras"]
    package = Path(kerasish.__file__).parent
    for name in dict.fromkeys(ours + theirs):
        path = package.joinpath(*name.split("."))
        if path.is_dir() or path.with_suffix(".py").is_file():
            yield importlib.import_module(f"kerasish.{name}".rstrip("."))


def exported(module: types.ModuleType) -> dict[str, Any]:
    """Return name -> object of what `module` offers: `__all__`, else whatever of ours it names."""
    if hasattr(module, "__all__"):
        return {name: getattr(module, name) for name in module.__all__}
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and str(getattr(value, "__module__", "")).startswith("kerasish")
    }


MODULES = list(public_modules())


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_public_names_are_documented(module):
    offered = {name: value for name, value in exported(module).items() if callable(value)}
    bare = [
        name
        for name, value in offered.items()
        if not (value.__doc__ or "").strip()
        or (inspect.isclass(value) and "__doc__" not in vars(value))
    ]
    assert (module.__doc__ or "").strip(), f"{module.__name__} has no docstring"
    assert not bare, f"{module.__name__}: without a docstring of their own: {sorted(bare)}"


def test_every_op_is_documented():
    bare = [name for name, op in REGISTRY.items() if not (op.__doc__ or "").strip()]
    assert REGISTRY
    assert not bare, f"ops without a docstring: {sorted(bare)}"


def differences(ours: inspect.Signature, theirs: list[list[str]]) -> str:
    """Say how `ours` departs from Keras's parameters; "" if a call written for Keras works as well.

    Ours may have keyword-only parameters beyond Keras's, and name what Keras takes by `**kwargs`.
    """
    given = []
    for parameter in ours.parameters.values():
        default = [] if parameter.default is parameter.empty else [repr(parameter.default)]
        given.append([parameter.name, KINDS[parameter.kind], *default])

    def plain(parameters: list[list[str]]) -> list[list[str]]:
        return [p for p in parameters if p[1] == "plain"]

    if plain(given) != plain(theirs):
        return f"takes {plain(given)}, Keras {plain(theirs)}"
    has = {p[0] for p in given}
    missing = [p[0] for p in theirs if p[1] == "keyword" and p[0] not in has]
    stars = {p[1] for p in given if p[1] in "**"}
    if (
        any(p[1] == "**" for p in theirs)
        and not stars
        and not any(p[1] == "keyword" for p in given)
    ):
        missing.append("**")
    if any(p[1] == "*" for p in theirs) and "*" not in stars:
        missing.append("*")
    return f"lacks {missing}" if missing else ""


@pytest.mark.parametrize(
    ("source", "theirs", "equal"),
    [
        ("lambda a, b=1: 0", [["a", "plain"], ["b", "plain", "1"]], True),
        ("lambda a, b=2: 0", [["a", "plain"], ["b", "plain", "1"]], False),
        ("lambda b=1, a=0: 0", [["a", "plain", "0"], ["b", "plain", "1"]], False),
        ("lambda a, c=0: 0", [["a", "plain"]], False),
        ("lambda a, *, c=0: 0", [["a", "plain"]], True),
        ("lambda a: 0", [["a", "plain"], ["kwargs", "**"]], False),
        ("lambda a, **more: 0", [["a", "plain"], ["kwargs", "**"]], True),
        ("lambda a, *, name=None: 0", [["a", "plain"], ["kwargs", "**"]], True),
        ("lambda a: 0", [["a", "plain"], ["c", "keyword"]], False),
        ("lambda a: 0", [["a", "plain"], ["arrays", "*"]], False),
    ],
)
def test_differences_are_seen(source, theirs, equal):
    assert (differences(inspect.signature(eval(source)), theirs) == "") is equal


def signature(callable_: Any) -> inspect.Signature:
    """Return what a call takes: of a class, what its constructor takes, whatever `__new__` says."""
    if inspect.isclass(callable_) and inspect.isfunction(callable_.__init__):
        return inspect.signature(types.MethodType(callable_.__init__, object()))
    return inspect.signature(callable_)


def shared_with_keras(module: str) -> Iterator[Any]:
    """Yield (name, ours, the parameters of Keras's) of what a module of Keras has as well."""
    full = "kerasish" if module == "keras" else f"kerasish.{module}"
    ours = next((m for m in MODULES if m.__name__ == full), None)
    for name, theirs in KERAS[module].items():
        # Keras shows a class without its own constructor as only (*args, **kwargs).
        if hasattr(ours, name) and any(p[1] not in "**" for p in theirs):
            yield name, getattr(ours, name), theirs


@pytest.mark.parametrize("module", KERAS)
def test_signatures_are_those_of_keras(module):
    shared = list(shared_with_keras(module))
    assert all(callable(ours) for _, ours, _ in shared)
    found = {name: differences(signature(ours), theirs) for name, ours, theirs in shared}
    assert {name: texts for name, texts in found.items() if texts} == {}


def test_most_names_have_a_signature_to_compare():
    assert sum(len(list(shared_with_keras(module))) for module in KERAS) > 1300


def test_dir_shows_the_public_names_and_no_others():
    shown = {name for name in dir(kerasish) if not name.startswith("__")}
    modules = {name.partition(".")[0] for name in KERAS} - {"keras"}
    theirs = {name for name in (*modules, *KERAS["keras"]) if hasattr(kerasish, name)}
    # Modules that Keras does not have, or that only hold others.
    ours = {"autodiff", "backend", "data", "datasets", "errors", "testing", "typing"}
    more = set(exported(kerasish)) - {"Any"}  # classes and functions
    assert shown == theirs | ours | more
    assert all(hasattr(kerasish, name) for name in shown)


def test_version_is_said_once():
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.?\w+)?", kerasish.__version__)
    if importlib.util.find_spec("kerasish").origin.startswith(str(TESTS.parent)):
        return  # run from the checkout: what is installed, if anything, is another copy
    assert importlib.metadata.version("kerasish") == kerasish.__version__


# ----------------------------------------------------------------------------- the tests themselves

JUDGES = re.compile(r"(^|[._])(assert|check|raises|warns|fail|expect)")


def can_fail(function: ast.AST, neighbors: dict[str, ast.AST], seen: frozenset[str]) -> bool:
    """Whether `function` asserts, or calls something that does."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if JUDGES.search(name):
                return True
            if (
                name in neighbors
                and name not in seen
                and can_fail(neighbors[name], neighbors, seen | {name})
            ):
                return True
    return False


def complaints(source: str) -> list[str]:
    """Say which tests of a file cannot fail, and which are skipped without a reason."""
    tree = ast.parse(source)
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, kinds)}
    result = [
        f"{node.lineno} {name} cannot fail"
        for name, node in functions.items()
        if name.startswith("test") and not can_fail(node, functions, frozenset({name}))
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "pytest.mark.skip":
            result.append(f"{node.lineno} pytest.mark.skip: a test that never runs is no test")
        if isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "pytest.mark.skipif",
            "pytest.skip",
        ):
            reasons = [k.value for k in node.keywords if k.arg == "reason"]
            if not reasons and not (ast.unparse(node.func) == "pytest.skip" and node.args):
                result.append(f"{node.lineno} skipped without a reason")
    return result


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("def test_a():\n    assert f()", 0),
        ("def test_a():\n    f()", 1),
        ("def f():\n    assert 1\ndef test_a():\n    f()", 0),
        ("def f():\n    f()\ndef test_a():\n    f()", 1),
        ("def test_a():\n    with pytest.raises(ValueError):\n        f()", 0),
        ("def test_a():\n    np.testing.assert_allclose(x, y)", 0),
        ("@pytest.mark.skipif(x)\ndef test_a():\n    assert f()", 1),
        ("def test_a():\n    pytest.skip('no GPU')\n    assert f()", 0),
    ],
)
def test_complaints_are_found(source, count):
    assert len(complaints(source)) == count


@pytest.mark.parametrize(
    "path", sorted(TESTS.rglob("test_*.py")), ids=lambda path: path.relative_to(TESTS).as_posix()
)
def test_every_test_can_fail(path):
    result = complaints(path.read_text("utf-8"))
    assert not result, f"{path.relative_to(TESTS)}: " + "; ".join(result)
