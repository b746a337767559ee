"""Ragged, sparse and folded data and quantized models: all engines, and dense arrays, agree.

KERASISH_FUZZ=200 tries that many seeds of each kind, KERASISH_FUZZ_START others.
"""

from __future__ import annotations

import os
import warnings

import pytest
from data_fuzz import KINDS, differences

COUNT = int(os.environ.get("KERASISH_FUZZ", "4"))
START = int(os.environ.get("KERASISH_FUZZ_START", "0"))


@pytest.mark.parametrize("kind", KINDS)
def test_all_ways_agree(kind: str) -> None:
    check(kind, range(START, START + COUNT))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_all_ways_agree_on_more_seeds(kind: str) -> None:
    check(kind, range(START + COUNT, START + COUNT + 4))


def check(kind: str, seeds: range) -> None:
    wrong, run = [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in seeds:
            texts, ran = differences(kind, seed)
            wrong += texts
            run += ran
    assert not wrong, "\n".join(wrong)
    assert run >= 0.5 * len(seeds), "most cases are refused: the generator is wrong"
