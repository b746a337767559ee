"""Times of small predictions while other processes compute: python -m benchmarks.busy_neighbors.

Each model predicts one row, and 32, while one process per processor only computes.
Printed are medians and 95th percentiles of the clock in milliseconds: with threads
chosen part by part ("by part"), as before programs chose theirs, and as they are now ("by
program"), in turns with a loop of NumPy on one thread that takes as long ("a loop"). What this loop
loses, it loses to the system's time slices: of calls that take a twentieth of a slice or more, more
than 5 % are interrupted, and the 95th percentile has a slice of the neighbor in it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import kerasish
from kerasish import config, layers
from kerasish.backends.static.engine import COMPILED_PLANS
from kerasish.backends.static.lowering import program_threads


def _sequential(*parts: Any) -> Any:
    return kerasish.Sequential(list(parts))


MODELS: dict[str, Callable[[], Any]] = {
    "lstm 64": lambda: _sequential(
        kerasish.Input((50, 16)), layers.LSTM(64), layers.Dense(10, "softmax")
    ),
    "mlp 784-512-512-10": lambda: _sequential(
        kerasish.Input((784,)), layers.Dense(512, "relu"), layers.Dense(512, "relu"),
        layers.Dense(10, "softmax"),
    ),
    "mlp 64-128-1": lambda: _sequential(
        kerasish.Input((64,)), layers.Dense(128, "relu"), layers.Dense(1)
    ),
    "cnn 28 x 28": lambda: _sequential(
        kerasish.Input((28, 28, 1)), layers.Conv2D(16, 3, activation="relu"),
        layers.MaxPooling2D(), layers.Conv2D(32, 3, activation="relu"), layers.Flatten(),
        layers.Dense(10),
    ),
}  # fmt: skip


def _predict(make: Callable[[], Any], rows: int, small: float) -> Callable[[], object]:
    """Return a prediction, compiled with a limit of `SMALL_PROGRAM`."""
    program_threads.SMALL_PROGRAM = small
    COMPILED_PLANS.clear()
    kerasish.utils.set_random_seed(0)
    model = make()
    x = np.random.default_rng(0).normal(size=(rows, *model.inputs[0].shape[1:])).astype("float32")
    model.predict_on_batch(x)
    return lambda: model.predict_on_batch(x)


def _loop(run: Callable[[], object]) -> Callable[[], object]:
    """Return a loop of NumPy that takes as long as a prediction, if nothing interrupts them."""
    numbers = np.ones(4096, np.float32)

    def times(count: int) -> None:
        for _ in range(count):
            numbers.sum()

    def shortest(call: Callable[[], object]) -> float:
        spent = []
        for _ in range(50):
            start = time.perf_counter()
            call()
            spent.append(time.perf_counter() - start)
        return min(spent)

    count = max(1, round(20 * shortest(run) / shortest(lambda: times(20))))
    return lambda: times(count)


def compare(name: str, rows: int, limits: dict[str, float], seconds: float) -> None:
    """Print a row."""
    ways = [_predict(MODELS[name], rows, limit) for limit in limits.values()]
    ways.append(_loop(ways[-1]))
    times: list[list[float]] = [[] for _ in ways]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for own, run in zip(times, ways):
            for _ in range(5):
                start = time.perf_counter()
                run()
                own.append(1e3 * (time.perf_counter() - start))
    shown = " ".join(f"{np.median(t):9.3f} {np.percentile(t, 95):9.3f}" for t in times)
    print(f"{name:20} {rows:4} {shown}", flush=True)


def main() -> None:
    """Print all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0, help="for each case")
    parser.add_argument("--neighbors", type=int, default=os.cpu_count(), help="busy processes")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    limits = {"by part": 0.0, "by program": float(program_threads.SMALL_PROGRAM)}
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(given.neighbors or 0)
    ]
    try:
        heads = " ".join(f"{way:>12} p95   " for way in (*limits, "a loop"))
        print(f"{'model':20} {'rows':>4} {heads}")
        with config.using_threads(given.threads):
            for name in MODELS:
                for rows in (1, 32):
                    compare(name, rows, limits, given.seconds)
    finally:
        for process in busy:
            process.kill()


if __name__ == "__main__":
    main()
