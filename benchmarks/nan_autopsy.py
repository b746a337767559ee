"""What NaNAutopsy costs while all is well: `fit` with it against `fit` without, taken in turns.

CPU seconds count, so that other work on the machine does not. Run: python -m benchmarks.nan_autopsy
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable

import numpy as np

import kerasish as keras
from kerasish import layers

TURNS = 7


def make_mlp() -> keras.Model:
    """Return three dense layers."""
    sizes = [layers.Dense(256, "relu"), layers.Dense(256, "relu"), layers.Dense(10, "softmax")]
    return keras.Sequential([keras.Input((784,)), *sizes])


def make_cnn() -> keras.Model:
    """Return one convolution and what goes with it."""
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)), layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(), layers.Flatten(), layers.Dense(10, "softmax"),
        ]
    )  # fmt: skip


def measure(
    make: Callable[[], keras.Model], shape: tuple[int, ...], eager: bool, batches: bool
) -> list[float]:
    """Return CPU seconds with NaNAutopsy / seconds without, of each turn."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6000, *shape)).astype("float32")
    y = rng.integers(0, 10, 6000)
    model = make()
    model.compile("adam", "sparse_categorical_crossentropy", run_eagerly=eager)
    model.fit(x, y, epochs=1, verbose=0)
    seen = [keras.callbacks.LambdaCallback(on_train_batch_end=lambda b, logs: None)]
    ratios = []
    for turn in range(TURNS):
        seconds = {}
        for watched in (True, False) if turn % 2 else (False, True):
            callbacks = list(seen) if batches else []
            if watched:
                callbacks.append(keras.callbacks.NaNAutopsy())
            start = time.process_time()
            model.fit(x, y, epochs=4, verbose=0, callbacks=callbacks)
            seconds[watched] = time.process_time() - start
        ratios.append(seconds[True] / seconds[False])
    return ratios


def main() -> None:
    """Print the table."""
    print(f"{platform.processor() or platform.machine()}, NumPy {np.__version__}, {TURNS} turns")
    print(f"{'model':<5} {'way':<22} {'median':>8} {'least':>8} {'most':>8}")
    ways = [
        ("static, rows", False, False), ("static, batch by batch", False, True),
        ("eager", True, False),
    ]  # fmt: skip
    for name, make, shape in (("MLP", make_mlp, (784,)), ("CNN", make_cnn, (28, 28, 1))):
        for way, eager, batches in ways:
            extra = [100 * (r - 1) for r in measure(make, shape, eager, batches)]
            low, middle, high = min(extra), float(np.median(extra)), max(extra)
            print(f"{name:<5} {way:<22} {middle:>+7.1f}% {low:>+7.1f}% {high:>+7.1f}%", flush=True)


if __name__ == "__main__":
    main()
