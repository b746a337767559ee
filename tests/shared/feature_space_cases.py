"""The cases in which FeatureSpace, and models with lookups, meet Keras; no framework in here."""

from __future__ import annotations

from typing import Any

import numpy as np

TABLE: dict[str, Any] = {
    "age": [20.0, 41.5, 33.0, 27.0, 64.0, 20.5],
    "height": [1.6, 1.8, 1.7, 1.9, 1.5, 1.75],
    "town": ["Oslo", "Rome", "Oslo", "Bern", "Rome", "Oslo"],
    "rooms": [3, 1, 3, 7, 1, 2],
    "notes": ["quiet, green", "green park", "loud", "", "quiet quiet park", "a b"],
}

# name -> (how each column is preprocessed, options, crosses)
SPACES: dict[str, Any] = {
    "by name": (
        {"age": "float_normalized", "height": "float", "town": "string_categorical",
         "rooms": "integer_categorical"},
        {}, [("town", "rooms")],
    ),
    "hashed": (
        {"age": "float_discretized", "height": "float_rescaled", "town": "string_hashed",
         "rooms": "integer_hashed"},
        {"hashing_dim": 6, "crossing_dim": 5, "num_discretization_bins": 3},
        [("rooms", "town"), ("age", "rooms")],
    ),
    "by method": (
        {"age": ("float_discretized", {"num_bins": 4}),
         "height": ("float_rescaled", {"scale": 2.0, "offset": -1.0}),
         "town": ("string_categorical", {"max_tokens": 3}),
         "rooms": ("integer_categorical", {"num_oov_indices": 2})},
        {}, [{"feature_names": ("town", "age"), "crossing_dim": 7}],
    ),
    "integers": (
        {"town": ("string_categorical", {"output_mode": "int"}),
         "rooms": ("integer_hashed", {"num_bins": 5, "output_mode": "int"}), "height": "float"},
        {"output_mode": "dict"},
        [{"feature_names": ("town", "rooms"), "crossing_dim": 8, "output_mode": "int"}],
    ),
}  # fmt: skip


def space_of(kind: Any, name: str) -> Any:
    """Return the feature space of a case, still to be adapted."""
    specs, options, crosses = SPACES[name]

    def feature(spec: Any) -> Any:
        return spec if isinstance(spec, str) else getattr(kind, spec[0])(**spec[1])

    crossed = [kind.cross(**c) if isinstance(c, dict) else c for c in crosses or []]
    return kind({n: feature(s) for n, s in specs.items()}, crosses=crossed or None, **options)


def table_of(name: str) -> dict[str, Any]:
    """Return the columns of a case."""
    return {n: TABLE[n] for n in SPACES[name][0]}


def flat(result: Any) -> dict[str, Any]:
    """Return the shape and numbers of each result."""
    many = result if isinstance(result, dict) else {"": result}
    actual = {}
    for name in sorted(many):
        array = np.asarray(many[name])
        numbers = [float(f"{v:.8g}") for v in array.ravel()]
        actual[name] = {"shape": list(array.shape), "numbers": numbers}
    return actual


def text_model(keras: Any) -> Any:
    """Return a small model of two columns, adapted, its weights plain numbers."""
    layers = keras.layers
    texts = layers.TextVectorization(output_sequence_length=4, name="words")
    texts.adapt(np.array(TABLE["notes"]))
    towns = layers.StringLookup(output_mode="tf_idf", name="towns")
    towns.adapt(np.array(TABLE["town"]))
    rooms = layers.IntegerLookup(mask_token=0, name="rooms")
    rooms.adapt(np.array(TABLE["rooms"]))
    inputs = [
        keras.Input((1,), dtype="string", name="notes"),
        keras.Input((1,), dtype="string", name="town"),
        keras.Input((1,), dtype="int64", name="rooms_in"),
    ]
    parts = [
        layers.Flatten()(layers.Embedding(20, 2, name="embedded")(texts(inputs[0]))),
        towns(inputs[1]),
        layers.Flatten()(layers.Embedding(9, 2, name="embedded_rooms")(rooms(inputs[2]))),
    ]
    model = keras.Model(inputs, layers.Dense(2, name="out")(layers.Concatenate()(parts)))
    model.set_weights([np.sin(np.arange(w.size)).reshape(w.shape) for w in model.get_weights()])
    return model


def text_inputs() -> list[Any]:
    """Return inputs of `text_model`, unknown words among them."""
    return [
        np.array([["green quiet unknown"], ["loud"], [""]]),
        np.array([["Rome"], ["Paris"], ["Oslo"]]),
        np.array([[3], [99], [0]]),
    ]
