"""An optimizer whose slots the ranks divide: bits, files, callbacks, bytes."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from rank_divided import CHECKS
from rank_jobs import needs_mpi, run_job

import kerasish as keras
from benchmarks.workloads import build_mlp, build_resnet20
from kerasish.optimizers.division import Division
from kerasish.ranks import Alone

SCRIPT = Path(__file__).parents[1] / "shared" / "rank_divided.py"
FAST = ["essentials", "bytes", "refused", "files", "resume", "model_parallel", "assigned"]
SLOW = [
    ["both", "options_eager", "options_static", "dtypes", "kinds_eager", "slots", "kinds_static"],
    ["both", "switched", "callbacks", "sources", "slots", "one_rank", "kernels", *FAST[:5]],
]


def run(ranks: int, names: list[str]) -> str:
    job = run_job(ranks, SCRIPT, *names, seconds=280)
    assert job.status == 0, job.output + job.errors
    assert [line for line in job.output.splitlines() if line.startswith("passed")] == [
        f"passed {name}" for name in names
    ]
    return job.output


@needs_mpi
def test_two_ranks():
    """Bytes, errors, files and resuming of two ranks, in one job."""
    output = run(2, FAST)
    [share] = re.findall(r"bytes ([\d.]+) of the whole", output)
    assert 0.49 < float(share) <= 0.51


def test_all_checks_run():
    assert {name for names in (FAST, *SLOW) for name in names} == set(CHECKS)


class Ranks(Alone):
    """What a rank of a larger job knows of it."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__()
        self.rank, self.size = rank, size


@pytest.mark.parametrize("build", [build_mlp, build_resnet20])
@pytest.mark.parametrize("ranks", [2, 16, 32])
def test_bytes_per_rank(build, ranks):
    """The optimizer's bytes on each rank: at most 1/P of the whole, plus 1 %."""
    keras.utils.clear_session()
    variables = build(keras).trainable_variables
    whole = keras.optimizers.Adam()
    whole.build(variables)
    limit = nbytes(whole) * (1 / ranks + 0.01)
    slots = 0
    for rank in range(ranks):
        own = keras.optimizers.Adam()
        division = Division(own, variables, Ranks(rank, ranks))
        assert nbytes(own) <= limit, (rank, nbytes(own), limit)
        slots += sum(slot.variable.value.size for slot in division.slots())
        assert [v.shape for v in own.undivided_variables] == [v.shape for v in whole.variables]
    assert slots == sum(math.prod(slot.shape) for slot in division.slots())


def nbytes(optimizer: keras.optimizers.Optimizer) -> int:
    return sum(v.numpy().nbytes for v in optimizer.variables)


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("names", SLOW)
def test_all_options_and_kinds(names):
    """Of divided slots, of divided kernels, and of both, compared with the same whole ones."""
    run(2, names)


@needs_mpi
@pytest.mark.slow
def test_three_ranks():
    """Segments of unequal lengths."""
    run(3, ["both", "files", "callbacks", "slots", "options_static"])


@needs_mpi
@pytest.mark.slow
def test_four_ranks():
    output = run(4, ["resume", "switched", "bytes", "options_eager"])
    [share] = re.findall(r"bytes ([\d.]+) of the whole", output)
    assert 0.24 < float(share) <= 0.26
