"""The layer that runs an ONNX graph: its config is the graph, its weights the initializers."""

from __future__ import annotations

import json
from typing import Any

from kerasish.engine.layer.layer import Layer
from kerasish.export.onnx.reading import ops as operators
from kerasish.export.onnx.reading.interpret import Call, Interpreter
from kerasish.export.onnx.reading.record import Record
from kerasish.export.onnx.reading.registry import dtype_of
from kerasish.ops.basic.conversion import as_tensor
from kerasish.registry import register_keras_serializable
from kerasish.typing import Shape

__all__ = ["OnnxGraph", "operators"]


@register_keras_serializable(package="kerasish")
class OnnxGraph(Layer):
    """The graph of an ONNX file; `saving.load_onnx` makes models of it.

    Args:
        graph: the record of the graph, or its JSON text.
        trainable_weights_of_file: whether float initializers are trainable.

    Shape: what the graph says; several inputs are a list, several outputs a list.
    """

    def __init__(
        self, graph: Record | str, trainable_weights_of_file: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.record: Record = json.loads(graph) if isinstance(graph, str) else graph
        self.trainable_weights_of_file = bool(trainable_weights_of_file)
        self.autocast = False  # the file says in which dtypes its nodes compute
        self.stored: dict[str, Any] = {}
        self.decoded: dict[int, Any] = {}

    def build(self, input_shape: Shape) -> None:
        """Make a variable for each initializer that is a weight."""
        taken: set[str] = set()
        for name, dtype, shape, trainable in self.record["weights"]:
            own = plain_name(name, taken)
            self.stored[name] = self.add_weight(
                name=own, shape=tuple(shape), dtype=dtype, initializer="zeros", autocast=False,
                trainable=bool(trainable) and self.trainable_weights_of_file,
            )  # fmt: skip

    def call(self, inputs: Any) -> Any:
        """Return the graph's outputs."""
        given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        values = {name: as_tensor(v) for name, v in self.stored.items()}
        call = Call(self.decoded)
        interpreter = Interpreter(self.record, values, self.record["opsets"], call)
        results = [as_typed(y) for y in interpreter.outputs(given)]
        return results[0] if len(results) == 1 else results

    def get_config(self) -> dict[str, Any]:
        """Return the config: the graph as JSON text, without the weights' numbers."""
        return {
            **super().get_config(),
            "graph": json.dumps(self.record),
            "trainable_weights_of_file": self.trainable_weights_of_file,
        }


def as_typed(value: Any) -> Any:
    """Return an output as a tensor of its own dtype."""
    if value is None:
        raise ValueError("an output is left out by its node")
    x = as_tensor(value)
    dtype = dtype_of(value)
    return x if x.dtype == dtype else operators.arithmetic.converted(x, dtype)


def plain_name(name: str, taken: set[str]) -> str:
    """Return a name that layers and variables may have, and none of `taken` has; take it.

    Example:
        >>> plain_name("block/conv:0", set())
        'block_conv_0'
    """
    base = "".join(c if c.isalnum() or c in "._-" else "_" for c in name) or "value"
    result, count = base, 1
    while result in taken:
        result, count = f"{base}_{count}", count + 1
    taken.add(result)
    return result
