"""Translating dates: sequences of any length, attention, sampled softmax
======================================================================

An encoder and a decoder read a date as people write it and say it as ISO 8601 does: "the third of
march nineteen hundred and ninety-seven" and "3 Mar 97" both become 1997-03-03.

The dates have 7 to 60 letters. They go into `fit` as a list of sequences, which puts dates of
similar length into a batch and pads little; the padding is masked. The decoder says year, month and
day, each time attending to the letters that matter. Its vocabulary holds a word for every year,
month and day. In training the loss compares the true word with only a few drawn ones: sampled
softmax, which pays where vocabularies are large.
Shows: sequences of different lengths, bidirectional layers, attention, a layer with its own
loss, greedy decoding.

Run: python examples/dates.py [picture.png]
"""

from __future__ import annotations

import datetime
import string
import sys
from typing import Any

import numpy as np

try:
    from matplotlib import pyplot as plt
except ImportError:
    sys.exit("This example draws a picture: pip install matplotlib")

import kerasish as keras
from kerasish import layers, losses, ops

keras.utils.set_random_seed(0)

# %%
# The dates
# ---------
# Seven styles, from "3 mar 97" to dates all in words. A date is said by three words: a year, a
# month and a day.

LETTERS = string.ascii_lowercase + string.digits + " ,./-"
UNITS, DRAWN = 64, 24
FIRST, LAST = 1930, 2029  # the years
YEARS = LAST - FIRST + 1
START, COUNT = YEARS + 12 + 31, YEARS + 12 + 31 + 1  # words: years, months, days, the beginning

ONES = ["", *"one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
        "fifteen sixteen seventeen eighteen nineteen".split()]  # fmt: skip
TENS = ["", "", *"twenty thirty forty fifty sixty seventy eighty ninety".split()]
ORDINALS = [
    "", *"first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth "
    "thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth".split(),
]  # fmt: skip


def spelled(number: int) -> str:
    """Return a number below 100 in words."""
    if number < 20:
        return ONES[number]
    return f"{TENS[number // 10]}-{ONES[number % 10]}".strip("-")


def ordinal(day: int) -> str:
    """Return the word for a day of a month."""
    if day <= 20:
        return ORDINALS[day]
    return "thirtieth" if day == 30 else f"{TENS[day // 10]}-{ORDINALS[day % 10]}"


def written(date: datetime.date, style: int) -> str:
    """Return a date as people write it, in one of several styles."""
    month = date.strftime("%B").lower()
    century = "nineteen hundred" if date.year < 2000 else "two thousand"
    rest = spelled(date.year % 100)
    year = f"{century} and {rest}" if rest else century
    return [
        f"{date.day} {month[:3]} {date.year % 100:02}",
        f"{date.day:02}.{date.month:02}.{date.year}",
        f"{date.month}/{date.day}/{date.year}",
        f"{month} {date.day}, {date.year}",
        f"{date.strftime('%A').lower()}, {date.day} {month} {date.year}",
        f"{month} the {ordinal(date.day)}, {date.year}",
        f"the {ordinal(date.day)} of {month} {year}",
    ][style]


def make_data(count: int, seed: int) -> tuple[list[str], np.ndarray]:
    """Return dates as written, and the numbers of their three words."""
    rng = np.random.default_rng(seed)
    start = datetime.date(FIRST, 1, 1)
    days = (datetime.date(LAST, 12, 31) - start).days
    dates = [start + datetime.timedelta(int(n)) for n in rng.integers(0, days + 1, count)]
    texts = [written(date, style) for date, style in zip(dates, rng.integers(0, 7, count))]
    words = [(d.year - FIRST, YEARS + d.month - 1, YEARS + 12 + d.day - 1) for d in dates]
    return texts, np.array(words, "int32")


texts, words = make_data(12_000, 0)

# %%
# The inputs
# ----------
# The letters are a list of sequences of different lengths. The decoder gets the words before the
# one it has to say; in training the loss needs the true words as well.


def to_inputs(texts: list[str], words: np.ndarray) -> dict[str, Any]:
    """Return the model's inputs; the letters are a list of sequences of different lengths."""
    fed = np.insert(words[:, :-1], 0, START, axis=1)
    letters = [[LETTERS.index(letter) for letter in text] for text in texts]
    return {"letters": letters, "fed": fed, "said": words}


# %%
# Sampled softmax
# ---------------
# The last layer gives a score to each word. In training it adds a loss that compares the true word
# with a few words drawn for each batch.


class Words(layers.Layer):
    """A score for each word; in training the loss, of a few words drawn for each batch."""

    def build(self, shapes: Any) -> None:
        self.rows = self.add_weight(name="rows", shape=(COUNT, shapes[0][-1]))
        self.bias = self.add_weight(name="bias", shape=(COUNT,), initializer="zeros")
        self.draws = keras.random.SeedGenerator(1)

    def call(self, inputs: Any, training: bool = False) -> Any:
        features, said = inputs
        if training:
            flat = ops.reshape(features, (-1, features.shape[-1]))
            loss = losses.sampled_softmax(
                self.rows, self.bias, ops.reshape(said, (-1,)), flat, DRAWN, "uniform",
                unique=False, seed=self.draws,
            )  # fmt: skip
            self.add_loss(ops.mean(loss))
        return ops.add(ops.matmul(features, ops.transpose(self.rows)), self.bias)


# %%
# The model
# ---------
# The encoder reads the letters in both directions. The decoder attends to what the encoder read. A
# second model gives the weights of the attention, for the picture.

letters = keras.Input((None,), dtype="int32", name="letters")
fed = keras.Input((3,), dtype="int32", name="fed")
said = keras.Input((3,), dtype="int32", name="said")
encoder = layers.Bidirectional(layers.GRU(UNITS // 2, return_sequences=True))
read = encoder(layers.Embedding(len(LETTERS), 24)(letters))
spoken = layers.GRU(UNITS, return_sequences=True)(layers.Embedding(COUNT, 24)(fed))
seen, weights = layers.Attention(use_scale=True)([spoken, read], return_attention_scores=True)
features = layers.Dense(UNITS, activation="relu")(layers.Concatenate()([spoken, seen]))
scores = Words()([features, said])
inputs = {"letters": letters, "fed": fed, "said": said}
model, attention = keras.Model(inputs, scores), keras.Model(inputs, weights)

# %%
# Training
# --------
# `fit` puts dates of similar length into a batch. The learning rate falls to 0 by the end.

EPOCHS, BATCH = 7, 64
rate = keras.optimizers.schedules.CosineDecay(0.006, EPOCHS * len(texts) // BATCH)
model.compile(keras.optimizers.Adam(rate))
model.fit(to_inputs(texts, words), epochs=EPOCHS, batch_size=BATCH, verbose=2)

# %%
# Dates never seen before
# -----------------------
# The decoder chooses the likeliest word, and reads it before it says the next one.


def translate(texts: list[str]) -> np.ndarray:
    """Return the likeliest words, each chosen after those before it."""
    words = np.zeros((len(texts), 3), "int32")
    for place in range(3):
        inputs = to_inputs(texts, words)
        words[:, place] = model.predict(inputs, verbose=0, batch_size=256)[:, place].argmax(-1)
    return words


def iso(words: np.ndarray) -> str:
    """Return three words as ISO 8601 writes them."""
    year, month, day = words
    return f"{FIRST + year}-{month - YEARS + 1:02}-{day - YEARS - 11:02}"


texts, words = make_data(500, 1)
results = translate(texts)
for text, own in list(zip(texts, results))[:8]:
    print(f"  {text:<58} {iso(own)}")
print(f"dates never seen before, right: {(results == words).all(1).mean():.3f}")

# %%
# The picture
# -----------
# To which letters the decoder attends when it says the year, the month and the day.

date = datetime.date(1997, 3, 23)
shown = [written(date, style) for style in (0, 2, 5, 6)]
figure, axes = plt.subplots(len(shown), 1, figsize=(10, 1.5 * len(shown)), layout="constrained")
for axis, text in zip(axes, shown):
    fed_in = {name: np.array(v) for name, v in to_inputs([text], translate([text])).items()}
    axis.imshow(attention.predict(fed_in, verbose=0)[0], aspect="auto", cmap="Blues")
    axis.set_xticks(range(len(text)), list(text))
    axis.set_yticks(range(3), iso(fed_in["said"][0]).split("-"))
figure.suptitle("Which letters the decoder attends to")
picture = sys.argv[1] if len(sys.argv) > 1 else "dates.png"
figure.savefig(picture, dpi=110)
print(f"picture: {picture}")
