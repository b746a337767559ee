"""Translating dates: sequences of any length, attention, sampled softmax
======================================================================

An encoder and a decoder read a date as people write it and say it as ISO 8601 does: "the third of
march nineteen hundred and ninety-seven" and "3 Mar 97" both become 1997-03-03.

The dates have 7 to 60 letters. They go into `fit` as a list of sequences, which puts dates of
similar length into a batch and pads little; the padding is masked. The decoder says year, month and
day, each time attending to the letters that matter. Its vocabulary holds a word for every year,
month and day. In training the loss compares the true word with a few drawn ones alone: sampled
softmax, which pays where vocabularies are large.
Shows: sequences of different lengths, bidirectional layers, attention, a layer with a loss of its
own, greedy decoding.

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


def to_inputs(texts: list[str], words: np.ndarray) -> dict[str, Any]:
    """Return the model's inputs; the letters are a list of sequences of different lengths."""
    fed = np.insert(words[:, :-1], 0, START, axis=1)
    letters = [[LETTERS.index(letter) for letter in text] for text in texts]
    return {"letters": letters, "fed": fed, "said": words}


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


def make_model() -> tuple[keras.Model, keras.Model]:
    """Return the model, and one that gives the attention to each letter."""
    letters = keras.Input((None,), dtype="int32", name="letters")
    fed = keras.Input((3,), dtype="int32", name="fed")
    said = keras.Input((3,), dtype="int32", name="said")
    encoder = layers.Bidirectional(layers.GRU(UNITS // 2, return_sequences=True))
    read = encoder(layers.Embedding(len(LETTERS), 24)(letters))
    told = layers.GRU(UNITS, return_sequences=True)(layers.Embedding(COUNT, 24)(fed))
    seen, weights = layers.Attention(use_scale=True)([told, read], return_attention_scores=True)
    features = layers.Dense(UNITS, activation="relu")(layers.Concatenate()([told, seen]))
    scores = Words()([features, said])
    inputs = {"letters": letters, "fed": fed, "said": said}
    return keras.Model(inputs, scores), keras.Model(inputs, weights)


def translate(model: keras.Model, texts: list[str]) -> np.ndarray:
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


def draw(model: keras.Model, texts: list[str], picture: str) -> None:
    """Draw to which letters the decoder attends."""
    figure, axes = plt.subplots(len(texts), 1, figsize=(10, 1.5 * len(texts)), layout="constrained")
    for axis, text in zip(axes, texts):
        inputs = {k: np.array(v) for k, v in to_inputs([text], translate(model[0], [text])).items()}
        weights = model[1].predict(inputs, verbose=0)[0]
        axis.imshow(weights, aspect="auto", cmap="Blues")
        axis.set_xticks(range(len(text)), list(text))
        axis.set_yticks(range(3), iso(inputs["said"][0]).split("-"))
    figure.suptitle("Which letters the decoder attends to")
    figure.savefig(picture, dpi=110)


def main(picture: str = "dates.png") -> None:
    keras.utils.set_random_seed(0)
    texts, words = make_data(12_000, 0)
    models = make_model()
    epochs, batch = 7, 64
    rate = keras.optimizers.schedules.CosineDecay(0.006, epochs * len(texts) // batch)
    models[0].compile(keras.optimizers.Adam(rate))
    models[0].fit(to_inputs(texts, words), epochs=epochs, batch_size=batch, verbose=2)
    texts, words = make_data(500, 1)
    found = translate(models[0], texts)
    for text, own in list(zip(texts, found))[:8]:
        print(f"  {text:<58} {iso(own)}")
    print(f"dates never seen before, right: {(found == words).all(1).mean():.3f}")
    date = datetime.date(1997, 3, 23)
    draw(models, [written(date, style) for style in (0, 2, 5, 6)], picture)
    print(f"picture: {picture}")


if __name__ == "__main__":
    main(*sys.argv[1:])
