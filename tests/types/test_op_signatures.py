"""The stubs of `kerasish.ops`: current, and the same calls as at run time."""

from __future__ import annotations

import ast
import importlib.util
import inspect
from pathlib import Path

import pytest

from kerasish import ops
from kerasish.ops.op import Op

SCRIPT = Path(__file__).parents[2] / "docs" / "op_signatures.py"


def script():
    spec = importlib.util.spec_from_file_location("op_signatures", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def declared() -> dict[str, ast.FunctionDef]:
    tree = ast.parse(Path(ops.__file__).with_suffix(".pyi").read_text("utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_stubs_are_current():
    for path, text in script().stubs().items():
        assert path.read_text("utf-8") == text, "run: python docs/op_signatures.py"


def test_each_op_is_declared_with_the_parameters_of_its_calls():
    stubs = declared()
    public = {name: op for name, op in vars(ops).items() if isinstance(op, Op)}
    assert stubs.keys() == public.keys()
    assert len(public) > 100
    for name, op in public.items():
        parameters = inspect.signature(op).parameters
        assert [a.arg for a in stubs[name].args.args] == list(parameters), name
        defaults = [ast.literal_eval(d) for d in stubs[name].args.defaults]
        given = [p.default for p in parameters.values() if p.default is not p.empty]
        assert defaults == given, name


def test_an_attribute_without_a_type_is_refused():
    def kernel(xp, x: Array, *, rate: Any):  # noqa: F821
        return x

    op = Op(kernel, "", lambda x, rate: x, None, None, 0, None, (), False, 1, "unknown_kind")
    with pytest.raises(TypeError, match="rate needs a type"):
        script().declaration("unknown_kind", op)
