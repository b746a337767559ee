"""Random training programs in shards: the static engine gives what the eager one gives."""

from __future__ import annotations

import pytest
import rank_models as models
from fuzz import known
from fuzz.compare import check
from fuzz.generate import program_of
from fuzz.run import STATIC
from rank_jobs import ROOT, needs_mpi, run_job

from kerasish.ranks import set_sharding

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


@pytest.fixture
def _two_shards():
    models.use_shards(2)
    yield
    set_sharding(None)


@pytest.mark.parametrize("seed", range(40, 60))
@pytest.mark.usefixtures("_two_shards")
def test_engines_agree_on_shards(seed):
    program = program_of(seed)
    if known.reason(program):
        pytest.skip(f"known, and not fixed yet: {known.reason(program)}")
    verdict = check(program, [STATIC[0]], whole=True)
    assert not verdict.bad, f"{verdict.engine}: {verdict.text}"


@needs_mpi
def test_divided_slots_and_variables_change_no_bit():
    """Random programs on two ranks; seed 303 has divided moving averages."""
    job = run_job(2, ROOT / "tests" / "shared" / "rank_fuzz.py", 301, 305)
    assert job.status == 0, job.errors
    assert job.output.splitlines() == ["programs 4 equal"]


@needs_mpi
def test_ranks_with_unequal_rows_communicate_in_one_order():
    """Seed 422 gave one rank two rows and the other one: they fused other loops."""
    job = run_job(2, ROOT / "tests" / "shared" / "rank_fuzz.py", 422, 423)
    assert job.status == 0, job.errors
    assert job.output.splitlines() == ["programs 1 equal"]
