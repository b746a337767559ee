"""Inputs that are several arrays in a batch, and what a step's layers get for them."""

from __future__ import annotations

from typing import Any, NamedTuple

from kerasish import ops, tree
from kerasish.tensor import Tensor
from kerasish.typing import Array, Structure


class PaddedRows(NamedTuple):
    """Sequences of different lengths in a batch: padded at the end, with their lengths.

    Attributes:
        values: (n, steps, ...), zeros behind the end of each row.
        lengths: (n,) int32.
    """

    values: Any
    lengths: Any

    @property
    def checked(self) -> Array:
        """The array that the checks of inputs look at."""
        return self.values

    def assembled(self) -> Tensor:
        """Return the values as a tensor that carries the mask of the real steps."""
        values = ops.convert_to_tensor(self.values)
        steps = ops.expand_dims(ops.arange(values.shape[1], dtype="int32"), 0)
        values._keras_mask = ops.less(steps, ops.expand_dims(self.lengths, 1))
        return values


def assemble(x: Structure) -> Structure:
    """Return a batch's x as the model takes it: padded rows become tensors with masks.

    Args:
        x: a batch's inputs, as a data adapter gave them to the step.

    Example:
        >>> rows = PaddedRows(ops.ones((2, 3)), ops.array([1, 3], "int32"))
        >>> assemble({"x": rows})["x"]._keras_mask.tolist()
        [[True, False, False], [True, True, True]]
    """
    if type(x) is Tensor:
        return x
    if hasattr(x, "assembled"):
        return x.assembled()
    if tree.is_nested(x) and _holds_parts(x):
        if isinstance(x, dict):
            return {key: assemble(part) for key, part in x.items()}
        parts = [assemble(part) for part in x]
        return type(x)(*parts) if tree.is_namedtuple(x) else type(x)(parts)
    return x


def _holds_parts(x: Structure) -> bool:
    parts = x.values() if isinstance(x, dict) else x
    return any(hasattr(p, "assembled") or tree.is_nested(p) and _holds_parts(p) for p in parts)
