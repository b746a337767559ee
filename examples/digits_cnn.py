"""Image classification with a convolutional network (CNN)
=======================================================

A convolutional network reads handwritten digits, and shows those it was least sure of.

1,797 digits of 8 x 8 pixels (scikit-learn's; no download). Shows: convolution and pooling,
one output per class with softmax, integer labels, a learning rate that falls, looking at mistakes.

Run: python examples/digits_cnn.py [picture.png]
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
# The data
# --------
# Convolutions expect an axis of channels: (images, height, width, channels). The labels are the
# digits themselves.

(x, y), (x_test, y_test) = keras.datasets.digits.load_data()
x, x_test = x[..., None].astype("float32"), x_test[..., None].astype("float32")

# %%
# The model
# ---------
# Two convolutions find strokes and their combinations, pooling halves the resolution, and the last
# layer gives a probability for each digit.

model = keras.Sequential(
    [
        keras.Input((8, 8, 1)),
        layers.Rescaling(1 / 16),  # the pixels are 0 to 16
        layers.Conv2D(32, 3, padding="same", activation="relu"),
        layers.BatchNormalization(),
        layers.Conv2D(32, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dropout(0.4),
        layers.Dense(10, activation="softmax"),
    ]
)

# %%
# Training
# --------
# The learning rate falls from 0.005 to 0 along a cosine.

epochs = 20
rate = keras.optimizers.schedules.CosineDecay(0.005, epochs * (len(x) // 32))
model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(x, y, epochs=epochs, verbose=2)

# %%
# Evaluation
# ----------

_, accuracy = model.evaluate(x_test, y_test, verbose=0)
print(f"held-out digits: accuracy {accuracy:.3f}")

# %%
# The held-out digits whose true class got the lowest probability. Mistakes are red.

probabilities = model.predict(x_test, verbose=0)
hardest = np.argsort(probabilities[np.arange(len(y_test)), y_test])
figure, axes = plt.subplots(3, 8, figsize=(10, 4.6), layout="constrained")
for ax, i in zip(axes.flat, hardest):
    ax.imshow(x_test[i, ..., 0], cmap="gray_r")
    guess = probabilities[i].argmax()
    color = "black" if guess == y_test[i] else "crimson"
    title = f"is {y_test[i]}, read {guess}\n({probabilities[i].max():.0%})"
    ax.set_title(title, fontsize=9, color=color)
    ax.axis("off")

picture = sys.argv[1] if len(sys.argv) > 1 else "digits_cnn.png"
figure.savefig(picture, dpi=110)
print(f"picture: {picture}")
