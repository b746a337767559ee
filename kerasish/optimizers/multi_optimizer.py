"""Different optimizers for different variables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from kerasish import ops
from kerasish.optimizers.loss_scale_optimizer import LossScaleOptimizer
from kerasish.optimizers.optimizer import Optimizer
from kerasish.registry import deserialize_keras_object, serialize_keras_object
from kerasish.reprs import arguments_repr
from kerasish.tensor import Tensor, Variable, autocast, no_gradient
from kerasish.tracebacks import hides_frames

if TYPE_CHECKING:
    from typing_extensions import Self


class OptimizerMap(MutableMapping[str, Optimizer]):
    """Regular expression -> optimizer of the variables whose whole path matches.

    Args:
        default_optimizer: the optimizer of all other variables.
        optimizer_map: the dictionary; None: an empty one.

    Example:
        >>> from kerasish.optimizers.sgd import SGD
        >>> known = OptimizerMap(SGD(0.1), {"encoder/.*": SGD(0.2)})
        >>> float(known["encoder/kernel"].learning_rate) > 0.15
        True
    """

    @hides_frames
    def __init__(
        self, default_optimizer: Optimizer, optimizer_map: Mapping[str, Optimizer] | None = None
    ) -> None:
        for result in (default_optimizer, *(optimizer_map or {}).values()):
            _check_inner(result)
        self.default_optimizer = default_optimizer
        self._map = dict(optimizer_map or {})

    def __getitem__(self, path: str) -> Optimizer:
        if path in self._map:
            return self._map[path]
        results = [pattern for pattern in self._map if re.fullmatch(pattern, path)]
        if len(results) > 1:
            raise ValueError(
                f"OptimizerMap: {path!r} matches more than one of its keys: {results}."
            )
        return self._map[results[0]] if results else self.default_optimizer

    def __setitem__(self, pattern: str, optimizer: Optimizer) -> None:
        if pattern in self._map:
            raise ValueError(f"OptimizerMap has an optimizer for {pattern!r} already.")
        _check_inner(optimizer)
        self._map[pattern] = optimizer

    def __delitem__(self, pattern: str) -> None:
        del self._map[pattern]

    def __len__(self) -> int:
        return len(self._map)

    def __iter__(self) -> Iterator[str]:
        return iter(self._map)

    def __call__(self, variable: Variable) -> Optimizer:
        return self[variable.path]

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, serialized."""
        return {
            "default_optimizer": serialize_keras_object(self.default_optimizer),
            "optimizer_map": {k: serialize_keras_object(v) for k, v in self._map.items()},
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> OptimizerMap:
        """Return the map that `get_config` described."""
        return cls(**deserialize_keras_object(dict(config)))

    __repr__ = arguments_repr


class MultiOptimizer(Optimizer):
    """Hands each variable to the optimizer that is chosen for it.

    Its `optimizers` are those of an OptimizerMap in their order, then its default (used or not),
    then what a function returns, as variables come.

    Args:
        optimizer_map: an OptimizerMap, or a function variable -> optimizer.
        loss_scale_factor: the loss is multiplied by it, gradients are divided by it; the
            optimizers get it in place of theirs; None: 1.
        name: the first part of its variables' paths; None: made from the class's name.

    Example:
        >>> from kerasish.optimizers.sgd import SGD
        >>> a, b = Variable([1.0], name="a"), Variable([1.0], name="b")
        >>> both = MultiOptimizer(OptimizerMap(SGD(0.5), {"b": SGD(0.25)}))
        >>> both.apply([[1.0], [1.0]], [a, b])
        >>> float(a[0]), float(b[0])
        (0.5, 0.75)
    """

    def __init__(
        self,
        optimizer_map: OptimizerMap | Callable[..., Any],
        loss_scale_factor: float | None = None,
        name: str | None = None,
    ) -> None:
        self.optimizers: list[Optimizer] = []
        super().__init__(0.0, loss_scale_factor=loss_scale_factor, name=name)
        if isinstance(optimizer_map, Mapping) and not isinstance(optimizer_map, OptimizerMap):
            optimizer_map = deserialize_keras_object(optimizer_map)
        if not callable(optimizer_map):
            raise ValueError(
                "MultiOptimizer: an OptimizerMap or a function variable -> optimizer was "
                f"expected, got {optimizer_map!r}."
            )
        self.optimizer_map: Callable[[Variable], Optimizer] = optimizer_map
        self._chosen: list[int] = []
        if isinstance(optimizer_map, OptimizerMap):
            for result in (*optimizer_map.values(), optimizer_map.default_optimizer):
                self._place_of(result)

    @property
    def variables(self) -> list[Variable]:
        """Its own variables, then those of each optimizer in use."""
        return [*self._variables, *(v for o in self.optimizers for v in o.variables)]

    @property
    def learning_rate(self) -> Variable | Tensor | float:
        """There is no single one.

        Raises:
            AttributeError: always.
        """
        raise AttributeError("A MultiOptimizer has no learning rate; ask those in `.optimizers`.")

    @learning_rate.setter
    def learning_rate(self, value: Any) -> Variable | Tensor | float:
        raise AttributeError("A MultiOptimizer has no learning rate; set those in `.optimizers`.")

    @property
    def loss_scale_factor(self) -> float | None:
        """What the loss is multiplied by; the optimizers in use divide their gradients by it."""
        return self._loss_scale_factor

    @loss_scale_factor.setter
    def loss_scale_factor(self, value: float | None) -> None:
        self._loss_scale_factor = value
        for result in self.optimizers:
            result.loss_scale_factor = value

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        chosen = [self.optimizer_map(v) for v in variables]
        for result in chosen:
            _check_inner(result)
        self._chosen = [self._place_of(result) for result in chosen]
        for place, result in enumerate(self.optimizers):
            own = [v for v, its in zip(variables, self._chosen) if its == place]
            if own:
                result.build(own)
        self.needs_loss = any(o.needs_loss for o in self.optimizers)
        super().build(variables)

    def extend(self, variables: Sequence[Variable]) -> None:
        """Make slots for variables that `build` was not given; the others keep theirs."""
        super().extend(variables)
        for place, result in enumerate(self.optimizers):
            own = [v for v, its in zip(variables, self._chosen) if its == place]
            if not result.knows(own):
                result.extend(own)

    def _place_of(self, optimizer: Optimizer) -> int:
        """Return its place in `optimizers`, a new one for one that is new."""
        for place, result in enumerate(self.optimizers):
            if result is optimizer:
                return place
        optimizer.loss_scale_factor = self.loss_scale_factor
        self.optimizers.append(optimizer)
        return len(self.optimizers) - 1

    def updates(
        self, gradients: Sequence[Any], variables: Sequence[Variable], loss: Tensor | None = None
    ) -> list[tuple[Variable, Any]]:
        groups: list[list[tuple[Any, Variable]]] = [[] for _ in self.optimizers]
        for g, v in zip(gradients, variables):
            groups[self._chosen[self._places[v]]].append((g, v))
        pairs: list[tuple[Variable, Any]] = []
        with no_gradient(), autocast(None):
            for result, group in zip(self.optimizers, groups):
                if any(g is not None for g, _ in group):
                    pairs += result.updates([g for g, _ in group], [v for _, v in group], loss)
            return [*pairs, (self._iterations, ops.add(self._iterations.value, 1))]

    def exclude_from_weight_decay(
        self, var_list: Sequence[Variable] | None = None, var_names: Sequence[str] | None = None
    ) -> None:
        """Notify the optimizers in use; after `build`."""
        for result in self.optimizers:
            result.exclude_from_weight_decay(var_list, var_names)

    def finalize_variable_values(self, var_list: Sequence[Variable]) -> None:
        """Notify the optimizers in use."""
        for number, result in enumerate(self.optimizers):
            known = [v for v in var_list if v in self._places]
            own = [v for v in known if self._chosen[self._places[v]] == number]
            if own:
                result.finalize_variable_values(own)

    def get_config(self) -> dict[str, Any]:
        return {
            "optimizer_map": serialize_keras_object(self.optimizer_map),
            "loss_scale_factor": self.loss_scale_factor,
            "name": self.name,
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        config = dict(config)
        config["optimizer_map"] = deserialize_keras_object(config["optimizer_map"], custom_objects)
        return cls(**config)


def _check_inner(optimizer: Optimizer | str) -> None:
    if not isinstance(optimizer, Optimizer):
        raise ValueError(f"An optimizer was expected, got {optimizer!r}.")
    if isinstance(optimizer, (LossScaleOptimizer, MultiOptimizer)):
        raise ValueError(
            f"A {type(optimizer).__name__} wraps a MultiOptimizer, or is used by itself; "
            "inside, plain optimizers were expected."
        )
