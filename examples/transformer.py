"""Transformer: train a small GPT that adds numbers
================================================

A causal transformer, the network behind large language models, learns to write lines such as
"47+85=132".

It sees lines of text, one character after the other, and predicts each next character. The meaning
of "+" is not given. Afterwards it writes whole lines by itself, and it finishes sums that it has
never seen.
Shows: MultiHeadAttention with a causal mask, position embeddings, residual connections with layer
normalization, sampling with a temperature, a picture of attention.

Run: python examples/transformer.py [picture.png]
"""

from __future__ import annotations

import sys

import numpy as np

try:
    from matplotlib import pyplot as plt
except ImportError:
    sys.exit("This example draws a picture: pip install matplotlib")

import kerasish as keras
from kerasish import layers

keras.utils.set_random_seed(0)

# %%
# The text
# --------
# There are 10,000 sums of two numbers below 100; a tenth is held out. A line ends with a full stop
# and is padded with it. The result is written with its last digit first ("47+85=231."), as one adds
# on paper: each digit then depends only on what has been written before.

CHARACTERS = "0123456789+=."
LENGTH = 10


def write_sum(a: int, b: int) -> str:
    return f"{a:02}+{b:02}={str(a + b)[::-1]}".ljust(LENGTH, ".")


def encode(lines: list[str]) -> np.ndarray:
    return np.array([[CHARACTERS.index(c) for c in line] for line in lines], "int32")


rng = np.random.default_rng(0)
sums = rng.permutation([(a, b) for a in range(100) for b in range(100)])
lines = encode([write_sum(a, b) for a, b in sums])
train, test = lines[:9000], lines[9000:]

# %%
# The model
# ---------
# A block lets each place look at the places before it (attention), and then computes at each place
# by itself (two dense layers). Both add to the block's input. The causal mask hides the places that
# follow: they must be predicted.

WIDTH, HEADS, BLOCKS = 64, 4, 2


class Places(layers.Layer):
    """Adds a trained vector for each place."""

    def build(self, input_shape):
        self.vectors = self.add_weight(shape=input_shape[1:], initializer="random_normal")

    def call(self, x):
        return x + self.vectors


def block(x):
    """Return the block's result, and the weights of its attention (batch, heads, to, from)."""
    attention = layers.MultiHeadAttention(HEADS, WIDTH // HEADS)
    normalized = layers.LayerNormalization()(x)
    attended, weights = attention(
        normalized, normalized, use_causal_mask=True, return_attention_scores=True
    )
    x = x + attended
    hidden = layers.Dense(4 * WIDTH, activation="gelu")(layers.LayerNormalization()(x))
    return x + layers.Dense(WIDTH)(hidden), weights


text = keras.Input((LENGTH,), dtype="int32")
x = Places()(layers.Embedding(len(CHARACTERS), WIDTH)(text))
looked = []
for _ in range(BLOCKS):
    x, weights = block(x)
    looked.append(weights)
logits = layers.Dense(len(CHARACTERS))(layers.LayerNormalization()(x))
model = keras.Model(text, logits)
attention_of = keras.Model(text, looked)

# %%
# Training
# --------
# The target of each place is the next character, so the targets are the inputs, moved by one. The
# line begins with a full stop, the end of the line before.


def shift(lines: np.ndarray) -> np.ndarray:
    """Return what the model reads: a full stop, and all characters but the last."""
    return np.insert(lines[:, :-1], 0, CHARACTERS.index("."), axis=1)


epochs, batch = 25, 100
rate = keras.optimizers.schedules.CosineDecay(0.004, epochs * len(train) // batch)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(rate), loss)
history = model.fit(
    shift(train), train, batch_size=batch, epochs=epochs, verbose=0,
    validation_data=(shift(test), test),
)  # fmt: skip

# %%
# Sampling
# --------
# A character is drawn by the model's probabilities and appended, then the next one. A temperature
# below 1 makes likely characters likelier; at 0 the likeliest one is always taken.


def complete(starts: np.ndarray, temperature: float = 0.0) -> np.ndarray:
    """Return lines that begin with `starts` (lines, characters), written by the model."""
    written = np.zeros((len(starts), LENGTH), "int32")
    known = starts.shape[1]
    written[:, :known] = starts
    for place in range(known, LENGTH):
        scores = model.predict(shift(written), batch_size=500, verbose=0)[:, place]
        if temperature:
            noise = rng.gumbel(size=scores.shape)  # its largest sum is a draw by softmax(scores)
            scores = scores / temperature + noise
        written[:, place] = scores.argmax(-1)
    return written


def decode(line: np.ndarray) -> str:
    return "".join(CHARACTERS[i] for i in line)


def is_right(line: str) -> bool:
    """Return whether a line is a sum with the right result."""
    a, plus, b, equals = line[:2], line[2], line[3:5], line[5]
    if plus + equals != "+=" or not (a + b).isdigit():
        return False
    return line == write_sum(int(a), int(b))


finished = complete(test[:, :6])
print(f"held-out sums, right: {np.mean((finished == test).all(1)):.3f}")
own = [decode(line) for line in complete(np.zeros((500, 0), "int32"), temperature=1.0)]
print("lines that the model wrote by itself:", *own[:5])
print(f"500 such lines, right: {np.mean([is_right(line) for line in own]):.3f}")

# %%
# Attention
# ---------
# The weights of all heads, for one sum. To predict the character on the left, the model looks at
# the dark places. The first digit of the result needs the last digits of both numbers; the second
# one needs the first digits, and the carry.

line = encode([write_sum(47, 85)])
read, said = decode(shift(line)[0]), decode(line[0])
figure, axes = plt.subplots(BLOCKS, HEADS, figsize=(12, 3.4), layout="constrained", sharey=True)
for number, weights in enumerate(attention_of.predict(shift(line), verbose=0)):
    for head, ax in enumerate(axes[number]):
        ax.imshow(weights[0, head, 6:9], cmap="Blues", vmin=0, vmax=1)
        ax.set_xticks(range(LENGTH), list(read))
        ax.set_yticks(range(3), list(said[6:9]))
        ax.set_title(f"block {number + 1}, head {head + 1}", fontsize=10)
    axes[number, 0].set_ylabel("to predict")
for ax in axes[-1]:
    ax.set_xlabel("characters read")
figure.suptitle(f"Attention while the model writes the result of {said[:6]}")

picture = sys.argv[1] if len(sys.argv) > 1 else "transformer.png"
figure.savefig(picture, dpi=110)
print(f"picture: {picture}")
