"""Attention in a sequence-to-sequence model: reverse words
========================================================

The same words turned around, by a decoder that may look back at every letter: attention.

In reverse_words.py all that the decoder knows of a word is one state. Here it asks, for each letter
it is about to say, how well each letter of the word fits, and takes their mean by these weights.
It learns where to look by itself, with fewer units and fewer words; the picture shows it.
Shows: Attention with its weights, a second model that shows what happens inside the first.

Run: python examples/attention.py [picture.png]
"""

from __future__ import annotations

import re
import string
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
# The words
# ---------
# The same words as in reverse_words.py: a row of numbers each, one for each letter.

LONGEST = 8  # letters
START, END = 1, 2  # numbers of the signs around a word; 0 fills up short words
LETTERS = string.ascii_lowercase
COUNT = len(LETTERS) + 3


def find_words() -> tuple[list[str], list[str]]:
    """Return words to learn from, real and made up, and real ones kept apart."""
    rng = np.random.default_rng(0)
    text = keras.datasets.english_text.load_data().lower()
    real = sorted(set(re.findall(rf"\b[a-z]{{3,{LONGEST}}}\b", text)))
    kept = set(rng.choice(real, 200, replace=False).tolist())
    made_up = [
        "".join(rng.choice(list(LETTERS), size=rng.integers(3, LONGEST + 1))) for _ in range(6000)
    ]
    return [w for w in real + made_up if w not in kept], sorted(kept)


def to_numbers(words: list[str]) -> np.ndarray:
    """Return one row a word, filled up with 0."""
    rows = np.zeros((len(words), LONGEST), "int32")
    for row, word in zip(rows, words):
        row[: len(word)] = [LETTERS.index(c) + 3 for c in word]
    return rows


words, kept = find_words()
print(f"{len(words)} words to learn from, {len(kept)} kept apart: {', '.join(kept[:5])} ...")

# %%
# The model
# ---------
# The encoder gives its result at each letter, too. `Attention` compares what the decoder asks with
# these results, and returns their mean by the weights of the comparison. A second model of the same
# layers returns these weights.

UNITS = 64
word = keras.Input((LONGEST,), dtype="int32", name="word")
fed = keras.Input((LONGEST + 1,), dtype="int32", name="fed")
letters, h, c = layers.LSTM(UNITS, return_sequences=True, return_state=True)(
    layers.Embedding(COUNT, 32, mask_zero=True)(word)
)
decoder = layers.LSTM(UNITS, return_sequences=True)
asked = decoder(layers.Embedding(COUNT, 32)(fed), initial_state=[h, c])
seen, weights = layers.Attention()([asked, letters], return_attention_scores=True)
y = layers.Dense(COUNT)(layers.Concatenate()([asked, seen]))
model = keras.Model([word, fed], y)
looking = keras.Model([word, fed], weights)

# %%
# Training
# --------
# The decoder gets the letters before the one that it has to say.


def make_data(words: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the words, what the decoder gets, and what it has to say."""
    backwards = to_numbers([w[::-1] for w in words])
    fed = np.insert(backwards, 0, START, axis=1)
    said = np.append(backwards, np.zeros((len(words), 1), "int32"), axis=1)
    said[np.arange(len(words)), [len(w) for w in words]] = END
    return to_numbers(words), fed, said


x, given, said = make_data(words)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
epochs = 6
rate = keras.optimizers.schedules.CosineDecay(0.005, epochs * (len(words) // 64))
model.compile(keras.optimizers.Adam(rate), loss)
model.fit([x, given], said, batch_size=64, epochs=epochs, verbose=2)

# %%
# Greedy decoding
# ---------------
# Afterwards it continues from its own likeliest letter.


def spell(words: list[str]) -> list[str]:
    """Return what the decoder says, each time its likeliest letter."""
    x = to_numbers(words)
    fed = np.zeros((len(words), LONGEST + 1), "int32")
    fed[:, 0] = START
    for i in range(LONGEST):
        fed[:, i + 1] = model.predict([x, fed], batch_size=256, verbose=0)[:, i].argmax(-1)
    found = []
    for row in fed[:, 1:]:
        ends = np.flatnonzero(row <= END)
        stop = ends[0] if ends.size else LONGEST
        found.append("".join(LETTERS[n - 3] for n in row[:stop]))
    return found


answers = spell(kept)
right = np.mean([answer == word[::-1] for word, answer in zip(kept, answers)])
print(f"words never seen before, turned around without a mistake: {right:.3f}")

# %%
# Where it looks
# --------------
# For each letter that it says, the weights of the letters of the word. It was not told that the
# last letter is first.

shown = ["python", "keras", "backward"]
figure, all_axes = plt.subplots(1, len(shown), figsize=(12, 4), layout="constrained")
for axes, word in zip(all_axes, shown):
    x, given, _ = make_data([word])
    count = len(word)
    scores = looking.predict([x, given], verbose=0)[0, :count, :count]
    axes.imshow(scores, cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(count), list(word))
    axes.set_yticks(range(count), list(word[::-1]))
    axes.set(xlabel="letter looked at", ylabel="letter said")
figure.suptitle("Weights of the attention while a word is reversed")

picture = sys.argv[1] if len(sys.argv) > 1 else "attention.png"
figure.savefig(picture, dpi=110)
print(f"picture: {picture}")
