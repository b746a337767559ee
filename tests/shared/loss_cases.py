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
    created = {
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
    if kind == "classes across":  # classes on axis 1
        across = np.moveaxis(np.exp(rng.normal(size=(3, 2, 4))), -1, 1)
        return rng.randint(0, 4, (3, 2)).astype("int32"), (
            across / across.sum(1, keepdims=True)
        ).astype("float32")
    true, pred = created[kind.removesuffix(" 3d")]
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
    ("Huber", {"delta": 2.5}, ("real 3d",)),
    ("CosineSimilarity", {"axis": 0}, ("real",)),
    ("CategoricalHinge", {}, ("onehot logits",)),
    ("Hinge", {}, ("column",)),
    ("KLDivergence", {}, ("binary 3d", "positive")),
    ("Poisson", {}, ("positive 3d",)),
    ("BinaryCrossentropy", {"from_logits": True, "label_smoothing": 0.3}, ("bits",)),
    ("BinaryFocalCrossentropy", {"gamma": 0.0}, ("binary",)),
    ("BinaryFocalCrossentropy", {"from_logits": True, "apply_class_balancing": True}, ("bits 3d",)),
    ("CategoricalCrossentropy", {"from_logits": True, "label_smoothing": 0.1}, ("onehot logits",)),
    (
        "CategoricalFocalCrossentropy",
        {"alpha": 0.7, "gamma": 0.5, "label_smoothing": 0.2},
        ("onehot",),
    ),
    (
        "SparseCategoricalCrossentropy",
        {"from_logits": True, "ignore_class": 1},
        ("classes logits", "classes logits 3d"),
    ),
    ("SparseCategoricalCrossentropy", {"ignore_class": -1}, ("classes",)),
    ("SparseCategoricalCrossentropy", {"axis": 1}, ("classes across",)),
    ("CategoricalGeneralizedCrossEntropy", {"q": 0.2}, ("classes",)),
    ("Dice", {"axis": [0]}, ("binary",)),
    ("Tversky", {"alpha": 0.8, "beta": 0.2, "axis": [1, 2]}, ("binary 3d",)),
    ("Circle", {"gamma": 2.0, "margin": 0.6}, ("unit",)),
]
REDUCTIONS = ("sum_over_batch_size", "sum", "mean", "mean_with_sample_weight", "none")


def name_of(name: str, arguments: dict[str, Any], kind: str) -> str:
    """Return a case's name, the key of its facts."""
    return f"{name} {arguments} {kind}" if arguments else f"{name} {kind}"


def wave(shape: Any) -> np.ndarray:
    """Return numbers by which values are multiplied before their sum is differentiated."""
    return np.cos(0.9 * np.arange(int(np.prod(shape)))).reshape(tuple(shape)).astype("float32")


def ways(shape: tuple[int, ...]) -> Any:
    """Yield (words, weights, mask) in which losses of a shape are taken."""
    yield "plain", None, None
    if not shape:
        return
    size = int(np.prod(shape))
    weights = (np.arange(size) % 3).reshape(shape).astype("float32")
    mask = (np.arange(size) % 4 != 1).reshape(shape)
    yield "weighted", weights, None
    rows = weights.reshape(shape[0], -1)[:, :1] + 0.5
    yield "a weight for each row", rows.reshape(shape[0], *(1 for _ in shape[1:])), None
    yield "a weight for all", np.float32(0.3), None
    yield "masked", None, mask
    yield "weighted and masked", weights, mask
    yield "all masked", None, np.zeros(shape, "bool")
