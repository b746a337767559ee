"""Layers and ops inside graphs of TensorFlow, such as `tf.data.Dataset.map`.

A call on a value in such a graph becomes one node, by `tf.numpy_function`: TensorFlow passes
arrays, and the layer or op computes with them as anywhere. Gradients do not flow through it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from kerasish import tree
from kerasish.engine.layer.layer import Layer
from kerasish.engine.layer.operation import KerasTensor, OpCall, Operation
from kerasish.ops import dtypes
from kerasish.tensor import Tensor, to_numpy
from kerasish.typing import Array, Structure


class TensorFlowValue:
    """A value in a graph of TensorFlow, as an argument of a layer or an op.

    Args:
        value: a symbolic tensor of TensorFlow.
    """

    outside = True

    def __init__(self, value: Any) -> None:
        self.value = value

    def __kerasish_function__(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Structure:
        """Return the results of a call as values in the graph of TensorFlow.

        Args:
            function: a layer, an op or a function composed of ops.
            args, kwargs: its arguments; values in the graph may be anywhere among them.
        """
        return call_in_graph(function, args, kwargs)


def value_in_graph(value: object) -> TensorFlowValue | None:
    """Return the wrapper of a symbolic tensor of TensorFlow; None for any other object."""
    symbolic = getattr(sys.modules.get("tensorflow"), "is_symbolic_tensor", None)
    return TensorFlowValue(value) if symbolic is not None and symbolic(value) else None


def call_in_graph(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Structure:
    """Return the results of a call as values in the graph of TensorFlow.

    Raises:
        ValueError: the number of axes of an argument is not known.
    """
    tf = sys.modules["tensorflow"]
    leaves = tree.flatten((args, kwargs))
    places = [i for i, leaf in enumerate(leaves) if value_in_graph(leaf) is not None]
    specs = _specs_of(function, _with(args, kwargs, leaves, places, _symbol))
    flat = tree.flatten(specs)

    def compute(*arrays: Array) -> list[Array]:
        given = iter(arrays)
        own_args, own_kwargs = _with(args, kwargs, leaves, places, lambda _: next(given))
        results = tree.flatten(function(*own_args, **own_kwargs))
        return [_array(r, spec) for r, spec in zip(results, flat, strict=True)]

    kinds = [tf.as_dtype(spec.dtype) for spec in flat]
    results = tf.numpy_function(compute, [leaves[i] for i in places], kinds)
    for result, spec in zip(results, flat, strict=True):
        result.set_shape(spec.shape)
    return tree.pack_sequence_as(specs, list(results))


def _with(
    args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any], places: list[int],
    new: Callable[[Any], Any],
) -> tuple[tuple[Any, ...], dict[str, Any]]:  # fmt: skip
    """Return the arguments with `new(leaf)` for the leaves at some places."""
    changed = list(leaves)
    for i in places:
        changed[i] = new(leaves[i])
    return tree.pack_sequence_as((args, kwargs), changed)


def _symbol(value: Any) -> KerasTensor:
    """Return a symbolic tensor of the shape and dtype of one of TensorFlow."""
    if value.shape.rank is None:
        raise ValueError(
            f"{value!r} in a graph of TensorFlow: its number of axes is not known there. Set it by "
            "tf.ensure_shape(x, shape) or x.set_shape(shape), None for sizes that vary."
        )
    return KerasTensor(tuple(value.shape.as_list()), value.dtype.name)


def _specs_of(function: Any, call: tuple[tuple[Any, ...], dict[str, Any]]) -> Structure:
    """Return symbolic tensors of the shapes and dtypes of the results; build a layer."""
    args, kwargs = call
    if isinstance(function, Layer) and not function.built:
        function._build_for(args, kwargs)
    if isinstance(function, Operation):
        return function.compute_output_spec(*args, **kwargs)
    return OpCall(function).compute_output_spec(*args, **kwargs)


def _array(result: Any, spec: KerasTensor) -> Array:
    """Return a result as an array of the dtype that the graph expects."""
    array = to_numpy(result) if isinstance(result, Tensor) else np.asarray(result)
    if spec.dtype == "string":
        return array.astype(object)
    return np.ascontiguousarray(array, dtypes.array_dtype(spec.dtype)).reshape(array.shape)
