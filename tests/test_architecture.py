"""Facts on the structure: frames from fit to the kernel, private attributes of other packages."""

from __future__ import annotations

import ast
import collections
import re
import traceback
from pathlib import Path

import numpy as np
import pytest

import kerasish
from kerasish import backends, config, layers
from kerasish.backends.static.codegen import driver

PACKAGE = Path(kerasish.__file__).parent
# Attributes that are a protocol: Keras's masks, and the fields of named tuples.
PROTOCOLS = {"_keras_mask", "_keras_history", "_fields"}


BY_NAME = ("getattr", "setattr", "hasattr")


def frames_of(stack):
    """Return (frames, files) of the package in a stack."""
    own = [f.filename for f in stack if f.filename.startswith(str(PACKAGE))]
    return len(own), len(set(own))


def fit(backend):
    config.set_backend(backend)
    model = kerasish.Sequential([kerasish.Input((4,)), layers.Dense(3)])
    model.compile("sgd", "mse")
    model.fit(np.ones((64, 4), "float32"), np.ones((64, 3), "float32"), verbose=0)


def test_frames_from_fit_to_the_kernel_on_the_eager_engine(monkeypatch):
    stacks, engine = [], backends.get("eager")
    find = engine.kernel

    def spied(op):
        def spy(*args, **attrs):
            if len(args) > 1 and args[1].shape == (4, 3):  # the product of the batch and the kernel
                stacks.append(traceback.extract_stack())
            return kernel(*args, **attrs)

        kernel = find(op)
        engine._kernels[op] = spy
        return spy

    monkeypatch.setattr(engine, "_kernels", {})
    monkeypatch.setattr(engine, "kernel", spied)
    fit("eager")
    first = next(s for s in stacks if any(f.name == "_train" for f in s))
    frames, files = frames_of(first)
    assert frames <= 14, first
    assert files <= 10, first


def test_frames_from_fit_to_the_native_call_on_the_static_engine(monkeypatch):
    stacks, finish = [], driver.Steps.finish

    def spy(self, status):  # called in the frame of the native call, right after it
        stacks.append(traceback.extract_stack())
        return finish(self, status)

    monkeypatch.setattr(driver.Steps, "finish", spy)
    fit("static")
    frames, files = frames_of(stacks[0])
    assert frames <= 5, stacks[0]
    assert files <= 4, stacks[0]


# --- sizes ------------------------------------------------------------------------------------

CENTRAL = (
    "layer/layer.py", "model/model.py", "model/sequential.py", "functional/functional.py",
    "training/trainer.py",
)  # fmt: skip


@pytest.mark.parametrize("file", CENTRAL)
def test_the_central_classes_stand_in_files_below_400_lines(file):
    lines = (PACKAGE / "engine" / file).read_text("utf-8").splitlines()
    assert len(lines) < 400, "Move a part of the class to a base class in a file of its own"


# --- private attributes -----------------------------------------------------------------------


def is_private(name):
    return isinstance(name, str) and name.startswith("_") and not name.startswith("__")


def package_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def private_definitions(trees):
    """Return private attribute -> packages that define it."""
    result = collections.defaultdict(set)
    for path, tree in trees.items():
        package = package_of(path)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                    result[node.attr].add(package)
            elif isinstance(node, ast.ClassDef):
                for part in node.body:
                    names = [getattr(part, "name", None)]
                    for target in getattr(part, "targets", [getattr(part, "target", None)]):
                        names.append(getattr(target, "id", None))
                    for name in filter(is_private, names):
                        result[name].add(package)
    return result


def reads_of_privates(trees):
    """Yield the places that read a private attribute of another package's object."""
    defined = private_definitions(trees)
    for path, tree in trees.items():
        file, package = path.relative_to(PACKAGE), package_of(path)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and is_private(node.attr):
                own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
                packages = defined.get(node.attr, set())
                if not own and packages and package not in packages:
                    yield node.attr, f"{file}:{node.lineno}"
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in BY_NAME:
                name = getattr(node.args[1], "value", None) if len(node.args) > 1 else None
                if is_private(name):
                    yield name, f"{file}:{node.lineno}"


@pytest.fixture(scope="module")
def trees():
    return {p: ast.parse(p.read_text("utf-8")) for p in sorted(PACKAGE.rglob("*.py"))}


@pytest.mark.slow
def test_no_package_reads_the_private_attributes_of_another(trees):
    result = [
        f"{place}: {name}" for name, place in reads_of_privates(trees) if name not in PROTOCOLS
    ]
    assert not result, "Add what is needed to the public interface of the other package"


def test_a_read_would_be_found():
    trees = {
        PACKAGE / "a" / "x.py": ast.parse("class A:\n    def f(self):\n        self._size = 1"),
        PACKAGE / "b" / "y.py": ast.parse("def g(a):\n    return a._size + getattr(a, '_more')"),
    }
    assert [name for name, _ in reads_of_privates(trees)] == ["_size", "_more"]


# --- the sizes that docs/architecture.md states ------------------------------------------------

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"


def stated_sizes(text):
    """Yield (paths, lines) of each row of the page's tables of packages."""
    folder = PACKAGE
    for line in text.splitlines():
        heading = re.fullmatch(r"\*\*`(\w+)/`\*\*", line)
        if heading:
            folder = PACKAGE / heading[1]
        row = re.match(r"\| (`.*`) \| ([\d,]+) \|", line)
        if row:
            names = re.findall(r"`([\w/]+)`", row[1])
            yield [located(folder, name) for name in names], int(row[2].replace(",", ""))


def located(folder, name):
    places = [base / name for base in (PACKAGE, folder) if (base / name).is_dir()]
    places += [base / f"{name}.py" for base in (folder, PACKAGE) if (base / f"{name}.py").is_file()]
    assert places, f"docs/architecture.md names {name!r}, which does not exist"
    return places[0]


def lines_of(path):
    files = [path] if path.is_file() else [p for e in ("*.py", "*.cu") for p in path.rglob(e)]
    return sum(len(p.read_text("utf-8").splitlines()) for p in files)


def test_the_architecture_page_states_sizes_that_hold():
    rows = list(stated_sizes(PAGE.read_text("utf-8")))
    named = {path for paths, _ in rows for path in paths}
    tops = {p for p in PACKAGE.iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file()}
    assert tops - named == {PACKAGE / "__init__.py"}, "Add a row to the page's first table"
    for paths, stated in rows:
        real = sum(map(lines_of, paths))
        assert abs(real - stated) <= max(0.15 * real, 60), (
            f"docs/architecture.md: {', '.join(p.name for p in paths)} have {real} lines, "
            f"not about {stated}"
        )


def test_a_wrong_size_would_be_found():
    rows = list(
        stated_sizes("**`ops/`**\n| `random` | 9,000 | x |\n| `ops/basic/`, `op` | 1 | y |")
    )
    assert rows == [
        ([PACKAGE / "ops" / "random.py"], 9000),
        ([PACKAGE / "ops" / "basic", PACKAGE / "ops" / "op.py"], 1),
    ]
    with pytest.raises(AssertionError, match="does not exist"):
        list(stated_sizes("| `nothing` | 10 | x |"))
