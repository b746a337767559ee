"""Record what Keras (on JAX) gives for the cases of tests/ops/test_as_keras.py.

Those cases are in a test file, which imports kerasish: this part needs it, too.
"""

from __future__ import annotations

import os
import pathlib
import runpy
import sys
import warnings

import numpy as np

os.environ["KERAS_BACKEND"] = "jax"
import keras

TESTS = pathlib.Path(__file__).parents[2]


def main() -> None:
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(TESTS.parent))
    cases = runpy.run_path(str(TESTS / "ops" / "test_as_keras.py"))
    arrays = {}
    for key, (name, args, kwargs) in cases["keyed"]().items():
        try:
            results = cases["call"](keras.ops, name, args, kwargs)
        except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
            print(f"{key} {kwargs}: Keras has no answer: {error}"[:160])
            continue
        for i, array in enumerate(results):
            arrays[f"{key}/{i}"] = array
    np.savez_compressed(TESTS / "data" / "ops.npz", **arrays)
    print(f"{len(arrays)} arrays, keras {keras.__version__}")


if __name__ == "__main__":
    main()
