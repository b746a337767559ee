"""What an `if` on data costs in a compiled training step: python -m benchmarks.speculation.

Two equal models, one with a branch on a value, train in turn on the same batches; the branch always
goes the same way ("steady"), or changes at random from batch to batch ("changing").
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

import kerasish
from kerasish import layers, ops


class Model(kerasish.Model):
    """A multilayer perceptron, with or without a question."""

    def __init__(self, asks: bool) -> None:
        super().__init__()
        self.asks = asks
        self.first, self.second = layers.Dense(256, "relu"), layers.Dense(256, "relu")
        self.other, self.head = layers.Dense(256, "relu"), layers.Dense(10)

    def call(self, x: Any) -> Any:
        h = self.first(x)
        if self.asks and ops.mean(x[:, 0]) < 0:
            return self.head(self.other(h))
        return self.head(self.second(h))


def timed(model: Model, x: Any, y: Any) -> float:
    """Return the seconds of one epoch."""
    start = time.perf_counter()
    model.fit(x, y, batch_size=64, epochs=1, verbose=0, shuffle=False)
    return time.perf_counter() - start


def main(rounds: int = 9) -> None:
    """Print the ratio of the two models' times, best and median of alternating rounds."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, 12800)
    loss = kerasish.losses.SparseCategoricalCrossentropy(from_logits=True)
    for kind in ("steady", "changing"):
        x = rng.normal(size=(12800, 64)).astype("float32")
        x[:, 0] = abs(x[:, 0])
        if kind == "changing":
            x[:, 0] *= np.repeat(rng.choice([-1, 1], 200), 64)
        models = [Model(asks) for asks in (False, True)]
        for model in models:
            model.compile("adam", loss)
            model.fit(x, y, batch_size=64, epochs=2, verbose=0, shuffle=False)
        times: list[list[float]] = [[], []]
        for _ in range(rounds):
            for model, list_ in zip(models, times):
                list_.append(timed(model, x, y))
        best = min(times[1]) / min(times[0])
        median = statistics.median(times[1]) / statistics.median(times[0])
        print(f"{kind:9} with / without: best {best:.2f}, median {median:.2f}")


if __name__ == "__main__":
    main()
