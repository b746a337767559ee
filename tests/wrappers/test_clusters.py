"""Searches on Dask, on Dask under mpiexec and on Ray: the bits of a search in one process."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kerasish import launch

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "shared" / "cluster_search.py"
NEEDS = {
    "dask": ("dask", "distributed"),
    "dask-mpi": ("dask", "distributed", "dask_mpi", "mpi4py"),
    "ray": ("ray",),
}

pytestmark = pytest.mark.slow


def run(kind: str, folder: Path, home: Path) -> str:
    """Return the digest that a search of a kind prints, in a process of its own."""
    command = [sys.executable, str(SCRIPT), kind, str(folder)]
    if kind == "dask-mpi":
        command = [launch.find_mpiexec(), "-n", "4", *command]
    own = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "KERASISH_BACKEND")
    here = {k: v for k, v in os.environ.items() if k not in own}
    if kind == "dask-mpi":
        root = hasattr(os, "geteuid") and os.geteuid() == 0
        here.update(launch.environment(99, {}, 1, root))
        here.pop("OMP_NUM_THREADS", None)
    # Ray writes a token into the home folder, and opens sockets below a short path.
    here.update(HOME=str(home), RAY_TMPDIR=str(home), PYTHONPATH=str(ROOT))
    done = subprocess.run(
        command, env=here, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    [digest] = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("digest")]
    return digest


@pytest.fixture
def home():
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    return run("alone", folder / "fits", folder)


def where_installed(kind: str) -> object:
    missing = [name for name in NEEDS[kind] if importlib.util.find_spec(name) is None]
    reason = f"not installed: {', '.join(missing)}"
    return pytest.param(kind, marks=pytest.mark.skipif(bool(missing), reason=reason))


@pytest.mark.parametrize("kind", [where_installed(kind) for kind in NEEDS])
def test_a_cluster_searches_alike(kind, alone, tmp_path, home):
    assert run(kind, tmp_path / "fits", home) == alone
    # The workers have kept what they finished: 4 candidates x 2 parts, and the best on all rows.
    kept = {p.name for p in (tmp_path / "fits").rglob("*") if p.is_file()}
    assert run("alone", tmp_path / "fits", home) == alone
    assert {p.name for p in (tmp_path / "fits").rglob("*") if p.is_file()} == kept
