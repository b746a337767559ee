"""Sequence to sequence with LSTMs: encoder and decoder
====================================================

An encoder and a decoder turn words around: "python" becomes "nohtyp".

The encoder LSTM reads a word and leaves its two states, all that is known of the word; the decoder
LSTM starts from them and spells the word backwards. In training the decoder gets the letters
before the one it has to guess; afterwards it reads its own. The words are those of Python's
manual and made-up ones, cut into training words and others never seen.
Shows: functional models, states handed from layer to layer, masks, greedy decoding.

Run: python examples/reverse_words.py [picture.png]
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
# Words of Python's manual and made-up ones to learn from; 200 words of the manual are kept apart. A
# word is a row of numbers, one for each letter, filled up with 0.

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
# The encoder's two states are all that the decoder gets of the word.

UNITS = 96
word = keras.Input((LONGEST,), dtype="int32", name="word")
fed = keras.Input((LONGEST + 1,), dtype="int32", name="fed")
_, h, c = layers.LSTM(UNITS, return_state=True)(layers.Embedding(COUNT, 32)(word))
decoder = layers.LSTM(UNITS, return_sequences=True)
y = decoder(layers.Embedding(COUNT, 32)(fed), initial_state=[h, c])
model = keras.Model([word, fed], layers.Dense(COUNT)(y))

# %%
# Training
# --------
# In training the decoder gets the letters before the one that it has to say: its input is the
# reversed word behind a sign for the start, its target the same word with a sign for the end. The
# zeros behind short words do not count.


def make_data(words: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the words, what the decoder gets, and what it has to say."""
    backwards = to_numbers([w[::-1] for w in words])
    fed = np.insert(backwards, 0, START, axis=1)
    said = np.append(backwards, np.zeros((len(words), 1), "int32"), axis=1)
    said[np.arange(len(words)), [len(w) for w in words]] = END
    return to_numbers(words), fed, said


x, given, said = make_data(words)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
epochs = 12
rate = keras.optimizers.schedules.CosineDecay(0.005, epochs * (len(words) // 64))
model.compile(keras.optimizers.Adam(rate), loss)
model.fit([x, given], said, batch_size=64, epochs=epochs, verbose=2)

# %%
# Greedy decoding
# ---------------
# Afterwards the decoder has no letters to read but its own: each time the likeliest one.


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
for word, answer in list(zip(kept, answers))[:12]:
    print(f"  {word:<10} {answer:<10} {'right' if answer == word[::-1] else 'wrong'}")
right = np.mean([answer == word[::-1] for word, answer in zip(kept, answers)])
print(f"words never seen before, turned around without a mistake: {right:.3f}")

# %%
# By length
# ---------
# Long words are harder: the state has to hold more letters.

lengths = range(3, LONGEST + 1)
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for length in lengths:
    shares = [a == word[::-1] for word, a in zip(kept, answers) if len(word) == length]
    if shares:
        axes.bar(length, np.mean(shares), color="C0")
        axes.annotate(f"{len(shares)} words", (length, 0.03), ha="center", color="white", size=8)
axes.set(
    title="Held-out words reversed without a mistake", xlabel="letters in the word",
    ylabel="share of words", ylim=(0, 1.05), xticks=lengths,
)  # fmt: skip

picture = sys.argv[1] if len(sys.argv) > 1 else "reverse_words.png"
figure.savefig(picture, dpi=110)
print(f"picture: {picture}")
