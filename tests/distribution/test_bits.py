"""With the same shards, another number of ranks ends with the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest
import rank_models as models
from rank_jobs import needs_mpi, run_job

SHARED = Path(__file__).parents[1] / "shared"
SCRIPT = SHARED / "rank_bits.py"


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "static"])
def test_bits_do_not_depend_on_the_number_of_ranks(backend):
    names = sorted(models.MODELS.keys() - {"synchronized"})  # one shard per rank
    outputs = {}
    for ranks in (1, 2, 4):
        job = run_job(ranks, SCRIPT, 4, backend, *names, seconds=280)
        assert job.status == 0, job.errors
        outputs[ranks] = job.output
        assert [line.split()[0] for line in job.output.splitlines()] == names
        assert all(len(line.split()) == 2 for line in job.output.splitlines()), job.output
    assert len(set(outputs.values())) == 1, outputs


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "static"])
def test_resnet20_on_1_to_16_ranks(backend):
    """Sixteen shards: weights, slots, moving averages and history of ResNet-20."""
    outputs = {}
    for ranks in (1, 2, 4, 8, 16):
        job = run_job(ranks, SHARED / "rank_resnet.py", 16, backend, seconds=280)
        assert job.status == 0, job.errors
        outputs[ranks] = job.output
        assert len(job.output.split()) == 2, job.output  # the weights, and one digest
    assert len(set(outputs.values())) == 1, outputs


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "static"])
def test_sixteen_shards(backend):
    outputs = {}
    for ranks in (1, 16):
        job = run_job(ranks, SCRIPT, 16, backend, "mlp", "cnn", "lstm", "transformer", seconds=280)
        assert job.status == 0, job.errors
        outputs[ranks] = job.output
    assert len(outputs[1].splitlines()) == 4
    assert outputs[1] == outputs[16]
