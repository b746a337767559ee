"""`python -m benchmarks.cycles`: what a process keeps of models that were built, used and dropped.

A cycle builds and compiles a small model, trains it for a step, predicts, drops it and collects
garbage. The growth of the resident memory is printed for each hundred cycles. The first hundred
fill caches and the allocator's free lists, and do not count in the last line.

Run: python -m benchmarks.cycles [cycles]
"""

from __future__ import annotations

import gc
import sys

import numpy as np

import kerasish as keras
from benchmarks.machine import resident_memory

GROUP = 100


def cycle(x: np.ndarray, y: np.ndarray) -> None:
    """Build, train, predict, drop."""
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(8, "relu"), layers.BatchNormalization(), layers.Dense(1)]
    )
    model.compile("adam", "mse", metrics=["mae"])
    model.fit(x, y, batch_size=16, verbose=0)
    model.predict(x, verbose=0)


def main(arguments: list[str]) -> int:
    """Print the KiB that a cycle leaves, by hundreds of cycles."""
    cycles = int(arguments[0]) if arguments else 500
    x, y = np.ones((16, 4), "float32"), np.ones((16, 1), "float32")
    sizes = []
    for number in range(GROUP + cycles + 1):
        if number % GROUP == 0:
            sizes.append(resident_memory())
        cycle(x, y)
        gc.collect()
    grown = [(after - before) / GROUP / 1024 for before, after in zip(sizes, sizes[1:])]
    print(f"KiB per cycle, by {GROUP} cycles: {', '.join(f'{g:.2f}' for g in grown)}")
    print(f"after the first {GROUP}: {(sizes[-1] - sizes[1]) / cycles / 1024:.2f} KiB per cycle")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
