"""Record what Keras makes of the preprocessing cases: `python tests/data/record_preprocessing.py`.

Needs Keras 3 with TensorFlow; writes preprocessing.json beside this file.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "shared"))

import keras  # noqa: E402 (the backend is chosen above)
import numpy as np  # noqa: E402
import preprocessing_cases as cases  # noqa: E402


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


if __name__ == "__main__":
    facts = {cases.name_of(i): fact_of(i) for i in range(len(cases.CASES))}
    text = json.dumps(facts, ensure_ascii=True, separators=(",", ":"))
    (HERE / "preprocessing.json").write_text(text.replace('},"', '},\n"') + "\n")
    print(f"{len(facts)} cases, Keras {keras.__version__}")
