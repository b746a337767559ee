"""The parts of a layer: layers, variables, metrics and seeds held as attributes."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from kerasish.engine.layer.operation import Operation
from kerasish.metrics.metric import Metric
from kerasish.random import SeedGenerator
from kerasish.tensor import Variable

# Attributes in which no parts of a layer are looked for.
_NOT_PARTS = {
    "inbound_nodes", "_arguments", "_losses", "input_spec", "_weights",
}  # fmt: skip


_PLAIN = frozenset((int, float, bool, str, type(None), FunctionType))  # what holds no parts
_STRUCTURES = (list, tuple, set, dict)


def _find_parts(value: Any, parts: dict[int, Any], around: tuple[int, ...] = ()) -> None:
    if isinstance(value, (PartsMixin, Variable, Metric, SeedGenerator)):
        parts.setdefault(id(value), value)
    elif isinstance(value, _STRUCTURES) and id(value) not in around:
        around = (*around, id(value))  # a list may hold itself
        for part in value.values() if isinstance(value, dict) else value:
            if type(part) not in _PLAIN:
                _find_parts(part, parts, around)


class PartsMixin(Operation):
    """What a layer holds: layers, variables, metrics, seed generators."""

    _weights: list[Variable]
    built: bool

    def _parts(self) -> list[Any]:
        """Return the layers, metrics, seed generators and variables held as attributes, once."""
        results: dict[int, Any] = {}
        for name, value in list(self.__dict__.items()):
            if type(value) not in _PLAIN and name not in _NOT_PARTS:
                _find_parts(value, results)
        return list(results.values())

    @property
    def _layers(self) -> list[Any]:
        return self._inner(self._parts())

    def _inner(self, parts: list[Any]) -> list[Any]:
        """Return the layers among the parts, in the order of files and summaries."""
        return [p for p in parts if isinstance(p, PartsMixin)]

    def flatten_layers(self, include_self: bool = True, recursive: bool = True) -> list[Any]:
        results = [layer for layer, _ in self._every_part(recursive)]
        return results if include_self else results[1:]

    def _flatten_layers(self, include_self: bool = True, recursive: bool = True) -> list[Any]:
        """Return `flatten_layers`: packages for Keras call it by this name."""
        return self.flatten_layers(include_self, recursive)

    def _every_part(self, recursive: bool = True) -> list[tuple[Any, list[Any]]]:
        """Return (layer, its own parts) for this layer and those inside."""
        results: list[tuple[Any, list[Any]]] = []
        seen: set[int] = set()
        waiting: list[Any] = [self]
        while waiting:
            layer = waiting.pop()
            if id(layer) in seen:
                continue
            seen.add(id(layer))
            parts = layer._parts()
            results.append((layer, parts))
            if recursive or layer is self:
                waiting.extend(reversed(layer._inner(parts)))
        return results

    def own_variables(self, parts: list[Any] | None = None) -> list[Variable]:
        parts = self._parts() if parts is None else parts
        own = [*self._weights, *[p for p in parts if isinstance(p, Variable)]]
        unique = list({id(v): v for v in own}.values())
        first = [v for v in unique if v.initially_trainable]
        return first + [v for v in unique if not v.initially_trainable]

    def _collect(self, extra: bool) -> list[Variable]:
        results: dict[int, Variable] = {}
        for layer, parts in self._every_part():
            for v in layer.own_variables(parts):
                results.setdefault(id(v), v)
            if extra:
                for part in parts:
                    if isinstance(part, SeedGenerator):
                        results.setdefault(id(part.state), part.state)
        return list(results.values())

    @property
    def variables(self) -> list[Variable]:
        """All variables: weights and the states of seed generators; metrics' are not among them."""
        return self._collect(True)

    @property
    def weights(self) -> list[Variable]:
        """The variables that files hold: no seeds, no metrics."""
        return self._collect(False)

    @property
    def trainable_variables(self) -> list[Variable]:
        """The variables that training changes."""
        return [v for v in self.variables if v.trainable] if self.trainable else []

    @property
    def non_trainable_variables(self) -> list[Variable]:
        """The variables that training does not change."""
        every = self.variables
        return [v for v in every if not v.trainable] if self.trainable else every

    @property
    def trainable_weights(self) -> list[Variable]:
        """The weights that training changes."""
        return [v for v in self.weights if v.trainable] if self.trainable else []

    @property
    def non_trainable_weights(self) -> list[Variable]:
        """The weights that training does not change."""
        every = self.weights
        return [v for v in every if not v.trainable] if self.trainable else every

    @property
    def metrics(self) -> list[Metric]:
        """The metrics held by this layer and its parts."""
        results: dict[int, Metric] = {}
        for _, parts in self._every_part():
            for part in parts:
                if isinstance(part, Metric):
                    results.setdefault(id(part), part)
        return list(results.values())

    @property
    def metrics_variables(self) -> list[Variable]:
        """The variables of the metrics."""
        return [v for m in self.metrics for v in m.variables]

    @property
    def trainable(self) -> bool:
        """Whether training changes the weights; setting it reaches all parts."""
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self._trainable = bool(value)
        for v in self.own_variables():
            if v.initially_trainable:
                v.trainable = bool(value)
        for layer in self._layers:
            layer.trainable = value

    def display_name(self) -> str:
        return f'{type(self).__name__} "{self.name}"'
