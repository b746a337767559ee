"""Write ops.npz: what Keras gives, on JAX, for the cases in tests/shared/op_cases.py."""

from __future__ import annotations

import os
import pathlib
import warnings

import numpy as np

os.environ["KERAS_BACKEND"] = "jax"
import keras
import op_cases

TESTS = pathlib.Path(__file__).parents[2]


def main() -> None:
    warnings.simplefilter("ignore")
    arrays = {}
    for key, (name, args, kwargs) in op_cases.keyed().items():
        try:
            results = op_cases.call(keras.ops, name, args, kwargs)
        except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
            print(f"{key} {kwargs}: Keras has no answer: {error}"[:160])
            continue
        for i, array in enumerate(results):
            arrays[f"{key}/{i}"] = array
    np.savez_compressed(TESTS / "data" / "ops.npz", **arrays)
    print(f"{len(arrays)} arrays, keras {keras.__version__}")


if __name__ == "__main__":
    main()
