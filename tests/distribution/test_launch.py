"""`python -m kerasish.launch`: the command, the variables, and a job."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from rank_jobs import ROOT, needs_mpi

from kerasish import launch


def test_commands():
    program = ["train.py", "--epochs", "3"]
    python = sys.executable
    assert launch.command("mpiexec", "mpich", 4, program) == [
        "mpiexec", "-l", "-n", "4", python, *program,
    ]  # fmt: skip
    assert launch.command("m", "openmpi", 2, ["-m", "x"], "a,b") == [
        "m", "--tag-output", "--bind-to", "none", "--host", "a,b", "-n", "2", python, "-m", "x",
    ]  # fmt: skip
    assert launch.command("m", "", 1, ["x"], "a") == ["m", "-hosts", "a", "-n", "1", python, "x"]


def test_variables():
    assert launch.environment(2, {}, 8) == {"OMP_NUM_THREADS": "4"}
    crowded = launch.environment(16, {"MPIR_CVAR_POLLS_BEFORE_YIELD": "9"}, 8, root=True)
    assert crowded["OMP_NUM_THREADS"] == "1"
    assert crowded["OMPI_ALLOW_RUN_AS_ROOT"] == "1"
    assert "MPIR_CVAR_POLLS_BEFORE_YIELD" not in crowded
    assert crowded.keys() >= launch.CROWDED.keys() - {"MPIR_CVAR_POLLS_BEFORE_YIELD"}
    assert "OMP_NUM_THREADS" not in launch.environment(2, {"OMP_NUM_THREADS": "3"}, 8)


def test_no_launcher(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert launch.main(["-n", "2", "x.py"]) == 2
    assert 'pip install "kerasish[mpi]"' in capsys.readouterr().err
    with pytest.raises(SystemExit):
        launch.main(["-n", "0", "x.py"])


def test_flavors(tmp_path):
    for text, kind in (
        ("HYDRA build details", "mpich"),
        ("mpirun (Open MPI) 5.0.11", "openmpi"),
        ("something else", ""),
    ):
        path = tmp_path / "mpiexec"
        path.write_text(f"#!/bin/sh\necho '{text}'\n")
        path.chmod(0o755)
        assert launch.flavor(str(path)) == kind


@needs_mpi
def test_a_job(tmp_path):
    """Lines are marked by rank, arguments arrive, the status is the program's."""
    script = tmp_path / "program.py"
    script.write_text(
        "import sys, os\nrank, threads = os.environ['PMI_RANK'], os.environ['OMP_NUM_THREADS']\n"
        "os.write(1, f'rank {rank} {sys.argv[1:]} {threads}\\n'.encode())\nsys.exit(5)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("OMP_NUM_THREADS", None)
    job = subprocess.run(
        [sys.executable, "-m", "kerasish.launch", "-n", "2", str(script), "a", "-b"],
        capture_output=True, text=True, timeout=60, env=environment, check=False,
    )  # fmt: skip
    threads = max(1, launch.cores() // 2)
    lines = sorted(line for line in job.stdout.splitlines() if "rank" in line)
    assert lines == [f"[{r}] rank {r} ['a', '-b'] {threads}" for r in range(2)], job.stderr
    assert job.returncode == 5
