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

keras.utils.set_random_seed(0)
LENGTH, UNITS = 64, 128

# %%
# The text
# --------
# Windows of 64 characters as numbers; the targets are the same windows, one character later.

(x, y), (x_test, y_test), characters = keras.datasets.english_text.load_windows(LENGTH)
print(f"{x.size:,} characters to learn from, {len(characters)} different ones")

# %%
# Two models with the same layers
# -------------------------------
# The first model is trained: it reads whole windows. The second one writes: it gets one character
# and the GRU's state, and returns scores for the next character, and the new state. Both use the
# same layers, so what the one learns the other knows.

embed = layers.Embedding(len(characters), 32)
gru = layers.GRU(UNITS, return_sequences=True, return_state=True)
dense = layers.Dense(len(characters))

text = keras.Input((LENGTH,), dtype="int32")
model = keras.Model(text, dense(gru(embed(text))[0]))

one, state = keras.Input((1,), dtype="int32"), keras.Input((UNITS,))
outputs, new_state = gru(embed(one), initial_state=state)
writer = keras.Model([one, state], [dense(outputs), new_state])

# %%
# Sampling
# --------
# Each character is drawn by its probability. With a temperature below 1 the likely characters get
# likelier, above 1 the unlikely ones do.


def write(start: str, count: int, temperature: float) -> str:
    """Return `start` and `count` more characters."""
    rng = np.random.default_rng(0)
    state, written = np.zeros((1, UNITS), "float32"), start
    for i in range(len(start) + count - 1):
        number = characters.index(written[i])
        logits, state = writer.predict_on_batch([np.array([[number]], "int32"), state])
        if i >= len(start) - 1:
            scaled = logits[0, 0].astype("float64") / temperature
            chances = np.exp(scaled - scaled.max())
            written += characters[rng.choice(len(characters), p=chances / chances.sum())]
    return written


# %%
# Training
# --------
# The loss, divided by log 2, is the number of bits that a character costs: how many yes-or-no
# answers the model lacks to know it. The rival knows only how often each character occurs.

loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(0.008, clipnorm=1.0), loss)
chances = (np.bincount(y.ravel(), minlength=len(characters)) + 1) / (y.size + len(characters))
table = [("guessing by frequency", float(-np.log2(chances[y_test]).mean()))]
for epoch in range(1, 5):
    model.fit(x, y, batch_size=64, epochs=1, verbose=0)
    bits = model.evaluate(x_test, y_test, batch_size=256, verbose=0) / np.log(2)
    table.append((f"after epoch {epoch}", bits))
    print(f"--- epoch {epoch}: {bits:.2f} bits per character ---")
    print(write("The ", 160, temperature=0.7))
print("bits per character on text kept apart:")
for name, bits in table:
    print(f"  {name:<22} {bits:5.2f}")

# %%
# Words and spaces come first, then the manual's own words.

figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
(_, frequencies), *epochs = table
ax.plot(range(1, len(epochs) + 1), [bits for _, bits in epochs], marker="o", label="GRU")
ax.axhline(frequencies, color="gray", linestyle=":", label="guessing by frequency")
ax.set(
    title="A GRU predicts the next character", xlabel="epoch", xticks=range(1, len(epochs) + 1),
    ylabel="bits per character, held-out text", ylim=(0, None),
)  # fmt: skip
ax.legend()

picture = sys.argv[1] if len(sys.argv) > 1 else "character_model.png"
figure.savefig(picture, dpi=110)
print(f"picture: {picture}")
