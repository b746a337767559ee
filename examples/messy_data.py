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


def draw(rent: np.ndarray, said: np.ndarray, known: np.ndarray, picture: str) -> None:
    """Draw predicted rents over true ones, flats without a size in another color."""
    figure, axes = plt.subplots(figsize=(6, 6), layout="constrained")
    for rows, label, color in ((known, "size known", "C0"), (~known, "size missing", "C1")):
        axes.scatter(rent[rows], said[rows], s=12, alpha=0.6, label=label, color=color)
    axes.axline((500, 500), slope=1, color="gray", linestyle=":")
    axes.set(title="Rents of held-out flats", xlabel="true rent, EUR", ylabel="predicted rent, EUR")
    axes.legend()
    figure.savefig(picture, dpi=110)


def main(picture: str = "messy_data.png") -> None:
    keras.utils.set_random_seed(0)
    rows, rows_test = make_rows(3000, seed=0), make_rows(500, seed=1)
    print("as they come:", *rows[:3], sep="\n  ")
    rent, rent_test = (
        np.array([[number_in(r["rent"])] for r in many], "float32") for many in (rows, rows_test)
    )
    inputs, inputs_test = to_inputs(rows), to_inputs(rows_test)
    model = make_model(inputs)
    mean, spread = rent.mean(), rent.std()
    rate = keras.optimizers.schedules.CosineDecay(0.01, 30 * len(rows) // 64)
    model.compile(keras.optimizers.Adam(rate), "mae")

    try:  # what happens without all that work
        model.fit({**inputs, "size": np.array([r["size"] for r in rows])}, rent, verbose=0)
    except (TypeError, ValueError) as error:
        print(f"\nthe sizes as they came: {type(error).__name__}: {error}")

    model.fit(inputs, (rent - mean) / spread, batch_size=64, epochs=30, verbose=0)
    said = model.predict(inputs_test, verbose=0) * spread + mean
    error = np.abs(said - rent_test)
    known = inputs_test["size"][:, 1] == 0
    print("\nmean error of the rent of flats never seen, in EUR:")
    print(f"  always the mean rent     {np.abs(mean - rent_test).mean():6.1f}")
    print(f"  network, size known      {error[known].mean():6.1f}")
    print(f"  network, size missing    {error[~known].mean():6.1f}")

    new = {"city": "MUNICH", "size": "41 sqm", "rooms": None, "extras": ["balcony"], "rent": ""}
    guess = model.predict(to_inputs([new]), verbose=0)[0, 0] * spread + mean
    print(f"\n{new['size']} in {new['city'].title()} with a balcony: {guess:.0f} EUR")
    draw(rent_test, said, known, picture)
    print(f"picture: {picture}")


if __name__ == "__main__":
    main(*sys.argv[1:])
