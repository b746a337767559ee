"""Exports applications, and prints how far the files' results are from `predict`.

    python tests/shared/export_sweep.py                      # all networks, ONNX and native
    python tests/shared/export_sweep.py --formats onnx VGG16 ResNet50

Images are small (as in `application_cases`) and weights made by a formula. An error is the largest
difference to `predict`, divided by the largest result, for batches of 1, 2 and 7 from one file.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import application_cases as cases
import numpy as np

BATCHES = (1, 2, 7)
FORMATS = ("onnx", "native")
Predict = Callable[[np.ndarray], np.ndarray]


def without_drawing() -> Callable[[], None]:
    """Let variables start at zero, since they get other numbers; return what undoes it."""
    from kerasish.initializers import Initializer, random, scaling

    before = []
    for module in (random, scaling):
        for cls in vars(module).values():
            if isinstance(cls, type) and issubclass(cls, Initializer) and "__call__" in vars(cls):
                before.append((cls, vars(cls)["__call__"]))
                cls.__call__ = lambda self, shape, dtype=None: np.zeros(shape, "float32")

    def undo() -> None:
        for cls, function in before:
            cls.__call__ = function

    return undo


def by_onnxruntime(model: Any, folder: str) -> Predict:
    """Export as ONNX and return a function that computes by onnxruntime."""
    import onnxruntime

    path = os.path.join(folder, "m.onnx")
    model.export(path, verify=False, verbose=False)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda x: np.asarray(session.run(None, {name: x})[0])


def by_native_library(model: Any, folder: str) -> Predict:
    """Export as a native library and return a function that calls it."""
    from kerasish.export.native.link import library_suffix

    path = os.path.join(folder, "m")
    model.export(path, format="native", weights="beside", verbose=False)
    library = ctypes.CDLL(path + library_suffix())
    content = np.fromfile(f"{path}.weights", np.uint8)
    owner = np.zeros(content.size + 64, np.uint8)
    first = -owner.ctypes.data % 64
    owner[first : first + content.size] = content

    def predict(x: np.ndarray) -> np.ndarray:
        y = np.zeros((len(x), *model.output_shape[1:]), "float32")
        weights = ctypes.c_void_p(owner.ctypes.data + first)
        given = (ctypes.c_void_p(a.ctypes.data) for a in (x, y))
        if library.m_predict(weights, *given, ctypes.c_int64(len(x)), None):
            raise RuntimeError("m_predict failed")
        return y

    return predict


MAKERS = {"onnx": by_onnxruntime, "native": by_native_library}


def images(shape: Any, count: int) -> np.ndarray:
    """Return images of 0 to 255, all different."""
    whole = cases.noise("images", count * int(np.prod(shape[1:])))
    return np.ascontiguousarray((whole.reshape(count, *shape[1:]) + 1) * np.float32(127.5))


def errors(case: str, form: str) -> list[float]:
    """Return the error for each batch.

    Args:
        case: a name of `application_cases.CASES`.
        form: "onnx" or "native".
    """
    from kerasish import applications, utils

    utils.clear_session()
    undo = without_drawing()
    try:
        model = cases.build(applications, case)
    finally:
        undo()
    cases.set_weights(model)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        predict = MAKERS[form](model, folder)
        for batch in BATCHES:
            x = images(model.input_shape, batch)
            expected = np.asarray(model.predict(x, verbose=0))
            result = predict(x)
            if result.shape != expected.shape or not np.isfinite(expected).all():
                found.append(float("inf"))
                continue
            found.append(float(np.abs(result - expected).max() / np.abs(expected).max()))
    return found


def main(arguments: list[str]) -> int:
    """Print a line for each network; 1 if one is too far off."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=cases.NETWORKS)
    parser.add_argument("--formats", default=",".join(FORMATS), help="with commas")
    parser.add_argument("--limit", type=float, default=1e-5, help="the largest error allowed")
    options = parser.parse_args(arguments)
    worst = 0.0
    for case in options.cases:
        for form in options.formats.split(","):
            start = time.perf_counter()
            found = errors(case, form)
            worst = max(worst, *found)
            numbers = "  ".join(f"{b}: {e:.1e}" for b, e in zip(BATCHES, found))
            print(
                f"{case:40} {form:7} {numbers}  ({time.perf_counter() - start:.1f} s)", flush=True
            )
    print(f"largest error: {worst:.1e}")
    return int(worst > options.limit)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
