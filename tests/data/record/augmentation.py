"""Write augmentation.npz: what Keras's layers on pictures give for augmentation_cases.py.

On TensorFlow. Cases that Keras itself cannot compute are printed and left out.
"""

from __future__ import annotations

import os
from pathlib import Path

os.environ["KERAS_BACKEND"] = "tensorflow"

import augmentation_cases as cases
import keras
import numpy as np

if __name__ == "__main__":
    found = {}
    for number, case in enumerate(cases.CASES):
        try:
            outputs = cases.outputs_of(case, keras.layers, keras.ops.convert_to_tensor)
        except (AttributeError, TypeError, ValueError) as error:
            print(cases.name_of(case), "|", type(error).__name__, str(error)[:300])
            continue
        for key, value in outputs.items():
            whole = value.dtype.kind in "iub"
            found[f"{number} {key}"] = value if whole else value.astype("float32")
        found[f"{number} name"] = np.array(cases.name_of(case))
    np.savez_compressed(Path(__file__).parents[1] / "augmentation.npz", **found)
