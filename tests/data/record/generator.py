"""Write generator.npz: what Keras's `ImageDataGenerator` gives for generator_cases.py."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")

import generator_cases as cases
import numpy as np
from keras.src.legacy.preprocessing import image

if __name__ == "__main__":
    # Keras calls scipy.ndimage by a name that later versions of scipy do not have.
    import scipy.ndimage

    if not hasattr(scipy.ndimage, "interpolation"):
        scipy.ndimage.interpolation = scipy.ndimage
    warnings.simplefilter("ignore")
    results: dict[str, np.ndarray] = {}

    def save(name: str, value: np.ndarray) -> None:
        kind = value.dtype if value.dtype.kind in "iu" else "float32"
        results[name] = np.asarray(value).astype(kind)

    cases.results(image, save)
    np.savez_compressed(Path(__file__).parents[1] / "generator.npz", **results)
    print(len(results), "results")
