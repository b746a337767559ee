"""Each single pass on random graphs: the interpreted results do not change.

In float64, so that an error stands out from rounding, with NaN, infinities, -0.0, the smallest and
the largest numbers, empty axes, and gradients. `KERASISH_FUZZ=2000` runs more.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from fuzz.graphs import differences, draw

from kerasish.graph.interpret import interpret
from kerasish.graph.ir import verify
from kerasish.graph.passes import FUSION_PASSES, LEVELS, PASSES, gather, optimize
from kerasish.graph.passes.widen import widen_halves

COUNT = int(os.environ.get("KERASISH_FUZZ", "40"))
START = int(os.environ.get("KERASISH_FUZZ_START", "0"))
EVERY = list(dict.fromkeys((*PASSES, *FUSION_PASSES)))
seeds = pytest.mark.parametrize("seed", range(START, START + COUNT))
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def unequal(before, after, arrays, relative=1e-9):
    return differences(interpret(before, arrays), interpret(verify(after), arrays), relative)


@seeds
def test_each_pass_alone(seed):
    drawn = draw(seed)
    for graph in (drawn.graph, optimize(drawn.graph)):
        for step in EVERY:
            result = unequal(graph, step(graph), drawn.arrays)
            assert not result, (step.__name__, result, drawn.lines)


@seeds
def test_all_passes_in_turn(seed):
    drawn = draw(seed + 100_000)
    for level in LEVELS:
        result = unequal(drawn.graph, optimize(drawn.graph, level), drawn.arrays)
        assert not result, (level, result, drawn.lines)
    result = unequal(drawn.graph, gather(optimize(drawn.graph)), drawn.arrays)
    assert not result, (result, drawn.lines)


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
@pytest.mark.parametrize("seed", range(START, START + COUNT // 2))
def test_halves_that_are_widened(seed, half):
    """Widened halves round less: no further from float64 than what is rounded at each step."""
    drawn = draw(seed + 200_000, half, special=False)
    exact = draw(seed + 200_000, "float64", special=False).graph
    after = verify(widen_halves(drawn.graph, frozenset([half])))
    wide = [a.astype("float64") for a in drawn.arrays]
    results = zip(
        interpret(exact, wide), interpret(drawn.graph, drawn.arrays),
        interpret(after, drawn.arrays), strict=True,
    )  # fmt: skip
    for true, plain, widened in results:
        assert plain.shape == widened.shape and plain.dtype == widened.dtype
        plain, widened = plain.astype("float64"), widened.astype("float64")
        known = np.isfinite(true) & np.isfinite(plain) & np.isfinite(widened)
        largest = np.abs(true[known]).max(initial=0.0)
        allowed = 3 * np.abs(plain - true).max(initial=0.0, where=known) + 0.02 * largest + 1e-3
        assert (np.abs(widened - true)[known] <= allowed).all(), drawn.lines


def test_graphs_hold_what_passes_look_for():
    """Else nothing is shown: the ops of the rules, gradients, empty axes, special numbers."""
    names, empty = set(), 0
    for seed in range(60):
        drawn = draw(seed)
        names |= {node.op.name for node in drawn.graph.nodes}
        names |= {node.op.name for node in gather(optimize(drawn.graph)).nodes}
        empty += any(0 in a.shape for a in drawn.arrays)
    assert empty > 3
    assert {
        "fused",
        "matmul",
        "take_rows",
        "reduce_sum",
        "broadcast_to",
        "power",
        "select",
    } <= names
