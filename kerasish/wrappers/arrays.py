"""Conversion of arrays between scikit-learn and a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish import config
from kerasish.typing import Array, Structure

if TYPE_CHECKING:
    from kerasish.engine.model.model import Model


def float_of(model: Model) -> str:
    """Return the dtype of the numbers that a model takes."""
    graph = model.layer_graph
    dtype = model.compute_dtype if graph is None else graph.inputs[0].dtype
    return "float64" if dtype == "float64" else config.floatx()


def takes_sparse(model: Model) -> bool:
    """Return whether an input of a model was declared with `sparse=True`."""
    return any(t.sparse for t in model.known_inputs.values())


def require_targets(estimator: object, y: Any) -> None:
    """Raise ValueError, in scikit-learn's words, where an estimator that needs y got none."""
    if y is None:
        raise ValueError(
            f"This {type(estimator).__name__} estimator requires y to be passed, but the target y "
            "is None."
        )


def finite(x: Array) -> Array:
    """Return x; raise if a float64 was too large for x's dtype."""
    if not np.isfinite(x).all():
        raise ValueError(f"Input X contains a value too large for dtype('{x.dtype}').")
    return x


def drop_weightless(X: Array, y: Array, weights: Array) -> tuple[Any, Any, Any]:
    """Drop the rows with weight 0: their only effect would be on the division into batches."""
    if weights is None:
        return X, y, None
    kept = weights > 0
    if not kept.any():
        raise ValueError("sample_weight: expected at least one positive weight, got only zeros.")
    return (X, y, weights) if kept.all() else (X[kept], y[kept], weights[kept])


def output_width(model: Model, X: Structure) -> Any:
    """Return the size of the last axis of the model's output, a list where it has several."""
    if model.layer_graph is None:
        first = [x[:1] for x in X] if isinstance(X, (list, tuple)) else X[:1]
        y: Any = model(first, training=False)
        shapes = [tuple(t.shape) for t in y] if isinstance(y, (list, tuple)) else y
    else:
        shapes = model.output_shape
    if isinstance(shapes, list):
        return [s[-1] for s in shapes]
    shape = shapes if isinstance(shapes, tuple) else tuple(shapes.shape)
    return shape[-1] if len(shape) > 1 else 1
