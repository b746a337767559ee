"""Write applications.npz: the structure and outputs of Keras's applications, on JAX.

No weights are downloaded: each variable gets numbers made by a formula from its path. Where the
published weights lie is recorded from the calls of `get_file`.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"
# The arithmetic as written: nothing is fused or reordered. It compiles faster, too.
os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"

import application_cases as cases
import facts
import keras
import numpy as np
from keras.applications import imagenet_utils


class Asked(Exception):
    """`get_file` was called."""


def without_draws() -> None:
    """Let variables start at zero: they are assigned afterwards, and drawing takes long."""
    for name in ("GlorotUniform", "HeNormal", "VarianceScaling"):
        cls = getattr(keras.initializers, name)
        cls.__call__ = lambda self, shape, dtype=None: keras.ops.zeros(shape, dtype)


def published() -> dict[str, Any]:
    """Return (file name, address, checksum) of each network's weights with and without the top."""
    from keras.src.utils import file_utils

    asked: list[Any] = []

    def get_file(fname: str, origin: str, **options: Any) -> str:
        asked.append([fname, origin, options.get("file_hash")])
        raise Asked

    real, file_utils.get_file = file_utils.get_file, get_file
    found = {}
    for name, options in cases.PUBLISHED:
        for top in (True, False):
            keras.utils.clear_session()
            try:
                getattr(keras.applications, name)(include_top=top, **options)
            except Asked:
                found[json.dumps([name, options, top])] = asked.pop()
    file_utils.get_file = real
    return found


def preprocessed() -> dict[str, Any]:
    """Return images as `preprocess_input` gives them in each mode."""
    pixels = cases.images((None, 2, 2, 3))
    found = {
        mode: np.asarray(imagenet_utils.preprocess_input(pixels.copy(), mode=mode))
        for mode in ("tf", "torch", "caffe")
    }
    modules = {}
    for name in dir(keras.applications):
        module = getattr(keras.applications, name)
        if hasattr(module, "preprocess_input"):
            scaled = np.asarray(module.preprocess_input(pixels.copy()))
            fits = [mode for mode, numbers in found.items() if np.allclose(numbers, scaled)]
            modules[name] = fits[0] if fits else "none"
    return {"modes": found, "modules": modules}


def main(words: list[str]) -> None:
    """Record all cases; with words, those whose names hold one of them, into the same file."""
    warnings.simplefilter("ignore")
    without_draws()
    try:
        old = facts.read("applications") if words else {"cases": {}}
    except FileNotFoundError:
        old = {"cases": {}}
    found = {**old["cases"]}
    for name in cases.CASES:
        if words and not any(word in name for word in words):
            continue
        keras.utils.clear_session()
        model = cases.build(keras.applications, name)
        cases.set_weights(model)
        outputs = model.predict(cases.images(model.input_shape), verbose=0)
        found[name] = {**cases.structure(model), "outputs": cases.sample(outputs)}
        print(name, model.count_params(), float(np.abs(outputs).max()), flush=True)
        del model
    everything = {
        "keras": keras.__version__,
        "cases": found,
        "published": old["published"] if words and "published" in old else published(),
        "preprocessed": preprocessed(),
    }
    print(facts.write("applications", everything), "bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
