"""Write what Keras makes of the preprocessing cases, on TensorFlow.

The files: preprocessing.json, feature_space.json, feature_space.keras and lookups.keras.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
HERE = Path(__file__).parents[1]

import feature_space_cases as spaces  # noqa: E402
import keras  # noqa: E402 (the backend is chosen above)
import numpy as np  # noqa: E402
import preprocessing_cases as cases  # noqa: E402
import tensorflow as tf  # noqa: E402


def plain(array: Any) -> Any:
    """Return an array as what JSON holds."""
    array = np.asarray(array)
    if array.dtype.kind == "f":
        return [float(f"{v:.8g}") for v in array.ravel()]
    return [v.decode() if isinstance(v, bytes) else v for v in array.ravel().tolist()]


def fact_of(number: int) -> dict[str, Any]:
    """Return the shape and numbers of a case's result, and what the layer has learnt."""
    layer, inputs = cases.made(keras.layers, number)
    found = np.asarray(layer(inputs))
    fact = {"shape": list(found.shape), "kind": found.dtype.kind, "result": plain(found)}
    if hasattr(layer, "get_vocabulary"):
        fact["vocabulary"] = [v if isinstance(v, str) else int(v) for v in layer.get_vocabulary()]
    if getattr(layer, "bin_boundaries", None) is not None:
        fact["boundaries"] = plain(np.array(layer.bin_boundaries, "float32"))
    return fact


def space_facts() -> dict[str, Any]:
    """Return what each feature space makes of its table; write one of them to a file."""
    facts = {}
    for name in spaces.SPACES:
        space = spaces.space_of(keras.utils.FeatureSpace, name)
        table = spaces.table_of(name)
        space.adapt(tf.data.Dataset.from_tensor_slices(table).batch(2))
        facts[name] = spaces.flat(space(table))
        facts[f"{name}, one row"] = spaces.flat(space({n: c[1] for n, c in table.items()}))
        if name == "by name":
            space.save(str(HERE / "feature_space.keras"))
    return facts


def model_facts() -> Any:
    """Return what a model with lookups gives; write it to a file."""
    model = spaces.text_model(keras)
    model.save(str(HERE / "lookups.keras"))
    return spaces.flat(model([tf.constant(x) for x in spaces.text_inputs()]))


if __name__ == "__main__":
    facts = {cases.name_of(i): fact_of(i) for i in range(len(cases.CASES))}
    text = json.dumps(facts, ensure_ascii=True, separators=(",", ":"))
    (HERE / "preprocessing.json").write_text(text.replace('},"', '},\n"') + "\n")
    more = {"spaces": space_facts(), "model": model_facts()}
    (HERE / "feature_space.json").write_text(json.dumps(more, separators=(",", ":")) + "\n")
    print(f"{len(facts)} cases, Keras {keras.__version__}")
