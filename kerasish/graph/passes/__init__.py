"""Passes: pure functions Graph -> Graph, and the order in which they run.

A pass that changes nothing returns its argument, the same object. `optimize="fast_run"` runs
all passes until none changes the graph (at most three rounds), "fast_compile" runs the cheap ones
once, and "none" runs no pass.
"""

from __future__ import annotations

from collections.abc import Callable

from kerasish.graph.ir import Graph, check_order
from kerasish.graph.passes.drop import drop_dead as drop_dead
from kerasish.graph.passes.fold import fold_constants as fold_constants
from kerasish.graph.passes.fuse import fuse_loops as fuse_loops
from kerasish.graph.passes.fuse_attention import fuse_attention as fuse_attention
from kerasish.graph.passes.fuse_epilogues import fuse_epilogues as fuse_epilogues
from kerasish.graph.passes.hoist import hoist_exchanges as hoist_exchanges
from kerasish.graph.passes.late_readers import recompute_late as recompute_late
from kerasish.graph.passes.layout import lay_out_products as lay_out_products
from kerasish.graph.passes.recompute import recompute_cheap as recompute_cheap
from kerasish.graph.passes.recurrences import fuse_recurrences as fuse_recurrences
from kerasish.graph.passes.rounds import check_turns
from kerasish.graph.passes.share import share_common as share_common
from kerasish.graph.passes.simplify import simplify_algebra as simplify_algebra
from kerasish.graph.passes.sparse_update import sparse_update as sparse_update
from kerasish.graph.passes.spread import spread_gathers as spread_gathers
from kerasish.graph.passes.thin_products import expand_thin_products as expand_thin_products

Pass = Callable[[Graph], Graph]

PASSES: tuple[Pass, ...] = (
    drop_dead, fold_constants, simplify_algebra, drop_dead, share_common, sparse_update,
)  # fmt: skip
# These combine ops into nodes of one native kernel each. No pass rewrites their result.
FUSION_PASSES: tuple[Pass, ...] = (
    fuse_recurrences, fuse_attention, expand_thin_products, fuse_epilogues, lay_out_products,
    fuse_loops, recompute_cheap, recompute_late, drop_dead, hoist_exchanges,
)  # fmt: skip
LEVELS: dict[str, tuple[int, tuple[Pass, ...]]] = {
    "fast_run": (3, PASSES),
    "fast_compile": (1, (drop_dead, fold_constants)),
    "none": (0, ()),
}


def optimize(
    graph: Graph, level: str = "fast_run", watch: Callable[[str, Graph, Graph], None] | None = None
) -> Graph:
    """Return the graph after the passes of a level; `watch(name, before, after)` follows each."""
    if level not in LEVELS:
        raise ValueError(f"optimize: expected one of {sorted(LEVELS)}, got {level!r}.")
    rounds, passes = LEVELS[level]
    if rounds:
        graph = spread_gathers(graph)
    before = graph
    settled: dict[Pass, Graph] = {}  # the last result of each pass
    for _ in range(rounds):
        for step in passes:
            if settled.get(step) is graph:
                continue
            after = step(graph)
            if watch is not None:
                watch(step.__name__, graph, after)
            settled[step] = graph = after
    return check_turns(before, drop_dead(graph)) if rounds else graph


def gather(graph: Graph, blocks: bool = True, heads: bool = True) -> Graph:
    """Return the optimized graph with products, layouts and loops as they will run.

    Args:
        graph: the result of `optimize`.
        blocks: whether units skip blocks of time steps that a mask excludes.
        heads: whether one unit computes the products and the softmax of attention heads.
    """
    before = graph
    left_out: dict[Pass, bool] = {fuse_recurrences: not blocks, fuse_attention: not heads}
    for step in FUSION_PASSES:
        if not left_out.get(step):
            graph = step(graph)
    return check_turns(before, check_order(graph))
