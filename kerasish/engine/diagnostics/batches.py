"""Class numbers and indices of each batch: what a step would read beyond its arrays.

All rows of arrays in memory are checked once. Batches of generators and other sources, and those
of `train_on_batch`, are looked at one by one: one maximum over the labels per batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish.engine.diagnostics.graph_walk import first_layers, last_layer
from kerasish.engine.diagnostics.inputs import check_indices, inputs_of
from kerasish.engine.diagnostics.labels import check_labels
from kerasish.engine.diagnostics.match import Match
from kerasish.typing import Array, Structure

if TYPE_CHECKING:
    from kerasish.engine.model.model import Model
    from kerasish.losses.loss import Loss

_UNSIGNED = {n: np.dtype(f"uint{8 * n}") for n in (1, 2, 4, 8)}
_largest = np.maximum.reduce  # the method `max` is slower for a few numbers


def within(values: Array, count: int) -> bool:
    """Return whether all numbers of an array are from 0 up to, but not, `count`.

    Example:
        >>> within(np.array([0, 2]), 3), within(np.array([0, -1]), 3)
        (True, False)
    """
    if not values.size:
        return True
    if values.dtype.kind == "i":  # seen as unsigned, a negative number is a huge one
        values = values.view(_UNSIGNED[values.dtype.itemsize])
        return int(_largest(values, axis=None)) < count
    if values.dtype.kind == "u":
        return int(values.max()) < count
    return bool(values.min() >= 0) and bool(values.max() < count)


class BatchCheck:
    """Checks batches: raises ValueError for class numbers and indices that are none.

    Args:
        model: compiled, and prepared.
        sparse: whether a loss takes class numbers.
        only: the number of classes of the one output, or None.
        embeddings: number of an input -> the layers that look its numbers up.

    Attributes:
        reads_x: whether it reads the numbers of x.
    """

    def __init__(
        self, model: Model, sparse: bool, only: int | None, embeddings: dict[int, Any]
    ) -> None:
        self._model, self._sparse, self._only = model, sparse, only
        self._embeddings, self.reads_x = embeddings, bool(embeddings)

    def __call__(self, x: Structure, y: Structure, sample_weight: Structure) -> None:
        """Check a batch; the message of an error names the way out."""
        model, only = self._model, self._only
        quick = only and type(y) is np.ndarray and y.dtype.kind in "iu" and within(y, only)
        if self._sparse and not quick:
            for match in model.training_program.matches(y, sample_weight):
                _check_match(model, match)
        if self._embeddings:
            for name, index, array in inputs_of(model, x):
                for layer in self._embeddings.get(index, ()):
                    if array.dtype.kind in "iuf" and not within(array, layer.input_dim):
                        check_indices(model, name, array, layer)


def batch_check(model: Model) -> BatchCheck | None:
    """Return the check of a model's batches, None where nothing can be checked.

    Args:
        model: compiled, and prepared: its losses are matched to its outputs.
    """
    loss = model.training_program.objective
    parts = [] if loss is None else loss.parts or []
    sparse = any(takes_classes(part.loss) for part in parts)
    graph = model.layer_graph
    embeddings = {
        index: [layer for layer in first_layers(model, index) if layer.layer_role == "embedding"]
        for index in range(len(graph.inputs) if graph is not None else 0)
    }
    embeddings = {index: layers for index, layers in embeddings.items() if layers}
    if not sparse and not embeddings:
        return None
    only = _only_count(loss) if sparse and len(parts) == 1 else None
    return BatchCheck(model, sparse, only, embeddings)


def _only_count(loss: Structure) -> int | None:
    """Return how many classes the one output of a model has, None for others."""
    match = Match("", 0, loss.parts[0].loss, loss.shapes[0], None, None)
    if loss.outputs != 1 or not match.shape:
        return None
    return int(match.shape[match.option("axis", -1)])


def takes_classes(loss: Loss) -> bool:
    """Return whether a loss takes class numbers."""
    return Match("", 0, loss, (), None, None).values == "classes"


def _check_match(model: Model, match: Match) -> None:
    target = match.target
    if match.values != "classes" or not isinstance(target, np.ndarray) or not match.shape:
        return
    count = match.shape[match.option("axis", -1)]
    if target.dtype.kind not in "iuf" or within(target, count):
        return
    layer, activation = last_layer(model, match.index)
    called = layer.display_name() if hasattr(layer, "display_name") else "the last layer"
    check_labels(model, match, called, activation)


def check_all(model: Model, data: Structure) -> None:
    """Check arrays in memory, all rows at once; other data are checked batch by batch."""
    check = batch_check(model)
    if check is not None and data.in_memory:
        check(*data.pack(data.arrays))
