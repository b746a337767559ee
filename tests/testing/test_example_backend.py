"""The backend of `examples/backend`, as an installed package: found by its entry point, checked."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kerasish
from kerasish import backends

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # comes with pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "backend"
PROJECT = tomllib.loads((EXAMPLE / "pyproject.toml").read_text("utf-8"))


@pytest.fixture
def installed(tmp_path):
    """A folder with what `pip install` puts there; pip would fetch the build tool."""
    project = PROJECT["project"]
    for name in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]:
        shutil.copy(EXAMPLE / name, tmp_path)
    facts = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    facts.mkdir()
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (facts / "METADATA").write_text(head)
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (facts / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


def run(*arguments, installed, **more):
    """Run Python where the example is installed, with the package that is under test."""
    paths = os.pathsep.join([str(Path(kerasish.__file__).parents[1]), str(installed)])
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments], cwd=installed, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", **more},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_its_own_tests_pass(installed):
    """Among them `check_backend` and a training."""
    shutil.copy(EXAMPLE / "test_op_times.py", installed)
    shutil.copy(EXAMPLE / "pyproject.toml", installed)
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "--doctest-modules", ".",
               installed=installed)  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout


def test_it_is_found_by_its_entry_point_and_runs_steps(installed):
    code = (
        "import numpy as np, kerasish as keras\n"
        "from kerasish import backends\n"
        "model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])\n"
        "model.compile('sgd', 'mse')\n"
        "model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)\n"
        "print(backends.get('op_times').times()['matmul'].calls)\n"
    )
    done = run("-c", code, installed=installed, KERASISH_BACKEND="op_times")
    assert done.returncode == 0, done.stdout
    assert int(done.stdout) >= 2


def test_the_backend_of_the_page_keeps_the_contract():
    """The code of docs/backend.md, block after block, as a reader would paste it."""
    page = (EXAMPLE.parents[1] / "docs" / "backend.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 3
    names: dict = {"__name__": "page"}
    exec(compile("\n".join(blocks[:2]), "backend.md", "exec"), names)
    backends.register("mine", names["Mine"])
    try:
        exec(compile(blocks[2], "backend.md", "exec"), names)
    finally:
        backends.unregister("mine")


def test_it_imports_what_the_contract_names_and_nothing_private():
    contract = ast.get_docstring(ast.parse(contract_source()))
    result = []
    for node in ast.walk(ast.parse((EXAMPLE / "kerasish_op_times.py").read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kerasish"):
            result += [(node.module, alias.name) for alias in node.names]
    assert result
    for module, name in result:
        assert not any(part.startswith("_") for part in (*module.split("."), name))
        if module != "kerasish.devices":  # of the signature of `on`
            assert f"`{module}`" in contract and f"`{name}" in contract, f"{module}.{name}"


def contract_source():
    return (Path(kerasish.__file__).parent / "backends" / "backend.py").read_text("utf-8")
