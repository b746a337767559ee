"""Structured data: missing values, strings and lists of any length
================================================================

Messy data into fit: missing numbers, strings, sizes like "54 sqm", lists of any length.

Real tables are never arrays. This one, of flats to let, is made up, but has what real ones have.
Each column finds its way into the model: what is missing is said to be missing, words become
numbers inside the model, lists are padded and masked. So the model takes new rows as they come.
Shows: StringLookup, Normalization with adapt, pad_sequences, Embedding with a mask, inputs as a
dict, and how fit answers to a column that was forgotten.

Run: python examples/messy_data.py [picture.png]
"""

from __future__ import annotations

import re
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
# Sizes are texts with and without units, cities are spelled in several ways, rooms are missing, and
# the extras are lists.

CITIES = {"Berlin": 14.0, "Leipzig": 8.5, "Munich": 21.0, "Kiel": 10.5}
EXTRAS = {"balcony": 60.0, "garden": 110.0, "kitchen": 45.0, "lift": 30.0, "cellar": 15.0}


def make_rows(count: int, seed: int) -> list[dict]:
    """Return flats as a web site would give them."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        city, size = str(rng.choice(list(CITIES))), rng.uniform(20, 120)
        extras = [e for e in EXTRAS if rng.random() < 0.4]
        rent = CITIES[city] * size + sum(EXTRAS[e] for e in extras) + rng.normal(scale=30)
        written = [f"{size:.0f} sqm", f"{size:.1f}m2", f" {size:.0f}", "n/a"]
        rows.append(
            {
                "city": str(rng.choice([city, city.upper(), f" {city}"])),
                "size": str(rng.choice(written, p=[0.4, 0.3, 0.2, 0.1])),
                "rooms": None if rng.random() < 0.3 else max(1, round(size / 28)),
                "extras": extras,
                "rent": f"{rent:.0f} EUR",
            }
        )
    return rows


rows, rows_test = make_rows(3000, seed=0), make_rows(500, seed=1)
print("as they come:", *rows[:3], sep="\n  ")

# %%
# From records to arrays
# ----------------------
# A missing number becomes two: 0, and a 1 that says that it is missing. So the network can learn
# what to expect then. Lists are padded to the same length.


def number_in(text: object) -> float:
    """Return the first number of a text, NaN if it has none."""
    result = re.search(r"\d+(\.\d+)?", str(text))
    return float(result[0]) if result else np.nan


def say_what_is_missing(values: np.ndarray) -> np.ndarray:
    """Return two columns: the number (0 where it is missing), and whether it is missing."""
    missing = np.isnan(values)
    return np.stack([np.where(missing, 0.0, values), missing], axis=1).astype("float32")


def to_inputs(rows: list[dict]) -> dict[str, np.ndarray]:
    """Return the model's inputs."""
    words = list(EXTRAS)
    lists = [[words.index(e) + 1 for e in row["extras"]] for row in rows]
    return {
        "city": np.array([[row["city"].strip().title()] for row in rows]),
        "size": say_what_is_missing(np.array([number_in(row["size"]) for row in rows])),
        "rooms": say_what_is_missing(np.array([number_in(row["rooms"]) for row in rows])),
        "extras": keras.utils.pad_sequences(lists, maxlen=len(EXTRAS), padding="post"),
    }


inputs, inputs_test = to_inputs(rows), to_inputs(rows_test)
rent, rent_test = (
    np.array([[number_in(r["rent"])] for r in many], "float32") for many in (rows, rows_test)
)

# %%
# The model
# ---------
# The lookup learns the cities from the data, the normalization the means and spreads.


def make_model(inputs: dict[str, np.ndarray]) -> keras.Model:
    city = keras.Input((1,), dtype="string", name="city")
    numbers = {name: keras.Input((2,), name=name) for name in ("size", "rooms")}
    extras = keras.Input((len(EXTRAS),), dtype="int32", name="extras")

    lookup = layers.StringLookup(output_mode="one_hot")
    lookup.adapt(inputs["city"])
    parts = [lookup(city)]
    for name, given in numbers.items():
        scale = layers.Normalization()
        scale.adapt(inputs[name])
        parts.append(scale(given))
    vectors = layers.Embedding(len(EXTRAS) + 1, 8, mask_zero=True)(extras)
    parts.append(layers.GRU(8)(vectors))  # any number of extras: the mask skips the padding

    x = layers.Concatenate()(parts)
    x = layers.Dense(64, activation="relu")(x)
    x = layers.Dense(64, activation="relu")(x)
    return keras.Model([city, *numbers.values(), extras], layers.Dense(1)(x))


model = make_model(inputs)
rate = keras.optimizers.schedules.CosineDecay(0.01, 30 * len(rows) // 64)
model.compile(keras.optimizers.Adam(rate), "mae")

# %%
# Without all that work, `fit` says what is wrong:

try:
    model.fit({**inputs, "size": np.array([r["size"] for r in rows])}, rent, verbose=0)
except (TypeError, ValueError) as error:
    print(f"the sizes as they came: {type(error).__name__}: {error}")

# %%
# Training and evaluation
# -----------------------
# The rents are scaled to a mean of 0 and a spread of 1, and the predictions are scaled back.

mean, spread = rent.mean(), rent.std()
model.fit(inputs, (rent - mean) / spread, batch_size=64, epochs=30, verbose=0)
predicted = model.predict(inputs_test, verbose=0) * spread + mean
error = np.abs(predicted - rent_test)
known = inputs_test["size"][:, 1] == 0
print("mean error of the rent of flats never seen, in EUR:")
print(f"  always the mean rent     {np.abs(mean - rent_test).mean():6.1f}")
print(f"  network, size known      {error[known].mean():6.1f}")
print(f"  network, size missing    {error[~known].mean():6.1f}")

new = {"city": "MUNICH", "size": "41 sqm", "rooms": None, "extras": ["balcony"], "rent": ""}
guess = model.predict(to_inputs([new]), verbose=0)[0, 0] * spread + mean
print(f"{new['size']} in {new['city'].title()} with a balcony: {guess:.0f} EUR")

# %%
# Predicted rents over true ones. Where the size is missing, the number of rooms has to do; where
# both are, the rent can hardly be known.

figure, ax = plt.subplots(figsize=(6, 6), layout="constrained")
for flats, label, color in ((known, "size known", "C0"), (~known, "size missing", "C1")):
    ax.scatter(rent_test[flats], predicted[flats], s=12, alpha=0.6, label=label, color=color)
ax.axline((500, 500), slope=1, color="gray", linestyle=":")
ax.set(title="Rents of held-out flats", xlabel="true rent, EUR", ylabel="predicted rent, EUR")
ax.legend()

picture = sys.argv[1] if len(sys.argv) > 1 else "messy_data.png"
figure.savefig(picture, dpi=110)
print(f"picture: {picture}")
