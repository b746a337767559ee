"""StatelessScope: variables with given values, assignments that stay inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish.errors import ShapeError
from kerasish.reprs import arguments_repr
from kerasish.tensor import Tensor, Variable, VariableScope, convert, using_scope
from kerasish.typing import Structure, TensorLike


class StatelessScope(VariableScope):
    """A `with` block inside which variables have given values and assignments stay inside.

    Variables without a value here have the one that they have around the block. Derivatives flow
    through given and assigned values.

    Args:
        state_mapping: (variable, value) pairs; None: none.
        collect_losses: accepted as in Keras; losses are always collected.
        initialize_variables: accepted as in Keras; variables are always initialized.

    Raises:
        ValueError: something other than a variable is given a value, or the shapes differ.

    Example:
        >>> import kerasish
        >>> v = kerasish.Variable(1.0)
        >>> with kerasish.StatelessScope([(v, 5.0)]):
        ...     float(v * 2)
        10.0
    """

    def __init__(
        self,
        state_mapping: Sequence[Any] | None = None,
        collect_losses: bool = False,
        initialize_variables: bool = True,
    ) -> None:
        super().__init__()
        self.losses: list[Any] = []
        pairs = state_mapping.items() if isinstance(state_mapping, dict) else state_mapping or []
        for variable, value in pairs:
            if not isinstance(variable, Variable):
                raise ValueError(
                    f"StatelessScope: pairs (variable, value) were expected, got {variable!r}."
                )
            result = convert(value, variable.dtype)
            if result.shape != variable.shape:
                raise ShapeError(
                    f"StatelessScope: variable {variable.path!r} has shape {variable.shape}, the "
                    f"value {result.shape}."
                )
            self.written[variable] = result

    def write(self, variable: Variable, value: Tensor) -> None:
        """Keep the assignment inside."""
        self.written[variable] = value

    def add_update(self, update: tuple[Variable, TensorLike]) -> None:
        """Keep an assignment given as (variable, value)."""
        self.write(update[0], convert(update[1]))

    def add_loss(self, loss: Structure) -> None:
        """Keep a loss."""
        self.losses.append(loss)

    def get_current_value(self, variable: Variable) -> Tensor:
        """Return the value that `variable` has in this scope."""
        return self.read(variable)

    def __enter__(self) -> StatelessScope:
        self._open = using_scope(self)
        self._open.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    __repr__ = arguments_repr


class StatelessMixin:
    """The part of a layer that is called without changing it; a base class of `Layer`."""

    def stateless_call(
        self: Any,
        trainable_variables: Sequence[TensorLike],
        non_trainable_variables: Sequence[TensorLike],
        *args: Any,
        return_losses: bool = False,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Return (outputs, new non-trainable values[, losses]) for given values of the variables.

        Nothing of the layer changes.
        """
        if not self.built:
            raise ValueError(f"{self.display_name()}: build it before stateless_call.")
        own = [*self.trainable_variables, *self.non_trainable_variables]
        given = [*trainable_variables, *non_trainable_variables]
        if len(own) != len(given):
            raise ValueError(
                f"{self.display_name()}: has {len(own)} variables, got {len(given)} values."
            )
        scope = StatelessScope(state_mapping=list(zip(own, given)))
        with scope:
            outputs = self(*args, **kwargs)
            losses = self.losses if return_losses else []
        news = [scope.get_current_value(v) for v in self.non_trainable_variables]
        return (outputs, news, losses) if return_losses else (outputs, news)


class SymbolicScope:
    """A `with` block in which Keras computes shapes and dtypes instead of numbers.

    Here tensors show by themselves whether they have numbers: ops on `KerasTensor` compute shapes
    inside the block and outside it, ops on numbers compute numbers. Programs that enter the block,
    as custom backends of Keras do, run unchanged.

    Example:
        >>> import kerasish
        >>> with kerasish.SymbolicScope():
        ...     kerasish.ops.exp(kerasish.KerasTensor((None, 2))).shape
        (None, 2)
    """

    def __enter__(self) -> SymbolicScope:
        return self

    def __exit__(self, *error: Any) -> None:
        """Leave the block; nothing has to be undone."""

    __repr__ = arguments_repr
