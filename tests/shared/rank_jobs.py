"""Starts jobs of several ranks for tests: `mpiexec -n 2 python a_script.py arguments`."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from kerasish import launch

ROOT = Path(__file__).parents[2]


def missing() -> str:
    """Return why no job can be started here; "" where one can."""
    if importlib.util.find_spec("mpi4py") is None:
        return 'mpi4py is not installed: pip install "kerasish[mpi]"'
    try:
        launch.find_mpiexec()
    except launch.LaunchError as error:
        return str(error)
    return ""


needs_mpi = pytest.mark.skipif(bool(missing()), reason=f"no MPI: {missing()}")


@dataclass
class Job:
    """A job that has ended."""

    status: int
    output: str
    errors: str

    @property
    def last_line(self) -> str:
        """The last line of the errors; Open MPI's launcher adds lines to those of the ranks."""
        lines = [line for line in self.errors.splitlines() if line.strip()]
        if "prterun" in self.errors:
            lines = [line for line in lines if line.startswith("kerasish: ")]
        return lines[-1] if lines else ""


def run_job(ranks: int, script: Path | str, *arguments: object, seconds: float = 120) -> Job:
    """Return the job of a Python program on a number of ranks, one thread each."""
    here = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'shared'}"}
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    here.update(launch.environment(99, {}, 1, root))
    here["OMP_NUM_THREADS"] = "1"
    here.pop("KERASISH_BACKEND", None)
    command = [launch.find_mpiexec(), "-n", str(ranks), sys.executable, str(script)]
    done = subprocess.run(
        [*command, *map(str, arguments)],
        env=here, capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip
    return Job(done.returncode, done.stdout, done.stderr)
