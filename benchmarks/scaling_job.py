"""What the ranks of `python -m benchmarks scaling` run: times of sums, or of a workload's steps."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import kerasish as keras
from benchmarks.workloads import WORKLOADS, compile_model, make_data
from kerasish.ranks import current_group

STEPS, ROUNDS = 8, 4
TURN = 4  # steps of a turn of `time_cost`


def time_sums(sizes: list[int]) -> dict[int, float]:
    """Return bytes -> seconds of the fastest of several sums."""
    group = current_group()
    results = {}
    for size in sizes:
        x = np.ones(size, np.float32)
        best = float("inf")
        for _ in range(max(5, min(200, 10**7 // max(size, 1)))):
            group.gather(None)
            start = time.perf_counter()
            group.sum(x)
            best = min(best, time.perf_counter() - start)
        results[x.nbytes] = max(group.gather(best))
    return results


def build_wide() -> Any:
    """Return a network of 25 million weights."""
    layers = keras.layers
    sizes = (3328, 3328, 3072)
    hidden = [layers.Dense(n, activation="relu") for n in sizes]
    return keras.Sequential([keras.Input((1024,)), *hidden, layers.Dense(10)])


def time_step(name: str) -> dict[str, float]:
    """Return the seconds of a step whose batch has the workload's rows for each rank."""
    group = current_group()
    keras.utils.set_random_seed(0)
    if name == "wide":
        rows, model = 64 * group.size, build_wide()
        rng = np.random.default_rng(0)
        x = rng.standard_normal((rows * STEPS, 1024), dtype=np.float32)
        y = rng.integers(0, 10, rows * STEPS).astype(np.int32)
    else:
        workload = WORKLOADS[name]
        rows, model = workload.batch * group.size, workload.build(keras)
        x, y = make_data(workload, rows * STEPS)
    compile_model(keras, model)
    clock = Clock(STEPS, time.perf_counter)
    model.fit(x, y, batch_size=rows, epochs=ROUNDS, verbose=0, callbacks=[clock])
    nbytes = sum(4 * int(np.prod(v.shape)) for v in model.trainable_variables)
    return {"seconds": min(clock.times[1:]), "bytes": float(nbytes)}


class Clock(keras.callbacks.Callback):
    """Keeps the seconds per step of each epoch.

    Args:
        steps: of an epoch.
        clock: returns seconds.
    """

    def __init__(self, steps: int, clock: Callable[[], float]) -> None:
        super().__init__()
        self.steps, self.clock = steps, clock
        self.times: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Start."""
        self.start = self.clock()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Stop."""
        self.times.append((self.clock() - self.start) / self.steps)


def time_cost(name: str, rows: int, limit: float) -> dict[str, float]:
    """Return the CPU seconds per step and rank of training with sums, without, and with bare sums.

    The bare sums are one blocking `MPI_Allreduce` of as many numbers as there are gradients, after
    each step: it waits for a late rank, as the sums of a step do. The kinds take turns of few
    steps, so that other work on the machine strikes all of them; the medians of the turns count.
    Each rank stays on its own core.

    Args:
        name: of the workload.
        rows: of a rank's batch; 0: those of the workload.
        limit: seconds for all turns.

    Returns:
        {"with", "without", "bare", "share"}: the share is what sums cost beyond bare ones, the
        median of the turns' differences over the median of the steps with sums.
    """
    group = current_group()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {group.rank % (os.cpu_count() or 1)})
    workload = WORKLOADS[name]
    rows = rows or workload.batch
    x, y = make_data(workload, rows * group.size)
    own = slice(rows * group.rank, rows * (group.rank + 1))
    batch = [keras.ops.convert_to_tensor(a[own]) for a in (x, y)]
    parallel = keras.distribution.distribution()
    steps: dict[str, Callable[[], Any]] = {}
    for kind in ("with", "without"):
        keras.distribution.set_distribution(parallel if kind == "with" else None)
        keras.utils.set_random_seed(0)
        model = workload.build(keras)
        compile_model(keras, model)
        if kind == "with":
            model.fit(x, y, batch_size=rows * group.size, verbose=0)
        else:
            model.fit(x[own], y[own], batch_size=rows, verbose=0)
        [(_, step)] = model.training_program.compiled_steps("train")
        if kind == "with":
            steps[kind] = partial(step.inner, *batch, None, rows * group.size)
        else:
            steps[kind] = partial(step, *batch, None)
    count = sum(int(np.prod(v.shape)) for v in model.trainable_variables)
    summands, sums = np.ones(count, np.float32), np.empty(count, np.float32)

    def step_with_bare_sums() -> None:
        steps["without"]()
        group.comm.Allreduce(summands, sums)  # type: ignore[attr-defined]

    steps["bare"] = step_with_bare_sums
    times: dict[str, list[float]] = {kind: [] for kind in steps}
    end = time.monotonic() + limit
    while group.broadcast(time.monotonic() < end):
        for kind, seconds in times.items():
            group.gather(None)
            start = time.process_time()
            for _ in range(TURN):
                steps[kind]()
            seconds.append((time.process_time() - start) / TURN)
    rounds = np.array([group.gather(times[kind]) for kind in ("with", "without", "bare")])
    medians = np.median(rounds, axis=2).mean(axis=1)
    more = np.median(rounds[0] - rounds[2], axis=1).mean()
    bare = np.median(rounds[2] - rounds[1], axis=1).mean()
    return {"with": float(medians[0]), "without": float(medians[1]), "bare": float(bare),
            "share": float(more / medians[0])}  # fmt: skip


def main(arguments: list[str]) -> None:
    """Run what is asked for; rank 0 prints it as JSON."""
    keras.distribution.initialize()
    keras.distribution.set_distribution(keras.distribution.DataParallel())
    kind, *rest = arguments
    result: Any
    if kind == "sums":
        result = time_sums([int(n) for n in rest])
    elif kind == "cost":
        result = time_cost(rest[0], int(rest[1]), float(rest[2]))
    else:
        result = time_step(rest[0])
    if current_group().rank == 0:
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
