"""Whether models with branches gain by groups of units: python -m benchmarks.branch_models.

Each model's training step and prediction is compiled in turn without groups ("in turn"), with those
that are formed by default ("groups") and with all that can be formed ("all"). Printed are, per run
of the native program, the shortest times of the clock of runs that alternate, in microseconds, the
number of groups, and "gain": without groups by with those of the default.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import kerasish
from kerasish import config, layers
from kerasish.backends.static.engine import COMPILED_PLANS
from kerasish.backends.static.lowering import branches

WORTH = {"in turn": np.inf, "groups": branches.WORTH, "all": 1.0}


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
    """Return a deep network beside a wide product."""
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


def _executable(make: Callable[[], Any], batch: int, kind: str, worth: float) -> Any:
    branches.WORTH = worth
    COMPILED_PLANS.clear()
    kerasish.utils.set_random_seed(0)
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
    return model, executable


def compare(name: str, batch: int, kind: str, seconds: float, pause: float) -> None:
    """Print a row."""
    ways = [_executable(MODELS[name], batch, kind, worth) for worth in WORTH.values()]
    counts = [len(executable.compiled_plan.groups) for _, executable in ways]
    one = ways[0][1].compiled_plan.threads
    best = [float("inf")] * len(ways)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for number, (_, executable) in enumerate(ways):
            for _ in range(10):
                if pause:
                    time.sleep(pause)
                start = time.perf_counter()
                executable.run()
                best[number] = min(best[number], time.perf_counter() - start)
    case = f"{name:24} {batch:4} {kind:8} {one or '-'!s:>3} {counts[1]:3} {counts[2]:3}"
    numbers = " ".join(f"{1e6 * t:9.1f}" for t in best)
    print(f"{case} {numbers} {best[0] / best[1]:6.2f} {best[0] / best[2]:6.2f}", flush=True)


def main() -> None:
    """Print all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.5, help="for each case")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds before each run")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    print(
        f"{'model':24} {'rows':>4} {'step':8} {'one':>3} {'':7} "
        + " ".join(f"{w:>9}" for w in WORTH)
    )
    with config.using_threads(given.threads):
        for name in MODELS:
            for batch in (1, 32):
                for kind in ("train", "predict"):
                    compare(name, batch, kind, given.seconds, given.pause)


if __name__ == "__main__":
    main()
