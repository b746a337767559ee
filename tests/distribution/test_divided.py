"""An optimizer whose slots the ranks divide: bits, files, callbacks, bytes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rank_divided import CHECKS
from rank_jobs import needs_mpi, run_job

SCRIPT = Path(__file__).parents[1] / "shared" / "rank_divided.py"
SLOW = ("options", "kinds", "dtypes")


def run(ranks: int, names: list[str]) -> str:
    job = run_job(ranks, SCRIPT, *names)
    assert job.status == 0, job.output + job.errors
    assert [line for line in job.output.splitlines() if line.startswith("passed")] == [
        f"passed {name}" for name in names
    ]
    return job.output


@needs_mpi
def test_two_ranks():
    """Files, resume, callbacks, bytes and errors of two ranks, in one job."""
    names = [name for name in CHECKS if name not in SLOW]
    output = run(2, names)
    [share] = re.findall(r"bytes ([\d.]+) of the whole", output)
    assert 0.49 < float(share) <= 0.51


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("names", [[name] for name in SLOW])
def test_all_options_and_kinds(names):
    run(2, names)


@needs_mpi
@pytest.mark.slow
def test_three_ranks():
    """Segments of unequal lengths."""
    run(3, ["files", "resume", "callbacks", "options"])


@needs_mpi
@pytest.mark.slow
def test_four_ranks():
    output = run(4, ["files", "resume", "switched", "bytes", "options"])
    [share] = re.findall(r"bytes ([\d.]+) of the whole", output)
    assert 0.24 < float(share) <= 0.26
