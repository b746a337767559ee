"""How many threads a program may take, by its work."""

from __future__ import annotations

from kerasish.backends.onednn import native
from kerasish.backends.static.codegen import cost
from kerasish.backends.static.lowering.recurrent import is_short_recurrence
from kerasish.graph.formulas import bytes_of, work_of
from kerasish.graph.ir import Graph

# Grains of work (`cost.GRAIN`, 200 microseconds in all) from which a program pays for a second
# thread, which would save half of the time at best. Beside busy processes each place where two
# threads meet may take a time slice, some milliseconds.
SMALL_PROGRAM = 50
_CALL = 300.0  # nanoseconds of a node beside its work
_FLOP = 1 / 40  # nanoseconds per floating-point operation
_BYTE = 1 / 20  # nanoseconds per byte that is read or written


def nanoseconds(graph: Graph) -> float:
    """Return an estimate of a graph's time on one thread, right to about a factor of three."""
    return sum(
        _CALL + max(_FLOP * work_of(node), _BYTE * bytes_of((*node.inputs, *node.outputs)))
        for node in graph.nodes
    )


def program_threads(graph: Graph, training: bool) -> tuple[int | None, int]:
    """Return the number of threads of each part of a program, and of its branches.

    Args:
        graph: optimized and fused.
        training: whether it is a training step, which runs many times in a row.

    Returns:
        1 where one thread runs each part, None where each takes as many as its work pays for; and
        how many independent parts may run at the same time.
    """
    threads = native.get_threads()
    if training or threads == 1:
        return None, threads
    if nanoseconds(graph) < SMALL_PROGRAM * cost.GRAIN:
        return 1, 1
    return (1 if is_short_recurrence(graph) else None), threads
