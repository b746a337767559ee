"""Logs of all losses and metrics on 2, 3, 4 and 7 ranks: those of one process."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_jobs import needs_mpi, run_job

SCRIPT = Path(__file__).parents[1] / "shared" / "rank_logs.py"


@needs_mpi
@pytest.mark.slow
def test_logs_are_those_of_one_process():
    job = run_job(7, SCRIPT, seconds=280)
    assert job.status == 0, job.errors
    cases = [(2, "eager"), (3, "eager"), (3, "static"), (4, "eager"), (7, "eager")]
    assert job.output.splitlines() == [
        f"{size} ranks, {engine}, {rows} rows: {logs} logs equal"
        for size, engine in cases
        for rows, logs in ((1000, 136), (max(n for n in (1, 6) if n < size), 68))
    ]
