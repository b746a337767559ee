"""The results of `predict` for sequences, in the order in which the sequences were given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish.engine.data.sequences import SequenceData
from kerasish.typing import Array

if TYPE_CHECKING:
    from kerasish.engine.model.model import Model


def sequence_outputs(
    data: SequenceData, model: Model, columns: Sequence[Sequence[Array]]
) -> list[Any]:
    """Return each output for all rows: an array, or a list of arrays where it has steps.

    An output has steps if its second axis is as long as the padded sequences of each batch, and the
    model does not say that this axis has a fixed size. Its rows are cut to their real lengths.

    Args:
        data: what was predicted.
        model: its graph, where it has one, determines which outputs have steps.
        columns: for each output, the result of each batch.
    """
    batches = data.rows_of(0)[: len(columns[0])]
    graph = model.layer_graph
    shapes = [None] * len(columns) if graph is None else [t.shape for t in graph.outputs]
    return [_in_order(data, batches, parts, shape) for parts, shape in zip(columns, shapes)]


def _in_order(data: SequenceData, batches: list[Array], parts: Sequence[Array], shape: Any) -> Any:
    order = np.concatenate(batches)
    kind = _kind_of_steps(data, batches, parts, shape)
    if kind is None:
        return np.concatenate(parts)[np.argsort(order)]
    lengths = data.lengths_of(kind)
    result: list[Any] = [None] * len(order)
    for rows, part in zip(batches, parts):
        for i, row in zip(rows, part):
            result[i] = row[: lengths[i]].copy()
    return result


def _kind_of_steps(
    data: SequenceData, batches: list[Array], parts: Sequence[Array], shape: Any
) -> int | None:
    """Return the kind of sequence whose steps an output has; None where it has none."""
    if parts[0].ndim < 2 or shape is not None and (len(shape) < 2 or shape[1] is not None):
        return None
    bounds = [data.bounds_of(rows) for rows in batches]
    for kind in reversed(range(len(bounds[0]))):
        if all(part.shape[1] == own[kind] for part, own in zip(parts, bounds)):
            return kind
    return None
