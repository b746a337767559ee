"""Steps that take effect all or none: a scope that keeps assignments until the step is over."""

from __future__ import annotations

from typing import Any

from kerasish.tensor import Scope, Tensor, Variable, wrap


class Journal(Scope):
    """Keeps what a step assigns; reading gives the newest value.

    `commit` makes the assignments. A Ctrl-C in the middle of it is answered after all are made,
    so that the variables always belong to one finished step.
    """

    def __init__(self) -> None:
        self.written: dict[Variable, Tensor] = {}

    def read(self, variable: Variable) -> Tensor:
        """Return what the step assigned, or the variable's own value."""
        return self.written[variable] if variable in self.written else variable._leaf

    def write(self, variable: Variable, value: Tensor) -> None:
        """Keep the assignment."""
        leaf = wrap(value.value)
        leaf.key = variable._key
        leaf.tracked = variable._leaf.tracked
        self.written[variable] = leaf

    def commit(self) -> None:
        """Make the assignments, all of them."""
        pending: Any = None
        while True:
            try:
                for variable, value in self.written.items():
                    variable._leaf = value
                break
            except KeyboardInterrupt as interrupt:
                pending = interrupt
        if pending is not None:
            raise pending
