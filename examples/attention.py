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

import sys

import numpy as np

try:
    from matplotlib import pyplot as plt
except ImportError:
    sys.exit("This example draws a picture: pip install matplotlib")

from reverse_words import COUNT, LONGEST, find_words, make_data, spell, train

import kerasish as keras
from kerasish import layers

UNITS = 64


def make_models() -> tuple[keras.Model, keras.Model]:
    """Return (the model, the same model giving the weights of its attention)."""
    word = keras.Input((LONGEST,), dtype="int32", name="word")
    fed = keras.Input((LONGEST + 1,), dtype="int32", name="fed")
    letters, h, c = layers.LSTM(UNITS, return_sequences=True, return_state=True)(
        layers.Embedding(COUNT, 32, mask_zero=True)(word)
    )
    decoder = layers.LSTM(UNITS, return_sequences=True)
    asked = decoder(layers.Embedding(COUNT, 32)(fed), initial_state=[h, c])
    seen, weights = layers.Attention()([asked, letters], return_attention_scores=True)
    y = layers.Dense(COUNT)(layers.Concatenate()([asked, seen]))
    return keras.Model([word, fed], y), keras.Model([word, fed], weights)


def draw(looking: keras.Model, words: list[str], picture: str) -> None:
    figure, axes = plt.subplots(1, len(words), figsize=(12, 4), layout="constrained")
    for ax, word in zip(axes, words):
        x, fed, _ = make_data([word])
        n = len(word)
        weights = looking.predict([x, fed], verbose=0)[0, :n, :n]
        ax.imshow(weights, cmap="Blues", vmin=0, vmax=1)
        ax.set_xticks(range(n), list(word))
        ax.set_yticks(range(n), list(word[::-1]))
        ax.set(xlabel="letter looked at", ylabel="letter said")
    figure.suptitle("Weights of the attention while a word is reversed")
    figure.savefig(picture, dpi=110)


def main(picture: str = "attention.png") -> None:
    keras.utils.set_random_seed(0)
    words, kept = find_words()
    model, looking = make_models()
    train(model, words, epochs=6)
    said = spell(lambda x: model.predict(x, batch_size=256, verbose=0), kept)
    right = np.mean([answer == word[::-1] for word, answer in zip(kept, said)])
    print(f"words never seen before, turned around without a mistake: {right:.3f}")
    draw(looking, ["python", "keras", "backward"], picture)
    print(f"picture: {picture}")


if __name__ == "__main__":
    main(*sys.argv[1:])
