"""The docstrings of all public names are complete: parameters, result, example."""

from __future__ import annotations

import doctest
import importlib
import inspect
import sys
from pathlib import Path

import pytest

from kerasish.ops.op import REGISTRY

ROOT = Path(__file__).parents[2]
EXTENSIONS = str(ROOT / "docs" / "_ext")


@pytest.fixture(scope="module")
def names():
    sys.path.insert(0, EXTENSIONS)
    try:
        checks = importlib.import_module("docstring_checks")
        public = importlib.import_module("public_names")
    finally:
        sys.path.remove(EXTENSIONS)
    return {name.address: (name, checks.problems(name)) for name in public.public()}


def test_docstrings_are_complete(names):
    wrong = {address: problems for address, (_, problems) in names.items() if problems}
    assert not wrong, "\n".join(f"{a} lacks {', '.join(p)}" for a, p in wrong.items())


def test_every_public_name_is_seen(names):
    assert len(names) > 870
    assert {"kerasish.layers.Dense", "kerasish.ops.matmul", "kerasish.Model"} <= names.keys()


def test_what_is_missing_is_noticed(names):
    checks = sys.modules["docstring_checks"]
    name, problems = names["kerasish.callbacks.EarlyStopping"]
    assert problems == []

    def bare(x, axis=None, **kwargs) -> list:
        """Find something.

        Args:
            x: a tensor.
        """

    wanted = ["parameter axis", "what it returns", "an example"]
    assert checks.problems(name._replace(value=bare)) == wanted
    bare.__doc__ = (
        "Return something.\n\nArgs:\n    x:\n    axis: the axis.\n\nExample:\n    >>> bare(1)\n"
    )
    assert checks.problems(name._replace(value=bare)) == ["text for x", "what None means for axis"]
    bare.__doc__ = bare.__doc__.replace("x:", "x: a tensor.").replace("axis.", "axis; None: all.")
    assert checks.problems(name._replace(value=bare)) == []


def test_constructors_show_their_arguments(names):
    anything = {
        address
        for address, (name, _) in names.items()
        if inspect.isclass(name.value)
        and not issubclass(name.value, BaseException)
        and [p.kind for p in inspect.signature(name.value).parameters.values()]
        == [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]
    }
    # Model(inputs, outputs), or a subclass's arguments: as in Keras.
    assert anything == {"kerasish.Model"}


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_examples_of_ops_give_what_they_say(name):
    """doctest finds only functions and classes; an op is an object."""
    op = REGISTRY[name]
    text = op.__doc__ or ""
    if ">>>" not in text:
        return
    module = importlib.import_module(op.kernel.__module__)
    test = doctest.DocTestParser().get_doctest(text, dict(vars(module)), name, None, 0)
    report: list[str] = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    doctest.DocTestRunner(optionflags=flags).run(test, out=report.append)
    assert not report, "".join(report)
