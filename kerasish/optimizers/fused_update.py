"""One update of all variables at once, where the current engine can compile the formula."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from kerasish import ops
from kerasish.ops.op import current_engine
from kerasish.optimizers.clipping import norm_factor
from kerasish.tensor import Tensor, Variable, values_of
from kerasish.typing import Structure

Updates = dict[Variable, Any]
_PLAIN = (bool, int, float, str, type(None))


class Updating(Protocol):
    """What a formula needs of an optimizer; see `Optimizer`."""

    global_clipnorm: float | None

    def update(
        self, value: Tensor, gradient: Tensor, slots: list[Tensor], c: Structure
    ) -> tuple[Tensor, ...]: ...
    def coefficients(self, learning_rate: Tensor, dtype: str, shared: Updates) -> Structure: ...
    def scalars(self, rate: Tensor, dtype: str, shared: Updates) -> tuple[Tensor, Any]: ...
    def updated(
        self,
        value: Tensor,
        gradient: Tensor,
        slots: list[Tensor],
        scalars: tuple[Tensor, Any],
        decay: Any,
    ) -> tuple[Tensor, ...]: ...
    def joined(
        self, gradients: Sequence[Tensor], variables: Sequence[Variable]
    ) -> list[Tensor]: ...
    def clipped_of(
        self, gradients: Sequence[Tensor], variables: Sequence[Variable]
    ) -> list[Tensor]: ...
    def slots_of(self, variable: Variable) -> list[Variable]: ...
    def decays_of(self, variables: Sequence[Variable]) -> list[float]: ...


class Formula:
    """The update of one variable by an optimizer: an `UpdateFormula` of engines.

    Its elements are the value, the gradient and the slots; its numbers the learning rate, the
    factor that clips (None: none), and what `shared_updates` returned.

    Args:
        optimizer: whose `coefficients` and `update` it calls.
    """

    def __init__(self, optimizer: Updating) -> None:
        self.optimizer = optimizer
        self.name = _owner(optimizer).__name__
        self.compiled: dict[Any, Any] = {}
        self.shared: tuple[Variable, ...] = ()
        self._settings = _settings(optimizer)

    def __call__(
        self, elements: Sequence[Tensor], numbers: Sequence[Any], decay: Any = None
    ) -> tuple[Tensor, ...]:
        """Return the new value and slots; see `UpdateFormula`."""
        value, gradient, *slots = elements
        rate, factor, *shared = numbers
        if factor is not None:
            gradient = ops.multiply(gradient, ops.cast(factor, gradient.dtype))
        result = self.optimizer.scalars(rate, value.dtype, dict(zip(self.shared, shared)))
        return self.optimizer.updated(value, gradient, slots, result, decay)

    def refresh(self, shared: Sequence[Variable]) -> None:
        """Drop what engines compiled, if a setting of the optimizer has changed since."""
        settings = _settings(self.optimizer)
        if settings != self._settings or self.shared != tuple(shared):
            self._settings, self.shared = settings, tuple(shared)
            self.compiled.clear()

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy of the optimizer compiles by itself.
        return Formula, (self.optimizer,)


def _owner(optimizer: Updating) -> type:
    """Return the class that wrote the optimizer's `update`."""
    return next(c for c in type(optimizer).__mro__ if "update" in vars(c))


def _settings(optimizer: Updating) -> dict[str, Any]:
    """Return the numbers and texts that a trace of the formula holds as constants."""
    return {k: v for k, v in vars(optimizer).items() if type(v) in _PLAIN}


def formula_of(optimizer: Updating) -> Formula | None:
    """Return what computes the update of one variable, None where it is not element-wise.

    The class that wrote `update` says so by its own `elementwise`: another `update`, or other
    `coefficients`, in a subclass make no promise.
    """
    owner: Any = _owner(optimizer)
    same = type(optimizer).coefficients is owner.coefficients
    if not vars(owner).get("elementwise", False) or not same:
        return None
    return Formula(optimizer)


def fused_update(
    optimizer: Updating,
    formula: Formula,
    gradients: Sequence[Tensor],
    variables: Sequence[Variable],
    rate: Tensor,
    shared: Updates,
) -> Updates | None:
    """Return the new values of variables and slots, or None where no kernel does all at once.

    Args:
        optimizer: a built one.
        formula: its formula.
        gradients: not clipped yet; by the norm of all of them they are clipped in the same pass.
        rate: the learning rate.
        shared: what `shared_updates` returned.
    """
    formula.refresh(tuple(shared))
    limit = optimizer.global_clipnorm
    whole = gradients if limit is None else optimizer.joined(gradients, variables)
    factor = None if limit is None else norm_factor(whole, limit)
    if limit is None:
        gradients = optimizer.clipped_of(gradients, variables)
    slots = [optimizer.slots_of(v) for v in variables]
    kinds = list(zip(*slots))  # in the order of their making: all first slots, all second ones
    values, *by_slot = [values_of(group) for group in (variables, *kinds)]
    fitting = [
        g if g.dtype == value.dtype else ops.cast(g, value.dtype)
        for g, value in zip(gradients, values)
    ]
    numbers = [rate, factor, *shared.values()]
    decays = optimizer.decays_of(variables)
    result = current_engine().fused_update(formula, [values, fitting, *by_slot], numbers, decays)
    if result is None:
        return None
    new: Updates = {}
    for group, given in zip((variables, *kinds), result):
        new.update(zip(group, given))
    return new
