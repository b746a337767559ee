"""Sequence to sequence with LSTMs: encoder and decoder
====================================================

An encoder and a decoder turn words around: "python" becomes "nohtyp".

The encoder LSTM reads a word and leaves its two states, all that is known of the word; the decoder
LSTM starts from them and spells the word backwards. In training the decoder is told the letters
before the one it has to guess; afterwards it has to go by its own. The words are those of Python's
manual and made-up ones, cut into training words and others never seen.
Shows: functional models, states handed from layer to layer, masks, greedy decoding.

Run: python examples/reverse_words.py [picture.png]
"""

from __future__ import annotations

import re
import string
import sys
from collections.abc import Callable

import numpy as np

try:
    from matplotlib import pyplot as plt
except ImportError:
    sys.exit("This example draws a picture: pip install matplotlib")

import kerasish as keras
from kerasish import layers

LONGEST, UNITS = 8, 96
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


def make_data(words: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the words, what the decoder is told, and what it has to say."""
    backwards = to_numbers([w[::-1] for w in words])
    fed = np.insert(backwards, 0, START, axis=1)
    said = np.append(backwards, np.zeros((len(words), 1), "int32"), axis=1)
    said[np.arange(len(words)), [len(w) for w in words]] = END
    return to_numbers(words), fed, said


def make_model() -> keras.Model:
    word = keras.Input((LONGEST,), dtype="int32", name="word")
    fed = keras.Input((LONGEST + 1,), dtype="int32", name="fed")
    _, h, c = layers.LSTM(UNITS, return_state=True)(layers.Embedding(COUNT, 32)(word))
    decoder = layers.LSTM(UNITS, return_sequences=True)
    y = decoder(layers.Embedding(COUNT, 32)(fed), initial_state=[h, c])
    return keras.Model([word, fed], layers.Dense(COUNT)(y))


def train(model: keras.Model, words: list[str], epochs: int) -> None:
    x, fed, said = make_data(words)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
    steps = epochs * (len(words) // 64)
    model.compile(keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(0.005, steps)), loss)
    model.fit([x, fed], said, batch_size=64, epochs=epochs, verbose=2)


def spell(model: Callable[..., np.ndarray], words: list[str]) -> list[str]:
    """Return what the decoder says, each time its likeliest letter."""
    x = to_numbers(words)
    fed = np.zeros((len(words), LONGEST + 1), "int32")
    fed[:, 0] = START
    for i in range(LONGEST):
        fed[:, i + 1] = model([x, fed])[:, i].argmax(-1)
    found = []
    for row in fed[:, 1:]:
        ends = np.flatnonzero(row <= END)
        stop = ends[0] if ends.size else LONGEST
        found.append("".join(LETTERS[n - 3] for n in row[:stop]))
    return found


def draw(words: list[str], said: list[str], picture: str) -> None:
    """Draw the share of words without a mistake, by their length."""
    lengths = range(3, LONGEST + 1)
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for length in lengths:
        right = [s == w[::-1] for w, s in zip(words, said) if len(w) == length]
        if right:
            axes.bar(length, np.mean(right), color="C0")
            axes.annotate(f"{len(right)} words", (length, 0.03), ha="center", color="white", size=8)
    axes.set(
        title="Held-out words reversed without a mistake", xlabel="letters in the word",
        ylabel="share of words", ylim=(0, 1.05), xticks=lengths,
    )  # fmt: skip
    figure.savefig(picture, dpi=110)


def main(picture: str = "reverse_words.png") -> None:
    keras.utils.set_random_seed(0)
    words, kept = find_words()
    model = make_model()
    train(model, words, epochs=12)
    said = spell(lambda x: model.predict(x, batch_size=256, verbose=0), kept)
    for word, answer in list(zip(kept, said))[:12]:
        print(f"  {word:<10} {answer:<10} {'right' if answer == word[::-1] else 'wrong'}")
    right = np.mean([answer == word[::-1] for word, answer in zip(kept, said)])
    print(f"words never seen before, turned around without a mistake: {right:.3f}")
    draw(kept, said, picture)
    print(f"picture: {picture}")


if __name__ == "__main__":
    main(*sys.argv[1:])
