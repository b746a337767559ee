"""Trees of any shape: a network that computes expressions
=======================================================

A network learns to compute expressions such as "max(3, 4 + min(7, 2))", modulo 10.

An expression is read by Python's own parser, and the network walks over the parser's tree: a digit
becomes a vector, and each operator has a small network of its own that joins the vectors of its two
operands. `kerasish.fold.Folded` runs this recursive function for a whole batch of different trees
at once: all additions at the same depth are one call of one layer. The network sees expressions
with at most 6 operations, and is asked for larger ones.
Shows: Folded, recursion over Python objects, layers chosen by the data, fit on lists of trees.

Run: python examples/expressions.py [picture.png]
"""

from __future__ import annotations

import ast
import sys

import numpy as np

try:
    from matplotlib import pyplot as plt
except ImportError:
    sys.exit("This example draws a picture: pip install matplotlib")

import kerasish as keras
from kerasish import fold, layers, ops

keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)

# %%
# Expressions as trees
# --------------------
# An expression is a text. Python's parser makes a tree of it, whose value is computed by walking
# over it: a digit is its own value, an operation joins the values of its two operands.

LARGEST = 6  # operations of an expression in training
JOINS = {"max": max, "min": min, "add": lambda a, b: (a + b) % 10}


def make_expression(rng: np.random.Generator, operations: int) -> str:
    """Return a random expression over digits with this number of operations."""
    if not operations:
        return str(rng.integers(10))
    inner = int(rng.integers(operations))
    left, right = make_expression(rng, inner), make_expression(rng, operations - 1 - inner)
    name = rng.choice(list(JOINS))
    return f"({left} + {right})" if name == "add" else f"{name}({left}, {right})"


def parts_of(node: ast.expr) -> tuple[str, ast.expr, ast.expr]:
    """Return an operation's name and its operands."""
    if isinstance(node, ast.BinOp):
        return "add", node.left, node.right
    return node.func.id, node.args[0], node.args[1]


def value_of(node: ast.expr) -> int:
    if isinstance(node, ast.Constant):
        return node.value
    name, left, right = parts_of(node)
    return JOINS[name](value_of(left), value_of(right))


def make_data(
    rng: np.random.Generator, count: int, sizes: range
) -> tuple[list[str], list[ast.expr], np.ndarray]:
    """Return expressions as text and as trees, and their values."""
    texts = [make_expression(rng, int(rng.choice(sizes))) for _ in range(count)]
    trees = [ast.parse(text, mode="eval").body for text in texts]
    return texts, trees, np.array([value_of(tree) for tree in trees])


texts, trees, values = make_data(rng, 4000, range(1, LARGEST + 1))
for text, value in list(zip(texts, values))[:3]:
    print(f"  {text} = {value}")

# %%
# A network that walks over the tree
# ----------------------------------
# `visit` does what `value_of` does, on vectors: an embedding of the digit, or a small network for
# each operator, of the vectors of the operands. The tree decides which layers are called.


class Calculator(fold.Folded):
    """The vector of an expression, from those of its parts."""

    def __init__(self, units: int = 48, **kwargs) -> None:
        super().__init__(**kwargs)
        self.digit = layers.Embedding(10, units)
        self.joins = {
            name: keras.Sequential([
                layers.Dense(4 * units, activation="relu"),
                layers.Dense(units),
                layers.UnitNormalization(),
            ])
            for name in JOINS
        }  # fmt: skip

    def visit(self, node: ast.expr) -> keras.Tensor:
        if isinstance(node, ast.Constant):
            return self.digit(node.value)
        name, left, right = parts_of(node)
        return self.joins[name](ops.concatenate([self.visit(left), self.visit(right)]))


# %%
# Training
# --------
# `fit` takes the list of trees. Batches are computed level by level, whatever the trees look like.

model = keras.Sequential([Calculator(), layers.Dense(10)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
epochs = 12
rate = keras.optimizers.schedules.CosineDecay(0.003, epochs * -(-len(trees) // 64))
model.compile(keras.optimizers.Adam(rate), loss, metrics=["accuracy"])
model.fit(trees, values, batch_size=64, epochs=epochs, verbose=2)

texts, new, wanted = make_data(rng, 8, range(3, 8))
for text, answer, value in zip(texts, model.predict(new, verbose=0).argmax(-1), wanted):
    print(f"  {text} = {answer}" + ("" if answer == value else f", which is wrong: {value}"))

# %%
# Larger expressions
# ------------------
# The network has seen at most 6 operations. Here it computes up to 40.

shares = {}
for size in (*range(1, LARGEST + 1), 8, 10, 15, 20, 30, 40):
    _, new, wanted = make_data(rng, 200, range(size, size + 1))
    answers = model.predict(new, batch_size=200, verbose=0).argmax(-1)
    shares[size] = float(np.mean(answers == wanted))
small = [share for size, share in shares.items() if size <= LARGEST]
print(f"right, no larger than in training: {np.mean(small):.3f}")
print(f"right, with 40 operations: {shares[40]:.3f}")

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
colors = ["C0" if size <= LARGEST else "C1" for size in shares]
axes.bar([str(size) for size in shares], list(shares.values()), color=colors)
axes.axhline(0.1, color="gray", linestyle="--", label="guessing")
axes.axvline(LARGEST - 0.5, color="black", linewidth=1, label="largest in training")
axes.set(
    title="Expressions computed without a mistake", xlabel="operations in the expression",
    ylabel="share of expressions", ylim=(0, 1.05),
)  # fmt: skip
axes.legend(loc="lower left")

picture = sys.argv[1] if len(sys.argv) > 1 else "expressions.png"
figure.savefig(picture, dpi=110)
print(f"picture: {picture}")
