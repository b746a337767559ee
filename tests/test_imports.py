"""Imports: who imports whom, what importing does, and how files are called."""

from __future__ import annotations

import ast
import builtins
import gc
import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kerasish
from kerasish.first_use import find

PACKAGE = Path(kerasish.__file__).parent
CHECKOUT = Path(__file__).parent.parent
SOURCES = sorted(PACKAGE.rglob("*.py"))

# Each is imported on first use by the one function that needs it.
ON_FIRST_USE = {
    "cudnn", "cupy", "h5py", "joblib", "llvmlite", "matplotlib", "ml_dtypes", "mpi4py", "pandas",
    "scipy", "sklearn", "tqdm",
}  # fmt: skip
# Modules and packages of our own that come on first use, and how many others there are at most.
LATER = tuple(
    f"kerasish.{name}."
    for name in (
        "applications", "backends.eager", "backends.onednn", "backends.static", "callbacks",
        "data", "datasets", "distribution", "engine", "export", "graph", "initializers", "layers",
        "legacy", "losses", "metrics", "optimizers", "preprocessing", "quantizers", "saving",
        "testing", "utils", "visualization", "wrappers",
    )
)  # fmt: skip
MOST_MODULES = 120
PEERS = {"jax", "keras", "tensorflow", "torch"}

# A name that tells what a file is for others, not what is inside.
EMPTY_WORDS = re.compile(r"(^|_)(utils?|helpers?|common|misc|base|manager|impl)(_|$)")
# `keras.utils` and `keras.applications.imagenet_utils` are public names.
NAMES_OF_KERAS = {"utils", "applications/imagenet_utils.py"}

IMPORT_AND_REPORT = """
import json, os, sys, time
touched = []
def watch(event, args):
    if event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        touched.append(f"{event} {args[0]}")
    elif event in ("os.mkdir", "os.rename", "os.remove", "socket.connect", "subprocess.Popen"):
        touched.append(f"{event} {args[0]}")
sys.addaudithook(watch)
before = set(sys.modules)
start = time.perf_counter()
import kerasish
seconds = time.perf_counter() - start
new = set(sys.modules) - before
modules = sorted({name.partition(".")[0] for name in new})
own = sorted(name for name in new if name.startswith("kerasish"))
print(json.dumps({"modules": modules, "own": own, "touched": touched, "seconds": seconds}))
"""


def import_in_fresh_process(home: Path, **more: str) -> dict:
    environment = {
        **os.environ,
        "HOME": str(home),
        "PYTHONPATH": str(PACKAGE.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        "XDG_CACHE_HOME": str(home / "cache"),
        **more,
    }
    report = subprocess.run(
        [sys.executable, "-c", IMPORT_AND_REPORT],
        cwd=home, env=environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert report.returncode == 0, report.stderr
    return json.loads(report.stdout)


def test_imports_go_down():
    """The contracts of pyproject.toml hold."""
    linter = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()",
         "--no-cache"],
        cwd=CHECKOUT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert linter.returncode == 0, linter.stdout + linter.stderr
    assert re.search(r"Contracts: [1-9]\d* kept, 0 broken", linter.stdout), linter.stdout


def name_of(function: ast.expr) -> str:
    """Return the last part of what is called: "c" of `c()` and `a.b.c()`."""
    return getattr(function, "attr", getattr(function, "id", ""))


INDENTED_IMPORT = re.compile(r"^[ \t]+(from|import)[ \t]+(kerasish|\.)|import_module", re.MULTILINE)
CALL_AS_STATEMENT = re.compile(r"^[A-Za-z_][\w.]*(\[[^\]]*\])?\(", re.MULTILINE)


def imports_inside_functions(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, module) of each import of our own that waits inside a function."""
    if not INDENTED_IMPORT.search(source):  # parsing all files takes seconds
        return
    functions = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    for node in (inner for function in functions for inner in ast.walk(function)):
        if isinstance(node, ast.ImportFrom):
            names = ["kerasish" if node.level else node.module or ""]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Call) and name_of(node.func) == "import_module":
            names = [a.value for a in node.args[:1] if isinstance(a, ast.Constant)]
        else:
            continue
        for name in names:
            if name.partition(".")[0] == "kerasish" or name.startswith("."):
                yield node.lineno, name


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from kerasish import ops", []),
        ("def f():\n    import numpy", []),
        ("def f():\n    from kerasish import ops", [(2, "kerasish")]),
        ("def f():\n    from ..ops import op", [(2, "kerasish")]),
        ("class C:\n  async def f(self):\n    import kerasish.ops as o", [(3, "kerasish.ops")]),
        ("def f():\n    importlib.import_module('kerasish.ops')", [(2, "kerasish.ops")]),
    ],
)
def test_own_imports_inside_functions_are_seen(source, found):
    assert list(imports_inside_functions(source)) == found


@pytest.mark.slow
def test_no_function_imports_our_own_modules():
    result = [
        f"{path.relative_to(PACKAGE)}:{line} imports {name}"
        for path in SOURCES
        for line, name in sorted(set(imports_inside_functions(path.read_text("utf-8"))))
    ]
    assert SOURCES
    assert not result, "\n".join(result)


def calls_on_import(source: str) -> Iterator[str]:
    """Yield the functions that a module calls for what they do: statements outside functions."""
    if not CALL_AS_STATEMENT.search(source):  # parsing all files takes seconds
        return
    for node in ast.parse(source).body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield ast.unparse(node.value.func)


def test_registrations_are_listed():
    """What a package registers with another one on import is listed on its page."""
    page = (CHECKOUT / "docs" / "architecture" / "upward-calls.md").read_text("utf-8")
    assert list(calls_on_import("f()\nx = g()\ndef h():\n    k()\na.b(1)")) == ["f", "a.b"]
    calls = {(p, c) for p in SOURCES for c in calls_on_import(p.read_text("utf-8"))}
    assert len(calls) > 20
    unlisted = sorted(
        f"{path.relative_to(PACKAGE)}: {call}"
        for path, call in calls
        if f"{call.removeprefix('core.').rpartition('.')[2]}`" not in page
    )
    assert not unlisted, f"Add a line to docs/architecture/upward-calls.md: {unlisted}"


def test_import_brings_nothing_heavy_and_leaves_no_trace(tmp_path):
    """Nothing that is imported on first use comes with `import kerasish`; no file is written."""
    report = import_in_fresh_process(tmp_path)
    assert "numpy" in report["modules"]
    assert not set(report["modules"]) & (ON_FIRST_USE | PEERS)
    assert not report["touched"]
    assert not list(tmp_path.iterdir())


def test_import_brings_no_more_of_our_own_modules(tmp_path):
    """What many programs do not use is imported when it is first named."""
    report = import_in_fresh_process(tmp_path)
    assert sorted({name for name in report["own"] if name.startswith(LATER)}) == []
    assert len(report["own"]) <= MOST_MODULES, sorted(report["own"])


def test_a_small_model_brings_what_it_needs_alone():
    """Layers, ops and packages of other models are not imported to build and train it."""
    code = (
        "import sys, numpy as np, kerasish as keras\n"
        "keras.utils.set_random_seed(1)\n"
        "inputs = keras.Input((4,))\n"
        "model = keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Dense(3)(inputs)))\n"
        "model.compile('adam', 'mse')\n"
        "model.fit(np.ones((8, 4)), np.ones((8, 2)), verbose=0)\n"
        "print(*sys.modules)\n"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    modules = set(output.stdout.split())
    assert "kerasish.layers.core" in modules, output.stderr
    unused = {"difflib", "importlib.metadata", "numpy.ma", "urllib.request", "kerasish.datasets"}
    assert not unused & modules
    names = {"convolutional", "attention", "normalization", "crf"}
    assert not {f"kerasish.layers.{name}" for name in names} & modules
    assert not [name for name in modules if name.startswith("kerasish.backends.eager.cuda")]


def names_imported_on_first_use(package: str) -> dict[str, str]:
    """Return name -> "module:name" of the imports in a package's `with` block."""
    path = PACKAGE.joinpath(*package.split(".")[1:], "__init__.py")
    blocks = [n for n in ast.parse(path.read_text("utf-8")).body if isinstance(n, ast.With)]
    imports = [n for block in blocks for n in block.body if isinstance(n, ast.ImportFrom)]
    return {
        a.asname: f"{n.module}.{a.name}" if n.module == package else f"{n.module}:{a.name}"
        for n in imports
        for a in n.names
        if a.asname
    }


@pytest.mark.parametrize(
    "package", ["", ".backends.eager", ".callbacks", ".export", ".layers", ".optimizers", ".utils"]
)
def test_imports_on_first_use_give_what_they_name(package):
    module = importlib.import_module(f"kerasish{package}")
    places = names_imported_on_first_use(module.__name__)
    assert places
    assert {name: find(place) for name, place in places.items()} == {
        name: getattr(module, name) for name in places
    }
    hidden = module._SELDOM if module is kerasish else set()
    assert places.keys() - hidden <= set(dir(module))


PACKAGE_WITH_A_BLOCK = """
import sys
from kerasish.first_use import imports_on_first_use
with imports_on_first_use(__name__) as places:
    from later import part as part
    from later.part import value as value
    from later.part import value as alias
    during = __import__("json", globals={}).loads("3")
import json
"""


def test_a_block_leaves_its_imports_for_later_and_no_others(tmp_path, monkeypatch):
    package = tmp_path / "later"
    package.mkdir()
    (package / "__init__.py").write_text(PACKAGE_WITH_A_BLOCK)
    (package / "part.py").write_text("value = 5\n")
    monkeypatch.syspath_prepend(tmp_path)
    usual = builtins.__import__
    try:
        later = importlib.import_module("later")
        assert builtins.__import__ is usual
        assert later.during == 3 and later.json is json
        assert "later.part" not in sys.modules
        assert not {"part", "value", "alias"} & vars(later).keys()
        assert later.places == {
            "part": "later.part", "value": "later.part:value", "alias": "later.part:value",
        }  # fmt: skip
        assert {"part", "value", "alias"} <= set(dir(later))
        assert later.alias == 5 and "alias" in vars(later) and "value" not in vars(later)
        assert later.part is sys.modules["later.part"]
        with pytest.raises(AttributeError, match="module 'later' has no attribute 'other'"):
            _ = later.other
    finally:
        sys.modules.pop("later", None)
        sys.modules.pop("later.part", None)


def test_an_error_in_a_block_restores_imports(tmp_path, monkeypatch):
    (tmp_path / "failing.py").write_text(
        "from kerasish.first_use import imports_on_first_use\n"
        "with imports_on_first_use(__name__):\n    1 / 0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    usual = builtins.__import__
    with pytest.raises(ZeroDivisionError):
        importlib.import_module("failing")
    assert builtins.__import__ is usual


# What needs a package that a bare import leaves for later; each runs in a process of its own.
ALONE = {
    "names in files": (
        "from kerasish import registry\n"
        "config = {'module': 'keras.layers', 'class_name': 'Dense', 'config': {'units': 3}}\n"
        "assert registry.deserialize_keras_object(config).units == 3"
    ),
    "classes without a module": (
        "from kerasish import registry\n"
        "config = {'class_name': 'Adam', 'config': {'learning_rate': 0.5}}\n"
        "adam = registry.deserialize_keras_object(config)\n"
        "assert adam.__class__.__module__ == 'kerasish.optimizers.adam', type(adam)"
    ),
    "functions without a module": (
        "from kerasish import registry\n"
        "assert registry.find_function('relu').__module__ == 'kerasish.activations'"
    ),
    "names of initializers": (
        "import kerasish\nassert kerasish.Variable('ones', shape=(2,)).numpy().sum() == 2"
    ),
    "layers by method": (
        "from kerasish.engine import Input\nassert Input((3,)).dense(5).shape == (None, 5)"
    ),
    "ops alone": (
        "from kerasish.ops import add\nassert add(1, 2).numpy() == 3\n"
        "from kerasish import ops\n"
        "assert ops.vectorized_map(lambda x: x + 1, [1.0, 2.0]).sum() == 5"
    ),
    "models from threads": (
        "import threading, kerasish\n"
        "def build():\n"
        "    model = kerasish.Sequential([kerasish.layers.Dense(2)])\n"
        "    model.build((None, 3))\n"
        "    built.append(model)\n"
        "built = []\n"
        "threads = [threading.Thread(target=build) for _ in range(4)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "assert len(built) == 4"
    ),
}


@pytest.mark.parametrize("what", ALONE)
def test_what_was_left_for_later_comes_when_it_is_needed(what):
    output = subprocess.run([sys.executable, "-c", ALONE[what]], capture_output=True, text=True)
    assert output.returncode == 0, output.stderr


def test_a_star_gives_the_names_that_come_on_first_use():
    given: dict[str, object] = {}
    exec("from kerasish import *\nfrom kerasish.layers import *", given)
    assert {"Dense", "Convolution2D", "deserialize", "utils", "layers"} <= given.keys()
    assert "applications" not in given


def test_a_layer_is_saved_under_its_public_name_however_it_was_imported():
    code = (
        "from kerasish.layers.augmentation.color import RandomHue\n"
        "from kerasish import registry\n"
        "print(registry.serialize_keras_object(RandomHue(0.5))['module'])\n"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert output.stdout == "keras.layers\n", output.stderr


@pytest.mark.slow
def test_import_time_is_told(tmp_path):
    """The time is printed (`pytest -s`), not judged: machines differ."""
    kept = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}
    import_in_fresh_process(tmp_path, **kept)  # compiles to byte code, as the first import does
    seconds = [import_in_fresh_process(tmp_path, **kept)["seconds"] for _ in range(3)]
    print(f"\nimport kerasish: best of 3 {min(seconds):.3f} s, worst {max(seconds):.3f} s")
    assert min(seconds) > 0


def test_names_of_files_say_what_is_inside():
    empty = [
        str(path.relative_to(PACKAGE))
        for path in sorted(PACKAGE.rglob("*"))
        if "__pycache__" not in path.parts
        and EMPTY_WORDS.search(path.stem)
        and path.relative_to(PACKAGE).as_posix() not in NAMES_OF_KERAS
    ]
    assert not empty, f"Say what is inside, not what it is for others: {empty}"


@pytest.mark.parametrize(
    ("name", "empty"),
    [("utils", True), ("layer_utils", True), ("base_layer", True), ("helper", True),
     ("run_impl", True), ("database", False), ("implicit", False), ("managers_of_none", False)],
)  # fmt: skip
def test_empty_words_are_seen(name, empty):
    assert bool(EMPTY_WORDS.search(name)) is empty


def test_no_file_is_longer_than_500_lines():
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in SOURCES}
    long = [f"{path.relative_to(PACKAGE)}: {n}" for path, n in lengths.items() if n > 500]
    assert not long, f"A file is one idea; split these: {long}"


def test_an_import_on_first_use_pauses_the_collector(tmp_path, monkeypatch):
    (tmp_path / "collector_state.py").write_text("import gc\nruns = gc.isenabled()\n")
    (tmp_path / "collector_error.py").write_text("raise ImportError('broken')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert gc.isenabled()
    assert find("collector_state:runs") is False and gc.isenabled()
    with pytest.raises(ImportError, match="broken"):
        find("collector_error")
    assert gc.isenabled()
    gc.disable()
    try:
        find("collector_state")
        assert not gc.isenabled()
    finally:
        gc.enable()


COLLECTIONS = """
import gc, sys, weakref
from kerasish.overriding import no_collections

class Node:
    pass

lasting, began = sys.argv[1] == "lasting", []
gc.collect()
gc.callbacks.append(lambda phase, info: began.append(phase))
with no_collections(lasting):
    kept = [[] for _ in range(5000)]
    garbage = Node()
    garbage.itself, seen = garbage, weakref.ref(garbage)
    del garbage
    assert not gc.isenabled() and not began
kept += [[] for _ in range(10)]
assert gc.isenabled()
assert bool(began) is not lasting
gc.collect()
assert seen() is None  # a full collection finds what is garbage
gc.freeze()  # what the user freezes stays frozen
frozen = gc.get_freeze_count()
with no_collections(lasting):
    pass
assert gc.get_freeze_count() == frozen
"""


@pytest.mark.parametrize("kind", ["passing", "lasting"])
def test_the_collector_pauses_and_does_not_look_at_lasting_objects(kind):
    done = subprocess.run([sys.executable, "-c", COLLECTIONS, kind], check=False)
    assert done.returncode == 0
