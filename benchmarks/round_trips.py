"""`python -m benchmarks.round_trips`: does every optimizer, loss and metric survive a file?

A small model is trained a few steps in Keras (on JAX, or what KERAS_BACKEND says), saved as
`.keras` and loaded in kerasish, and the other way round. The loaded model must predict the same,
and train on to the same losses and weights. Prints what differs, and exits with 1 then.
"""

from __future__ import annotations

import inspect
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

STEPS = 3
TOLERANCE = 3e-5
_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(32, 6)).astype("float32")
CLASSES = np.arange(32) % 3
TARGETS = {
    "classes": CLASSES,
    "one-hot": np.eye(3, dtype="float32")[CLASSES],
    "bits": (_RNG.random((32, 3)) > 0.5).astype("float32"),
    "numbers": _RNG.uniform(0.05, 0.95, size=(32, 3)).astype("float32"),
}
OF_CLASSES = ("Sparse", "Circle", "CategoricalGeneralized")
OF_BITS = (
    "BinaryCrossentropy", "BinaryFocalCrossentropy", "Hinge", "SquaredHinge", "Dice", "Tversky",
)  # fmt: skip
ARGUMENTS: dict[str, dict[str, Any]] = {
    "SensitivityAtSpecificity": {"specificity": 0.5},
    "SpecificityAtSensitivity": {"sensitivity": 0.5},
    "PrecisionAtRecall": {"recall": 0.5},
    "RecallAtPrecision": {"precision": 0.5},
    "MeanIoU": {"num_classes": 2},
    "OneHotIoU": {"num_classes": 3, "target_class_ids": [0]},
    "OneHotMeanIoU": {"num_classes": 3},
}
# CTC needs sequences; the others wrap a function, an optimizer or several of their kind.
UNSUPPORTED = {
    "Optimizer", "LossScaleOptimizer", "MultiOptimizer", "Loss", "CTC", "Metric",
    "MeanMetricWrapper", "Mean", "Sum", "IoU",
}  # fmt: skip


def classes_of(module: Any, base: Any) -> list[str]:
    """Return the names of a module's classes of one kind."""
    result = inspect.getmembers(module, inspect.isclass)
    return [name for name, kind in result if issubclass(kind, base) and name not in UNSUPPORTED]


def build(api: Any, optimizer: Any, loss: Any, metrics: Any = ()) -> Any:
    """Return a compiled model of two layers."""
    model = api.Sequential(
        [api.Input((6,)), api.layers.Dense(8, activation="tanh"),
         api.layers.Dense(3, activation="sigmoid")]
    )  # fmt: skip
    model.compile(optimizer=optimizer, loss=loss, metrics=list(metrics))
    return model


def train(model: Any, y: Any) -> list[float]:
    """Return the losses of the next steps."""
    result = [model.train_on_batch(X, y) for _ in range(STEPS)]
    return [float(f[0] if isinstance(f, (list, tuple)) else f) for f in result]


def difference(model: Any, api: Any, y: Any, judge: Callable[[Any], Any]) -> float:
    """Return how far apart a model and its copy in the other library are."""
    train(model, y)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.keras")
        model.save(path)
        other = api.models.load_model(path)
    one, two = judge(model), judge(other)
    same = np.isnan(one) & np.isnan(two)
    scale = np.maximum(np.abs(one), 1)
    return float(np.max(np.where(same, 0, np.abs(one - two) / scale), initial=0))


def _goes_on(y: Any) -> Callable[[Any], Any]:
    def judge(model: Any) -> Any:
        before = np.ravel(model.predict(X, verbose=0))
        losses = train(model, y)
        return np.concatenate([before, losses, np.ravel(model.predict(X, verbose=0))])

    return judge


def cases(api: Any) -> Iterator[tuple[str, Any, Any, Callable[[Any], Any]]]:
    """Yield (name, function api -> model, targets, judge) for all that `api` has."""
    for name in classes_of(api.optimizers, api.optimizers.Optimizer):
        y = TARGETS["numbers"]
        make = lambda a, n=name: build(a, getattr(a.optimizers, n)(learning_rate=0.01), "mse")  # noqa: E731
        yield f"optimizer {name}", make, y, _goes_on(y)
    for name in classes_of(api.losses, api.losses.Loss):
        y = TARGETS[_targets_of(name)]
        make = lambda a, n=name: build(a, a.optimizers.Adam(0.01), getattr(a.losses, n)())  # noqa: E731
        yield f"loss {name}", make, y, _goes_on(y)
    for name in classes_of(api.metrics, api.metrics.Metric):
        sparse = name.startswith("Sparse")
        loss = "sparse_categorical_crossentropy" if sparse else "mse"
        hot = "Categorical" in name or "OneHot" in name or name in ("F1Score", "FBetaScore")
        y = TARGETS["classes" if sparse else "one-hot" if hot else "bits"]
        make = lambda a, n=name, k=loss: build(  # noqa: E731
            a, "sgd", k, [getattr(a.metrics, n)(**ARGUMENTS.get(n, {}))]
        )
        yield f"metric {name}", make, y, lambda m, y=y: np.hstack(m.evaluate(X, y, verbose=0)[1:])


def _targets_of(loss: str) -> str:
    if loss.startswith(OF_CLASSES):
        return "classes"
    if "Categorical" in loss:
        return "one-hot"
    return "bits" if loss in OF_BITS else "numbers"


def main() -> int:
    """Try all; return 1 where something differs."""
    os.environ.setdefault("KERAS_BACKEND", "jax")
    warnings.simplefilter("ignore")
    import keras

    import kerasish

    wrong = count = 0
    for name, make, y, judge in cases(keras):
        for here, there in ((keras, kerasish), (kerasish, keras)):
            way = f"{here.__name__} -> {there.__name__}"
            try:
                result = difference(make(here), there, y, judge)
            except Exception as error:
                result, way = float("inf"), f"{way}: {type(error).__name__}: {error}"
            count += 1
            if not result <= TOLERANCE:
                wrong += 1
                print(f"{name}: differs by {result:.1e}, {way}")
    print(f"{count - wrong} of {count} round trips agree to {TOLERANCE:g}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
