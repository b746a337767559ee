"""Calls of functions of other libraries, as ops of lists of arrays with gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kerasish import tree
from kerasish.ops.host import HostOp
from kerasish.ops.shapes import Spec

if TYPE_CHECKING:
    from kerasish.tensor import Tensor


class HostCall:
    """A function of another library on one structure of arguments, with its gradient.

    Subclasses write `_forward` and `_infer`, `_backward`, and `_differentiable`.
    """

    name: str
    structure: Any = None  # of the outputs; before the first call None
    op: HostOp | None = None
    gradient: HostOp | None = None

    def _forward(self, *arrays: Any) -> list[Any]:
        """Return the outputs, then the state afterwards."""
        raise NotImplementedError(f"{type(self).__name__} defines no _forward.")

    def _infer(self, *specs: Spec) -> list[Spec]:
        """Return the specs of what `_forward` returns."""
        raise NotImplementedError(f"{type(self).__name__} defines no _infer.")

    def _backward(self, *arrays: Any) -> list[Any]:
        """Return the derivatives by the differentiable inputs, of (those arriving, inputs)."""
        raise NotImplementedError(f"{type(self).__name__} defines no _backward.")

    def _differentiable(self, inputs: Sequence[Any]) -> list[int]:
        """Return the places of the inputs that have derivatives."""
        raise NotImplementedError(f"{type(self).__name__} defines no _differentiable.")

    def _output_count(self) -> int:
        """Return how many outputs are no state."""
        return len(tree.flatten(self.structure))

    def _make(self, specs: Sequence[Spec], total: int) -> None:
        """Make the ops for inputs of these specs; `total`: the outputs and the state."""
        places = self._differentiable(specs)
        self.op = HostOp(self.name, self._forward, self._infer, total, self._grad)
        self.gradient = HostOp(
            f"{self.name}_gradient", self._backward, self._infer_gradient, max(1, len(places))
        )

    def _run(self, inputs: Sequence[Any]) -> tuple[Any, list[Any]]:
        """Return the outputs and the state afterwards; after `_make`."""
        assert self.op is not None
        results = self.op(list(inputs))
        flat, count = [results] if self.op.outputs == 1 else list(results), self._output_count()
        return tree.pack_sequence_as(self.structure, flat[:count]), flat[count:]

    def _grad(self, g: Any, y: Any, *inputs: Tensor) -> list[Any]:
        arriving = list(g) if isinstance(g, (tuple, list)) else [g]
        places = self._differentiable(inputs)
        result: list[Any] = [None] * len(inputs)
        if places and self.gradient is not None:
            grads = self.gradient([*arriving[: self._output_count()], *inputs])
            for k, place in enumerate(places):
                result[place] = grads if self.gradient.outputs == 1 else grads[k]
        return result

    def _infer_gradient(self, *specs: Spec) -> list[Spec]:
        inputs = specs[self._output_count() :]
        return [inputs[k] for k in self._differentiable(inputs)]
