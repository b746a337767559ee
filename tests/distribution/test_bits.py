"""With the same shards, another number of ranks ends with the same bits."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from rank_bits import ENGINES, EVERY
from rank_jobs import needs_mpi, run_job

SCRIPT = Path(__file__).parents[1] / "shared" / "rank_bits.py"
EXPECTED = {
    **{("4", engine, name): {"1", "2", "4"} for engine in ENGINES for name in EVERY},
    **{("16", engine, "mixed"): {"1", "2", "4", "8", "16"} for engine in ENGINES},
}


@needs_mpi
@pytest.mark.slow
def test_bits_do_not_depend_on_the_number_of_ranks():
    """Weights, slots, moving averages and history, with 4 and with 16 shards."""
    job = run_job(16, SCRIPT, seconds=500)
    assert job.status == 0, job.errors
    digests, ranks = defaultdict(set), defaultdict(set)
    for line in job.output.splitlines():
        size, shards, engine, name, *found = line.split()
        digests[shards, engine, name].update(found)
        ranks[shards, engine, name].add(size)
    assert ranks == EXPECTED
    assert {case: len(found) for case, found in digests.items()} == dict.fromkeys(EXPECTED, 1)
