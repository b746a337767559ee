"""A scope in which variables have values of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kerasish.scopes import Scope
from kerasish.tensor.tensor import Tensor, convert
from kerasish.tensor.variable import Variable


class VariableScope(Scope):
    """Keeps what is assigned to variables until `commit`; reads see what was given and assigned.

    Scopes nest: a variable that has no value here is read from the scope around this one, and
    what is committed is assigned there. Outside all scopes that is the variable itself.

    Args:
        values: variable -> the value that it has here at first.

    Attributes:
        given: variable -> the value given at first.
        written: variable -> the value assigned last.
    """

    def __init__(self, values: Mapping[Variable, Any] | None = None) -> None:
        self.given = {v: convert(value, v.dtype) for v, value in (values or {}).items()}
        self.written: dict[Variable, Tensor] = {}

    def read(self, variable: Variable) -> Tensor:
        """Return what was assigned here, else what was given, else the value outside."""
        value = self.written.get(variable)
        if value is None and self.given:
            value = self.given.get(variable)
        if value is not None:
            return value
        return variable.latest if self.outer is None else self.outer.read(variable)

    def write(self, variable: Variable, value: Tensor) -> None:
        """Keep the assignment."""
        self.written[variable] = variable.leaf_of(value.value)

    def commit(self) -> None:
        """Make all assignments in the scope around this one, and forget them here.

        A Ctrl-C in the middle of it is answered after all are made, so that the variables always
        belong to one finished step.
        """
        pending: KeyboardInterrupt | None = None
        while self.written:
            try:
                for variable, value in self.written.items():
                    if self.outer is None:
                        variable.latest = value
                    else:
                        self.outer.write(variable, value)
                self.written = {}
            except KeyboardInterrupt as interrupt:
                pending = interrupt
        if pending is not None:
            raise pending
