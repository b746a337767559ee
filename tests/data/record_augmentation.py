"""Write augmentation.npz: what Keras's layers on pictures give for augmentation_cases.py.

Run with Keras 3 and TensorFlow installed:
KERAS_BACKEND=tensorflow python tests/data/record_augmentation.py
Cases that Keras itself cannot compute are printed and left out.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "shared"))

import augmentation_cases as cases  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402

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
    np.savez_compressed(HERE / "augmentation.npz", **found)
