"""Running a folded function for one structure, call by call: the reference, and for debuggers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kerasish import ops, tree
from kerasish.engine.folding.recorder import outside
from kerasish.tensor import Tensor, Variable, convert
from kerasish.typing import Structure


class Immediate:
    """Takes the calls of layers in a folded function and runs each at once, on one row.

    Args:
        training: the training flag.
    """

    def __init__(self, training: bool | None) -> None:
        self._training = training

    def layer_call(self, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Structure:
        """Return the results of a layer for one node, without an axis of rows."""
        on_host = layer.runs_on_host
        if not on_host:
            args, kwargs = map_data(args, _as_row), map_data(kwargs, _as_row)
        with outside(self._training):
            result = layer(*args, **kwargs)
        if on_host:
            return result
        return tree.map_structure(lambda t: ops.reshape(t, tuple(t.shape)[1:]), result)


def _as_row(x: Any) -> Tensor:
    return ops.expand_dims(x.value if isinstance(x, Variable) else convert(x), 0)


def map_data(x: Structure, f: Callable[[Any], Any]) -> Structure:
    """Return arguments of a layer with `f` of each tensor, array and number in their place."""
    if isinstance(x, dict):
        return {name: map_data(part, f) for name, part in x.items()}
    if isinstance(x, (tuple, list)):
        parts = [map_data(part, f) for part in x]
        if hasattr(x, "_fields"):
            return type(x)(*parts)
        return tuple(parts) if isinstance(x, tuple) else parts
    if x is None or isinstance(x, (bool, str)) or callable(x) and not hasattr(x, "shape"):
        return x
    return f(x)
