"""256 random trees per batch compared with one by one: python -m benchmarks.folding."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import kerasish as keras
from kerasish import config, layers, losses, ops
from kerasish.autodiff.reverse import gradients_of
from kerasish.fold import Folded

WORDS, UNITS, TREES = 20, 64, 256


class TreeLSTM(Folded):
    """States of binary trees of word numbers (Tai, Socher and Manning 2015)."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.word, self.gates = layers.Embedding(WORDS, UNITS), layers.Dense(5 * UNITS)

    def visit(self, structure: Any) -> Any:
        """Return the vector of a tree."""
        return self.state(structure)[0]

    def state(self, node: Any) -> Any:
        """Return (h, c) of a node."""
        if isinstance(node, int):
            word = self.word(node)
            return word, ops.tanh(word) * 0.5
        (h1, c1), (h2, c2) = map(self.state, node)
        gates = self.gates(ops.concatenate([h1, h2], axis=-1))
        i, f1, f2, o, u = ops.split(gates, 5, axis=-1)
        c = ops.sigmoid(i) * ops.tanh(u) + ops.sigmoid(f1) * c1 + ops.sigmoid(f2) * c2
        return ops.sigmoid(o) * ops.tanh(c), c


def make_tree(rng: np.random.Generator, leaves: int) -> Any:
    """Return a random binary tree."""
    if leaves == 1:
        return int(rng.integers(WORDS))
    left = int(rng.integers(1, leaves))
    return make_tree(rng, left), make_tree(rng, leaves - left)


def main() -> None:
    """Print the CPU seconds of a step of `fit`, and of the same trees one by one."""
    rng = np.random.default_rng(0)
    trees = [make_tree(rng, int(rng.integers(1, 25))) for _ in range(TREES)]
    y = np.arange(TREES) % 2
    for backend in ("static", "eager"):
        config.set_backend(backend)
        model = keras.Sequential([TreeLSTM(), layers.Dense(2)])
        loss = losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.02), loss)
        model.fit(trees, y, batch_size=TREES, epochs=1, verbose=0)
        start = time.process_time()
        model.fit(trees, y, batch_size=TREES, epochs=4, verbose=0)
        folded = (time.process_time() - start) / 4
        net, top = model.layers
        start = time.process_time()
        for tree in trees[:32]:
            gradients_of(loss(y[:1], top(net.one_by_one([tree]))), model.trainable_variables)
        single = (time.process_time() - start) * TREES / 32
        print(
            f"{backend}: {folded:.3f} s folded, {single:.2f} s one by one, {single / folded:.1f}x"
        )


if __name__ == "__main__":
    main()
