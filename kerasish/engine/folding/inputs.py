"""Structures among a model's inputs: found, and packed for each batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish import registry
from kerasish.engine.data.data import Data
from kerasish.engine.data.structures import Structures
from kerasish.engine.functional.host_stage import HostStageData
from kerasish.engine.layer.layer import Layer
from kerasish.first_use import ModulePlace
from kerasish.typing import Structure

if TYPE_CHECKING:
    from kerasish.engine.folding.folded import Folded


def folded_layers(model: Layer) -> list[Folded]:
    """Return the folded layers in a model."""
    return [layer for layer in model.flatten_layers() if is_folded(layer)]


def may_hold_structures(x: Structure) -> bool:
    """Return whether x has a form that structures take: lists, arrays of objects, in a dict."""
    if isinstance(x, dict):
        return any(map(may_hold_structures, x.values()))
    if isinstance(x, tuple):
        return any(map(may_hold_structures, x))
    return isinstance(x, (list, Structures)) or _is_object_array(x)


def as_structures(x: Structure, whole: bool = True) -> Structure:
    """Return inputs with each column of structures as `Structures`.

    A list, or an array of objects, is a column of structures; a tuple or a dict holds several
    inputs, of which lists of numbers are arrays.

    Args:
        x: what the user gave.
        whole: whether x is all inputs of a model.
    """
    if isinstance(x, dict):
        return {name: as_structures(part, False) for name, part in x.items()}
    if isinstance(x, tuple):
        return tuple(as_structures(part, False) for part in x)
    if _is_object_array(x):
        return Structures(x.tolist() if x.ndim == 1 else list(x))
    if isinstance(x, list) and (whole or not x or not isinstance(x[0], (Number, np.ndarray))):
        return Structures(x)
    return x


def _is_object_array(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype == object


def read_structures(
    model: Layer, read: Callable[[list[Folded], Any], Any], x: Structure
) -> Structure:
    """Let the folded layers of a model read inputs, which may build layers; return the result.

    Args:
        model: the model.
        read: `record_inputs` or `pack_inputs`.
        x: inputs with columns of structures.

    Raises:
        ValueError: a layer was built whose weights the model's optimizer does not have.
    """
    known = {id(v) for v in model.trainable_variables}
    result = read(folded_layers(model), x)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and optimizer.built:
        new = [v.path for v in model.trainable_variables if id(v) not in known]
        if new:
            raise ValueError(
                f"{model.display_name()}: a folded function has called a layer for the first "
                f"time after the optimizer was built, which does not know its weight "
                f"{new[0]!r}. Call the model on structures that use all of its layers before "
                "fit(), or call compile() again."
            )
    return result


def is_folded(layer: Layer) -> bool:
    """Return whether a layer is folded: it reads structures."""
    return layer.takes_structures


def build_configs(layer: Layer) -> list[Any]:
    """Return (class name, how it was built) of each layer inside another, in order."""
    inner = [part for part in layer.flatten_layers() if part is not layer]
    return [[type(p).__name__, None if is_folded(p) else p.get_build_config()] for p in inner]


def build_parts(layer: Layer, configs: Sequence[Any]) -> None:
    """Build the layers inside another from what `build_configs` returned."""
    inner = [part for part in layer.flatten_layers() if part is not layer]
    names = [type(part).__name__ for part in inner]
    if names != [name for name, _ in configs]:
        return  # the class was changed: its weights are compared when they are read
    for part, (_, config) in zip(inner, configs):
        if config and not part.built:
            part.build_from_config(config)


def pack_inputs(layers: list[Folded], x: Structure) -> Structure:
    """Return inputs with the packed arrays of each column of structures in its place.

    Args:
        layers: the folded layers of the model. Each of several gets its own arrays, by its name.
            A layer with the name of an input reads only that input.
        x: a batch of inputs.
    """
    return _read(layers, x, None, lambda layer, structures: layer.pack(structures))


def record_inputs(layers: list[Folded], x: Structure) -> None:
    """Let folded layers see all structures of inputs, so that all of their parts are built."""
    _read(layers, x, None, lambda layer, structures: layer.record(structures))


def _read(
    layers: list[Folded], x: Structure, name: str | None, read: Callable[[Folded, Any], Any]
) -> Structure:
    if isinstance(x, dict):
        return {key: _read(layers, part, key, read) for key, part in x.items()}
    if isinstance(x, tuple):
        return tuple(_read(layers, part, None, read) for part in x)
    if not isinstance(x, Structures):
        return x
    readers = [layer for layer in layers if layer.name == name] or layers
    if len(readers) == 1:
        return read(readers[0], x)
    names = {layer.name for layer in readers}
    if len(names) < len(readers):
        raise ValueError(
            f"The folded layers of a model need different names, got {sorted(names)} for "
            f"{len(readers)} layers."
        )
    return {layer.name: read(layer, x) for layer in readers}


class PackedData(HostStageData):
    """The batches of other data, their structures packed.

    Args:
        data: the other data.
        prepare: returns the inputs of a step for the inputs of a batch.
    """

    def __init__(self, data: Data, prepare: Callable[[Any], Any]) -> None:
        super().__init__(data, prepare)
        self.reads_ahead = 0  # batches of different sizes cannot be stored side by side


registry.add_builtins("kerasish", {"Folded": ModulePlace("kerasish.engine.folding.folded:Folded")})
