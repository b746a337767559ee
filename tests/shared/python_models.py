"""Models whose `call` is ordinary Python: it reads values, branches, loops and recurses."""

from __future__ import annotations

from typing import Any

import numpy as np

import kerasish
from kerasish import layers, ops

WIDTH = 6


class EarlyExit(kerasish.Model):
    """Stops after the first stage where that is sure of its result."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = [layers.Dense(WIDTH, "tanh") for _ in range(3)]
        self.head = layers.Dense(1)

    def call(self, x: Any) -> Any:
        for stage in self.stages:
            x = stage(x)
            if ops.mean(ops.abs(x)) > 0.5:
                break
        return self.head(x)


class UntilConverged(kerasish.Model):
    """Repeats a layer until its result hardly changes."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.cell = layers.Dense(WIDTH), layers.Dense(WIDTH, "tanh", use_bias=False)
        self.head = layers.Dense(1)

    def call(self, x: Any) -> Any:
        x = self.enter(x)
        state, turns = ops.zeros_like(x), 0
        while True:
            new = self.cell(state) * 0.5 + x
            change = ops.max(ops.abs(new - state))
            state, turns = new, turns + 1
            if change < 0.05 or turns == 12:
                break
        return self.head(state)


class TreeNet(kerasish.Model):
    """Combines the columns of a row as a binary tree whose shape depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.leaf, self.join = layers.Dense(WIDTH), layers.Dense(WIDTH, "tanh")
        self.head = layers.Dense(1)

    def tree(self, parts: list[Any]) -> Any:
        if len(parts) == 1:
            return self.leaf(parts[0])
        left = sum(1 for p in parts if bool(ops.mean(p) > 0))
        cut = min(max(left, 1), len(parts) - 1)
        return self.join(ops.concatenate([self.tree(parts[:cut]), self.tree(parts[cut:])], -1))

    def call(self, x: Any) -> Any:
        return self.head(self.tree([x[:, i : i + 1] for i in range(3)]))


class BeamSearch(kerasish.Model):
    """Follows the best two of its own continuations."""

    def __init__(self) -> None:
        super().__init__()
        self.start = layers.Dense(WIDTH)
        self.choices = [layers.Dense(WIDTH, "tanh") for _ in range(3)]
        self.head = layers.Dense(1)

    def call(self, x: Any) -> Any:
        beams = [(self.start(x), 0.0)]
        for _ in range(2):
            grown = [(c(h), s) for h, s in beams for c in self.choices]
            scores = ops.stack([ops.mean(h) for h, _ in grown])
            best = ops.top_k(scores, 2)[1]
            beams = [(grown[int(i)][0], scores[int(i)]) for i in best]
        return self.head(sum(h for h, _ in beams))


class DynamicDepth(kerasish.Model):
    """As many layers as a number in the data says."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = layers.Dense(3, "tanh"), layers.Dense(1)

    def call(self, x: Any) -> Any:
        depth = 1 + int(ops.sum(ops.cast(x[:, 0] > 0.5, "int32"))) % 4
        for _ in range(depth):
            x = self.layer(x)
        return self.head(x)


class ValueShapes(kerasish.Model):
    """Computes on the rows that pass a test, however many these are."""

    def __init__(self) -> None:
        super().__init__()
        self.extra, self.head = layers.Dense(WIDTH), layers.Dense(1)

    def call(self, x: Any) -> Any:
        result = self.head(x)
        chosen = np.flatnonzero(np.asarray(x[:, 0] > 0))
        if len(chosen):
            result = result + ops.mean(self.extra(ops.take(x, chosen, axis=0)))
        return result


class Asserting(kerasish.Model):
    """Checks its values."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = layers.Dense(WIDTH, "relu"), layers.Dense(1)

    def call(self, x: Any) -> Any:
        x = self.layer(x)
        assert ops.all(ops.isfinite(x)), "not finite"
        assert ops.min(x) >= 0
        return self.head(x)


class Printing(kerasish.Model):
    """Prints numbers while it runs."""

    lines: list[str]

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = layers.Dense(WIDTH), layers.Dense(1)
        self.lines = []

    def call(self, x: Any) -> Any:
        x = self.layer(x)
        self.lines.append(f"mean {float(ops.mean(x)):.3f}, first {x[0, 0].item():.3f}")
        return self.head(x)


class Debugged(kerasish.Model):
    """Reads arrays as in a debugger."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = layers.Dense(WIDTH), layers.Dense(1)
        self.seen: list[Any] = []

    def call(self, x: Any) -> Any:
        x = self.layer(x)
        array = np.asarray(x)
        self.seen.append((array.shape, array.mean()))
        return self.head(x)


class ArgmaxExperts(kerasish.Model):
    """Sends a batch to the expert that its gate prefers."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = layers.Dense(3)
        self.experts = [layers.Dense(WIDTH, "tanh") for _ in range(3)]
        self.head = layers.Dense(1)

    def call(self, x: Any) -> Any:
        gate = ops.softmax(ops.mean(self.gate(x), axis=0))
        chosen = int(ops.argmax(gate))
        return self.head(self.experts[chosen](x) * gate[chosen])


class PointerLoop(kerasish.Model):
    """Walks over rows: each row's content says which one comes next."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = layers.Dense(WIDTH), layers.Dense(1)

    def call(self, x: Any) -> Any:
        h, place, total = self.layer(x), 0, 0.0
        for _ in range(3):
            total = total + h[place]
            place = int(ops.argmax(ops.abs(x[place]))) % len(x)
        return self.head(h + total)


class Curriculum(kerasish.Model):
    """Has a flag that the program changes between epochs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = layers.Dense(WIDTH, "tanh"), layers.Dense(WIDTH, "tanh")
        self.head, self.hard = layers.Dense(1), False

    def call(self, x: Any) -> Any:
        x = self.first(x)
        if self.hard:
            x = x + self.second(x)
        return self.head(x)


MODELS = (
    EarlyExit, UntilConverged, TreeNet, BeamSearch, DynamicDepth, ValueShapes, Asserting, Printing,
    Debugged, ArgmaxExperts, PointerLoop, Curriculum,
)  # fmt: skip
