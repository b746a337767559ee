"""What pyright shows of every public name: no type is unknown, and few are Any, each on purpose."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from pathlib import Path

import pytest
from checkers import pyright_or_skip, read_pyright

REFERENCE = Path(__file__).parents[2] / "docs" / "_ext" / "public_names.py"
# `kerasish.typing` says why these two mean Any; annotations name them.
ON_PURPOSE = {"Array", "Structure"}
# Objects of other libraries, whose types are theirs: Matplotlib, pandas, Pillow, scikit-learn, JAX,
# Flax, PyTorch, Keras's trainer (`state_folder`, `run`). Methods of `FOREIGN_CLASSES` are all so.
FOREIGN_CLASSES = ("layers.JaxLayer.", "layers.FlaxLayer.", "layers.TorchModuleWrapper.")
FOREIGN = {
    "callbacks.History.plot": {"return"},
    "callbacks.Profiler.run": {"return"},
    "Model.state_folder": {"return"},  # an object of `saving`, above the engine
    "data.Dataset.from_table": {"table"},
    "metrics.SklearnScorer.__init__": {"scorer"},
    "utils.array_to_img": {"return"},
    "utils.load_img": {"return"},
    "wrappers.KerasClassifier.__init__": {"random_state"},
    "wrappers.KerasClassifier.feature_encoder": {"return"},
    "wrappers.KerasRegressor.__init__": {"random_state"},
    "wrappers.SKLearnTransformer.get_feature_names_out": {"input_features"},
    "wrappers.results_frame": {"search", "return"},
    "wrappers.search_progress": {"search"},
}


def public():
    spec = importlib.util.spec_from_file_location("public_names", REFERENCE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["public_names"] = module  # its NamedTuple reads it
    spec.loader.exec_module(module)
    return module.public()


def own_members(cls: type, seen: set) -> list[str]:
    """Return the public methods and properties that no class before has shown."""
    result = []
    for name in dir(cls):
        owner = next((c for c in cls.__mro__ if name in vars(c)), None)
        ours = owner is not None and owner.__module__.startswith("kerasish")
        if name[0] == "_" or not ours or (owner, name) in seen:
            continue
        static = inspect.getattr_static(cls, name)
        if isinstance(static, property) or inspect.isfunction(getattr(static, "__func__", static)):
            seen.add((owner, name))
            result.append(name)
    return result


def write_program() -> tuple[str, dict[int, tuple[str, object]]]:
    """Return a program with one `reveal_type` per line, and line -> (name, object)."""
    names = public()
    modules = sorted({name.module for name in names})
    alias = {module: module.replace(".", "_") for module in modules}
    lines = [f"import {module} as {alias[module]}" for module in modules]
    shown: dict[int, tuple[str, object]] = {}
    seen: set = set()
    for name in names:
        address = f"{alias[name.module]}.{name.name}"
        if not inspect.isclass(name.value):
            lines.append(f"reveal_type({address})")
            shown[len(lines)] = name.address, name.value
            continue
        lines.append(f"reveal_type({address}.__init__)")
        shown[len(lines)] = f"{name.address}.__init__", name.value.__init__
        for member in own_members(name.value, seen):
            lines.append(f"def _{len(lines)}(o: {address}): reveal_type(o.{member})")
            static = inspect.getattr_static(name.value, member)
            shown[len(lines)] = f"{name.address}.{member}", static
    return "\n".join(lines) + "\n", shown


def annotations_of(value: object) -> dict[str, str]:
    """Return the annotations of a function, method or property, as they are written."""
    value = getattr(value, "fget", None) or getattr(value, "__func__", value)
    signature = inspect.signature(value)
    written = {name: str(p.annotation) for name, p in signature.parameters.items()}
    return {**written, "return": str(signature.return_annotation)}


def anys_of(text: str) -> list[str]:
    """Return the parameters (without ** and *) whose type is Any, and "return"."""
    signature = re.match(r'^.* is "(.*)"$', text, re.S)
    assert signature, text
    parts = re.findall(r"(?<![*\w])(\w+): Any(?= = |,|\))", signature[1])
    return parts + (["return"] if re.search(r"(-> |^)Any$", signature[1]) else [])


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('Type of "f" is "(a: int, b: Any = 1, **c: Any) -> Any"', ["b", "return"]),
        ('Type of "f" is "(a: dict[str, Any], *b: Any) -> list[Any]"', []),
        ('Type of "f" is "Any"', ["return"]),
    ],
)
def test_anys_are_found(text, parts):
    assert anys_of(text) == parts


@pytest.mark.slow
def test_every_public_name_has_types(tmp_path):
    pyright_or_skip()
    program, shown = write_program()
    assert len(shown) > 2000
    file = tmp_path / "program.py"
    file.write_text(program)
    report = read_pyright(file)
    assert report.errors == {}
    assert report.notes.keys() == shown.keys()
    unknown, loose = [], []
    for line, (name, value) in shown.items():
        (text,) = report.notes[line]
        if re.search(r"\bUnknown\b", text.partition(" is ")[2]):
            unknown.append(f"{name}: {text}")
        short = name.removeprefix("kerasish.")
        if short.startswith(FOREIGN_CLASSES):
            continue
        parts = [p for p in anys_of(text) if p not in FOREIGN.get(short, ())]
        if parts:
            written = annotations_of(value)
            loose += [f"{short}: {p}" for p in parts if written.get(p) not in ON_PURPOSE]
    print(f"{len(shown)} names and members: {len(unknown)} unknown, {len(loose)} Any")
    assert not unknown, "\n".join(unknown)
    assert not loose, "\n".join(loose)
