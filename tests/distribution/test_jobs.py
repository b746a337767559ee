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
def test_the_example_prints_equal_curves():
    script = SHARED.parents[1] / "examples" / "two_ranks.py"
    one, two = (run_job(ranks, script) for ranks in (1, 2))
    assert one.status == two.status == 0, one.errors + two.errors
    assert one.output.splitlines()[0] == "1 processes"
    assert two.output.splitlines()[0] == "2 processes"
    assert one.output.splitlines()[1:] == two.output.splitlines()[1:]
    assert len(one.output.splitlines()) == 6


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("ranks", [3, 4])
def test_more_ranks(ranks):
    # These have four shards, which three ranks cannot share.
    names = [name for name in CHECKS if name not in ("same_bits", "resume") or ranks == 4]
    job = run_job(ranks, SHARED / "rank_checks.py", *names)
    assert job.status == 0, job.output + job.errors
    assert job.output.count("passed") == len(names)
