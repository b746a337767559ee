"""A scope that keeps assignments to variables instead of making them."""

from __future__ import annotations

from kerasish.scopes import Scope
from kerasish.tensor.handle import Tensor, wrap
from kerasish.tensor.variable import Variable


class Journal(Scope):
    """Keeps what is assigned to variables; reading one gives the newest value.

    Attributes:
        written: variable -> its newest value.
    """

    def __init__(self) -> None:
        self.written: dict[Variable, Tensor] = {}

    def read(self, variable: Variable) -> Tensor:
        """Return what was assigned last, or the variable's own value."""
        return self.written[variable] if variable in self.written else variable._leaf

    def write(self, variable: Variable, value: Tensor) -> None:
        """Keep the assignment."""
        leaf = wrap(value.value)
        leaf.key, leaf.tracked = variable._key, variable._leaf.tracked
        self.written[variable] = leaf
