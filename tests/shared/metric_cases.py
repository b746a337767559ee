"""The metrics' test cases: what is computed here, and by Keras when the facts were recorded."""

from __future__ import annotations

from typing import Any

import numpy as np


def inputs(kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (y_true, y_pred, whole weights) of 30 samples; the same numbers on every machine."""
    rng = np.random.RandomState(11)
    shape = (30, 5, 4) if kind.endswith(" 3d") else (30, 4)
    x, y = rng.normal(size=shape), rng.normal(size=shape)
    shares = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    classes = rng.randint(0, 4, shape[:-1])
    bits = (y > 0.2) * 1.0
    scores = 1 / (1 + np.exp(-x - bits))
    scores.ravel()[:4] = [0.0, 1.0, 0.5, 0.25]
    created = {
        "real": (y, x * 0.5 + y),
        "positive": (np.abs(y) * 3, np.abs(x) * 3),
        "signs": (np.sign(y), x),
        "binary": (bits, scores),
        "bits": (bits, x),
        "flat": (bits[..., 0], scores[..., 0]),
        "column": (bits[..., 0], scores[..., :1]),
        "onehot": (np.eye(4)[classes], shares),
        "classes": (classes, shares),
        "labels": (classes, np.where(rng.rand(*classes.shape) < 0.6, classes, 1)),
        "marked": (np.where(classes == 3, 255, classes), np.minimum(classes + (x[..., 0] > 1), 3)),
        "ids": (classes, np.argsort(-x, -1)),
        "classes one hot": (np.eye(4)[classes], np.eye(4)[np.argmax(x, -1)] * 0.5),
        "column of classes": (classes[..., None], shares),
        "onehot labels": (np.eye(4)[classes], np.where(x[..., 0] > 0, classes, 2)),
    }
    true, pred = created[kind.removesuffix(" 3d")]
    weights = rng.randint(0, 4, 30).astype("float32")
    kinds = {"i": "int32", "f": "float32"}
    return true.astype(kinds[true.dtype.kind]), pred.astype(kinds[pred.dtype.kind]), weights


WAYS = ("plain", "weighted", "masked", "weighted and masked")
OF_VALUES = ("Mean", "Sum")  # of values, without targets


def ways(kind: str) -> tuple[str, ...]:
    """Return the ways in which the samples of a kind are counted."""
    return (*WAYS, "a weight for each step") if kind.endswith(" 3d") else WAYS


def given(arguments: dict[str, Any], losses: Any) -> dict[str, Any]:
    """Return arguments with a function of `losses` in place of its name."""
    created = arguments.get("fn")
    return {**arguments, "fn": getattr(losses, created)} if created else arguments


def batches(kind: str, way: str = "weighted") -> list[tuple[Any, Any, Any, Any]]:
    """Return (y_true, y_pred, weights, mask) of the samples in three batches of different sizes."""
    true, pred, weights = inputs(kind)
    shape = pred.shape[: 2 if kind.endswith(" 3d") else 1]
    mask = (np.arange(np.prod(shape)) % 5 != 2).reshape(shape)
    if way == "a weight for each step" or (way == "weighted and masked" and len(shape) == 2):
        weights = (np.arange(np.prod(shape)) % 4).reshape(shape).astype("float32")
    cuts = [slice(0, 7), slice(7, 8), slice(8, 30)]
    return [
        (true[c], pred[c], weights[c] if "weight" in way else None,
         mask[c] if "masked" in way else None)
        for c in cuts
    ]  # fmt: skip


# Class, arguments, kinds of inputs.
METRICS: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("Accuracy", {}, ("labels", "labels 3d")),
    ("BinaryAccuracy", {}, ("binary", "column", "binary 3d")),
    ("BinaryAccuracy", {"threshold": 0.3}, ("binary",)),
    ("CategoricalAccuracy", {}, ("onehot", "onehot 3d")),
    ("SparseCategoricalAccuracy", {}, ("classes", "classes 3d")),
    ("TopKCategoricalAccuracy", {"k": 2}, ("onehot", "onehot 3d")),
    ("SparseTopKCategoricalAccuracy", {"k": 2}, ("classes", "classes 3d")),
    ("SparseTopKCategoricalAccuracy", {"k": 2, "from_sorted_ids": True}, ("ids",)),
    ("TruePositives", {}, ("binary", "flat")),
    ("TrueNegatives", {}, ("binary", "flat")),
    ("FalsePositives", {"thresholds": 0.25}, ("binary", "flat")),
    ("FalseNegatives", {"thresholds": [0.8, 0.25, 0.5]}, ("binary", "flat")),
    ("Precision", {}, ("binary", "flat", "column")),
    ("Precision", {"thresholds": [0.2, 0.5, 0.7]}, ("binary",)),
    ("Precision", {"top_k": 2}, ("binary", "onehot")),
    ("Precision", {"class_id": 1}, ("binary",)),
    ("Recall", {}, ("binary", "flat")),
    ("Recall", {"top_k": 2, "class_id": 2}, ("onehot",)),
    ("Recall", {"thresholds": [0.2, 0.5]}, ("binary",)),
    ("AUC", {}, ("binary", "flat", "column")),
    ("AUC", {"curve": "PR"}, ("binary", "flat")),
    ("AUC", {"num_thresholds": 5, "summation_method": "minoring"}, ("binary",)),
    ("AUC", {"summation_method": "majoring", "curve": "PR"}, ("binary",)),
    ("AUC", {"thresholds": [0.7, 0.25, 0.5]}, ("binary",)),
    ("AUC", {"from_logits": True}, ("bits",)),
    ("AUC", {"multi_label": True}, ("binary",)),
    ("AUC", {"multi_label": True, "label_weights": [1.0, 2.0, 0.0, 1.0]}, ("binary",)),
    ("AUC", {"multi_label": True, "num_labels": 4, "curve": "PR"}, ("binary",)),
    ("SensitivityAtSpecificity", {"specificity": 0.6}, ("binary", "flat")),
    ("SpecificityAtSensitivity", {"sensitivity": 0.6}, ("binary", "flat")),
    ("PrecisionAtRecall", {"recall": 0.6}, ("binary", "flat")),
    ("PrecisionAtRecall", {"recall": 0.6, "num_thresholds": 1, "class_id": 1}, ("binary",)),
    ("RecallAtPrecision", {"precision": 0.6, "num_thresholds": 9}, ("binary", "flat")),
    ("F1Score", {}, ("onehot",)),
    ("F1Score", {"average": "weighted", "threshold": 0.4}, ("onehot", "binary")),
    ("FBetaScore", {"beta": 2.0, "average": "macro"}, ("onehot",)),
    ("FBetaScore", {"beta": 0.5, "average": "micro", "threshold": 0.3}, ("onehot",)),
    ("IoU", {"num_classes": 4, "target_class_ids": [0, 2]}, ("labels",)),
    ("MeanIoU", {"num_classes": 4}, ("labels",)),
    ("MeanIoU", {"num_classes": 4, "ignore_class": 255}, ("marked",)),
    ("MeanIoU", {"num_classes": 4, "sparse_y_pred": False}, ("classes",)),
    ("BinaryIoU", {}, ("flat",)),
    ("BinaryIoU", {"target_class_ids": [1], "threshold": 0.25}, ("flat",)),
    ("OneHotIoU", {"num_classes": 4, "target_class_ids": [1, 3]}, ("onehot",)),
    ("OneHotMeanIoU", {"num_classes": 4}, ("onehot",)),
    ("R2Score", {}, ("real",)),
    ("R2Score", {"class_aggregation": None}, ("real",)),
    ("R2Score", {"class_aggregation": "variance_weighted_average"}, ("real",)),
    ("R2Score", {"num_regressors": 3}, ("real",)),
    ("MeanSquaredError", {}, ("real", "real 3d")),
    ("MeanAbsoluteError", {}, ("real", "real 3d")),
    ("MeanAbsolutePercentageError", {}, ("real",)),
    ("MeanSquaredLogarithmicError", {}, ("positive",)),
    ("RootMeanSquaredError", {}, ("real", "real 3d")),
    ("CosineSimilarity", {}, ("real", "real 3d")),
    ("CosineSimilarity", {"axis": 1}, ("real 3d",)),
    ("LogCoshError", {}, ("real",)),
    ("PearsonCorrelation", {}, ("real", "real 3d")),
    ("ConcordanceCorrelation", {}, ("real", "real 3d")),
    ("Hinge", {}, ("signs",)),
    ("SquaredHinge", {}, ("signs",)),
    ("CategoricalHinge", {}, ("onehot",)),
    ("KLDivergence", {}, ("onehot",)),
    ("Poisson", {}, ("positive",)),
    ("BinaryCrossentropy", {}, ("binary", "binary 3d")),
    ("BinaryCrossentropy", {"from_logits": True, "label_smoothing": 0.1}, ("bits",)),
    ("CategoricalCrossentropy", {"label_smoothing": 0.1}, ("onehot",)),
    ("SparseCategoricalCrossentropy", {}, ("classes", "classes 3d")),
    ("Mean", {}, ("real", "real 3d", "flat")),
    ("Sum", {}, ("real", "real 3d", "flat")),
    ("MeanMetricWrapper", {"fn": "mean_squared_error"}, ("real", "real 3d")),
    ("MeanMetricWrapper", {"fn": "huber", "delta": 0.4}, ("real",)),
    ("CategoricalAccuracy", {}, ("classes one hot",)),
    ("SparseCategoricalAccuracy", {}, ("column of classes",)),
    ("TopKCategoricalAccuracy", {"k": 1}, ("onehot",)),
    ("SparseTopKCategoricalAccuracy", {"k": 3}, ("column of classes",)),
    ("TruePositives", {"thresholds": [0.3, 0.7]}, ("binary", "binary 3d")),
    ("FalsePositives", {}, ("binary 3d",)),
    ("FalseNegatives", {}, ("binary 3d",)),
    ("TrueNegatives", {"thresholds": [0.1, 0.9]}, ("binary",)),
    ("Precision", {"top_k": 1, "class_id": 0}, ("onehot",)),
    ("Precision", {"class_id": 3, "thresholds": [0.4, 0.6]}, ("binary",)),
    ("Recall", {"top_k": 3}, ("onehot",)),
    ("Recall", {"class_id": 0}, ("binary",)),
    ("AUC", {"num_thresholds": 3}, ("binary", "flat")),
    ("AUC", {"curve": "PR", "summation_method": "minoring"}, ("binary",)),
    ("AUC", {"summation_method": "majoring"}, ("binary 3d",)),
    ("AUC", {"curve": "PR", "multi_label": True, "num_thresholds": 9}, ("binary",)),
    ("SensitivityAtSpecificity", {"specificity": 0.2, "num_thresholds": 5}, ("binary",)),
    ("SensitivityAtSpecificity", {"specificity": 0.9, "class_id": 2}, ("binary",)),
    ("SpecificityAtSensitivity", {"sensitivity": 0.9, "num_thresholds": 7}, ("flat",)),
    ("RecallAtPrecision", {"precision": 0.9, "class_id": 1}, ("binary",)),
    ("PrecisionAtRecall", {"recall": 0.9, "num_thresholds": 11}, ("binary",)),
    ("F1Score", {"average": "micro"}, ("onehot",)),
    ("F1Score", {"average": "macro", "threshold": 0.6}, ("binary",)),
    ("FBetaScore", {"beta": 3.0, "average": "weighted"}, ("onehot",)),
    ("IoU", {"num_classes": 4, "target_class_ids": [1], "sparse_y_pred": False}, ("classes",)),
    ("IoU", {"num_classes": 4, "target_class_ids": [1, 2]}, ("labels 3d",)),
    ("MeanIoU", {"num_classes": 5}, ("labels 3d",)),
    ("BinaryIoU", {"target_class_ids": [0]}, ("flat",)),
    (
        "OneHotIoU",
        {"num_classes": 4, "target_class_ids": [0], "sparse_y_pred": True},
        ("onehot labels",),
    ),
    ("OneHotMeanIoU", {"num_classes": 4, "sparse_y_pred": True}, ("onehot labels",)),
    ("MeanAbsolutePercentageError", {}, ("real 3d",)),
    ("MeanSquaredLogarithmicError", {}, ("real", "positive 3d")),
    ("LogCoshError", {}, ("real 3d",)),
    ("Hinge", {}, ("bits",)),
    ("CategoricalHinge", {}, ("onehot 3d",)),
    ("KLDivergence", {}, ("onehot 3d",)),
    ("Poisson", {}, ("positive 3d",)),
    ("CategoricalCrossentropy", {"from_logits": True, "axis": -1}, ("onehot 3d",)),
    ("CategoricalCrossentropy", {}, ("onehot 3d",)),
    ("SparseCategoricalCrossentropy", {"from_logits": True}, ("classes",)),
    ("BinaryCrossentropy", {"label_smoothing": 0.3}, ("binary",)),
    ("R2Score", {"class_aggregation": None, "num_regressors": 2}, ("real",)),
]


def name_of(name: str, arguments: dict[str, Any], kind: str) -> str:
    """Return a case's name, the key of its facts."""
    return f"{name} {arguments} {kind}" if arguments else f"{name} {kind}"
