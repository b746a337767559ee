"""Which ONNX operators are read, and how: each is a function of its inputs written in ops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasish import ops
from kerasish.errors import TraceError
from kerasish.ops import dtypes
from kerasish.tensor import Tensor, Variable

MOST_KNOWN = 2**26  # elements of an array that is computed when shapes are found


class OnnxNode:
    """One node with the values of its inputs.

    Attributes:
        kind: the operator.
        inputs: values: arrays where the numbers are known, tensors, None where left out.
        attrs: its attributes.
        opset: the version of the operator set.
        count: the number of outputs that are named.
        run: returns the outputs of a graph inside the node, for values of its inputs.
    """

    def __init__(
        self, kind: str, inputs: Sequence[Any], attrs: dict[str, Any], opset: int, count: int,
        run: Callable[[Any, Sequence[Any]], list[Any]],
    ) -> None:  # fmt: skip
        self.kind, self.inputs, self.attrs = kind, list(inputs), attrs
        self.opset, self.count, self.run = opset, count, run

    def get(self, place: int) -> Any:
        """Return an input; None where it is left out."""
        return self.inputs[place] if place < len(self.inputs) else None

    def need(self, place: int) -> Any:
        """Return an input that must be there."""
        value = self.get(place)
        if value is None:
            raise ValueError(f"input {place} is missing")
        return value

    @property
    def x(self) -> Any:
        """The first input."""
        return self.need(0)

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute, or its default."""
        return self.attrs.get(name, default)

    def known(self, place: int) -> Any:
        """Return the numbers of an input that decides shapes; None where it is left out.

        Raises:
            ValueError: they are not known when shapes are found.
        """
        value = self.get(place)
        if value is None or isinstance(value, np.ndarray):
            return value
        try:
            return np.asarray(value)
        except TraceError as error:
            raise ValueError(
                f"input {place} decides shapes, and is computed from the model's inputs; give it a "
                "fixed value: load_onnx(path, constants={name: array}), or call the model on the "
                "eager engine"
            ) from error

    def number(self, place: int) -> Any:
        """Return the only number of an input that decides shapes; None where it is left out."""
        value = self.known(place)
        return None if value is None else value.reshape(-1)[0].item()

    def ints(self, place: int, name: str) -> list[int] | None:
        """Return whole numbers that are an input in newer opsets, and an attribute in older."""
        value = self.known(place)
        if value is None:
            value = self.attr(name)
        return None if value is None else [int(n) for n in np.asarray(value).reshape(-1)]


Reader = Callable[[OnnxNode], Any]
READERS: dict[tuple[str, str], Reader] = {}
# (operator, input): inputs whose numbers decide shapes; initializers there are no weights.
CONSTANT_INPUTS: set[tuple[str, int]] = set()
# (operator, input): weights that no training changes.
FIXED_WEIGHTS: set[tuple[str, int]] = {("BatchNormalization", 3), ("BatchNormalization", 4)}


def reads(
    *kinds: str, constants: Sequence[int] = (), domain: str = ""
) -> Callable[[Reader], Reader]:
    """Register a function of an `OnnxNode` that returns its output, or a list of them.

    Args:
        kinds: the operators.
        constants: the inputs whose numbers decide shapes.
        domain: of the operators.
    """

    def register(f: Reader) -> Reader:
        for kind in kinds:
            if (domain, kind) in READERS:
                raise ValueError(f"the operator {kind} is read twice")
            READERS[domain, kind] = f
            CONSTANT_INPUTS.update((kind, place) for place in constants)
        return f

    return register


def read_by(reader: Reader, *kinds: str) -> None:
    """Register a function as the reader of operators; as `reads`."""
    reads(*kinds)(reader)


def dtype_of(x: Any) -> str:
    """Return the dtype of a value, as kerasish names it."""
    return x.dtype if isinstance(x, (Tensor, Variable)) else dtypes.name_of(np.asarray(x).dtype)


def rank_of(x: Any) -> int:
    """Return the number of axes of a value."""
    return len(x.shape)


def axis_of(axis: int, rank: int) -> int:
    """Return an axis counted from the front.

    Raises:
        ValueError: there is no such axis.
    """
    if not -max(rank, 1) <= axis < max(rank, 1):
        raise ValueError(f"there is no axis {axis} in {rank} axes")
    return axis % max(rank, 1)


def tensor(x: Any) -> Any:
    """Return a value as a tensor of its own dtype."""
    return x if isinstance(x, Tensor) else ops.convert_to_tensor(x, dtype=dtype_of(x))


def check_size(shape: Sequence[Any]) -> tuple[int, ...]:
    """Return a shape that the file requests.

    Raises:
        ValueError: it is none, or it has too many elements.
    """
    sizes = tuple(int(n) for n in shape)
    if any(n < 0 for n in sizes):
        raise ValueError(f"{list(sizes)} is no shape")
    if math.prod(sizes) > MOST_KNOWN:
        raise ValueError(f"a tensor of shape {list(sizes)} would be made")
    return sizes
