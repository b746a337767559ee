"""With the same shards, another number of ranks ends with the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest
import rank_models as models
from rank_jobs import needs_mpi, run_job

SCRIPT = Path(__file__).parents[1] / "shared" / "rank_bits.py"


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
