"""Logs of all losses and metrics on 2, 3, 4 and 7 ranks: those of one process."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_jobs import needs_mpi, run_job

SCRIPT = Path(__file__).parents[1] / "shared" / "rank_logs.py"
pytestmark = [needs_mpi, pytest.mark.slow]


@pytest.fixture(scope="module")
def logs_alone(tmp_path_factory):
    """A file for each engine, with the logs of one process."""
    folder = tmp_path_factory.mktemp("logs")

    def of(backend: str) -> Path:
        path = folder / backend
        if not path.exists():
            job = run_job(1, SCRIPT, backend, path)
            assert job.status == 0, job.errors
        return path

    return of


@pytest.mark.parametrize(
    ("backend", "ranks"), [("eager", 2), ("eager", 3), ("eager", 4), ("eager", 7), ("static", 3)]
)
def test_logs_are_those_of_one_process(backend, ranks, logs_alone):
    job = run_job(ranks, SCRIPT, backend, logs_alone(backend), seconds=280)
    assert job.status == 0, job.errors
    fewer = max(n for n in (1, 6) if n < ranks)
    assert job.output.splitlines() == ["1000 rows: 128 logs equal", f"{fewer} rows: 64 logs equal"]
