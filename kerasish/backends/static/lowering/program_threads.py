"""The number of threads of a program, by its work: one, one per branch, or several per part."""

from __future__ import annotations

from typing import NamedTuple

from kerasish.backends.onednn import native
from kerasish.backends.static.codegen import cost
from kerasish.backends.static.codegen.team import can_help
from kerasish.backends.static.lowering.branches import saved_by_groups
from kerasish.backends.static.lowering.recurrences import meets_in_steps
from kerasish.backends.static.lowering.recurrent import is_short_recurrence
from kerasish.graph.formulas import bytes_of, work_of
from kerasish.graph.ir import Graph, Node

# Grains of work (`cost.GRAIN`, 200 microseconds in all) from which a second thread pays. It saves
# at most half of the time, less 50 microseconds each time it has to wake up. While other processes
# are busy, each synchronization of two threads may take a time slice of several milliseconds.
SMALL_PROGRAM = 50
# If calls do not follow each other immediately, as predictions of a service, the second thread is
# asleep at each call, or threads of other libraries spin. Where threads would synchronize often,
# because all parts are small, it pays from this multiple of the work: one row of ResNet-20 took
# 0.76 ms on one thread, and 1.4 (sometimes 10) on two, alternating with ONNX Runtime.
CALLS_APART = 12
MEETING = 1.25  # grains of overhead for two threads to start and end a part
BETTER = 0.9  # branches at the same time must take less than this share of the time of other ways
MOST_TEAM = 4  # threads; for more, OpenMP's barriers need fewer steps
BY_OPENMP = ("convolution", "pool", "control")  # the kinds of ops that libraries run on its threads
_CALL = 300.0  # nanoseconds of overhead per node
_FLOP = 1 / 80  # nanoseconds per floating-point operation
_FLOP_OF_SMALL = 1 / 40  # the same for convolutions, and products of many small matrices
_BYTE = 1 / 40  # nanoseconds per byte that is read or written
_TIME_STEP = 1_500.0  # nanoseconds of overhead per time step


def nanoseconds(node: Node) -> float:
    """Return an estimate of a node's time on one thread, within about a factor of two."""
    flat = all(len(v.shape) < 3 for v in (*node.inputs, *node.outputs))
    flops = work_of(node) * (_FLOP if flat else _FLOP_OF_SMALL)
    steps = 0
    if node.op.kind == "recurrent":
        steps = max(v.shape[0] for v in (*node.inputs, *node.outputs) if len(v.shape) == 3)
    moved = _BYTE * bytes_of((*node.inputs, *node.outputs))
    return _CALL + max(flops, moved) + _TIME_STEP * steps


class Threads(NamedTuple):
    """The numbers of threads of a program.

    Attributes:
        parts: 1 where one thread runs each part; None where each part chooses by its work.
        recurrences: the number of independent recurrences that may run at the same time.
        branches: the number of other independent branches that may run at the same time.
        helpers: the number of threads that may take shares, other than the one that runs all parts.
        team: the number of shares of large products, which helpers take, as all loops do; 1:
            OpenMP's threads run them.
    """

    parts: int | None
    recurrences: int
    branches: int
    helpers: int = 0
    team: int = 1


ONE_THREAD = Threads(None, 1, 1)


def program_threads(graph: Graph, training: bool) -> Threads:
    """Return the numbers of threads of a program.

    Args:
        graph: optimized and fused.
        training: whether it is a training step, which runs many times in a row.
    """
    threads = native.get_threads()
    if threads == 1:
        return ONE_THREAD
    times = {node: nanoseconds(node) for node in graph.nodes}
    total = sum(times.values())
    small = SMALL_PROGRAM * cost.GRAIN
    parts_are_small = max(times.values(), default=0.0) < 2 * small
    helpers = threads - 1 if not training and can_help() else 0
    if total < small:
        return Threads(1, 1, 1, helpers)
    if not training and is_short_recurrence(graph):
        single = sum(node.op.kind == "recurrent" for node in graph.nodes) == 1
        if single and saved_by_groups(graph.nodes, times, threads) <= (1 - BETTER) * total:
            return Threads(1, 1, 1, helpers)
        return Threads(1, threads, threads)
    if parts_are_small and not training and total < CALLS_APART * small:
        saved = saved_by_groups(graph.nodes, times, threads)
        if total - saved < BETTER * total:
            return Threads(1, 1, threads)  # they synchronize once
        return Threads(1, 1, 1, helpers)
    by_part = sum(_by_threads(time, threads) for time in times.values())
    goal = BETTER * min(by_part, total)
    small_parts = sum(time for time in times.values() if time < 2 * cost.GRAIN)
    saved = 0.0
    if total / threads < goal or small_parts > (1 - BETTER) * total:
        saved = saved_by_groups(graph.nodes, times, threads)
    team = threads if training and _suits_team(graph, threads) else 1
    parts = 1 if total - saved < goal else None
    return Threads(parts, threads, threads if saved else 1, team=team)


def _suits_team(graph: Graph, threads: int) -> bool:
    """Return whether helpers can take all shares: no part needs OpenMP's threads.

    Two kinds of threads that wait actively for work would take processors from each other.
    """
    kinds = {node.op.kind for node in graph.nodes}
    talks = any(node.op.communicates for node in graph.nodes)
    if talks or threads > MOST_TEAM or not can_help() or not kinds.isdisjoint(BY_OPENMP):
        return False
    return not any(meets_in_steps(node) for node in graph.nodes)


def _by_threads(own: float, threads: int) -> float:
    """Return the time of a part with the number of threads that its work pays for."""
    count = min(threads, int(own / cost.GRAIN))
    return own if count < 2 else own / count + MEETING * cost.GRAIN
