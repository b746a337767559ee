"""Passes: pure functions Graph -> Graph, and the order in which they run.

`optimize="fast_run"` runs them all until nothing changes (at most three rounds), "fast_compile"
the cheap ones once, "none" nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from kerasish.graph.ir import Graph
from kerasish.graph.passes.drop import drop_dead as drop_dead
from kerasish.graph.passes.fold import fold_constants as fold_constants
from kerasish.graph.passes.share import share_common as share_common
from kerasish.graph.passes.simplify import simplify_algebra as simplify_algebra
from kerasish.graph.passes.touch import touch_rows as touch_rows

Pass = Callable[[Graph], Graph]

PASSES: tuple[Pass, ...] = (
    drop_dead, fold_constants, share_common, simplify_algebra, touch_rows, drop_dead,
)  # fmt: skip
LEVELS: dict[str, tuple[int, tuple[Pass, ...]]] = {
    "fast_run": (3, PASSES),
    "fast_compile": (1, (drop_dead, fold_constants)),
    "none": (0, ()),
}


def optimize(
    graph: Graph, level: str = "fast_run", watch: Callable[[str, Graph, Graph], None] | None = None
) -> Graph:
    """Return the graph after the passes of a level; `watch(name, before, after)` sees each."""
    if level not in LEVELS:
        raise ValueError(f"optimize: expected one of {sorted(LEVELS)}, got {level!r}.")
    rounds, passes = LEVELS[level]
    for _ in range(rounds):
        before = _outline(graph)
        for step in passes:
            after = step(graph)
            if watch is not None:
                watch(step.__name__, graph, after)
            graph = after
        if _outline(graph) == before:
            break
    return graph


def _outline(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]
