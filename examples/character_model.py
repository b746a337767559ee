"""Text generation with a character-level GRU language model
=========================================================

A network learns to write like Python's manual, one character after the other.

The text is the help that every Python carries (460,000 characters; no download). A GRU reads
windows of 64 characters and guesses each next one. To write, the same layers are put together a
second way: one character and the GRU's state in, the next character's chances and state out.
Shows: Embedding, GRU, logits, perplexity as bits, two models that share layers, sampling.

Run: python examples/character_model.py [picture.png]
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

LENGTH, UNITS = 64, 128


def make_models(characters: int) -> tuple[keras.Model, keras.Model]:
    """Return (the model that is trained, the one that writes); they share all weights."""
    embed = layers.Embedding(characters, 32)
    gru = layers.GRU(UNITS, return_sequences=True, return_state=True)
    dense = layers.Dense(characters)

    text = keras.Input((LENGTH,), dtype="int32")
    trained = keras.Model(text, dense(gru(embed(text))[0]))

    one, state = keras.Input((1,), dtype="int32"), keras.Input((UNITS,))
    outputs, new_state = gru(embed(one), initial_state=state)
    return trained, keras.Model([one, state], [dense(outputs), new_state])


def write(writer: keras.Model, characters: str, start: str, count: int, warmth: float) -> str:
    """Return `start` and `count` more characters, each drawn by its chance.

    Args:
        warmth: below 1 the likely characters get likelier, above 1 the unlikely ones do.
    """
    rng = np.random.default_rng(0)
    state, written = np.zeros((1, UNITS), "float32"), start
    for i in range(len(start) + count - 1):
        number = characters.index(written[i])
        logits, state = writer.predict_on_batch([np.array([[number]], "int32"), state])
        if i >= len(start) - 1:
            scaled = logits[0, 0].astype("float64") / warmth
            chances = np.exp(scaled - scaled.max())
            written += characters[rng.choice(len(characters), p=chances / chances.sum())]
    return written


def bits_without_context(y: np.ndarray, y_test: np.ndarray, count: int) -> float:
    """Return the bits a character costs if only how often each one occurs is known."""
    chances = (np.bincount(y.ravel(), minlength=count) + 1) / (y.size + count)
    return float(-np.log2(chances[y_test]).mean())


def draw(table: list[tuple[str, float]], picture: str) -> None:
    """Draw how many bits a character costs, epoch by epoch."""
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    (_, frequencies), *epochs = table
    axes.plot(range(1, len(epochs) + 1), [bits for _, bits in epochs], marker="o", label="GRU")
    axes.axhline(frequencies, color="gray", linestyle=":", label="guessing by frequency")
    axes.set(
        title="A GRU predicts the next character", xlabel="epoch", xticks=range(1, len(epochs) + 1),
        ylabel="bits per character, held-out text", ylim=(0, None),
    )  # fmt: skip
    axes.legend()
    figure.savefig(picture, dpi=110)


def main(picture: str = "character_model.png") -> None:
    keras.utils.set_random_seed(0)
    (x, y), (x_test, y_test), characters = keras.datasets.english_text.load_windows(LENGTH)
    print(f"{x.size:,} characters to learn from, {len(characters)} different ones")
    model, writer = make_models(len(characters))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.008, clipnorm=1.0), loss)
    table = [("guessing by frequency", bits_without_context(y, y_test, len(characters)))]
    for epoch in range(1, 5):
        model.fit(x, y, batch_size=64, epochs=1, verbose=0)
        bits = model.evaluate(x_test, y_test, batch_size=256, verbose=0) / np.log(2)
        table.append((f"after epoch {epoch}", bits))
        print(f"\n--- epoch {epoch}: {bits:.2f} bits a character ---")
        print(write(writer, characters, "The ", 160, warmth=0.7))
    print("\nbits a character costs on text kept apart:")
    for name, bits in table:
        print(f"  {name:<22} {bits:5.2f}")
    draw(table, picture)
    print(f"picture: {picture}")


if __name__ == "__main__":
    main(*sys.argv[1:])
