"""Sentiment of sentences as trees
===============================

A network reads sentences as trees and says for each part whether it is positive or negative.

A small grammar makes film reviews with their syntax trees: "not", "hardly" and "without" turn the
meaning of a part around, "very" makes it stronger, and after "but" the second half counts. A tree
LSTM joins the states of two parts to that of the whole. `kerasish.fold.Folded` runs it for a batch
of different trees at once: all joins at the same depth are one product. A network that only adds up
words is trained for comparison.
Shows: Folded, a cell with two states, fit on lists of trees, results for every part of a tree.

Run: python examples/sentiment_trees.py [picture.png]
"""

from __future__ import annotations

import sys

import numpy as np

try:
    from matplotlib import pyplot as plt
except ImportError:
    sys.exit("This example draws a picture: pip install matplotlib")

import kerasish as keras
from kerasish import fold, layers, ops

keras.utils.set_random_seed(0)

# %%
# Sentences and what they mean
# ----------------------------
# A sentence is a tree: a word, or a pair of a left and a right part. The grammar computes a number
# for each phrase it makes; below 0 is bad.

GOOD = "brilliant moving funny clever charming honest warm fresh".split()
BAD = "dull clumsy empty noisy predictable cold silly tired".split()
NOUNS = "film story cast plot script ending dialogue music".split()
TURNS = {"not": -1.0, "hardly": -0.7, "never": -1.0}
STRONG = {"very": 1.5, "really": 1.3, "rather": 0.8}

Tree = str | tuple  # a word, or (left part, right part)


def describe(rng: np.random.Generator, depth: int) -> tuple[Tree, float]:
    """Return a phrase such as "not very funny", and what it means: below 0 is bad."""
    kind = rng.random() if depth else 1.0
    if kind < 0.3:
        word = str(rng.choice(list(TURNS)))
        inner, meaning = describe(rng, depth - 1)
        return (word, inner), TURNS[word] * meaning
    if kind < 0.55:
        word = str(rng.choice(list(STRONG)))
        inner, meaning = describe(rng, depth - 1)
        return (word, inner), STRONG[word] * meaning
    if kind < 0.7:
        first, one = describe(rng, depth - 1)
        second, other = describe(rng, depth - 1)
        return (first, ("and", second)), one + other
    good = rng.random() < 0.5
    return str(rng.choice(GOOD if good else BAD)), 1.0 if good else -1.0


def sentence(rng: np.random.Generator, depth: int) -> tuple[Tree, float]:
    """Return a sentence and what it means."""
    phrase, meaning = describe(rng, depth)
    clause: Tree = (("the", str(rng.choice(NOUNS))), ("is", phrase))
    if rng.random() < 0.3:
        second, counts = sentence(rng, depth)
        return (clause, ("but", second)), counts
    if rng.random() < 0.3:
        return (("without", ("the", str(rng.choice(NOUNS)))), clause), -meaning
    return clause, meaning


def make_data(rng: np.random.Generator, count: int) -> tuple[list[Tree], np.ndarray]:
    """Return different sentences and phrases, and whether each is positive."""
    known: dict[Tree, bool] = {}
    while len(known) < count:
        make = sentence if rng.random() < 0.7 else describe
        tree, meaning = make(rng, int(rng.integers(4)))
        if abs(meaning) > 0.1:
            known[tree] = meaning > 0
    return list(known), np.array(list(known.values()), "int32")


def words_of(tree: Tree) -> list[str]:
    return [tree] if isinstance(tree, str) else words_of(tree[0]) + words_of(tree[1])


def parts_of(tree: Tree) -> list[Tree]:
    """Return a tree and all of its parts."""
    return [tree] if isinstance(tree, str) else [tree, *parts_of(tree[0]), *parts_of(tree[1])]


trees, positive = make_data(np.random.default_rng(0), 2400)
words = sorted({word for tree in trees for word in words_of(tree)})
data, held_out = (trees[:2000], positive[:2000]), (trees[2000:], positive[2000:])
for tree, good in list(zip(trees, positive))[:4]:
    print(f"  {'positive' if good else 'negative'}: {' '.join(words_of(tree))}")

# %%
# Two readers
# -----------
# A tree LSTM joins the two states of the left part and those of the right one; the other reader
# adds up the vectors of the words.


class TreeLSTMCell(layers.Layer):
    """The states of a whole from those of its two parts."""

    def __init__(self, units: int, **kwargs) -> None:
        super().__init__(**kwargs)
        self.gates = layers.Dense(5 * units)

    def call(self, left: tuple, right: tuple) -> tuple:
        (h_left, c_left), (h_right, c_right) = left, right
        gates = self.gates(ops.concatenate([h_left, h_right], axis=-1))
        new, keep_left, keep_right, out, value = ops.split(gates, 5, axis=-1)
        c = ops.sigmoid(new) * ops.tanh(value)
        c = c + ops.sigmoid(keep_left) * c_left + ops.sigmoid(keep_right) * c_right
        return ops.sigmoid(out) * ops.tanh(c), c


class TreeLSTM(fold.Folded):
    """The state of a sentence."""

    def __init__(self, words: list[str], units: int = 32, **kwargs) -> None:
        super().__init__(**kwargs)
        self.numbers = {word: i for i, word in enumerate(words)}
        self.embedding = layers.Embedding(len(words), 2 * units)
        self.cell = TreeLSTMCell(units)

    def visit(self, tree: Tree) -> keras.Tensor:
        return self.states(tree)[0]

    def states(self, tree: Tree) -> tuple:
        if isinstance(tree, str):
            return tuple(ops.split(self.embedding(self.numbers[tree]), 2))
        return self.cell(self.states(tree[0]), self.states(tree[1]))


class WordSum(TreeLSTM):
    """The sum of the words, in whatever order."""

    def visit(self, tree: Tree) -> keras.Tensor:
        if isinstance(tree, str):
            return self.embedding(self.numbers[tree])
        return self.visit(tree[0]) + self.visit(tree[1])


# %%
# Training
# --------
# `fit` takes the lists of trees; 400 sentences are kept apart.

scores = {}
for name, reader, epochs in (("word sum", WordSum, 4), ("tree", TreeLSTM, 10)):
    print(f"{name}:")
    model = keras.Sequential([reader(words), layers.Dense(1, activation="sigmoid")])
    model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy"])
    model.fit(*data, batch_size=100, epochs=epochs, validation_data=held_out, verbose=2)
    scores[name] = model.evaluate(*held_out, verbose=0, return_dict=True)["accuracy"]

for tree, likely in zip(trees[2000:2006], model.predict(trees[2000:2006], verbose=0)[:, 0]):
    print(f"  {likely:4.0%} positive: {' '.join(words_of(tree))}")
print(f"held-out sentences, right: word sum {scores['word sum']:.3f}")
print(f"held-out sentences, right: tree LSTM {scores['tree']:.3f}")

# %%
# What it says of each part
# -------------------------
# A part of a tree is a tree, too: the network is asked about each of them. Green is good, red is
# bad.

short = [tree for tree in trees[2000:] if len(words_of(tree)) < 16]
tree = next(t for t in short if {"but", "not"} <= {*words_of(t)})
parts = list(dict.fromkeys(parts_of(tree)))
meaning = dict(zip(parts, model.predict(parts, verbose=0)[:, 0]))
colors = plt.get_cmap("RdYlGn")
figure, axes = plt.subplots(figsize=(10, 5), layout="constrained")
places = iter(range(1000))


def place(part: Tree) -> tuple[float, float]:
    """Draw a part above its own parts; return where it is."""
    if isinstance(part, str):
        at = (next(places), 0.0)
        axes.annotate(part, at, (0, -16), textcoords="offset points", ha="center", va="top")
    else:
        ends = [place(child) for child in part]
        at = (sum(e[0] for e in ends) / 2, max(e[1] for e in ends) + 1)
        for end in ends:
            axes.plot(*zip(at, end), color="0.6", zorder=1)
    axes.scatter(*at, s=260, color=colors(meaning[part]), edgecolors="0.3", zorder=2)
    return at


place(tree)
axes.set(title="What the network says of each part: green is good, red is bad")
axes.margins(0.06, 0.15)
axes.axis("off")

picture = sys.argv[1] if len(sys.argv) > 1 else "sentiment_trees.png"
figure.savefig(picture, dpi=110)
print(f"picture: {picture}")
