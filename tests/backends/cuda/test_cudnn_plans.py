"""Our graphs before the real cuDNN, which plans them without a GPU (not run: there is none).

It needs the wheels of the extras gpu13 or gpu12, and a C compiler for what links to the driver.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

import cudnn_on_cpu
import pytest

SHARED = pathlib.Path(cudnn_on_cpu.__file__).parent
COMPILER = shutil.which("gcc") or shutil.which("clang")


def _folders():
    """Return the folders of cuDNN's libraries and those it needs, or why there are none."""
    if importlib.util.find_spec("cudnn") is None:
        return "cuDNN's frontend is not installed: extras gpu13 or gpu12"
    spec = importlib.util.find_spec("nvidia")
    roots = [pathlib.Path(p) for p in spec.submodule_search_locations or ()] if spec else []
    found = {}
    for name in ("cudnn", "cublasLt", "nvrtc"):
        libraries = [p for r in roots for p in r.glob(f"*/lib/lib{name}.so.*")]
        if not libraries:
            return f"lib{name} is not installed: extras gpu13 or gpu12"
        found[name] = str(libraries[0].parent)
    return list(found.values())


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    folders = _folders()
    if isinstance(folders, str):
        pytest.skip(folders)
    if COMPILER is None:
        pytest.skip("no C compiler (gcc or clang)")
    folder = tmp_path_factory.mktemp("driver")
    driver = folder / "libcuda.so.1"
    command = [COMPILER, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(driver)]
    subprocess.run([*command, str(SHARED / "cuda_driver_to_link.c")], check=True)

    def run(kind):
        path = os.pathsep.join([str(folder), *folders, os.environ.get("LD_LIBRARY_PATH", "")])
        program = [sys.executable, str(SHARED / "cudnn_planner.py"), kind, str(folder)]
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": path,
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]

    return run


def _check(found):
    refused = {name: why for name, why, *_ in found if why != "planned"}
    assert not refused
    assert all(size > 0 and 0 <= workspace <= 1 << 30 for _, _, workspace, size in found)


@pytest.mark.slow
def test_cudnn_plans_our_convolutions(plan):
    found = plan("convolution")
    _check(found)
    assert len(found) == 11 * (3 + 2) * 4


@pytest.mark.slow
def test_cudnn_plans_our_attention(plan):
    found = plan("attention")
    _check(found)
    assert len(found) == 17
