"""Weight decay: a share of each variable, times the learning rate, taken off every step."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from kerasish import ops
from kerasish.tensor import Tensor, Variable


def decayed(value: Tensor, decay: Any, rate: Tensor) -> Tensor:
    """Return value - rate * decay * value.

    Example:
        >>> decayed(ops.array([1.0, 2.0]), 0.5, ops.array(0.5)).numpy().tolist()
        [0.75, 1.5]
    """
    return ops.subtract(value, ops.multiply(value, ops.multiply(rate, decay)))


class Exclusions:
    """Variables excluded from weight decay.

    Example:
        >>> kept = Exclusions()
        >>> kept.add((), ["bias"])
        >>> kept.holds(Variable([0.0], name="bias")), kept.holds(Variable([0.0], name="kernel"))
        (True, False)
    """

    def __init__(self) -> None:
        self._variables: set[Variable] = set()
        self._names: list[str] = []
        self._known: dict[Variable, bool] = {}

    def add(self, variables: Iterable[Variable], names: Iterable[str]) -> None:
        """Exclude variables, and those whose name or path has a match for a regular expression."""
        self._variables.update(variables)
        self._names.extend(names)
        self._known.clear()

    def holds(self, variable: Variable) -> bool:
        """Return whether a variable is excluded."""
        if variable not in self._known:
            self._known[variable] = variable in self._variables or self._matches(variable)
        return self._known[variable]

    def _matches(self, variable: Variable) -> bool:
        names = (variable.name, variable.path)
        return any(re.search(pattern, name) for pattern in self._names for name in names)
