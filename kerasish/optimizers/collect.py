"""A scope that keeps assignments instead of making them."""

from __future__ import annotations

from typing import Any

from kerasish.tensor import Scope, Variable, convert, current_scope, wrap


class Collect(Scope):
    """Keeps what is assigned in `written`; variables not assigned are read from outside.

    Args:
        values: variable -> the value that it has here.
    """

    def __init__(self, values: dict[Variable, Any] | None = None) -> None:
        self.outer = current_scope()
        self.values = {v: convert(value, v.dtype) for v, value in (values or {}).items()}
        self.written: dict[Variable, Any] = {}

    def read(self, variable: Variable) -> Any:
        """Return what was assigned here, else what was given, else the value outside."""
        for known in (self.written, self.values):
            if variable in known:
                return known[variable]
        return variable._leaf if self.outer is None else self.outer.read(variable)

    def write(self, variable: Variable, value: Any) -> None:
        """Keep the assignment."""
        self.written[variable] = wrap(value.value)
