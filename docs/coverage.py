"""Write docs/keras_coverage.md: each public name of Keras 3.15, supported or not, and why not.

Run it from the checkout after adding names: `python docs/coverage.py`. tests/test_coverage.py fails
when the page is out of date.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import json
import sys
import textwrap
from collections import defaultdict
from pathlib import Path
from typing import Any

from kerasish.unsupported import METHODS, UNSUPPORTED

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "keras_coverage.md"
DATA = ROOT / "tests" / "data"

# Public methods that Keras does not document: implementation details of its classes.
_INSIDE = "an undocumented implementation detail of Keras"
_RAGGED = "kerasish has no ragged tensors"
INSIDES = {
    **dict.fromkeys(("ragged_rank", "row_splits_dtype"), _RAGGED),
    **dict.fromkeys(
        (
            "convert_weight", "inner_loop", "get_dropout_mask", "get_recurrent_dropout_mask",
            "reset_dropout_mask", "reset_recurrent_dropout_mask", "convolution_op",
            "interpolate_pr_auc", "check_finite", "lr_adjust", "transpose_last_axis",
            "zeropower_via_newtonschulz5", "get_elastic_transform_params", "get_shifted_bbox",
            "get_transformed_x_y", "get_clipped_bbox", "finalize_state", "output_dtype",
        ),
        _INSIDE,
    ),
    "set_fit_request": "scikit-learn adds it where metadata routing is on",
    "summary": "tensorboardX writes the files; use its SummaryWriter",
}  # fmt: skip


def read(name: str) -> Any:
    """Return the facts in tests/data/`name`.json."""
    return json.loads((DATA / f"{name}.json").read_text("utf-8"))


def module_of(module: str) -> Any:
    """Return our module for one of Keras's, or None where there is none."""
    name = "kerasish" if module == "keras" else f"kerasish.{module}"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


def reason(module: str, name: str) -> str | None:
    """Return why a name is not supported; None if no reason is recorded."""
    return UNSUPPORTED.get("" if module == "keras" else module, {}).get(name)


def names() -> dict[str, tuple[list[str], dict[str, str | None]]]:
    """Return module -> (supported names, unsupported name -> reason)."""
    result = {}
    for module, known in read("keras_signatures").items():
        collection = module_of(module)
        there = [name for name in known if collection is not None and hasattr(collection, name)]
        result[module] = (there, {n: reason(module, n) for n in known if n not in there})
    return result


def methods_of(module: str, name: str, known: dict[str, dict[str, list[str]]]) -> list[str]:
    """Return the public methods of one of Keras's classes, those of its base included."""
    base, *own = known[module][name]
    owner = "callbacks" if base == "Callback" else "keras"
    return [*(methods_of(owner, base, known) if base else []), *own]


def has_method(cls: type, name: str) -> bool:
    """Return whether a class, or its instances, have a method or attribute."""
    if hasattr(cls, name):
        return True
    return any(name in attributes_set(c.__module__, c.__name__) for c in cls.__mro__[:-1])


@functools.cache
def attributes_set(module: str, class_name: str) -> set[str]:
    """Return the attributes that a class's methods set on `self`."""
    result = set()
    for node in classes_in(module):
        if node.name == class_name:
            for part in ast.walk(node):
                if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
                    result |= {part.attr} if ast.unparse(part.value) == "self" else set()
    return result


@functools.cache
def classes_in(module: str) -> list[ast.ClassDef]:
    """Return the classes that one of our modules defines."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if not module.startswith("kerasish") or file is None:
        return []
    tree = ast.parse(Path(file).read_text("utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


@functools.cache
def missing_methods() -> dict[str, dict[str, list[str]]]:
    """Return method -> reason ("" if none is recorded) -> the classes without the method."""
    known = read("keras_methods")
    result: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for module, (there, _) in names().items():
        for name in there:
            cls = getattr(module_of(module), name)
            if name not in known.get(module, {}) or not inspect.isclass(cls):
                continue
            for method in methods_of(module, name, known):
                if not has_method(cls, method):
                    why = METHODS.get(method) or INSIDES.get(method) or ""
                    result[method][why].append(f"{module}.{name}")
    return result


def page() -> str:
    """Return the page's text."""
    modules = names()
    count = sum(len(there) for there, _ in modules.values())
    total = count + sum(len(out) for _, out in modules.values())
    lines = [
        "# Coverage of Keras 3.15",
        "",
        "`python docs/coverage.py` writes this page, and `tests/test_coverage.py` checks that it",
        "is up to date. Supported names have Keras's parameters, in Keras's order, with Keras's",
        "defaults (`tests/test_public.py` compares them). Every other name raises an error that",
        "says what to use instead.",
        "",
        f"**{count} of {total} public names are supported.**",
    ]
    for module, (there, out) in modules.items():
        title = "keras" if module == "keras" else f"keras.{module}"
        lines += ["", f"## {title}: {len(there)} of {len(there) + len(out)}", ""]
        if there:
            lines += _wrapped(", ".join(f"`{name}`" for name in there) + ".")
        if out:
            lines += [""] * bool(there) + ["Not supported:", ""]
        for name, why in out.items():
            lines += _wrapped(f"- `{name}`: {why or 'nothing yet'}.", "  ")
    lines += ["", "## Methods", "", "These methods of the classes above are not supported:", ""]
    for method, whys in sorted(missing_methods().items()):
        for why, classes in whys.items():
            lines += _wrapped(f"- `{method}` of {_shown(classes)}: {why or 'nothing yet'}.", "  ")
    return "\n".join(lines) + "\n"


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _shown(classes: list[str]) -> str:
    shown = ", ".join(f"`{c}`" for c in classes[:3])
    return shown if len(classes) <= 3 else f"{shown} and {len(classes) - 3} more"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE.name}: {sum(len(there) for there, _ in names().values())} names")
