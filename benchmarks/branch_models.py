"""How models with branches choose their threads: python -m benchmarks.branch_models.

Each model's training step and prediction runs on one thread, with threads chosen part by part, and
as programs choose: one thread for little work, one for each of several branches where that saves
most. Printed are, per run of the native program, in microseconds of the clock and of runs that
alternate, the 10th percentile and the median of each; "one" is 1 where each part takes one thread,
with the number of groups of branches; "gain" is the second way by the third, for both figures.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import kerasish
from kerasish import config, layers
from kerasish.backends.static.engine import COMPILED_PLANS
from kerasish.backends.static.lowering import branches, program_threads
from kerasish.backends.static.runtime import blocks

_SMALL, _BETTER = program_threads.SMALL_PROGRAM, program_threads.BETTER
# Threads, whether programs choose theirs by their work, and the limit of groups.
WAYS = {
    "one thread": (1, False, np.inf),
    "by part": (2, False, np.inf),
    "by program": (2, True, branches.WORTH),
}


def _dense(x: Any, width: int, depth: int = 3) -> Any:
    for _ in range(depth):
        x = layers.Dense(width, "relu")(x)
    return x


def towers(count: int, width: int) -> Any:
    """Return a model of equal towers of dense layers."""
    inputs = [kerasish.Input((32,)) for _ in range(count)]
    parts = [_dense(x, width) for x in inputs]
    return kerasish.Model(inputs, layers.Dense(1)(layers.Concatenate()(parts)))


def siamese() -> Any:
    """Return two small convolutional networks with the same weights, and the distance of both."""
    x = kerasish.Input((16, 16, 1))
    y = layers.Conv2D(8, 3, activation="relu")(x)
    y = layers.Conv2D(16, 3, activation="relu")(layers.MaxPooling2D()(y))
    network = kerasish.Model(x, layers.Dense(32)(layers.Flatten()(y)))
    inputs = [kerasish.Input((16, 16, 1)) for _ in range(2)]
    return kerasish.Model(inputs, layers.Dot(1, normalize=True)([network(x) for x in inputs]))


def inception() -> Any:
    """Return a block of four branches of convolutions."""
    x = kerasish.Input((8, 8, 16))
    parts = [layers.Conv2D(8, 1, activation="relu")(x)]
    for size in (3, 5):
        y = layers.Conv2D(8, 1, activation="relu")(x)
        parts.append(layers.Conv2D(8, size, padding="same", activation="relu")(y))
    y = layers.MaxPooling2D(3, strides=1, padding="same")(x)
    parts.append(layers.Conv2D(8, 1, activation="relu")(y))
    return kerasish.Model(x, layers.Dense(1)(layers.Flatten()(layers.Concatenate()(parts))))


def wide_and_deep() -> Any:
    """Return a deep network and a wide product in parallel."""
    wide, deep = kerasish.Input((512,)), kerasish.Input((32,))
    parts = layers.Concatenate()([layers.Dense(16)(wide), _dense(deep, 64)])
    return kerasish.Model([wide, deep], layers.Dense(1)(parts))


def heads() -> Any:
    """Return three heads on a trunk."""
    x = kerasish.Input((32,))
    trunk = layers.Dense(64, "relu")(x)
    return kerasish.Model(x, [layers.Dense(1)(_dense(trunk, 64, 2)) for _ in range(3)])


def attention() -> Any:
    """Return small self-attention."""
    x = kerasish.Input((16, 32))
    y = layers.MultiHeadAttention(2, 16)(x, x)
    return kerasish.Model(x, layers.Dense(1)(layers.Flatten()(y)))


def kinds() -> Any:
    """Return a model of numbers, words and a short sequence."""
    numbers, word = kerasish.Input((16,)), kerasish.Input((4,), dtype="int32")
    series = kerasish.Input((32, 4))
    parts = [
        _dense(numbers, 64, 2),
        _dense(layers.Flatten()(layers.Embedding(100, 16)(word)), 64, 2),
        layers.GlobalAveragePooling1D()(layers.Conv1D(16, 3, activation="relu")(series)),
    ]
    y = layers.Dense(1)(layers.Concatenate()(parts))
    return kerasish.Model([numbers, word, series], y)


MODELS: dict[str, Callable[[], Any]] = {
    "two towers of 64": lambda: towers(2, 64),
    "two towers of 128": lambda: towers(2, 128),
    "two towers of 256": lambda: towers(2, 256),
    "four towers of 64": lambda: towers(4, 64),
    "siamese": siamese,
    "inception": inception,
    "wide and deep": wide_and_deep,
    "three heads": heads,
    "attention": attention,
    "numbers, words, series": kinds,
}


class _Run(NamedTuple):
    """A compiled step, ready to run.

    Attributes:
        model: kept alive.
        executable: the compiled step.
        inputs: what it is given: a run may use the memory of its inputs for other values.
    """

    model: Any
    executable: Any
    inputs: list[Any]

    def seconds(self) -> float:
        """Run once, and return the time."""
        for place, array in zip(self.executable.inputs, self.inputs):
            np.copyto(place, array)
        start = time.perf_counter()
        self.executable.run()
        return time.perf_counter() - start


def _compiled(make: Callable[[], Any], batch: int, kind: str, way: str) -> _Run:
    blocks.SMALL = float("inf")  # one program computes all rows
    threads, by_program, branches.WORTH = WAYS[way]
    program_threads.SMALL_PROGRAM = _SMALL if by_program else 0
    program_threads.BETTER = _BETTER if by_program else 0.0
    COMPILED_PLANS.clear()
    kerasish.utils.set_random_seed(0)
    with config.using_threads(threads):
        model = make()
        model.compile("adam", "mse")
        rng = np.random.default_rng(0)
        x = [rng.uniform(0, 4, (batch, *v.shape[1:])).astype(v.dtype) for v in model.inputs]
        ys = [np.zeros((batch, *y.shape[1:]), "float32") for y in model.outputs]
        if kind == "train":
            model.train_on_batch(x if len(x) > 1 else x[0], ys if len(ys) > 1 else ys[0])
        else:
            model.predict_on_batch(x if len(x) > 1 else x[0])
        (executable,) = model.training_program.step(kind).executables()
    given = [*x, *ys] if kind == "train" else x
    return _Run(model, executable, given)


def compare(name: str, batch: int, kind: str, seconds: float) -> None:
    """Print a row."""
    runs = [_compiled(MODELS[name], batch, kind, way) for way in WAYS]
    times: list[list[float]] = [[] for _ in runs]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for own, run in zip(times, runs):
            own += [run.seconds() for _ in range(10)]
    plan = runs[-1].executable.compiled_plan
    case = f"{name:24} {batch:4} {kind:8} {plan.threads or '-'!s:>3} {len(plan.groups):3}"
    numbers = [np.percentile(own, (10, 50)) for own in times]
    shown = " ".join(f"{1e6 * low:7.0f} {1e6 * middle:7.0f}" for low, middle in numbers)
    gains = " ".join(f"{n / m:6.2f}" for n, m in zip(numbers[1], numbers[2]))
    print(f"{case} {shown} {gains}", flush=True)


def main() -> None:
    """Print all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.5, help="for each case")
    given = parser.parse_args()
    ways = " ".join(f"{way:>15}" for way in WAYS)
    print(f"{'model':24} {'rows':>4} {'step':8} {'one':>3} {'':3} {ways} {'gain':>13}")
    for name in MODELS:
        for batch in (1, 32):
            for kind in ("train", "predict"):
                compare(name, batch, kind, given.seconds)


if __name__ == "__main__":
    main()
