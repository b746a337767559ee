"""Tabular data: binary classification of tumors
=============================================

A first network on a table of numbers: is a tumor malignant?

569 patients, 30 measured numbers each (scikit-learn's copy of the Wisconsin data; no download).
Shows: Sequential, a Normalization layer that learns the columns' scales, compile, fit with rows
kept apart for validation, early stopping, evaluate, predict.

Run: python examples/tabular.py [picture.png]
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
# Each row is a patient. Label 1 means benign. The test rows are not used in training.

(x, y), (x_test, y_test) = keras.datasets.breast_cancer.load_data()
print(f"{len(x)} patients to learn from, {x.shape[1]} numbers each; {len(x_test)} held out")

# %%
# The model
# ---------
# The units of the columns differ by factors of 10,000. `Normalization` learns the mean and the
# spread of each column from the data, and becomes a part of the model.

scale = layers.Normalization()
scale.adapt(x)
model = keras.Sequential(
    [
        keras.Input((x.shape[1],)),
        scale,
        layers.Dense(16, activation="relu"),
        layers.Dropout(0.2),
        layers.Dense(1, activation="sigmoid"),  # the probability of label 1: benign
    ]
)
model.summary()

# %%
# Training
# --------
# A fifth of the rows is kept for validation. Training ends when the validation loss has not fallen
# for 10 epochs, and the weights of the best epoch are restored.

model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
stop = keras.callbacks.EarlyStopping(patience=10, restore_best_weights=True)
training = model.fit(
    x, y, batch_size=16, epochs=100, validation_split=0.2, callbacks=[stop], verbose=0
)
print(f"stopped after {len(training.epoch)} epochs")

# %%
# Evaluation
# ----------

loss, accuracy = model.evaluate(x_test, y_test, verbose=0)
print(f"held-out patients: loss {loss:.3f}, accuracy {accuracy:.3f}")

# %%
# The curves show when training stopped; the histogram shows how sure the network is.

benign = model.predict(x_test, verbose=0)[:, 0]
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
left.plot(training.history["loss"], label="training (with dropout)")
left.plot(training.history["val_loss"], label="validation")
left.set(title="Loss", xlabel="epoch", ylabel="binary cross-entropy", yscale="log")
left.legend()
parts = [benign[y_test == 0], benign[y_test == 1]]
right.hist(parts, np.linspace(0, 1, 21), label=["malignant", "benign"], stacked=True)
right.set(title="Held-out patients", xlabel="probability of 'benign'", ylabel="patients")
right.legend()

picture = sys.argv[1] if len(sys.argv) > 1 else "tabular.png"
figure.savefig(picture, dpi=110)
print(f"picture: {picture}")
