"""What the ranks of `python -m benchmarks scaling` run: times of sums, or of a workload's steps."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

import kerasish as keras
from benchmarks.workloads import WORKLOADS, compile_model, make_data
from kerasish.ranks import current_group

STEPS, ROUNDS = 8, 4


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
    times: list[float] = []

    class Clock(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.start = time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            times.append((time.perf_counter() - self.start) / STEPS)

    model.fit(x, y, batch_size=rows, epochs=ROUNDS, verbose=0, callbacks=[Clock()])
    nbytes = sum(4 * int(np.prod(v.shape)) for v in model.trainable_variables)
    return {"seconds": min(times[1:]), "bytes": float(nbytes)}


def main(arguments: list[str]) -> None:
    """Run what is asked for; rank 0 prints it as JSON."""
    keras.distribution.initialize()
    keras.distribution.set_distribution(keras.distribution.DataParallel())
    kind, *rest = arguments
    result: Any = time_sums([int(n) for n in rest]) if kind == "sums" else time_step(rest[0])
    if current_group().rank == 0:
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
