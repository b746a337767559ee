"""Text classification: sentiment analysis of reviews with an LSTM
===============================================================

A network reads short reviews and decides whether they are positive or negative.

The reviews are generated, with negations, so that the order of the words matters: "not bad, and
far from dull" is positive. Two classifiers are compared. One takes the mean of its word vectors (a
bag of words). The other is an LSTM, which reads one word after the other.
Shows: TextVectorization, Embedding with masking, LSTM, a model that takes strings.

Run: python examples/text_classification.py [picture.png]
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
# The reviews
# -----------
# A statement is a noun with one or two opinions. Words such as "not" and "never" turn an opinion
# around. After "but", the second opinion counts double. A review is positive if its opinions add up
# to more than zero; reviews with a sum of zero are left out.

GOOD = "brilliant moving funny clever charming honest warm fresh good great".split()
BAD = "dull clumsy empty noisy predictable cold silly tired bad boring".split()
NOUNS = "film story cast plot script ending dialogue music acting camera".split()
NEGATIONS = ["not", "never", "hardly", "far from", "not at all", "anything but"]
rng = np.random.default_rng(0)


def opinion() -> tuple[str, int]:
    """Return words such as "not funny", and 1 if they are positive, else -1."""
    value = 1 if rng.random() < 0.5 else -1
    words = str(rng.choice(GOOD if value > 0 else BAD))
    chance = rng.random()
    if chance < 0.5:
        return f"{rng.choice(NEGATIONS)} {words}", -value
    if chance < 0.7:
        words = f"{rng.choice(['very', 'really', 'rather'])} {words}"
    return words, value


def review() -> tuple[str, int]:
    """Return a review and its value: positive numbers are positive reviews."""
    statements, total = [], 0
    for _ in range(rng.integers(1, 4)):
        first, one = opinion()
        text = f"the {rng.choice(NOUNS)} was {first}"
        if rng.random() < 0.4:
            second, two = opinion()
            contrast = one != two
            text += f" but {second}" if contrast else f" and {second}"
            one += 2 * two if contrast else two
        statements.append(text)
        total += one
    return ", ".join(statements), total


reviews: dict[str, int] = {}
while len(reviews) < 6000:
    text, value = review()
    if value:
        reviews[text] = int(value > 0)
texts, labels = np.array(list(reviews)), np.array(list(reviews.values()), "float32")
x, y, x_test, y_test = texts[:5000], labels[:5000], texts[5000:], labels[5000:]
for text, label in zip(x[:4], y):
    print(f"{'positive' if label else 'negative'}: {text}")

# %%
# From strings to numbers
# -----------------------
# `TextVectorization` splits texts into words, and numbers the words by how often they occur in the
# texts that `adapt` gets. 0 is padding. It runs once here, before the training, and not in each
# step.

vectorize = layers.TextVectorization(output_sequence_length=40)
vectorize.adapt(x)
words = vectorize.vocabulary_size()
print(f"{words} different words, for example {vectorize.get_vocabulary()[2:8]}")
numbers, numbers_test = np.array(vectorize(x)), np.array(vectorize(x_test))

# %%
# Two classifiers
# ---------------
# Both begin with an `Embedding`, a trained vector for each word. `mask_zero` marks the padding,
# which the mean and the LSTM then leave out. The bag of words sees "not good but bad" and "not bad
# but good" as the same text.

bag_of_words = keras.Sequential(
    [
        layers.Embedding(words, 32, mask_zero=True),
        layers.GlobalAveragePooling1D(),
        layers.Dense(32, activation="relu"),
        layers.Dense(1, activation="sigmoid"),
    ]
)
lstm = keras.Sequential(
    [
        layers.Embedding(words, 32, mask_zero=True),
        layers.LSTM(48),
        layers.Dense(1, activation="sigmoid"),
    ]
)

# %%
# Training
# --------

scores = {}
for name, model, epochs in (("bag of words", bag_of_words, 8), ("LSTM", lstm, 8)):
    model.compile(keras.optimizers.Adam(0.005), "binary_crossentropy", metrics=["accuracy"])
    model.fit(numbers, y, batch_size=64, epochs=epochs, verbose=0)
    scores[name] = model.evaluate(numbers_test, y_test, verbose=0)[1]
print("share of 1,000 held-out reviews that are classified correctly:")
for name, accuracy in scores.items():
    print(f"  {name:<13} {accuracy:.3f}")

# %%
# A classifier of strings
# -----------------------
# For use, vectorization and network become one model that takes texts.

classifier = keras.Sequential([vectorize, lstm])
new = ["The acting was not at all bad.", "The music was anything but fresh!"]
for text, likely in zip(new, classifier.predict(np.array(new), verbose=0)[:, 0]):
    print(f"{likely:.2f} positive: {text}")

# %%
# Reading word by word
# --------------------
# What the LSTM expects after each word of three held-out reviews. Its opinion changes with the
# first adjective after a negation, and remains while neutral words follow.

lengths = np.array([len(text.split()) for text in x_test])
chosen = [
    next(i for i in np.flatnonzero((lengths < 16) & (y_test == positive)) if words in x_test[i])
    for words, positive in (("but not", 0), ("far from", 1), ("anything but", 1))
]
figure, axes = plt.subplots(3, 1, figsize=(9, 7.5), layout="constrained")
for ax, i in zip(axes, chosen):
    read = x_test[i].split()
    starts = np.array([" ".join(read[: n + 1]) for n in range(len(read))])
    likely = classifier.predict(starts, verbose=0)[:, 0]
    colors = plt.get_cmap("RdYlGn")(0.1 + 0.8 * likely)
    ax.bar(range(len(read)), likely - 0.5, bottom=0.5, color=colors, edgecolor="0.4", width=0.8)
    ax.axhline(0.5, color="0.4", linewidth=0.8)
    ax.set_xticks(range(len(read)), read, rotation=35, ha="right", rotation_mode="anchor")
    ax.set(ylim=(0, 1), yticks=[0, 0.5, 1], ylabel="P(positive)")
    ax.set_title(f"a {'positive' if y_test[i] else 'negative'} review", fontsize=10)
figure.suptitle("What the LSTM expects after each word")

picture = sys.argv[1] if len(sys.argv) > 1 else "text_classification.png"
figure.savefig(picture, dpi=110)
print(f"picture: {picture}")
