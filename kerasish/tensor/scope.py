"""A scope with separate values of variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kerasish.devices import _State as _devices
from kerasish.scopes import Scope, _autocast, _scopes
from kerasish.tensor.tensor import Tensor, convert
from kerasish.tensor.variable import Variable, keep_all


class VariableScope(Scope):
    """Keeps assignments to variables until `commit`; reads return given and assigned values.

    Scopes nest: a variable that has no value here is read from the enclosing scope, and `commit`
    assigns there. Outside all scopes that is the variable itself.

    Args:
        values: variable -> its initial value here.

    Attributes:
        given: variable -> its initial value.
        written: variable -> the value assigned last.
    """

    def __init__(self, values: Mapping[Variable, Any] | None = None) -> None:
        self.given = {v: convert(value, v.dtype) for v, value in (values or {}).items()}
        self.written: dict[Variable, Tensor] = {}

    def read(self, variable: Variable) -> Tensor:
        """Return the value assigned here, else the initial value, else the value outside."""
        value = self.written.get(variable)
        if value is None and self.given:
            value = self.given.get(variable)
        if value is not None:
            return value
        if self.outer is not None:
            return self.outer.read(variable)
        leaf = variable._current if variable.store is None else None
        return variable.latest if leaf is None else leaf

    def write(self, variable: Variable, value: Tensor) -> None:
        """Keep the assignment."""
        self.written[variable] = variable.leaf_of(value.value)

    def commit(self) -> None:
        """Make all assignments in the enclosing scope, and drop them here.

        Ctrl-C during this is handled after all assignments, so that the variables always belong to
        one finished step.
        """
        pending: KeyboardInterrupt | None = None
        while self.written:
            try:
                if self.outer is None:
                    keep_all(self.written)
                else:
                    for variable, value in self.written.items():
                        self.outer.write(variable, value)
                self.written = {}
            except KeyboardInterrupt as interrupt:
                pending = interrupt
        if pending is not None:
            raise pending


def values_of(variables: Iterable[Variable]) -> list[Tensor]:
    """Return the current value of each variable: a faster `Variable.value`.

    Example:
        >>> [float(x) for x in values_of([Variable(1.0), Variable(2.0)])]
        [1.0, 2.0]
    """
    scope = _scopes.top
    if type(scope) is not VariableScope or scope.given or _autocast.dtype is not None:
        return [v.value for v in variables]
    if scope.outer is not None:
        return [v.value for v in variables]
    result, written = [], scope.written.get
    for v in variables:
        value = written(v)
        if value is None:
            value = v._current if v.store is None else None
        result.append(v.value if value is None else value)
    return result


def put_all(pairs: Iterable[tuple[Variable, Any]]) -> None:
    """Set the value of each variable: a faster `Variable.put`.

    Args:
        pairs: (variable, value).
    """
    scope = _scopes.top
    plain = type(scope) is VariableScope and not _devices.accelerated
    for v, value in pairs:
        leaf = v._current
        if plain and type(value) is Tensor and leaf is not None and v.store is None:
            new, old = value.value, leaf.value
            if new.dtype is old.dtype and new.shape == old.shape:
                scope.written[v] = v.leaf_of(new)  # type: ignore[union-attr]
                continue
        v.put(value)
