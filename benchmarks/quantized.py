"""Quantized Dense layers compared with float32: python -m benchmarks.quantized.

Prints median and best times of alternating rounds on the static engine, their ratios to float32,
and the memory of the weights.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

import kerasish as keras
from benchmarks.machine import describe_machine

MODES = ("float32", "int8", "int4")
SIZE = 4096


def model_of(mode: str) -> Any:
    """Return a model of one Dense layer."""
    model = keras.Sequential([keras.Input((SIZE,)), keras.layers.Dense(SIZE)])
    if mode != "float32":
        model.quantize(mode)
    return model


def measure(models: dict[str, Any], batch: int, rounds: int) -> dict[str, list[float]]:
    """Return mode -> seconds of each round; one warms up."""
    x = keras.ops.convert_to_tensor(
        np.random.default_rng(0).normal(size=(batch, SIZE)).astype("float32")
    )
    steps = {mode: keras.function(model) for mode, model in models.items()}
    times: dict[str, list[float]] = {mode: [] for mode in models}
    for _ in range(rounds + 1):
        for mode, step in steps.items():
            start = time.perf_counter()
            step(x).numpy()
            times[mode].append(time.perf_counter() - start)
    return {mode: spent[1:] for mode, spent in times.items()}


def main(rounds: int = 21) -> None:
    """Print the table."""
    keras.config.set_backend("static")
    print(describe_machine())
    models = {mode: model_of(mode) for mode in MODES}
    sizes = {m: sum(v.numpy().nbytes for v in model.weights) for m, model in models.items()}
    for mode, size in sizes.items():
        print(f"{mode:8} {size / 2**20:6.1f} MiB of weights, 1/{sizes['float32'] / size:.2f}")
    for batch in (1, 64):
        times = measure(models, batch, rounds)
        for mode, spent in times.items():
            ratios = [f(spent) / f(times["float32"]) for f in (statistics.median, min)]
            print(
                f"batch {batch:3} {mode:8} median {statistics.median(spent) * 1e3:7.2f} ms "
                f"({ratios[0]:.2f} of float32's), best {min(spent) * 1e3:7.2f} ms ({ratios[1]:.2f})"
            )


if __name__ == "__main__":
    main()
