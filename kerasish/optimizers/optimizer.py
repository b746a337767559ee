"""What every optimizer is: gradients in, new values of variables out.

`updates` is a pure function written in ops; `apply` assigns what it returns. So one training step
is one pure function, which an engine may run at once or compile.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kerasish import initializers, ops, tree
from kerasish.errors import ShapeError
from kerasish.naming import name_for
from kerasish.optimizers.accumulating import gather, is_due, overwrite
from kerasish.optimizers.clipping import clip_by_global_norm, clip_by_norm
from kerasish.optimizers.fused_update import fused_update
from kerasish.optimizers.schedules.schedule import LearningRateSchedule
from kerasish.registry import deserialize_keras_object, serialize_keras_object
from kerasish.scopes import autocast, using_scope
from kerasish.tensor import Tensor, Variable, VariableScope, convert, no_gradient
from kerasish.watched import Watched

Updates = dict[Variable, Any]


class Optimizer(Watched):
    """Changes variables so that a loss falls.

    A subclass makes its slots in `build` and writes `update` (pure, one variable) and, where some
    numbers are the same for all variables, `coefficients`. Keras's way, `update_step` with
    `self.assign`, works as well.

    Args:
        learning_rate: a number >= 0, a LearningRateSchedule, or a function without arguments.
        weight_decay: share of each variable, times the learning rate, taken off every step.
        clipnorm: the largest norm of each gradient.
        clipvalue: the largest size of each gradient's elements.
        global_clipnorm: the largest norm of all gradients together.
        use_ema: keep running averages of the variables.
        ema_momentum: the average's share of itself, 0 <= momentum <= 1.
        ema_overwrite_frequency: put the averages into the variables every so many steps.
        loss_scale_factor: the loss is multiplied by it, gradients are divided by it.
        gradient_accumulation_steps: update once for so many steps, by the mean gradient; >= 2.
        name: the first part of its variables' paths.

    Example:
        >>> class Plain(Optimizer):
        ...     def update(self, value, gradient, slots, c):
        ...         return (ops.subtract(value, ops.multiply(gradient, c["learning_rate"])),)
        >>> w = Variable([1.0, 2.0])
        >>> Plain(0.5).apply([[1.0, 1.0]], [w])
        >>> w.numpy().tolist()
        [0.5, 1.5]
    """

    needs_loss = False  # whether `apply` wants the step's loss, too

    def __init__(
        self,
        learning_rate: Any,
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
            raise ValueError(
                f"{type(self).__name__} got an unexpected argument {next(iter(kwargs))!r}."
                + (" Its name is learning_rate." if "lr" in kwargs else "")
            )
        self.name = name_for(self, name or None)
        self.weight_decay = weight_decay
        self.clipnorm, self.clipvalue, self.global_clipnorm = clipnorm, clipvalue, global_clipnorm
        self.use_ema, self.ema_momentum = use_ema, ema_momentum
        self.ema_overwrite_frequency = ema_overwrite_frequency if use_ema else None
        self.loss_scale_factor = loss_scale_factor
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self._check_arguments()
        self.built = False
        self._variables: list[Variable] = []
        self._trainable_variables: list[Variable] = []
        self._places: dict[Variable, int] = {}
        self._slots: list[list[Variable]] = []
        self._averages: list[Variable] = []
        self.averages_swapped = False  # whether the variables hold their averages
        self._accumulators: list[Variable] = []
        self._undecayed: set[Variable] = set()
        self._undecayed_names: list[str] = []
        self._decayed: list[bool] | None = None
        self._warned = False
        self._iterations = self._own(Variable(0, dtype="int32", trainable=False, name="iteration"))
        self._learning_rate: Any = None
        self._start_learning_rate(learning_rate)

    def _check_arguments(self) -> None:
        who = type(self).__name__
        clips = {k: getattr(self, k) for k in ("clipnorm", "clipvalue", "global_clipnorm")}
        given = {k: v for k, v in clips.items() if v is not None}
        if len(given) > 1:
            raise ValueError(f"{who}: give one of {list(clips)} at most, got {given}.")
        for name, value in given.items():
            if not value > 0:
                raise ValueError(f"{who}: {name} must be positive, got {value!r}.")
        if self.use_ema and not 0 <= self.ema_momentum <= 1:
            raise ValueError(f"{who}: 0 <= ema_momentum <= 1 expected, got {self.ema_momentum!r}.")
        frequency = self.ema_overwrite_frequency
        if frequency is not None and (not isinstance(frequency, int) or frequency < 1):
            raise ValueError(
                f"{who}: ema_overwrite_frequency must be a whole number >= 1, got {frequency!r}."
            )
        steps = self.gradient_accumulation_steps
        if steps is not None and (not isinstance(steps, int) or steps < 2):
            raise ValueError(
                f"{who}: gradient_accumulation_steps must be a whole number >= 2, got {steps!r}."
            )

    # --- learning rate and counter --------------------------------------------------------------

    def _start_learning_rate(self, value: Any) -> None:
        if isinstance(value, Mapping):
            value = deserialize_keras_object(value)
        if callable(value) and not hasattr(value, "__array__"):
            self._learning_rate = value
            return
        number = self._number(value)
        made = Variable(number, dtype="float32", trainable=False, name="learning_rate")
        self._learning_rate = self._own(made)

    def _number(self, value: Any) -> Any:
        try:
            fits = not isinstance(value, str) and float(value) >= 0
        except (TypeError, ValueError):
            fits = False
        if not fits:
            raise ValueError(
                f"{type(self).__name__}: learning_rate must be a number >= 0, a "
                f"LearningRateSchedule or a function, got {value!r}."
            )
        return float(value)

    @property
    def learning_rate(self) -> Any:
        """The learning rate now: the variable, or what the schedule or function gives."""
        rate = self._learning_rate
        if isinstance(rate, Variable):
            return rate
        if isinstance(rate, LearningRateSchedule):
            return rate(self._iterations)
        return rate()

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        rate = self._learning_rate
        if callable(value) and not isinstance(value, (Tensor, Variable)):
            if isinstance(rate, Variable):
                self._variables = [v for v in self._variables if v is not rate]
            self._learning_rate = value
        elif isinstance(rate, Variable):
            rate.assign(value if isinstance(value, (Tensor, Variable)) else self._number(value))
        else:
            raise TypeError(
                f"{type(self).__name__}: the learning rate is a schedule or function and cannot be "
                "set to a number; make the optimizer with a number for that."
            )

    @property
    def iterations(self) -> Any:
        """How many updates were made: a variable (a tensor, with gradient accumulation)."""
        steps = self.gradient_accumulation_steps
        return ops.floor_divide(self._iterations, steps) if steps else self._iterations

    @iterations.setter
    def iterations(self, variable: Variable) -> None:
        if self.built:
            raise RuntimeError(f"{type(self).__name__} is built: its counter stays the one it has.")
        self._variables = [v for v in self._variables if v is not self._iterations]
        self._iterations = variable
        self._variables.insert(0, variable)

    # --- variables --------------------------------------------------------------------------

    @property
    def variables(self) -> list[Variable]:
        """All of its own variables: the counter, the learning rate (a number), then the slots."""
        return list(self._variables)

    def _own(self, variable: Variable) -> Variable:
        variable.path = f"{self.name}/{variable.name}"
        self._variables.append(variable)
        return variable

    def build(self, variables: Sequence[Variable]) -> None:
        """Make the slots for `variables`; once for life."""
        if self.built:
            return
        variables = list(variables)
        self._trainable_variables = variables
        self._places = {v: i for i, v in enumerate(variables)}
        self._slots = [[] for _ in variables]
        if self.use_ema:
            self._averages = [self.add_variable_from_reference(v, "average") for v in variables]
        if self.gradient_accumulation_steps:
            name = "gradient_accumulator"
            self._accumulators = [self.add_variable_from_reference(v, name) for v in variables]
        self.built = True

    def add_variable(
        self,
        shape: Any,
        initializer: Any = "zeros",
        dtype: str | None = None,
        aggregation: str = "none",
        layout: Any = None,
        name: str | None = None,
    ) -> Variable:
        """Return a new variable of the optimizer."""
        made = Variable(
            initializers.get(initializer), shape=shape, dtype=dtype or "float32", trainable=False,
            aggregation=aggregation, layout=layout, name=name,
        )  # fmt: skip
        return self._own(made)

    def add_variable_from_reference(
        self, reference_variable: Variable, name: str | None = None, initializer: Any = "zeros"
    ) -> Variable:
        """Return a new variable of the reference's shape and dtype."""
        return self.add_variable(
            reference_variable.shape,
            initializer,
            reference_variable.dtype,
            name=_slot_name(reference_variable, name),
        )

    def add_optimizer_variables(
        self,
        trainable_variables: Sequence[Variable],
        name: str | Sequence[str],
        initializer: Any = "zeros",
    ) -> Any:
        """Return slots, one a variable: a list, or for several names a tuple of lists.

        They become the `slots` that `update` gets, in the order of their making.
        """
        names = [name] if isinstance(name, str) else list(name)
        many = [initializer] * len(names) if not isinstance(initializer, (list, tuple)) else (
            initializer
        )  # fmt: skip
        lists: list[list[Variable]] = [[] for _ in names]
        for v in trainable_variables:
            for made, slot, first in zip(lists, names, many):
                made.append(self.add_variable_from_reference(v, slot, first))
                self._slots[self._places[v]].append(made[-1])
        return lists[0] if isinstance(name, str) else tuple(lists)

    def _get_variable_index(self, variable: Variable) -> int:
        """Return the variable's number (for optimizers written with `update_step`)."""
        return self._places[variable]

    def assign(self, variable: Variable, value: Any) -> None:
        """Set a variable (for optimizers written with `update_step`)."""
        variable.assign(value)

    def assign_add(self, variable: Variable, value: Any) -> None:
        """Add to a variable (for optimizers written with `update_step`)."""
        variable.assign_add(value)

    def assign_sub(self, variable: Variable, value: Any) -> None:
        """Subtract from a variable (for optimizers written with `update_step`)."""
        variable.assign_sub(value)

    # --- what a subclass writes -----------------------------------------------------------------

    def update(self, value: Any, gradient: Any, slots: list[Any], c: Any) -> tuple[Any, ...]:
        """Return the new value of one variable and of its slots; pure.

        Args:
            value: the variable's present value, weight decay already taken off.
            gradient: its gradient, of the same shape and dtype.
            slots: the present values of its slots.
            c: what `coefficients` returned for this dtype.
        """
        raise NotImplementedError(f"{type(self).__name__} must write update or update_step.")

    def coefficients(self, learning_rate: Any, dtype: str, shared: Updates) -> Any:
        """Return the numbers that `update` needs for all variables of a dtype, made once a step.

        Args:
            learning_rate: a tensor of this dtype without axes.
            shared: what `shared_updates` returned.
        """
        return {"learning_rate": learning_rate}

    def fused_rule(self) -> tuple[str, dict[str, Any]] | None:
        """Return (name, numbers) by which an engine may know `update`; None: by no name."""
        return None

    def shared_updates(self, loss: Any) -> Updates:
        """Return new values of scalars that serve all variables."""
        return {}

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        """Assign the new value of one variable and its slots; Keras's optimizers override it."""
        rate = convert(learning_rate)
        new = self._descend([convert(gradient)], [variable], rate, self.shared_updates(None))
        for v, value in new.items():
            v.assign(value)

    def _step(self, dtype: str) -> Any:
        """Return the number of the update being made, 1 for the first."""
        return ops.cast(ops.add(self.iterations, 1), dtype)

    # --- the step ---------------------------------------------------------------------------

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
        for variable, value in self.updates(grads, variables, **signals):
            variable.assign(value)

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Variable]]) -> Any:
        """Change variables by pairs (gradient, variable); return the counter."""
        pairs = list(grads_and_vars)
        self.apply([g for g, _ in pairs], [v for _, v in pairs])
        return self._iterations

    def updates(
        self, gradients: Sequence[Any], variables: Sequence[Variable], loss: Any = None
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
        self, gradients: list[Any], variables: list[Variable], loss: Any, new: Updates
    ) -> None:
        if self.loss_scale_factor is not None:
            gradients = [ops.multiply(g, 1.0 / self.loss_scale_factor) for g in gradients]
        steps, due = self.gradient_accumulation_steps, None
        if steps:
            due = self._is_due()
            slots = [self._accumulators[self._places[v]] for v in variables]
            gradients = gather(gradients, slots, due, steps, new)
        rate = convert(self.learning_rate)
        found = self._run_steps(gradients, variables, rate, loss)
        if due is not None:
            found = {v: ops.where(due, value, v.value) for v, value in found.items()}
        new.update(found)
        if self.use_ema:
            self._average(new)
        for v in variables:
            if v.constraint is not None:
                new[v] = convert(v.constraint(new[v]))

    def _run_steps(
        self, gradients: list[Any], variables: list[Variable], rate: Any, loss: Any
    ) -> Updates:
        shared = self.shared_updates(loss)
        if type(self).update_step is Optimizer.update_step:
            found = fused_update(self, gradients, variables, rate)
            if found is None:
                found = self._descend(self._clipped(gradients), variables, rate, shared, True)
            return {**shared, **found}
        gradients = self._clipped(gradients)
        scope = VariableScope()
        with using_scope(scope):
            for v in variables:
                if self._decays(v):
                    v.assign(_decayed(v.value, self._decay_of(v), ops.cast(rate, v.dtype)))
            for g, v in zip(gradients, variables):
                self.update_step(g, v, rate)
        return {**shared, **scope.written}

    def _descend(
        self,
        gradients: Sequence[Any],
        variables: Sequence[Variable],
        rate: Any,
        shared: Updates,
        decay: bool = False,
    ) -> Updates:
        new: Updates = {}
        made: dict[str, tuple[Any, Any]] = {}
        for g, v in zip(gradients, variables):
            value = v.value
            dtype = value.dtype
            if dtype not in made:
                made[dtype] = self._scalars(rate, dtype, shared)
            own, c = made[dtype]
            if g.dtype != dtype:
                g = ops.cast(g, dtype)
            if decay and self.weight_decay is not None and self._decays(v):
                value = _decayed(value, self._decay_of(v), own)
            slots = self._slots[self._places[v]]
            new[v], *rest = self.update(value, g, [s.value for s in slots], c)
            new.update(zip(slots, rest))
        return new

    def _scalars(self, rate: Any, dtype: str, shared: Updates) -> tuple[Any, Any]:
        """Return the learning rate and the coefficients in `dtype`."""
        # In 16 bits 1 - 0.999 would be nothing: made in float32 first.
        wide = "float32" if dtype in ("float16", "bfloat16") else dtype
        own = rate if rate.dtype == wide else ops.cast(rate, wide)
        made = own, self.coefficients(own, wide, shared)
        if wide == dtype:
            return made
        return tree.map_structure(lambda x: ops.cast(x, dtype), made)  # type: ignore[no-any-return]

    def _fitting(self, grads: list[Any], variables: Sequence[Variable] | None) -> list[Variable]:
        """Return the variables of the gradients, checked."""
        who = type(self).__name__
        if variables is None:
            if not self.built:
                raise ValueError(f"{who}: give the variables, or call build(variables) first.")
            variables = self._trainable_variables
        elif not self.built:
            self.build(variables)
        if len(grads) != len(variables):
            raise ValueError(f"{who}: {len(grads)} gradients for {len(variables)} variables.")
        for v in variables:
            if v not in self._places:
                raise ValueError(
                    f"{who}: variable {getattr(v, 'path', v)!r} is not among those that the "
                    "optimizer was built for; make a new optimizer for other variables."
                )
        return list(variables)

    def _present(
        self, grads: Sequence[Any], variables: Sequence[Variable], new: Updates
    ) -> tuple[list[Any], list[Variable]]:
        """Return gradients and variables without those that have none, or that they replace."""
        kept: list[tuple[Any, Variable]] = []
        missing: list[str] = []
        for g, v in zip(grads, variables):
            if g is None:
                missing.append(v.path)
            elif v.overwrite_with_gradient:
                self._overwrite(v, convert(g, v.dtype), new)
            else:
                kept.append((convert(g), v))
        if missing and not kept and not new:
            raise ValueError(
                f"{type(self).__name__}: no gradient for any of the variables {missing[:5]}."
            )
        if missing and not self._warned:
            self._warned = True
            warnings.warn(
                f"{type(self).__name__}: no gradient for the variables {missing}; they stay as "
                "they are. Does the loss depend on them?",
                stacklevel=4,
            )
        for g, v in kept:
            if g.shape != v.shape:
                raise ShapeError(
                    f"{type(self).__name__}: the gradient of {v.path!r} must have the shape "
                    f"{v.shape}, got {g.shape}."
                )
        return [g for g, _ in kept], [v for _, v in kept]

    def _overwrite(self, variable: Variable, gradient: Any, new: Updates) -> None:
        if self.gradient_accumulation_steps:
            slot = self._accumulators[self._places[variable]]
            overwrite(variable, gradient, slot, self._is_due(), new)
        else:
            new[variable] = gradient

    def _is_due(self) -> Any:
        return is_due(self._iterations.value, self.gradient_accumulation_steps or 1)

    def _clipped(self, gradients: list[Any]) -> list[Any]:
        if self.clipnorm is not None:
            return [clip_by_norm(g, self.clipnorm) for g in gradients]
        if self.global_clipnorm is not None:
            return clip_by_global_norm(gradients, self.global_clipnorm)
        if self.clipvalue is not None:
            return [ops.clip(g, -self.clipvalue, self.clipvalue) for g in gradients]
        return gradients

    def _average(self, new: Updates) -> None:
        # The first step takes the variables as they are; the iteration counts before this step.
        first = ops.equal(self.iterations, 0)
        frequency = self.ema_overwrite_frequency
        due = frequency and ops.equal(ops.mod(ops.add(self.iterations, 1), frequency), 0)
        for v, slot in zip(self._trainable_variables, self._averages):
            value = new.get(v)
            value = v.value if value is None else value
            momentum = ops.where(first, 0.0, self.ema_momentum)
            kept = ops.multiply(slot.value, ops.cast(momentum, v.dtype))
            fresh = ops.multiply(value, ops.cast(ops.subtract(1.0, momentum), v.dtype))
            new[slot] = ops.add(kept, fresh)
            if due is not None:
                new[v] = ops.where(due, new[slot], value)

    def stateless_apply(
        self,
        optimizer_variables: Sequence[Any],
        grads: Sequence[Any],
        trainable_variables: Sequence[Any],
    ) -> tuple[list[Any], list[Any]]:
        """Return the new values of the trainable and of the optimizer's variables; pure.

        Args:
            optimizer_variables: values of `self.variables`, in order.
            grads: one gradient a variable.
            trainable_variables: values of the variables that the optimizer was built for.
        """
        if not self.built:
            raise ValueError(f"{type(self).__name__}: call build(variables) before.")
        own, trained = self.variables, self._trainable_variables
        for given, wanted, what in (
            (optimizer_variables, own, "optimizer_variables"),
            (trainable_variables, trained, "trainable_variables"),
        ):
            if len(given) != len(wanted):
                raise ValueError(
                    f"{type(self).__name__}.stateless_apply: {what} must hold {len(wanted)} "
                    f"values, got {len(given)}."
                )
        values = [*optimizer_variables, *trainable_variables]
        scope = VariableScope(dict(zip([*own, *trained], values)))
        with using_scope(scope):
            self.apply(list(grads), trained)
        return [scope.read(v) for v in trained], [scope.read(v) for v in own]

    def scale_loss(self, loss: Any) -> Any:
        """Return the loss times `loss_scale_factor`, whose gradients `apply` scales back."""
        factor = self.loss_scale_factor
        return loss if factor is None else ops.multiply(loss, factor)

    # --- weight decay and averages ----------------------------------------------------------------

    def exclude_from_weight_decay(
        self, var_list: Sequence[Variable] | None = None, var_names: Sequence[str] | None = None
    ) -> None:
        """Let weight decay leave variables alone: those given, and those whose path has a match.

        Args:
            var_list: variables.
            var_names: regular expressions.
        """
        self._undecayed.update(var_list or ())
        self._undecayed_names.extend(var_names or ())
        self._decayed = None

    def _decay_of(self, variable: Variable) -> float:
        return self.weight_decay or 0.0

    def _decays(self, variable: Variable) -> bool:
        if self.weight_decay is None:
            return False
        if self._decayed is None:
            self._decayed = [self._use_weight_decay(v) for v in self._trainable_variables]
        return self._decayed[self._places[variable]]

    def _use_weight_decay(self, variable: Variable) -> bool:
        if variable in self._undecayed:
            return False
        names = (variable.name, variable.path)
        return not any(re.search(p, name) for p in self._undecayed_names for name in names)

    def finalize_variable_values(self, var_list: Sequence[Variable]) -> None:
        """Put the running averages (use_ema) into the variables; `fit` does so at its end."""
        for v, average in self._averaged(var_list):
            if self.averages_swapped:  # what training moved, nobody needs again
                average.assign(v.value)
            else:
                v.assign(average.value)
        self.averages_swapped = False

    def swap_averages(self, var_list: Sequence[Variable]) -> None:
        """Exchange the variables with their running averages (use_ema); twice: as it was."""
        for v, average in self._averaged(var_list):
            kept = v.numpy().copy()
            v.assign(average.value)
            average.assign(kept)
        self.averages_swapped = not self.averages_swapped

    def _averaged(self, variables: Sequence[Variable]) -> list[tuple[Variable, Variable]]:
        known = variables if self.use_ema and self.built else ()
        return [(v, self._averages[self._places[v]]) for v in known if v in self._places]

    # --- saving -------------------------------------------------------------------------------

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Set all of its variables, in the order of `variables`."""
        if not self.built:
            raise ValueError(f"{type(self).__name__}: call build(variables) before set_weights.")
        own = self.variables
        if len(weights) != len(own):
            raise ValueError(
                f"{type(self).__name__}.set_weights: {len(own)} arrays expected, got "
                f"{len(weights)}."
            )
        self._assign_all(own, [np.asarray(w) for w in weights])

    def _assign_all(self, own: Sequence[Variable], arrays: Sequence[Any]) -> None:
        for v, array in zip(own, arrays):
            if tuple(array.shape) != v.shape:
                raise ShapeError(
                    f"{type(self).__name__}: the variable {v.path!r} has the shape {v.shape}, got "
                    f"{tuple(array.shape)}. Nothing was changed."
                )
        for v, array in zip(own, arrays):
            v.assign(array)

    def save_own_variables(self, store: Any) -> None:
        """Put the variables into `store` under "0", "1" and so on."""
        for i, v in enumerate(self.variables):
            store[str(i)] = v.numpy()

    def load_own_variables(self, store: Any) -> None:
        """Take the variables from `store`; with another number of them, warn and stay fresh."""
        if len(store.keys()) != len(self.variables):
            warnings.warn(
                f"{type(self).__name__} has {len(self.variables)} variables, the file "
                f"{len(store.keys())}; the optimizer stays as it is.",
                stacklevel=2,
            )
            return
        own = self.variables
        self._assign_all(own, [store[str(i)] for i in range(len(own))])

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments; a learning rate that was set counts as given."""
        rate = self._learning_rate
        return {
            "name": self.name,
            "learning_rate": (
                float(rate.numpy()) if isinstance(rate, Variable) else serialize_keras_object(rate)
            ),
            "weight_decay": self.weight_decay,
            "clipnorm": self.clipnorm,
            "global_clipnorm": self.global_clipnorm,
            "clipvalue": self.clipvalue,
            "use_ema": self.use_ema,
            "ema_momentum": self.ema_momentum,
            "ema_overwrite_frequency": self.ema_overwrite_frequency,
            "loss_scale_factor": self.loss_scale_factor,
            "gradient_accumulation_steps": self.gradient_accumulation_steps,
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Any:
        """Return the optimizer that `get_config` described."""
        config = dict(config)
        if isinstance(config.get("learning_rate"), Mapping):
            config["learning_rate"] = deserialize_keras_object(
                config["learning_rate"], custom_objects
            )
        return cls(**config)


def _decayed(value: Any, decay: float, rate: Any) -> Any:
    return ops.subtract(value, ops.multiply(value, ops.multiply(rate, decay)))


def _slot_name(variable: Variable, name: str | None) -> str:
    parts = [(getattr(variable, "path", "") or variable.name).replace("/", "_")]
    return "_".join([*parts, name] if name else parts)


__all__ = ["Optimizer", "Updates"]
