"""What looking costs, and whether it is right: python -m benchmarks.timeline [workload ...].

`--rounds N` measures the cost in N rounds of two trainings (9); the median of many is steadier.

Printed for each workload are

- "sum": the times of a step's records, added up, divided by the time of the step (the median over
  50 measured steps);
- "on": the CPU time of a training with `Profiler` divided by that of the same one without (the
  median of ratios of neighboring rounds); the epochs take at least a second, since the page that is
  written at the end always takes some milliseconds;
- "memory": what `model.memory_report` says before the first step, divided by the bytes of arrays
  that exist after it and did not before (tracemalloc, without the data).
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np

import kerasish
from benchmarks.workloads import WORKLOADS, Workload, compile_model, make_data
from kerasish.callbacks import Profiler

NUMPY = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)


def fit(model: Any, workload: Workload, data: Any, callbacks: list[Any], epochs: int = 1) -> float:
    """Train; return the CPU seconds."""
    options = {"batch_size": workload.batch, "verbose": 0, "shuffle": False}
    start = time.process_time()
    model.fit(*data, epochs=epochs, callbacks=callbacks, **options)
    return time.process_time() - start


def record_sum(model: Any, workload: Workload, folder: str) -> float:
    """Return the records' times by the step's."""
    profiler = Profiler(f"{folder}/steps.html", batches=(3, 52))
    fit(model, workload, make_data(workload, 55 * workload.batch), [profiler])
    parts = [sum(t.seconds for t in step) for step in profiler.timings]
    return statistics.median(a / b for a, b in zip(parts, profiler.seconds))


def cost_on(model: Any, workload: Workload, folder: str, rounds: int) -> list[float]:
    """Return the CPU times of trainings with a profiler by those of trainings without."""
    data = make_data(workload, workload.steps * workload.batch)
    epochs = max(1, round(1 / fit(model, workload, data, [])))
    ratios = []
    for number in range(rounds + 1):
        seconds = {}
        for on in (True, False) if number % 2 else (False, True):
            callbacks = [Profiler(f"{folder}/steps.html")] if on else []
            seconds[on] = fit(model, workload, data, callbacks, epochs)
        if number:
            ratios.append(seconds[True] / seconds[False])
    return ratios


def memory(workload: Workload) -> float:
    """Return the predicted bytes by those that a training holds."""
    x, y = make_data(workload, 2 * workload.batch)
    gc.collect()
    tracemalloc.start()
    try:
        model = compile_model(kerasish, workload.build(kerasish))
        predicted = model.memory_report(x, y, batch_size=workload.batch, step="train")["train"]
        model.fit(x, y, batch_size=workload.batch, verbose=0, shuffle=False)
        gc.collect()
        taken = tracemalloc.take_snapshot().filter_traces([NUMPY])
    finally:
        tracemalloc.stop()
    held = sum(s.size for s in taken.statistics("filename"))
    return predicted["total"] / held


def main() -> None:
    """Print the three ratios of each workload."""
    kerasish.config.set_threads(1)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.timeline")
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    print(f"{'workload':12} {'sum':>8} {'on':>8} {'spread':>15} {'memory':>8}")
    for name in given.workloads:
        workload = WORKLOADS[name]
        held = memory(workload)
        model = compile_model(kerasish, workload.build(kerasish))
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).mkdir(exist_ok=True)
            total = record_sum(model, workload, folder)
            ratios = cost_on(model, workload, folder, given.rounds)
        spread = f"{min(ratios):.3f}-{max(ratios):.3f}"
        print(f"{name:12} {total:8.4f} {statistics.median(ratios):8.3f} {spread:>15} {held:8.4f}")


if __name__ == "__main__":
    main()
