"""What a `Dataset` costs in `fit`, beside the same arrays in memory: the MLP workload.

Each pipeline and the arrays take turns in one process: one epoch of the model over all rows. CPU
seconds count all threads; wall-clock seconds are shown beside. "waits" is the share of the epoch in
which the training waited for a batch. "memory" is what the process's peak grew by in the epochs of
the pipeline, above that of the arrays.

The rows are float32[784] and labels; `map` is one product per element, so that the function itself
costs next to nothing.

On a busy machine a step pushes Python's own memory out of the caches, and each of the few Python
calls per batch takes several times as long: take an idle one.

Run: python -m benchmarks.input_pipelines [rows] [turns] [name of one pipeline]
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import kerasish as keras
from benchmarks.machine import describe_machine
from benchmarks.workloads import WORKLOADS, compile_model, make_data
from kerasish.callbacks import InputMonitor
from kerasish.data import Dataset

MLP = WORKLOADS["mlp"]


def scaled(x: Any, y: Any) -> tuple[Any, Any]:
    """Return an element with x doubled."""
    return x * 2.0, y


def pipelines(x: np.ndarray, y: np.ndarray) -> dict[str, Callable[[], Dataset]]:
    """Return name -> function that makes the pipeline."""
    rows, batch = Dataset.from_tensor_slices((x, y)), MLP.batch
    count = len(x)
    return {
        "shuffle, batch": lambda: rows.shuffle(count, 1).batch(batch),
        "shuffle, batch, map, prefetch": lambda: (
            rows.shuffle(count, 1).batch(batch).map(scaled).prefetch(2)
        ),
        "map, shuffle, batch, prefetch": lambda: (
            rows.map(scaled).shuffle(count, 1).batch(batch).prefetch(2)
        ),
        "map, shuffle(10000), batch, prefetch": lambda: (
            rows.map(scaled).shuffle(10_000, 1).batch(batch).prefetch(2)
        ),
        "map, shuffle in a buffer, batch, prefetch": lambda: (
            rows.filter(all_of_them).map(scaled).shuffle(10_000, 1).batch(batch).prefetch(2)
        ),
    }


def all_of_them(x: Any, y: Any) -> bool:
    """Keep an element: a filter makes a stream, whose elements have no numbers."""
    return True


def epoch(model: keras.Model, *data: Any, **options: Any) -> tuple[float, float, float]:
    """Train an epoch; return CPU seconds, wall-clock seconds, and the share of waiting."""
    monitor = InputMonitor(verbose=0)
    start = time.process_time(), time.perf_counter()
    model.fit(*data, verbose=0, callbacks=[monitor], **options)
    spent = time.process_time() - start[0], time.perf_counter() - start[1]
    return *spent, model.history.history["input_wait"][-1]


def peak() -> float:
    """Return the largest resident memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _ends(shares: list[float]) -> str:
    return f"({min(shares):+.1%}, {max(shares):+.1%})"


def main(arguments: list[str]) -> int:
    """Measure and print a table."""
    rows = int(arguments[0]) if arguments else 200_000
    turns = int(arguments[1]) if len(arguments) > 1 else 3
    only = arguments[2] if len(arguments) > 2 else None
    machine = describe_machine()
    print(f"{machine['cpu']}, {machine['cores']} cores, load {machine['load']}")
    print(f"NumPy {np.__version__}, Python {sys.version[:6]}, the static engine")
    x, y = make_data(MLP, rows)
    model = compile_model(keras, MLP.build(keras))
    given = {"batch_size": MLP.batch}
    epoch(model, x[:1280], y[:1280], **given)  # compiles
    epoch(model, x[:12800], y[:12800], **given)
    print(f"{rows} rows, batches of {MLP.batch}; medians of {turns} turns, least and most")
    print(f"{'pipeline':<44} {'CPU':>6} {'(least, most)':>18} {'wall':>7} {'waits':>7} memory")
    for name, make in pipelines(x, y).items():
        if only not in (None, name):
            continue
        cpu, wall, waits, before = [], [], [], peak()
        for turn in range(turns):
            spent = {}
            for plain in (True, False) if turn % 2 else (False, True):
                data, options = ((x, y), given) if plain else ((make(),), {})
                spent[plain] = epoch(model, *data, **options)
            cpu.append(spent[False][0] / spent[True][0] - 1)
            wall.append(spent[False][1] / spent[True][1] - 1)
            waits.append(spent[False][2])
        print(
            f"{name:<44} {statistics.median(cpu):>+6.1%} {_ends(cpu):>18}"
            f" {statistics.median(wall):>+7.1%} {statistics.median(waits):>7.1%} "
            f"{peak() - before:+.0f} MB",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
