"""A training killed with SIGKILL, at random moments, ends as if it had never been."""

from __future__ import annotations

import os
import sys

import pytest
from kill_campaign import campaign

# KERASISH_KILLS=200 kills so often on each engine.
KILLS = int(os.environ.get("KERASISH_KILLS", "10"))

CASES = [
    pytest.param(engine, mode, source, share, id=f"{engine}-{mode}-{source}")
    for engine in ("static", "eager")
    for mode, source, share in (
        ("background", "arrays", 0.4),
        ("sync", "arrays", 0.3),
        ("background", "dataset", 0.3),
        ("background", "pipeline", 0.3),
    )
]


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
@pytest.mark.parametrize(("engine", "mode", "source", "share"), CASES)
def test_every_rerun_ends_with_the_same_bits(tmp_path, engine, mode, source, share):
    counts = campaign(tmp_path, engine, mode, round(KILLS * share), source=source)
    print(counts)
    assert counts["kills"] == round(KILLS * share)
    assert counts["trainings"] > 0
    assert counts["files"] > 0
