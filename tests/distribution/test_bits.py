"""With the same shards, another number of ranks ends with the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import rank_models as models
from rank_jobs import needs_mpi, run_job

SCRIPT = Path(__file__).parents[1] / "shared" / "rank_bits.py"
ENGINES = ("eager", "static")


def digests(ranks: int, shards: int, names: Sequence[str]) -> dict[tuple[str, str], str]:
    """Return (engine, name) -> the digest of a training, which all ranks of the job have."""
    job = run_job(ranks, SCRIPT, shards, *names, seconds=500)
    assert job.status == 0, job.errors
    lines = [line.split() for line in job.output.splitlines()]
    assert all(len(line) == 3 for line in lines), job.output
    assert [(e, n) for e, n, _ in lines] == [(e, n) for e in ENGINES for n in names]
    return {(engine, name): digest for engine, name, digest in lines}


@needs_mpi
@pytest.mark.slow
def test_bits_do_not_depend_on_the_number_of_ranks():
    names = sorted(models.MODELS.keys() - {"synchronized"})  # one shard per rank
    found = [digests(ranks, 4, names) for ranks in (1, 2, 4)]
    assert found[0] == found[1] == found[2]


@needs_mpi
@pytest.mark.slow
def test_sixteen_shards_on_1_to_16_ranks():
    """Weights, slots, moving averages and history; of ResNet-20 on each number of ranks."""
    small = ("mlp", "cnn", "lstm", "transformer")
    expected = digests(1, 16, ("resnet20", *small))
    assert digests(16, 16, ("resnet20", *small)) == expected
    resnet = {key: value for key, value in expected.items() if key[1] == "resnet20"}
    for ranks in (2, 4, 8):
        assert digests(ranks, 16, ["resnet20"]) == resnet, ranks
