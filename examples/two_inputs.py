"""Functional API: several inputs and outputs
==========================================

A model with three inputs and two outputs: two pictured digits and a sign, to calculate with.

The inputs are two pictures of digits and a word, "plus" or "minus" or "times". One reader, shared,
looks at both pictures. The first output is the result of the sum; the second says whether the first
digit is larger. The model is never given the digits themselves as labels.
Shows: the functional API, a layer used twice, inputs and targets as dicts, strings as inputs,
several losses with weights.

Run: python examples/two_inputs.py [picture.png]
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
# Inputs and targets are dicts: their names are those of the model's inputs and outputs. The sign is
# a word.

SIGNS = ["plus", "minus", "times"]


def make_pairs(x: np.ndarray, y: np.ndarray, count: int, seed: int) -> tuple[dict, dict]:
    """Return (inputs, targets) of pairs drawn from images x of the digits y."""
    rng = np.random.default_rng(seed)
    i, j, sign = (rng.integers(n, size=count) for n in (len(x), len(x), 3))
    a, b = y[i].astype("float32"), y[j].astype("float32")
    result = np.select([sign == 0, sign == 1], [a + b, a - b], a * b)
    inputs = {"first": x[i], "second": x[j], "sign": np.array(SIGNS)[sign][:, None]}
    return inputs, {"result": result[:, None], "larger": (a > b).astype("float32")[:, None]}


(x, y), (x_test, y_test) = keras.datasets.digits.load_data()
x, x_test = x[..., None].astype("float32"), x_test[..., None].astype("float32")
inputs, targets = make_pairs(x, y, 12_000, seed=0)
inputs_test, targets_test = make_pairs(x_test, y_test, 1000, seed=1)

# %%
# The model
# ---------
# One reader turns each of the two images into 32 numbers: it is called twice, with the same
# weights. A lookup turns the word into one of three numbers. The outputs have names, too.

first, second = (keras.Input((8, 8, 1), name=n) for n in ("first", "second"))
sign = keras.Input((1,), dtype="string", name="sign")
reader = keras.Sequential(
    [
        keras.Input((8, 8, 1)),
        layers.Rescaling(1 / 16),
        layers.Conv2D(32, 3, activation="relu"),
        layers.Conv2D(32, 3, activation="relu"),
        layers.Flatten(),
        layers.Dense(32, activation="relu"),
    ],
    name="reader",
)
a, b = reader(first), reader(second)
word = layers.StringLookup(vocabulary=SIGNS, num_oov_indices=0, output_mode="one_hot")(sign)
both = layers.Concatenate()([a, b, word])
both = layers.Dense(128, activation="relu")(both)
hidden = layers.Dense(128, activation="relu")(both)
result = layers.Dense(1, name="result")(hidden)
larger = layers.Dense(1, activation="sigmoid", name="larger")(layers.Concatenate()([a, b]))
model = keras.Model([first, second, sign], {"result": result, "larger": larger})

# %%
# Training
# --------
# Each output has its loss and its metric. The weights of the losses make both count: the squared
# error of products is large.

epochs = 12
rate = keras.optimizers.schedules.CosineDecay(0.003, epochs * 12_000 // 64)
model.compile(
    keras.optimizers.Adam(rate),
    loss={"result": "mse", "larger": "binary_crossentropy"},
    loss_weights={"result": 0.05, "larger": 1.0},
    metrics={"result": "mae", "larger": "accuracy"},
)
model.fit(inputs, targets, batch_size=64, epochs=epochs, verbose=2)

# %%
# Evaluation
# ----------

scores = model.evaluate(inputs_test, targets_test, verbose=0, return_dict=True)
print("pairs of digits never seen:")
print(f"  mean error of the result: {scores['result_mae']:.2f}")
print(f"  larger or not, right: {scores['larger_accuracy']:.3f}")

# %%
# The results of the network over the right ones. Where a digit is misread, a product can be far
# off.

predicted = model.predict(inputs_test, verbose=0)["result"]
figure, ax = plt.subplots(figsize=(5.5, 5), layout="constrained")
for sign in SIGNS:
    rows = inputs_test["sign"][:, 0] == sign
    ax.scatter(targets_test["result"][rows], predicted[rows], s=9, alpha=0.6, label=sign)
ax.axline((0, 0), slope=1, color="gray", linewidth=0.8)
ax.set(xlabel="right result", ylabel="result of the network", title="Pairs of digits never seen")
ax.legend()

picture = sys.argv[1] if len(sys.argv) > 1 else "two_inputs.png"
figure.savefig(picture, dpi=110)
print(f"picture: {picture}")
