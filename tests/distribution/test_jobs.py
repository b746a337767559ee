"""Jobs of several ranks: what is computed, and how failures end."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_checks import CHECKS
from rank_jobs import needs_mpi, run_job

SHARED = Path(__file__).parents[1] / "shared"


@needs_mpi
def test_two_ranks():
    """All checks of `rank_checks.py`, in one job."""
    job = run_job(2, SHARED / "rank_checks.py")
    assert job.status == 0, job.output + job.errors
    assert job.output.split("\n")[: len(CHECKS)] == [f"passed {name}" for name in CHECKS]


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("ranks", [3, 4])
def test_more_ranks(ranks):
    names = [name for name in CHECKS if name != "same_bits" or ranks == 4]
    job = run_job(ranks, SHARED / "rank_checks.py", *names)
    assert job.status == 0, job.output + job.errors
    assert job.output.count("passed") == len(names)
