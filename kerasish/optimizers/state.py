"""What an optimizer keeps: its counter, its learning rate and the slots of each variable."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish import initializers, ops
from kerasish.errors import ShapeError
from kerasish.naming import name_for
from kerasish.ops.op import using_engine
from kerasish.optimizers.options import LearningRate
from kerasish.optimizers.schedules.schedule import LearningRateSchedule
from kerasish.registry import deserialize_keras_object
from kerasish.tensor import Tensor, Variable, using_scope
from kerasish.typing import AnyTensor, InitializerLike, Shape, Structure, TensorLike
from kerasish.watched import Watched

if TYPE_CHECKING:
    from kerasish.optimizers.division import Division


class OptimizerState(Watched):
    """The variables of an optimizer, and how they are made, set and saved.

    Args:
        learning_rate: a number >= 0, a LearningRateSchedule, or a function without arguments.
        name: the first part of its variables' paths.
        gradient_accumulation_steps: how many steps make an update, None: one.
    """

    def __init__(
        self,
        learning_rate: LearningRate,
        name: str | None,
        gradient_accumulation_steps: int | None,
    ) -> None:
        self.name = name_for(self, name or None)
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self.built = False
        self.division: Division | None = None  # whether its slots are those of this rank's part
        self._variables: list[Variable] = []
        self._trainable_variables: list[Variable] = []
        self._places: dict[Variable, int] = {}
        self._slots: list[list[Variable]] = []
        self._reused: dict[str, Variable] = {}  # while it is extended: path -> present variable
        self._references: dict[Variable, Variable] = {}  # slot -> the variable whose it is
        self._iterations = self._own(Variable(0, dtype="int32", trainable=False, name="iteration"))
        self._learning_rate: Any = None
        self._start_learning_rate(learning_rate)

    # --- learning rate and counter --------------------------------------------------------------

    def _start_learning_rate(self, value: LearningRate) -> None:
        if isinstance(value, Mapping):
            value = deserialize_keras_object(value)
        if callable(value) and not hasattr(value, "__array__"):
            self._learning_rate = value
            return
        number = self._number(value)
        result = Variable(number, dtype="float32", trainable=False, name="learning_rate")
        self._learning_rate = self._own(result)

    def _number(self, value: Any) -> float:
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
    def learning_rate(self) -> Variable | Tensor | float:
        """The learning rate now: the variable, or what the schedule or function gives."""
        rate = self._learning_rate
        if isinstance(rate, Variable):
            return rate
        if isinstance(rate, LearningRateSchedule):
            return rate(self._iterations)
        return rate()

    @learning_rate.setter
    def learning_rate(self, value: LearningRate) -> None:
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
    def iterations(self) -> Variable | Tensor:
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

    @property
    def undivided_variables(self) -> list[Any]:
        """The same variables as files hold them: whole, though ranks may divide the slots."""
        return self.variables if self.division is None else list(self.division.kept)

    def _own(self, variable: Variable) -> Variable:
        variable.path = f"{self.name}/{variable.name}"
        known = self._reused.pop(variable.path, None)
        self._variables.append(variable if known is None else known)
        return self._variables[-1]

    def slots_of(self, variable: Variable) -> list[Variable]:
        """Return the slots of a variable, in the order of their making."""
        return self._slots[self._places[variable]]

    def build(self, variables: Sequence[Variable]) -> None:
        """Make the slots for `variables`; once for life."""
        if self.built:
            return
        variables = list(variables)
        self._trainable_variables = variables
        self._places = {v: i for i, v in enumerate(variables)}
        self._slots = [[] for _ in variables]
        self.built = True

    @property
    def trainable_variables(self) -> list[Variable]:
        """The variables that `build` was given; empty before it."""
        return list(self._trainable_variables)

    def knows(self, variables: Sequence[Variable]) -> bool:
        """Return whether `build` was given all of these variables."""
        return all(v in self._places for v in variables)

    def extend(self, variables: Sequence[Variable]) -> None:
        """Make slots for variables that `build` was not given; the others keep theirs.

        A model whose Python reads values may build a layer long after the first step.

        Args:
            variables: all variables, those of `build` among them.

        Raises:
            ValueError: two variables have one path, so that their slots cannot be distinguished.
        """
        paths = [v.path for v in variables]
        for path in paths:
            if paths.count(path) > 1:
                raise ValueError(
                    f"{type(self).__name__}: a layer was built after the first step, and two "
                    f"variables are named {path!r}. Give the layers different names."
                )
        first = [v for v in self._variables if v is self._iterations or v is self._learning_rate]
        slots = [v for v in self._variables if not any(v is own for own in first)]
        values = [(v, v.latest) for v in slots]
        self._reused = {v.path: v for v in slots}
        self._variables, self.built = first, False
        try:
            with using_engine(None), using_scope(None):
                self.build(variables)
        finally:
            self._reused = {}
            for v, value in values:
                v.latest = value

    def add_variable(
        self,
        shape: Shape,
        initializer: InitializerLike = "zeros",
        dtype: str | None = None,
        aggregation: str = "none",
        layout: object = None,
        name: str | None = None,
    ) -> Variable:
        """Return a new variable of the optimizer."""
        result = Variable(
            initializers.get(initializer), shape=shape, dtype=dtype or "float32", trainable=False,
            aggregation=aggregation, layout=layout, name=name,
        )  # fmt: skip
        return self._own(result)

    def add_variable_from_reference(
        self,
        reference_variable: Variable,
        name: str | None = None,
        initializer: InitializerLike = "zeros",
    ) -> Variable:
        """Return a new variable of the reference's shape and dtype."""
        result = self.add_variable(
            reference_variable.shape,
            initializer,
            reference_variable.dtype,
            name=_slot_name(reference_variable, name),
        )
        self._references[result] = reference_variable
        return result

    def reference_of(self, variable: Variable) -> Variable | None:
        """Return whose slot a variable of the optimizer is; None for its own numbers."""
        return self._references.get(variable)

    def divide(self, segments: Sequence[Variable], division: Division | None) -> None:
        """Make slots for segments of variables instead of those for whole ones, or the reverse.

        Args:
            segments: what the slots belong to from now on.
            division: what has the whole variables; None: the segments are the variables.
        """
        first = [v for v in self._variables if v is self._iterations or v is self._learning_rate]
        self._variables, self.built, self._references = first, False, {}
        with using_engine(None), using_scope(None):
            self.build(segments)
        self.division = division

    def add_optimizer_variables(
        self,
        trainable_variables: Sequence[Variable],
        name: str | Sequence[str],
        initializer: InitializerLike | Sequence[InitializerLike] = "zeros",
    ) -> Structure:
        """Return slots, one per variable: a list, or for several names a tuple of lists.

        They become the `slots` that `update` gets, in the order of their making.
        """
        names = [name] if isinstance(name, str) else list(name)
        many = [initializer] * len(names) if not isinstance(initializer, (list, tuple)) else (
            initializer
        )  # fmt: skip
        lists: list[list[Variable]] = [[] for _ in names]
        for v in trainable_variables:
            for result, slot, first in zip(lists, names, many):
                result.append(self.add_variable_from_reference(v, slot, first))
                self.slots_of(v).append(result[-1])
        return lists[0] if isinstance(name, str) else tuple(lists)

    def _get_variable_index(self, variable: Variable) -> int:
        """Return the variable's number (for optimizers written with `update_step`)."""
        return self._places[variable]

    def assign(self, variable: Variable, value: TensorLike) -> None:
        """Set a variable (for optimizers written with `update_step`)."""
        variable.assign(value)

    def assign_add(self, variable: Variable, value: AnyTensor | float) -> None:
        """Add to a variable (for optimizers written with `update_step`)."""
        variable.assign_add(value)

    def assign_sub(self, variable: Variable, value: Structure) -> None:
        """Subtract from a variable (for optimizers written with `update_step`)."""
        variable.assign_sub(value)

    # --- saving -------------------------------------------------------------------------------

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Set all of its variables, in the order of `variables`."""
        if not self.built:
            raise ValueError(f"{type(self).__name__}: call build(variables) before set_weights.")
        own = self.undivided_variables
        if len(weights) != len(own):
            raise ValueError(
                f"{type(self).__name__}.set_weights: {len(own)} arrays expected, got "
                f"{len(weights)}."
            )
        self._assign_all(own, [np.asarray(w) for w in weights])

    def _assign_all(self, own: Sequence[Any], arrays: Sequence[Any]) -> None:
        for v, array in zip(own, arrays):
            if tuple(array.shape) != v.shape:
                raise ShapeError(
                    f"{type(self).__name__}: the variable {v.path!r} has the shape {v.shape}, got "
                    f"{tuple(array.shape)}. Nothing was changed."
                )
        for v, array in zip(own, arrays):
            v.assign(array)

    def save_own_variables(self, store: MutableMapping[str, Any]) -> None:
        """Put the variables into `store` under "0", "1" and so on."""
        for i, v in enumerate(self.undivided_variables):
            store[str(i)] = v.numpy()

    def load_own_variables(self, store: Mapping[str, Any]) -> None:
        """Take the variables from `store`; with another number of them, warn and stay fresh."""
        if len(store.keys()) != len(self.variables):
            warnings.warn(
                f"{type(self).__name__} has {len(self.variables)} variables, the file "
                f"{len(store.keys())}; the optimizer stays as it is.",
                stacklevel=2,
            )
            return
        own = self.undivided_variables
        self._assign_all(own, [store[str(i)] for i in range(len(own))])


def _slot_name(variable: Variable, name: str | None) -> str:
    parts = [(getattr(variable, "path", "") or variable.name).replace("/", "_")]
    return "_".join([*parts, name] if name else parts)
