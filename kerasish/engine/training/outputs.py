"""The outputs of a model, and what targets, weights and losses hold for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kerasish import tree
from kerasish.typing import AnyTensor, Structure


class ModelOutput(NamedTuple):
    """One output of a model: its place in the results, and its name."""

    path: tuple[Any, ...]  # keys and indices that lead to it; () where it is all there is
    index: int  # type: ignore[assignment] # its number among all outputs; -1 for several
    layer: str  # the name of the layer that makes it; "" where that is not known
    label: str  # the prefix of the names of its loss and metrics; "" for none


def list_outputs(y_pred: Structure, output_names: Sequence[str]) -> list[ModelOutput]:
    """Return the outputs of a model that gave `y_pred`.

    Args:
        output_names: the names of the layers that make them, where they are known.

    Example:
        >>> import numpy as np
        >>> [o.label for o in list_outputs({"p": np.zeros(2), "q": np.zeros(2)}, [])]
        ['p', 'q']
    """
    result = (
        tree.flatten_with_path(y_pred) if isinstance(y_pred, (dict, list, tuple)) else [((), 0)]
    )
    known = len(output_names) == len(result)
    outputs = []
    for i, (path, _) in enumerate(result):
        layer = output_names[i] if known else ""
        words = [layer if isinstance(key, int) else str(key) for key in path]
        label = "/".join(w for w in words if w) if len(result) > 1 else ""
        outputs.append(ModelOutput(tuple(path), i, layer, label))
    return outputs


def at(structure: Structure, path: Sequence[Any]) -> Structure:
    """Return the part of a structure at the end of a path."""
    for key in path:
        structure = structure[key]
    return structure


def part_for(output: ModelOutput, structure: Structure, count: int) -> Any:
    """Return what a structure (targets, weights, losses...) holds for an output; None for nothing.

    A structure is built like the outputs; or it is a dict by their layers' names, or a list in
    their order. For a single output it may be the thing itself, or hold only that.

    Args:
        count: how many outputs there are.
    """
    node = structure
    for depth, key in enumerate(output.path):
        if isinstance(node, dict):
            node = node.get(key, node.get(output.layer))
        elif isinstance(node, (list, tuple)):
            # A list for outputs that are a dict: in their order.
            place = key if isinstance(key, int) else output.index if not depth else None
            node = node[place] if place is not None and place < len(node) else None
        elif node is None or count > 1:
            return None
    if count == 1 and isinstance(node, dict) and "class_name" not in node:
        return node.get(output.layer, next(iter(node.values())) if len(node) == 1 else None)
    if not output.path and isinstance(node, (list, tuple)) and len(node) == 1:
        return node[0]
    return node


def weights_for(output: ModelOutput, sample_weight: Structure, count: int) -> AnyTensor:
    """Return an output's sample weights; one array is for all outputs."""
    if hasattr(sample_weight, "shape"):
        return sample_weight
    return part_for(output, sample_weight, count)


def joined(path: tuple[Any, ...], outputs: Sequence[ModelOutput]) -> ModelOutput:
    """Return the output at a path, or one record for all the outputs below it."""
    inside = [o for o in outputs if o.path[: len(path)] == path]
    if len(inside) == 1 and inside[0].path == path:
        return inside[0]
    words = "/".join(str(key) for key in path if not isinstance(key, int))
    names = "_".join(str(o.path[-1] if isinstance(o.path[-1], str) else o.layer) for o in inside)
    return ModelOutput(path, -1, "", words or names)


def targets_of(
    read: Sequence[ModelOutput], y_true: Structure, y_pred: Structure, count: int
) -> list[Any]:
    """Return the targets of each output that has a loss; None where y holds none.

    A list may leave out the targets of the outputs that have no loss.

    Args:
        read: the outputs that have a loss.
        y_pred: the results, to which the targets of several outputs at once are shaped.
        count: how many outputs the model has.
    """
    places = sorted({o.index for o in read})
    flat = [] if isinstance(y_true, dict) or y_true is None else tree.flatten(y_true)
    if len(flat) == len(places) < count and places[0] >= 0:
        return [flat[places.index(o.index)] for o in read]
    return [
        part_for(o, y_true, count) if o.index >= 0 else _alike(y_true, y_pred, o.path) for o in read
    ]


def _alike(y_true: Structure, y_pred: Structure, path: tuple[Any, ...]) -> Any:
    """Return the targets at a path, in the structure of the results."""
    flat = tree.flatten(y_true)
    if y_pred is None or len(flat) != len(tree.flatten(y_pred)):
        return None
    return at(tree.pack_sequence_as(y_pred, flat), path)
