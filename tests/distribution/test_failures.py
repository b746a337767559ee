"""A rank that fails ends the job, soon and by name, and leaves nothing behind."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from rank_jobs import needs_mpi, run_job
from rank_kills import campaign

SCRIPT = Path(__file__).parents[1] / "shared" / "rank_failures.py"
SECONDS = 5.0
TIMEOUT = 5.0  # seconds; ranks that are paused for less do not end the job
TRIES = 3
SLOW = pytest.mark.slow

# What the last line says. "stop" and "stall": after the timeout.
KINDS = {
    "raise": r"rank 1 of 2 on \S+: after step 4 of epoch 2 \(train\): ValueError: a bad row",
    "exit": r"rank 1 of 2 on \S+: .*sys.exit\(3\)",
    "SystemExit": r"rank 0 of 2 on \S+: .*waits for rank 1, which has ended",
    "interrupt": r"rank 1 of 2 on \S+: .*KeyboardInterrupt",
    "stop": r"rank 0 of 2 on \S+: .*no answer from rank 1",
    "stall": r"rank 0 of 2 on \S+: .*rank 1 is after step 4 of epoch 2",
    "steps": r"rank 0 of 2 on \S+: .*waits for rank 1, which has ended",
    "batches": r"all ranks must do equally many steps, but the data have \[4, 2\] batches",
    "graph": r"rank \d of 2 on \S+: .*the ranks' models differ",
    "save": r"rank 1 of 2 on \S+: in save\(\), after step 4 of epoch 2: rank 0 has not made this "
    r"call: it is in step \d of epoch \d \(train\)\. Make it on all ranks",
    "saves late": r"rank 1 of 2 on \S+: in save\(\).*waits for rank 0, which has ended",
    "predict": r"rank 0 of 2 on \S+: .*Alone.on_epoch_end runs only on rank 0",
    "step": r"rank 0 of 2 on \S+: .*Alone.on_epoch_end runs only on rank 0",
    "kill": "",
}


# The names that MPICH's and Open MPI's shared memory begin with.
SEGMENTS = ("mpich_shm_", "sm_segment", "vader_segment", "osc_")


def shared_memory() -> set[str]:
    folder = Path("/dev/shm")
    names = [p.name for p in folder.iterdir()] if folder.is_dir() else []
    return {name for name in names if name.startswith(SEGMENTS)}


@needs_mpi
@pytest.mark.parametrize(
    "kind", [k if k in ("raise", "save") else pytest.param(k, marks=SLOW) for k in KINDS]
)
def test_a_failure_ends_the_job(kind):
    before = shared_memory()
    limit = SECONDS + (TIMEOUT if kind in ("stop", "stall") else 0.0)
    seconds = []
    while not seconds or seconds[-1] >= limit:
        job = run_job(2, SCRIPT, kind, TIMEOUT, seconds=60)
        ended = time.time()
        assert job.status not in (0, None), job.errors
        assert re.search(KINDS[kind], job.last_line), job.errors
        assert not shared_memory() - before
        began = re.search(r"failed at ([\d.]+)", job.output)
        seconds.append(0.0 if began is None else ended - float(began.group(1)))
        # A machine that stands still for seconds does so to one try, hardly to all.
        assert len(seconds) < TRIES or min(seconds) < limit, (seconds, job.errors)


@needs_mpi
@pytest.mark.slow
def test_killed_ranks_change_no_bit(tmp_path):
    """Random kills of random ranks, each followed by a start on 1, 2 or 4 ranks."""
    report = campaign(4, 1, tmp_path)
    assert report["kills"] == 4 and len(set(report["ranks"])) > 1
