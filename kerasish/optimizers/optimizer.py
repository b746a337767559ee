"""What every optimizer is: gradients in, new values of variables out.

`updates` is a pure function written in ops; `apply` assigns what it returns. So one training step
is one pure function, which an engine may run at once or compile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kerasish import ops, tree
from kerasish.errors import TraceError
from kerasish.ops.op import current_engine
from kerasish.optimizers.accumulating import gather, is_due, overwrite
from kerasish.optimizers.averages import put_averages, swap_averages, update_averages
from kerasish.optimizers.checks import check_gradients, check_variables, fit_as_they_are
from kerasish.optimizers.clipping import clip
from kerasish.optimizers.constraining import constrained
from kerasish.optimizers.fused_update import Formula, Updates, formula_of, fused_update
from kerasish.optimizers.options import DEFAULTS, LearningRate, Options, check_options
from kerasish.optimizers.state import OptimizerState
from kerasish.optimizers.weight_decay import Exclusions, decayed
from kerasish.registry import deserialize_keras_object, serialize_keras_object
from kerasish.reprs import given_arguments
from kerasish.scopes import autocast, using_scope
from kerasish.signatures import own_arguments
from kerasish.tensor import Tensor, Variable, VariableScope, convert, no_gradient, put_all
from kerasish.tracebacks import keyword_hint, short_tracebacks
from kerasish.typing import AnyTensor, Structure

if TYPE_CHECKING:
    from typing_extensions import Self


class Optimizer(OptimizerState):
    """Changes variables so that a loss falls.

    A subclass makes its slots in `build` and writes `update` (pure, one variable) and, where some
    numbers are the same for all variables, `coefficients`. Keras's way, `update_step` with
    `self.assign`, works as well.

    Args:
        learning_rate: a number >= 0, a LearningRateSchedule, or a function without arguments.
        weight_decay: share of each variable, times the rate, taken off every step; None: none.
        clipnorm: the largest norm of each gradient, > 0; None: any.
        clipvalue: the largest size of each gradient's elements, > 0; None: any.
        global_clipnorm: the largest norm of all gradients together, > 0; None: any. Of these
            three, one at most.
        use_ema: keep running averages of the variables.
        ema_momentum: the average's share of itself, 0 <= momentum <= 1.
        ema_overwrite_frequency: put the averages into the variables every this many steps, >= 1;
            None: at the end of `fit`.
        loss_scale_factor: the loss is multiplied by it, gradients are divided by it; None: 1.
        gradient_accumulation_steps: update once per this many steps, by the mean gradient; >= 2;
            None: in each step.
        name: the first part of its variables' paths; None: after the class.

    Attributes:
        elementwise: a class that writes `update` may set it to True where each element of the
            new values depends only on that element, and on nothing that changes but tensors:
            engines may then run `update` once, without numbers, and compile what it does.
        needs_loss: whether `apply` wants the step's loss, too.

    Example:
        >>> class Plain(Optimizer):
        ...     def update(self, value, gradient, slots, c):
        ...         return (ops.subtract(value, ops.multiply(gradient, c["learning_rate"])),)
        >>> w = Variable([1.0, 2.0])
        >>> Plain(0.5).apply([[1.0, 1.0]], [w])
        >>> w.numpy().tolist()
        [0.5, 1.5]
    """

    elementwise = False
    needs_loss = False

    def __init__(
        self,
        learning_rate: LearningRate,
        weight_decay: float | None = None,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
        use_ema: bool = False,
        ema_momentum: float = 0.99,
        ema_overwrite_frequency: int | None = None,
        loss_scale_factor: float | None = None,
        gradient_accumulation_steps: int | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        if kwargs:
            hint = keyword_hint(type(self).__init__, kwargs)
            raise ValueError(
                f"{type(self).__name__} got an unexpected argument {next(iter(kwargs))!r}."
                + (" Its name is learning_rate." if "lr" in kwargs else hint)
            )
        self.weight_decay = weight_decay
        self.clipnorm, self.clipvalue, self.global_clipnorm = clipnorm, clipvalue, global_clipnorm
        self.use_ema, self.ema_momentum = use_ema, ema_momentum
        self.ema_overwrite_frequency = ema_overwrite_frequency if use_ema else None
        self.loss_scale_factor = loss_scale_factor
        self.averages_swapped = False  # whether the variables hold their averages
        self._averages: list[Variable] = []
        self._accumulators: list[Variable] = []
        self._exclusions = Exclusions()
        self._formula: Formula | None = None
        self._warned = False
        super().__init__(learning_rate, name, gradient_accumulation_steps)
        check_options(type(self).__name__, self._options())

    def __repr__(self) -> str:
        given = given_arguments(self)
        if isinstance(self._learning_rate, Variable) and "learning_rate" in given:
            with contextlib.suppress(TraceError):  # inside a trace it has no number
                given["learning_rate"] = f"{float(self._learning_rate.numpy()):.7g}"
        return f"{type(self).__name__}({', '.join(f'{k}={v}' for k, v in given.items())})"

    def _options(self) -> Options:
        return {name: getattr(self, name) for name in DEFAULTS}  # type: ignore[return-value]

    def build(self, variables: Sequence[Variable]) -> None:
        """Make the slots for `variables`; once for life."""
        if self.built:
            return
        super().build(variables)
        if self.use_ema:
            self._averages = [self.add_variable_from_reference(v, "average") for v in variables]
        if self.gradient_accumulation_steps:
            name = "gradient_accumulator"
            self._accumulators = [self.add_variable_from_reference(v, name) for v in variables]
        self._formula = formula_of(self)
        self.add_slots(variables)

    # --- what a subclass writes -----------------------------------------------------------------

    def add_slots(self, variables: Sequence[Variable]) -> None:
        """Make the slots of each variable, with `add_optimizer_variables`; none by default."""

    def update(
        self, value: Tensor, gradient: Tensor, slots: list[Tensor], c: Structure
    ) -> tuple[Tensor, ...]:
        """Return the new value of one variable and of its slots; pure.

        Args:
            value: the variable's present value, weight decay already taken off.
            gradient: its gradient, of the same shape and dtype.
            slots: the present values of its slots.
            c: what `coefficients` returned for this dtype.
        """
        raise NotImplementedError(f"{type(self).__name__} must write update or update_step.")

    def coefficients(self, learning_rate: Tensor, dtype: str, shared: Updates) -> Structure:
        """Return the numbers that `update` needs for all variables of a dtype, made once per step.

        Args:
            learning_rate: a tensor of this dtype without axes.
            shared: what `shared_updates` returned.
        """
        return {"learning_rate": learning_rate}

    def shared_updates(self, loss: Tensor | None) -> Updates:
        """Return new values of scalars that all variables share."""
        return {}

    def update_step(self, gradient: Tensor, variable: Variable, learning_rate: Tensor) -> None:
        """Assign the new value of one variable and its slots; Keras's optimizers override it."""
        result = self.scalars(convert(learning_rate), variable.dtype, self.shared_updates(None))
        slots = self.slots_of(variable)
        values = [s.value for s in slots]
        gradient = convert(gradient, variable.dtype)
        new = self.updated(variable.value, gradient, values, result)
        for v, value in zip([variable, *slots], new):
            v.assign(value)

    def _step(self, dtype: str) -> Tensor:
        """Return the number of the update being made, 1 for the first."""
        return ops.cast(ops.add(self.iterations, 1), dtype)

    def apply(
        self,
        grads: Iterable[Any],
        trainable_variables: Sequence[Variable] | None = None,
        **signals: Any,
    ) -> None:
        """Change the variables by their gradients.

        Args:
            grads: one gradient a variable; None where there is none.
            trainable_variables: the variables; left out: those of `build`.

        Raises:
            ValueError: no gradient at all, another number of gradients, or a strange variable.
        """
        grads = list(grads)
        if not grads and not trainable_variables:
            return
        variables = self._fitting(grads, trainable_variables)
        put_all(self.updates(grads, variables, **signals))

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Variable]]) -> AnyTensor:
        """Change variables by pairs (gradient, variable); return the counter."""
        with short_tracebacks:
            pairs = list(grads_and_vars)
            self.apply([g for g, _ in pairs], [v for _, v in pairs])
            return self._iterations

    def updates(
        self, gradients: Sequence[Any], variables: Sequence[Variable], loss: Tensor | None = None
    ) -> list[tuple[Variable, Any]]:
        """Return (variable, new value) pairs of one step; nothing is assigned."""
        with no_gradient(), autocast(None):
            new: Updates = {}
            gradients, variables = self._present(gradients, variables, new)
            if gradients:
                self._update_all(gradients, variables, loss, new)
            new[self._iterations] = ops.add(self._iterations.value, 1)
            return list(new.items())

    def _update_all(
        self, gradients: list[Tensor], variables: list[Variable], loss: Any, new: Updates
    ) -> None:
        if self.loss_scale_factor is not None:
            gradients = [ops.multiply(g, 1.0 / self.loss_scale_factor) for g in gradients]
        steps, due = self.gradient_accumulation_steps, None
        if steps:
            due = self._is_due()
            slots = [self._accumulators[self._places[v]] for v in variables]
            gradients = gather(gradients, slots, due, steps, new)
        rate = convert(self.learning_rate)
        results = self._run_steps(gradients, variables, rate, loss)
        if due is not None:
            results = {v: ops.where(due, value, v.value) for v, value in results.items()}
        new.update(results)
        if self.use_ema:
            pairs = zip(self._trainable_variables, self._averages)
            share, frequency = self.ema_momentum, self.ema_overwrite_frequency
            update_averages(pairs, new, self.iterations, share, frequency)
        for v in variables:
            if v.constraint is not None:
                new[v] = constrained(v.constraint, convert(new[v]))

    def _run_steps(
        self, gradients: list[Tensor], variables: list[Variable], rate: Tensor, loss: Any
    ) -> Updates:
        shared = self.shared_updates(loss)
        if type(self).update_step is not Optimizer.update_step:
            return {**shared, **self._assigned(gradients, variables, rate)}
        result = None
        if self._formula is not None and current_engine().fuses_updates:
            result = fused_update(self, self._formula, gradients, variables, rate, shared)
        if result is None:
            bounded = self.clipped_of(gradients, variables)
            result = self._one_by_one(bounded, variables, rate, shared)
        return {**shared, **result}

    def _assigned(
        self, gradients: list[Tensor], variables: list[Variable], rate: Tensor
    ) -> Updates:
        """Return what `update_step` of the user's assigns."""
        scope = VariableScope()
        gradients = self.clipped(gradients)
        with using_scope(scope):
            for v in variables:
                decay = self.decay_of(v)
                if decay:
                    v.assign(decayed(v.value, decay, ops.cast(rate, v.dtype)))
            for g, v in zip(gradients, variables):
                self.update_step(g, v, rate)
        return scope.written

    def _one_by_one(
        self,
        gradients: Sequence[Tensor],
        variables: Sequence[Variable],
        rate: Tensor,
        shared: Updates,
    ) -> Updates:
        new: Updates = {}
        results: dict[str, tuple[Tensor, Any]] = {}
        for g, v in zip(gradients, variables):
            value = v.value
            dtype = value.dtype
            if dtype not in results:
                results[dtype] = self.scalars(rate, dtype, shared)
            if g.dtype != dtype:
                g = ops.cast(g, dtype)
            slots = self.slots_of(v)
            values = [s.value for s in slots]
            new[v], *rest = self.updated(value, g, values, results[dtype], self.decay_of(v) or None)
            new.update(zip(slots, rest))
        return new

    def updated(
        self,
        value: Tensor,
        gradient: Tensor,
        slots: list[Tensor],
        scalars: tuple[Tensor, Any],
        decay: Structure = None,
    ) -> tuple[Tensor, ...]:
        """Return the new value and slots of one variable; pure.

        Args:
            value: the variable's present value.
            gradient: its gradient, clipped, of the same dtype.
            slots: the present values of its slots.
            scalars: what `scalars` returned for this dtype.
            decay: the share of the value, times the learning rate, that is taken off first.
        """
        rate, c = scalars
        if decay is not None:
            value = decayed(value, decay, rate)
        return self.update(value, gradient, slots, c)

    def scalars(self, rate: Tensor, dtype: str, shared: Updates) -> tuple[Tensor, Any]:
        """Return the learning rate and the coefficients in `dtype`."""
        # In 16 bits 1 - 0.999 would be nothing: made in float32 first.
        wide = "float32" if dtype in ("float16", "bfloat16") else dtype
        own = rate if rate.dtype == wide else ops.cast(rate, wide)
        result = own, self.coefficients(own, wide, shared)
        if wide == dtype:
            return result
        return tree.map_structure(lambda x: ops.cast(x, dtype), result)

    def _fitting(
        self, grads: list[Any], variables: Sequence[Variable] | None
    ) -> Sequence[Variable]:
        """Return the variables of the gradients, checked."""
        if variables is None and not self.built:
            who = type(self).__name__
            raise ValueError(f"{who}: give the variables, or call build(variables) first.")
        if variables is None:
            variables = self._trainable_variables
        elif not self.built:
            self.build(variables)
        check_variables(type(self).__name__, grads, variables, self._places)
        return variables

    def _present(
        self, grads: Sequence[Any], variables: Sequence[Variable], new: Updates
    ) -> tuple[list[Tensor], list[Variable]]:
        """Return gradients and variables without those that have none, or that they replace."""
        if fit_as_they_are(grads, variables):
            return list(grads), list(variables)
        for g, v in zip(grads, variables):
            if g is not None and v.overwrite_with_gradient:
                self._overwrite(v, convert(g, v.dtype), new)
        pairs = [(g, v) for g, v in zip(grads, variables) if v not in new]
        kept = [(convert(g), v) for g, v in pairs if g is not None]
        missing = [v.path for g, v in pairs if g is None]
        check_gradients(type(self).__name__, kept, missing, bool(new), not self._warned)
        self._warned = self._warned or bool(missing)
        return [g for g, _ in kept], [v for _, v in kept]

    def _overwrite(self, variable: Variable, gradient: Tensor, new: Updates) -> None:
        if self.gradient_accumulation_steps:
            slot = self._accumulators[self._places[variable]]
            overwrite(variable, gradient, slot, self._is_due(), new)
        else:
            new[variable] = gradient

    def _is_due(self) -> Tensor:
        return is_due(self._iterations.value, self.gradient_accumulation_steps or 1)

    def clipped(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Return the gradients within the bounds that the optimizer was given."""
        return clip(gradients, self.clipnorm, self.clipvalue, self.global_clipnorm)

    def joined(self, gradients: Sequence[Tensor], variables: Sequence[Variable]) -> list[Tensor]:
        """Return whole gradients, where each rank has only its segments of them.

        Args:
            gradients: of `variables`.
            variables: those that the optimizer was built for.
        """
        if self.division is None:
            return list(gradients)
        return self.division.join(gradients, variables)

    def clipped_of(
        self, gradients: Sequence[Tensor], variables: Sequence[Variable]
    ) -> list[Tensor]:
        """Return gradients within the bounds: norms are those of whole gradients; see `joined`."""
        division = self.division
        if division is None or (self.clipnorm is None and self.global_clipnorm is None):
            return self.clipped(gradients)
        return division.cut(self.clipped(self.joined(gradients, variables)), variables)

    def is_elementwise(self) -> bool:
        """Return whether its class says that each element is updated by itself."""
        usual = type(self).update_step is Optimizer.update_step
        return usual and formula_of(self) is not None

    def stateless_apply(
        self,
        optimizer_variables: Sequence[Any],
        grads: Sequence[Any],
        trainable_variables: Sequence[Any],
    ) -> tuple[list[Any], list[Any]]:
        """Return the new values of the trainable and of the optimizer's variables; pure.

        Args:
            optimizer_variables: values of `self.variables`, in order.
            grads: one gradient per variable.
            trainable_variables: values of the variables that the optimizer was built for.
        """
        if not self.built:
            raise ValueError(f"{type(self).__name__}: call build(variables) before.")
        own, trained = self.variables, self._trainable_variables
        for given, expected, what in (
            (optimizer_variables, own, "optimizer_variables"),
            (trainable_variables, trained, "trainable_variables"),
        ):
            if len(given) != len(expected):
                raise ValueError(
                    f"{type(self).__name__}.stateless_apply: {what} must hold {len(expected)} "
                    f"values, got {len(given)}."
                )
        values = [*optimizer_variables, *trainable_variables]
        scope = VariableScope(dict(zip([*own, *trained], values)))
        with using_scope(scope):
            self.apply(list(grads), trained)
        return [scope.read(v) for v in trained], [scope.read(v) for v in own]

    def scale_loss(self, loss: Tensor) -> Tensor:
        """Return the loss times `loss_scale_factor`, whose gradients `apply` scales back."""
        factor = self.loss_scale_factor
        return loss if factor is None else ops.multiply(loss, factor)

    def exclude_from_weight_decay(
        self, var_list: Sequence[Variable] | None = None, var_names: Sequence[str] | None = None
    ) -> None:
        """Exclude variables from weight decay: those given, and those whose path has a match.

        Args:
            var_list: variables.
            var_names: regular expressions.
        """
        self._exclusions.add(var_list or (), var_names or ())

    def decay_of(self, variable: Variable) -> float:
        """Return the share of a variable, times the learning rate, that a step takes off."""
        if self.division is not None:
            variable = self.division.whole(variable)
        return self._decay(variable) if self._use_weight_decay(variable) else 0.0

    def decays_of(self, variables: Sequence[Variable]) -> list[float]:
        """Return `decay_of` each of several variables."""
        none = not self.weight_decay and type(self)._decay is Optimizer._decay
        return [0.0 if none else self.decay_of(v) for v in variables]

    def _decay(self, variable: Variable) -> float:
        """Return the weight decay of a variable that is not excluded."""
        return self.weight_decay or 0.0

    def _use_weight_decay(self, variable: Variable) -> bool:
        return not self._exclusions.holds(variable)

    def finalize_variable_values(self, var_list: Sequence[Variable]) -> None:
        """Put the running averages (use_ema) into the variables; `fit` does so at its end."""
        put_averages(self._averaged(var_list), self.averages_swapped)
        self.averages_swapped = False

    def swap_averages(self, var_list: Sequence[Variable]) -> None:
        """Exchange the variables with their running averages (use_ema); twice: as it was."""
        swap_averages(self._averaged(var_list))
        self.averages_swapped = not self.averages_swapped

    def _averaged(self, variables: Sequence[Variable]) -> list[tuple[Variable, Any]]:
        known = variables if self.use_ema and self.built else ()
        if self.division is not None and known:
            return self.division.averages(variables, self._averages)
        return [(v, self._averages[self._places[v]]) for v in known if v in self._places]

    # --- config -------------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments; a learning rate that was set counts as given."""
        rate = self._learning_rate
        own = float(rate.numpy()) if isinstance(rate, Variable) else serialize_keras_object(rate)
        results = {"name": self.name, "learning_rate": own, **self._options()}
        return {**results, **own_arguments(self, known=results)}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """Return the optimizer that `get_config` described."""
        rate = config.get("learning_rate")
        if isinstance(rate, Mapping):
            rate = deserialize_keras_object(rate, custom_objects)
            config = {**config, "learning_rate": rate}
        return cls(**config)


__all__ = ["Optimizer", "Updates"]
