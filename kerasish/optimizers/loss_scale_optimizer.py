"""Dynamic loss scaling around another optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kerasish import ops
from kerasish.optimizers.optimizer import Optimizer, Updates
from kerasish.optimizers.options import DEFAULTS
from kerasish.registry import deserialize_keras_object, serialize_keras_object
from kerasish.tensor import Tensor, Variable, autocast, convert, no_gradient

if TYPE_CHECKING:
    from typing_extensions import Self

    from kerasish.optimizers.division import Division


class LossScaleOptimizer(Optimizer):
    """Multiplies the loss by a scale, so that float16 gradients do not vanish, and divides it out.

    A step with a gradient that is not finite changes no variable and halves the scale; after
    `dynamic_growth_steps` good steps it doubles.

    Args:
        inner_optimizer: the optimizer that gets the gradients.
        initial_scale: the first scale, > 0.
        dynamic_growth_steps: good steps until the scale doubles, >= 1.
        name: the first part of its variables' paths; None: made from the class's name.

    Source: Micikevicius et al., Mixed precision training, ICLR 2018.

    Example:
        >>> from kerasish.optimizers.sgd import SGD
        >>> w = Variable([1.0])
        >>> scaled = LossScaleOptimizer(SGD(0.5), initial_scale=8.0)
        >>> scaled.apply([[8.0]], [w])
        >>> w.numpy().tolist()
        [0.5]
    """

    def __init__(
        self,
        inner_optimizer: Optimizer | str,
        initial_scale: float = 2.0**15,
        dynamic_growth_steps: int = 2000,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        if not kwargs.pop("dynamic", True):
            raise ValueError(
                "LossScaleOptimizer: its scale is dynamic; for a constant one give the inner "
                "optimizer a loss_scale_factor, and use only that."
            )
        # Old files of Keras hold the arguments of every optimizer here, at their defaults.
        given = {k: v for k, v in kwargs.items() if v != DEFAULTS.get(k, DEFAULTS)}
        if given:
            raise ValueError(
                f"LossScaleOptimizer: give {next(iter(given))!r} to the inner optimizer instead."
            )
        if isinstance(inner_optimizer, Mapping):
            inner_optimizer = deserialize_keras_object(inner_optimizer)
        if not isinstance(inner_optimizer, Optimizer):
            raise ValueError(
                f"LossScaleOptimizer: an optimizer was expected inside, got {inner_optimizer!r}."
            )
        if not initial_scale > 0 or not dynamic_growth_steps >= 1:
            raise ValueError(
                "LossScaleOptimizer: initial_scale > 0 and dynamic_growth_steps >= 1 expected, "
                f"got {initial_scale!r} and {dynamic_growth_steps!r}."
            )
        super().__init__(0.0, name=name)
        self.inner_optimizer = inner_optimizer
        inner_optimizer.loss_scale_factor = None  # gradients are scaled back once
        self.needs_loss = inner_optimizer.needs_loss
        self.initial_scale, self.dynamic_growth_steps = initial_scale, dynamic_growth_steps
        self.step_counter: Any = None
        self.dynamic_scale: Any = None

    @property
    def variables(self) -> list[Variable]:
        """Its own variables, then those of the inner optimizer."""
        return [*self._variables, *self.inner_optimizer.variables]

    @property
    def learning_rate(self) -> Variable | Tensor | float:
        """The inner optimizer's learning rate."""
        return self.inner_optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        self.inner_optimizer.learning_rate = value

    @property
    def iterations(self) -> Variable | Tensor:
        """How many good steps were made."""
        return self.inner_optimizer.iterations

    @iterations.setter
    def iterations(self, variable: Variable) -> None:
        self.inner_optimizer.iterations = variable

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        self.step_counter = self.add_variable((), dtype="int32", name="step_counter")
        scale = Variable(self.initial_scale, dtype="float32", trainable=False, name="dynamic_scale")
        self.dynamic_scale = self._own(scale)
        self.inner_optimizer.build(variables)
        super().build(variables)

    def extend(self, variables: Sequence[Variable]) -> None:
        """Make slots for variables that `build` was not given; the others keep theirs."""
        self.inner_optimizer.extend(variables)
        super().extend(variables)

    def divide(self, segments: Sequence[Variable], division: Division | None) -> None:
        """Make slots for segments of variables, or for whole ones; see `Optimizer`."""
        self.inner_optimizer.divide(segments, division)
        super().divide(segments, division)

    def reference_of(self, variable: Variable) -> Variable | None:
        """Return whose slot a variable is, of the inner optimizer's too."""
        return self.inner_optimizer.reference_of(variable)

    def is_elementwise(self) -> bool:
        """Return whether the inner optimizer updates each element by itself."""
        return self.inner_optimizer.is_elementwise()

    def updates(
        self, gradients: Sequence[Any], variables: Sequence[Variable], loss: Tensor | None = None
    ) -> list[tuple[Variable, Any]]:
        with no_gradient(), autocast(None):
            scale = self.dynamic_scale.value
            given = [None if g is None else convert(g) for g in gradients]
            finite = ops.equal(scale, scale)
            for g in given:
                if g is not None:
                    finite = ops.logical_and(finite, ops.all(ops.isfinite(g)))
            if self.division is not None:  # this rank has a part of the gradients
                finite = self.division.agreed(finite)
            factor = ops.reciprocal(scale)
            plain = [
                g
                if g is None or v.overwrite_with_gradient
                else ops.multiply(g, ops.cast(factor, g.dtype))
                for g, v in zip(given, variables)
            ]
            inner = self.inner_optimizer.updates(plain, variables, loss)
            new: Updates = {v: ops.where(finite, value, v.value) for v, value in inner}
            new.update(self._scaled(scale, finite))
            return list(new.items())

    def _scaled(self, scale: Tensor, finite: Tensor) -> Updates:
        counted = ops.add(self.step_counter.value, 1)
        full = ops.greater_equal(counted, self.dynamic_growth_steps)
        doubled = ops.multiply(scale, 2.0)
        grown = ops.where(ops.logical_and(full, ops.isfinite(doubled)), doubled, scale)
        kept = ops.logical_and(finite, ops.logical_not(full))
        return {
            self.step_counter: ops.where(kept, counted, 0),
            self.dynamic_scale: ops.where(finite, grown, ops.multiply(scale, 0.5)),
        }

    def scale_loss(self, loss: Tensor) -> Tensor:
        """Return the loss times the scale."""
        scale = self.dynamic_scale.value if self.built else convert(self.initial_scale, "float32")
        loss = convert(loss)
        return ops.multiply(loss, ops.cast(scale, loss.dtype))

    def exclude_from_weight_decay(
        self, var_list: Sequence[Variable] | None = None, var_names: Sequence[str] | None = None
    ) -> None:
        """Notify the inner optimizer."""
        self.inner_optimizer.exclude_from_weight_decay(var_list, var_names)

    def finalize_variable_values(self, var_list: Sequence[Variable]) -> None:
        """Notify the inner optimizer."""
        self.inner_optimizer.finalize_variable_values(var_list)

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "inner_optimizer": serialize_keras_object(self.inner_optimizer),
            "initial_scale": self.initial_scale,
            "dynamic_growth_steps": self.dynamic_growth_steps,
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        config = dict(config)
        config["inner_optimizer"] = deserialize_keras_object(
            config["inner_optimizer"], custom_objects
        )
        return cls(**config)
