"""Write kerasish/ops/*.pyi: the names of `kerasish.ops` with the signatures that checkers read.

An op is an object made by a decorator: type checkers cannot see from it what a call takes. This
script asks each op (its kernel's attributes, its outputs) and writes stubs of the modules that
collect the public names. All other modules keep their own annotations.

Run it from the checkout after adding or changing ops: `python docs/op_signatures.py`.
tests/types/test_op_signatures.py fails when a stub is out of date.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from kerasish import ops, typing
from kerasish.ops import linalg, nn, numpy
from kerasish.ops.op import Op

FOLDER = Path(ops.__file__).parent
_HEAD = '"""Written by docs/op_signatures.py: change the ops, not this file."""\n'
NAMED = {
    node.target.id
    for node in ast.parse(Path(typing.__file__).read_text("utf-8")).body
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
}
_ARRAY = re.compile(r"\bArray\b")


def public(module: ModuleType) -> dict[str, Any]:
    """Return name -> object of what a module offers, in the order of the names."""
    return {name: value for name, value in sorted(vars(module).items()) if name[0] != "_"}


def annotation_of(op: Op, parameter: inspect.Parameter) -> str:
    """Return the type of one argument of a call.

    Args:
        op: the op.
        parameter: the parameter of its kernel, whose inputs are arrays.
    """
    if parameter.kind is parameter.VAR_POSITIONAL:
        return "Sequence[TensorLike]"
    annotation = str(parameter.annotation)
    if parameter.name in op.input_names:
        annotation = _ARRAY.sub("TensorLike", annotation)
        if parameter.default is None and "None" not in annotation:
            annotation += " | None"
    # Kernels get shapes in their one hashable form: what a call takes is wider.
    annotation = re.sub(r"\bShape\b", "ShapeLike", annotation)
    if annotation in ("Any", "Array"):
        raise TypeError(f"{op.name}: the kernel's {parameter.name} needs a type of its own.")
    return annotation


def declaration(name: str, op: Op) -> str:
    """Return the declaration of an op as a function.

    Args:
        name: the public name.
        op: the op.
    """
    arguments = []
    for p in list(inspect.signature(op.kernel).parameters.values())[1:]:
        default = "" if p.default is p.empty else f" = {p.default!r}"
        arguments.append(f"{p.name}: {annotation_of(op, p)}{default}")
    result = "Tensor" if op.outputs == 1 else f"tuple[{', '.join(['Tensor'] * op.outputs)}]"
    return f"def {name}({', '.join(arguments)}) -> {result}: ...\n"


def root_stub() -> str:
    """Return the stub of `kerasish.ops`: declarations of ops, imports of all other names."""
    names = public(ops)
    modules = {n for n, v in names.items() if isinstance(v, ModuleType)}
    collected = sorted(modules & {"image", "linalg", "nn", "numpy"})
    lines = [f"from kerasish.ops import {name} as {name}\n" for name in collected]
    declared = {name: value for name, value in names.items() if isinstance(value, Op)}
    for name in sorted(names.keys() - modules - declared.keys()):
        home = names[name].__module__
        if getattr(sys.modules[home], name, None) is not names[name]:
            raise TypeError(f"kerasish.ops.{name}: {home} has it by another name; define it there.")
        lines.append(f"from {home} import {name} as {name}\n")
    body = "".join(declaration(name, op) for name, op in declared.items())
    used = sorted(set(re.findall(r"\b[A-Z]\w+", body)) & NAMED)
    head = [
        _HEAD,
        "from collections.abc import Sequence\n\n",
        *sorted(lines),
        "from kerasish.tensor import Tensor\n",
        f"from kerasish.typing import {', '.join(used)}\n\n",
    ]
    return "".join(head) + body


def part_stub(module: ModuleType) -> str:
    """Return the stub of a module all of whose names are names of `kerasish.ops`, too."""
    names = [n for n, v in public(module).items() if not isinstance(v, ModuleType)]
    missing = [name for name in names if not hasattr(ops, name)]
    if missing:
        raise TypeError(f"{module.__name__}: not names of kerasish.ops: {missing}.")
    return _HEAD + "".join(f"from kerasish.ops import {name} as {name}\n" for name in names)


def stubs() -> dict[Path, str]:
    """Return file -> text of all stubs."""
    parts = {FOLDER / f"{m.__name__.rpartition('.')[2]}.pyi": m for m in (linalg, nn, numpy)}
    return {
        FOLDER / "__init__.pyi": root_stub(),
        **{path: part_stub(module) for path, module in parts.items()},
    }


if __name__ == "__main__":
    for path, text in stubs().items():
        path.write_text(text, "utf-8")
        sys.stdout.write(f"{path.name}: {text.count(chr(10))} lines\n")
