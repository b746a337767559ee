"""Broken files, at random but always the same ones: each loads or gives a clear error.

They are loaded in processes of their own, so that a crash or a hang has a number; what is broken
and how is in `tests/shared/file_fuzz.py`. KERASISH_FUZZ=500 makes that many of each format instead
of the few that every run makes.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from file_fuzz import FORMATS, run

COUNT = int(os.environ.get("KERASISH_FUZZ", "40"))


@pytest.mark.timeout(max(300, 2 * COUNT))
@pytest.mark.parametrize("ending", FORMATS)
def test_broken_files_load_or_give_clear_errors(ending: str, tmp_path: Path) -> None:
    result = run(ending, COUNT, tmp_path)
    print(result)
    assert result["bad"] == {}
    assert result["whole"] + result["error"] == COUNT
    assert result["error"] > COUNT // 4
    assert result["slowest"] < 20
