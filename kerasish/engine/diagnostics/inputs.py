"""Inputs that the layers which meet them first cannot make use of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish import tree
from kerasish.engine.diagnostics.advice import warn_once
from kerasish.engine.diagnostics.graph_walk import WEIGHTED, first_layers
from kerasish.engine.diagnostics.rows import FEW, all_finite, first_odd, number, some_rows, span
from kerasish.typing import Array, Structure

if TYPE_CHECKING:
    from kerasish.engine.model.model import Model

_HUGE = 1e6  # beyond it a step of any useful size throws a float32 model off


def check_inputs(model: Model, x: Structure) -> None:
    """Raise or warn where an input's values cannot be meant for the layers that read them.

    Raises:
        ValueError: indices beyond an Embedding.
    """
    for name, index, array in inputs_of(model, x):
        if array.dtype.kind not in "iufb" or not array.size:
            continue
        readers = [(layer.layer_role, layer) for layer in first_layers(model, index)]
        for kind, layer in readers:
            if kind == "embedding":
                check_indices(model, name, array, layer)
            elif kind in WEIGHTED:
                _check_numbers(model, name, array, kind, layer)


def inputs_of(model: Model, x: Structure) -> list[tuple[str, int, Any]]:
    """Return (name, place among the model's inputs, array) of each array of x."""
    graph = model.layer_graph
    x = _checked(x)
    if graph is None or hasattr(x, "_fields"):  # a host stage has changed its values
        return []
    if isinstance(x, dict):
        names = [t._keras_history.operation.name for t in graph.inputs]
        given = [(f"x[{name!r}]", i, x.get(name)) for i, name in enumerate(names)]
    else:
        flat = tree.flatten(x)
        many = len(flat) > 1
        given = [(f"x[{i}]" if many else "x", i, array) for i, array in enumerate(flat)]
    return [(name, i, a) for name, i, a in given if isinstance(a, np.ndarray) and a.ndim]


def _checked(x: Structure) -> Any:
    """Return x with one array for each input: the values, of an input that is several arrays."""
    if hasattr(x, "checked"):
        return x.checked
    if isinstance(x, dict):
        return {name: _checked(part) for name, part in x.items()}
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
        return [_checked(part) for part in x]
    return x


def check_indices(model: Model, name: str, array: Array, layer: Any) -> None:
    """Raise or warn where an Embedding cannot look up the numbers of an array.

    Raises:
        ValueError: indices beyond its table.
    """
    values = some_rows(array)
    if array.dtype.kind == "f":
        if not all_finite(values):
            return
        if (values != np.floor(values)).any():
            odd = values[values != np.floor(values)][0].item()
            warn_once(
                model,
                f"{name}: {layer.display_name()} looks rows up by integers and cuts "
                f"{number(odd)} to "
                f"{number(np.trunc(odd))}. Give integers, or use a Dense layer for measures.",
            )
    low, high = span(array)
    if low < 0 or high >= layer.input_dim:
        raise ValueError(
            f"{name}: {layer.display_name()} has input_dim={layer.input_dim}, so indices 0 to "
            f"{layer.input_dim - 1}, got {number(low)} to {number(high)}. Give it input_dim="
            f"{number(max(high, 0) + 1)}, or the larger indices one of their own ('unknown')."
        )


def _check_numbers(model: Model, name: str, array: Array, kind: str, layer: Any) -> None:
    values = some_rows(array)
    if not all_finite(values):
        warn_once(
            model,
            f"{name} holds {first_odd(values)}, which {layer.display_name()} turns into NaN "
            "everywhere. Drop such rows, or fill them in (np.nan_to_num).",
            "finite",
        )
        return
    few = some_rows(array, FEW)
    low, high = span(few)
    if kind == "convolution" and layer.rank == 2 and _stands_channels_first(array, layer):
        warn_once(
            model,
            f"{name} of shape {array.shape} seems to have its channels first, but "
            f"{layer.display_name()} "
            f"takes data_format={layer.data_format!r}. Move them: x.transpose(0, 2, 3, 1).",
        )
    if _are_pixels(array, few, low, high) and kind != "batch normalization":
        warn_once(
            model,
            f"{name} holds pixels from {number(low)} to {number(high)} unscaled, and goes into "
            f"{layer.display_name()}. Put layers.Rescaling(1 / 255) first, or divide by 255.",
        )
    elif kind == "dense" and max(-low, high) > _HUGE:
        warn_once(
            model,
            f"{name} reaches {number(max(low, high, key=abs))} unscaled, and goes into "
            f"{layer.display_name()}. Put layers.Normalization() first, or scale the columns to "
            "mean 0 and deviation 1.",
        )


def _are_pixels(array: Array, few: Array, low: float, high: float) -> bool:
    """Return whether numbers look like bytes of pictures: whole, from 0 to near 255."""
    if not (0 <= low < 64 and 128 < high <= 255):
        return False
    pictured = (
        (array.ndim == 4 and 1 <= array.shape[-1] <= 4)
        or (array.ndim == 4 and array.shape[1] in (1, 3))
        or (array.ndim == 3 and min(array.shape[1:]) >= 8)
        or (array.ndim == 2 and array.shape[1] >= 64)
    )
    return pictured and (few.dtype.kind != "f" or bool((few == np.floor(few)).all()))


def _stands_channels_first(array: Array, layer: Any) -> bool:
    if layer.data_format != "channels_last" or array.ndim != 4:
        return False
    _, first, middle, last = array.shape
    return first in (1, 3) and middle == last and last > 4
