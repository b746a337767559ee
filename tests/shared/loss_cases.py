"""The losses' test cases: what is computed here, and by Keras when the facts were recorded."""

from __future__ import annotations

from typing import Any

import numpy as np


def inputs(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return (y_true, y_pred) of one kind; the same numbers on every machine."""
    rng = np.random.RandomState(7)
    shape = (2, 3, 4) if kind.endswith("3d") else (6, 4)
    x, y = rng.normal(size=shape), rng.normal(size=shape)
    shares = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    classes = rng.randint(0, 4, shape[:-1])
    made = {
        "real": (y, x),
        "positive": (np.abs(y) * 3, np.abs(x) * 3),
        "column": (y[..., 0], x[..., :1]),
        "signs": (np.sign(y), x),
        "bits": ((y > 0) * 1.0, x),
        "binary": ((y > 0) * 1.0, 1 / (1 + np.exp(-x))),
        "onehot": (np.eye(4)[classes], shares),
        "onehot logits": (np.eye(4)[classes], x),
        "classes": (classes, shares),
        "classes logits": (classes, x),
        "unit": (classes, x / np.linalg.norm(x, axis=-1, keepdims=True)),
    }
    if kind == "sequence":
        labels = np.array([[1, 2, 3], [2, 2, 0], [4, 0, 0]])
        return labels, rng.normal(size=(3, 7, 5)).astype("float32")
    true, pred = made[kind.removesuffix(" 3d")]
    true = true.astype("int32") if true.dtype.kind == "i" else true.astype("float32")
    return true, pred.astype("float32")


# Class, arguments, kinds of inputs.
LOSSES: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("MeanSquaredError", {}, ("real", "real 3d", "column")),
    ("MeanAbsoluteError", {}, ("real", "real 3d", "column")),
    ("MeanAbsolutePercentageError", {}, ("real", "real 3d")),
    ("MeanSquaredLogarithmicError", {}, ("positive", "real")),
    ("Huber", {}, ("real", "real 3d")),
    ("Huber", {"delta": 0.3}, ("real",)),
    ("LogCosh", {}, ("real", "real 3d")),
    ("CosineSimilarity", {}, ("real", "real 3d")),
    ("CosineSimilarity", {"axis": 1}, ("real 3d",)),
    ("Hinge", {}, ("signs", "bits", "real 3d")),
    ("SquaredHinge", {}, ("signs", "bits")),
    ("CategoricalHinge", {}, ("onehot", "onehot logits 3d")),
    ("KLDivergence", {}, ("onehot", "binary")),
    ("Poisson", {}, ("positive",)),
    ("BinaryCrossentropy", {}, ("binary", "binary 3d")),
    ("BinaryCrossentropy", {"from_logits": True}, ("bits", "bits 3d")),
    ("BinaryCrossentropy", {"label_smoothing": 0.2, "axis": 0}, ("binary",)),
    ("BinaryFocalCrossentropy", {}, ("binary",)),
    ("BinaryFocalCrossentropy", {"from_logits": True, "gamma": 1.5}, ("bits",)),
    (
        "BinaryFocalCrossentropy",
        {"apply_class_balancing": True, "alpha": 0.4, "label_smoothing": 0.1},
        ("binary 3d",),
    ),
    ("CategoricalCrossentropy", {}, ("onehot", "onehot 3d")),
    ("CategoricalCrossentropy", {"from_logits": True}, ("onehot logits",)),
    ("CategoricalCrossentropy", {"label_smoothing": 0.2}, ("onehot",)),
    ("CategoricalCrossentropy", {"axis": 1}, ("onehot 3d",)),
    ("CategoricalCrossentropy", {"axis": 1, "label_smoothing": 0.1}, ("onehot 3d",)),
    ("CategoricalFocalCrossentropy", {"axis": 1, "label_smoothing": 0.1}, ("onehot 3d",)),
    ("CategoricalFocalCrossentropy", {}, ("onehot", "onehot 3d")),
    (
        "CategoricalFocalCrossentropy",
        {"from_logits": True, "alpha": [0.1, 0.2, 0.3, 0.4], "gamma": 1.0},
        ("onehot logits",),
    ),
    ("SparseCategoricalCrossentropy", {}, ("classes", "classes 3d")),
    ("SparseCategoricalCrossentropy", {"from_logits": True}, ("classes logits",)),
    ("SparseCategoricalCrossentropy", {"ignore_class": 2}, ("classes", "classes 3d")),
    ("CategoricalGeneralizedCrossEntropy", {}, ("classes",)),
    ("CategoricalGeneralizedCrossEntropy", {"q": 0.8}, ("classes",)),
    ("Dice", {}, ("binary", "binary 3d")),
    ("Dice", {"axis": [1, 2]}, ("binary 3d",)),
    ("Tversky", {"alpha": 0.3, "beta": 0.9}, ("binary",)),
    ("Tversky", {"axis": [1]}, ("binary 3d",)),
    ("Circle", {}, ("unit",)),
    ("Circle", {"gamma": 5.0, "margin": 0.1, "remove_diagonal": False}, ("unit",)),
    ("CTC", {}, ("sequence",)),
]
REDUCTIONS = ("sum_over_batch_size", "sum", "mean", "mean_with_sample_weight", "none")


def name_of(name: str, arguments: dict[str, Any], kind: str) -> str:
    """Return a case's name, the key of its facts."""
    return f"{name} {arguments} {kind}" if arguments else f"{name} {kind}"


def weights_for(values_shape: tuple[int, ...]) -> np.ndarray | None:
    """Return one weight for each loss, or None where there is one loss alone."""
    size = int(np.prod(values_shape))
    return (np.arange(size) % 3).reshape(values_shape).astype("float32") if values_shape else None
