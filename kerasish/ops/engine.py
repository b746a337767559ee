"""What runs ops: the interface of engines, and of the updates that they may compile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kerasish.typing import Structure

if TYPE_CHECKING:
    from kerasish.ops.op import Op


class UpdateFormula(Protocol):
    """The update of one variable of an optimizer, written in ops, element by element.

    Attributes:
        name: what kernels made of it are called.
        compiled: what engines keep of it, each under its own keys.
    """

    name: str
    compiled: dict[Any, Any]

    def __call__(
        self, elements: Sequence[Any], numbers: Sequence[Any], decay: Any = None
    ) -> tuple[Any, ...]:
        """Return the new value and slots of one variable.

        Args:
            elements: its value, its gradient, its slots: all of one shape and dtype.
            numbers: what is used for all variables: tensors without axes, or None.
            decay: the share of the value, times the learning rate, that is subtracted first.
        """


class Engine:
    """What runs ops: it applies an op to tensors, or to what converts to them.

    All else is optional: an engine that has fused kernels, or runs control flow itself, overrides
    the methods below and says so by the attributes.

    Attributes:
        fuses_calls: whether `fused_call` is worth asking.
        fuses_updates: whether `fused_update` is worth asking.
    """

    fuses_calls = False
    fuses_updates = False

    def apply(self, op: Op, args: Sequence[Any], attrs: dict[str, Any]) -> Structure:
        """Return the tensor, or the tuple of tensors, that `op` gives."""
        raise NotImplementedError(f"{type(self).__name__} applies no ops.")

    def fused_call(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Structure:
        """Return what a function composed of ops gives, by a kernel for all of it.

        None: there is no such kernel for these arguments; the ops are applied one by one.
        """
        return None

    def fused_update(
        self, formula: UpdateFormula, elements: Sequence[Sequence[Any]], numbers: Sequence[Any],
        decays: Sequence[float],
    ) -> list[list[Any]] | None:  # fmt: skip
        """Return [new values, new slots, ...] of all variables of an optimizer, by one kernel.

        Args:
            formula: the update of one variable, which the engine traces and compiles.
            elements: the values, the gradients, then each kind of slot (momentum, ...): one
                tensor for each variable.
            numbers: tensors without axes that are used for all variables, or None.
            decays: for each variable what the formula gets as `decay`; 0: None.

        Returns:
            None where this engine cannot compile the formula for these dtypes.
        """
        return None

    def numbers_of(self, tensor: Any) -> Any:
        """Return the array of a value of a trace, for which Python asks; None: it is not known."""
        return None

    def run_effect(self, op: Op, inputs: Sequence[Any], attrs: dict[str, Any]) -> None:
        """Run an op for its effect, after the effects before it in the program.

        Args:
            op: has the trait `effect`: its first input and its result order effects.
            inputs: the inputs behind the first one.
            attrs: all attributes of the op.
        """
        self.apply(op, [0, *inputs], attrs)

    def control(self, kind: str, **parts: Any) -> Structure:
        """Return what control flow gives; NotImplemented leaves it to Python (`ops.control`).

        Args:
            kind: "cond", "switch", "while_loop", "scan" or "fori_loop".
            parts: the function's arguments, checked, leaves made tensors.
        """
        return NotImplemented
