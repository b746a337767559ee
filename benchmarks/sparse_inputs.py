"""What sparse inputs cost: python -m benchmarks.sparse_inputs [--rows 50000] [--optimizer sgd].

Like TF-IDF of 100,000 columns with a density of 0.1 %: a Dense layer of 64 units trains on a CSR
matrix. Printed are the memory that training adds, against the CSR arrays and the weights (with the
optimizer's slots), and the CPU time of a step against that on dense rows, which are made before.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import time
from typing import Any

import numpy as np
import scipy.sparse

import kerasish
from kerasish import layers

COLUMNS, UNITS, CLASSES, BATCH = 100_000, 64, 4, 32


def model_of(optimizer: str, sparse: bool, columns: int = COLUMNS) -> Any:
    """Return a compiled classifier."""
    model = kerasish.Sequential(
        [
            kerasish.Input((columns,), sparse=sparse),
            layers.Dense(UNITS, activation="relu"),
            layers.Dense(CLASSES, activation="softmax"),
        ]
    )
    model.compile(optimizer, "sparse_categorical_crossentropy")
    return model


def matrix(rows: int, columns: int, entries: int) -> Any:
    """Return a CSR matrix with about `entries` entries in each row."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(entries, rows)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    places = rng.integers(0, columns, starts[-1], dtype=np.int32)
    values = rng.random(starts[-1], dtype=np.float32)
    return scipy.sparse.csr_matrix((values, places, starts), (rows, columns))


def resident(word: str, reset: bool = False) -> int:
    """Return VmRSS, the resident memory in bytes, or VmHWM, its peak since the last reset."""
    if reset:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(word)) * 1024


def memory(rows: int, optimizer: str) -> None:
    """Print the memory that data, model and training add to a process that has trained before."""
    small = model_of(optimizer, True, 5000)
    small.fit(matrix(200, 5000, 100), np.zeros(200), verbose=0, epochs=2)
    gc.collect()
    before = resident("VmRSS")
    x = matrix(rows, COLUMNS, 100)
    y = np.arange(rows) % CLASSES
    data = x.data.nbytes + x.indices.nbytes + x.indptr.nbytes + y.nbytes
    model = model_of(optimizer, True)
    made = resident("VmHWM") - before
    model.fit(x[: 2 * BATCH], y[: 2 * BATCH], batch_size=BATCH, verbose=0)
    first = resident("VmHWM") - before
    resident("VmHWM", reset=True)
    model.fit(x, y, batch_size=BATCH, epochs=1, verbose=0)
    peak, after = resident("VmHWM") - before, resident("VmRSS") - before
    weights = 4 * sum(v.size for v in (*model.weights, *model.optimizer.variables))
    needed = data + weights
    print(
        f"memory, {optimizer}: data {data / 2**20:.1f} MiB + weights and slots "
        f"{weights / 2**20:.1f} MiB; added after an epoch {after / 2**20:.1f} MiB, ratio "
        f"{after / needed:.2f}; peak of the epoch {peak / needed:.2f}; peaks of making the model "
        f"{made / needed:.2f} and of the first two steps {max(first, made) / needed:.2f}"
    )


def speed(optimizer: str, rounds: int = 9) -> None:
    """Print the CPU time of a training step on sparse and on dense rows, in turn."""
    x = matrix(8 * BATCH, COLUMNS, 100)
    y = np.arange(8 * BATCH) % CLASSES
    both = [(model_of(optimizer, True), x), (model_of(optimizer, False), x.toarray())]
    times: list[list[float]] = [[], []]
    for number in range(rounds + 2):
        for (model, rows), list_ in zip(both, times):
            start = time.process_time()
            model.fit(rows, y, batch_size=BATCH, epochs=2, verbose=0)
            if number >= 2:
                list_.append((time.process_time() - start) / 16)
    sparse, dense = (statistics.median(list_) for list_ in times)
    print(
        f"step of fit, {optimizer}: sparse {sparse * 1e3:.2f} ms of CPU, dense {dense * 1e3:.2f} "
        f"ms: ratio {sparse / dense:.3f}"
    )


def main() -> None:
    """Print memory and speed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--optimizer", default="sgd")
    given = parser.parse_args()
    if "MALLOC_MMAP_THRESHOLD_" not in os.environ:  # so that freed arrays leave the process at once
        os.environ["MALLOC_MMAP_THRESHOLD_"] = str(2**17)
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks.sparse_inputs", *sys.argv[1:]])
    memory(given.rows, given.optimizer)
    speed(given.optimizer)


if __name__ == "__main__":
    main()
