"""Running a folded function for one structure, call by call: the reference, and for debuggers."""

from __future__ import annotations

from typing import Any

from kerasish import ops, tree
from kerasish.engine.folding.recorder import outside
from kerasish.tensor import Variable, convert
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
            args, kwargs = tree.map_structure(_as_row, (args, kwargs))
        with outside(self._training):
            result = layer(*args, **kwargs)
        if on_host:
            return result
        return tree.map_structure(lambda t: ops.reshape(t, tuple(t.shape)[1:]), result)


def _as_row(x: Any) -> Any:
    """Return a tensor, an array or a number as one row; anything else as it is."""
    if x is None or isinstance(x, (bool, str)) or callable(x) and not hasattr(x, "shape"):
        return x
    return ops.expand_dims(x.value if isinstance(x, Variable) else convert(x), 0)
