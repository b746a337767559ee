"""What the ranks of `python -m benchmarks scaling` run: times of sums, or of a workload's steps."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import kerasish as keras
from benchmarks.workloads import WORKLOADS, compile_model, make_data
from kerasish.ranks import current_group

STEPS, ROUNDS, TURNS = 8, 4, 5


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


def time_cost(name: str, rows: int) -> dict[str, float]:
    """Return the CPU seconds per step and rank of training with sums, without, and of bare sums.

    The three take turns, so that other work on the machine strikes all of them; of each the fastest
    epoch counts. The bare sums are `MPI_Allreduce` of as many numbers as there are gradients.

    Args:
        name: of the workload.
        rows: of a rank's batch; 0: those of the workload.
    """
    group = current_group()
    workload = WORKLOADS[name]
    rows = rows or workload.batch
    steps = max(8, min(64, 2**10 // rows))
    x, y = make_data(workload, rows * steps * group.size)
    models = {}
    for kind in ("with", "without"):
        keras.utils.set_random_seed(0)
        models[kind] = workload.build(keras)
        compile_model(keras, models[kind])
    parallel = keras.distribution.distribution()
    count = sum(int(np.prod(v.shape)) for v in models["with"].trainable_variables)
    summands, sums = np.ones(count, np.float32), np.empty(count, np.float32)
    own = slice(rows * steps * group.rank, rows * steps * (group.rank + 1))
    clock = Clock(steps, time.process_time)
    given: dict[str, Any] = {"verbose": 0, "shuffle": False, "epochs": 3, "callbacks": [clock]}
    times: dict[str, list[float]] = {"with": [], "without": [], "bare": []}
    for _ in range(TURNS):
        for kind, seconds in times.items():
            group.gather(None)
            clock.times.clear()
            if kind == "bare":
                for _ in range(3):
                    clock.on_epoch_begin(0)
                    for _ in range(steps):
                        group.comm.Allreduce(summands, sums)  # type: ignore[attr-defined]
                    clock.on_epoch_end(0)
            elif kind == "with":
                models[kind].fit(x, y, batch_size=rows * group.size, **given)
            else:
                keras.distribution.set_distribution(None)
                models[kind].fit(x[own], y[own], batch_size=rows, **given)
                keras.distribution.set_distribution(parallel)
            seconds.append(min(clock.times))
    results = {kind: min(group.gather(min(seconds))) for kind, seconds in times.items()}
    more = results["with"] - results["without"] - results["bare"]
    return {**results, "share": more / results["with"]}


def main(arguments: list[str]) -> None:
    """Run what is asked for; rank 0 prints it as JSON."""
    keras.distribution.initialize()
    keras.distribution.set_distribution(keras.distribution.DataParallel())
    kind, *rest = arguments
    result: Any
    if kind == "sums":
        result = time_sums([int(n) for n in rest])
    elif kind == "cost":
        result = time_cost(rest[0], int(rest[1]))
    else:
        result = time_step(rest[0])
    if current_group().rank == 0:
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
