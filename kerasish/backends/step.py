"""Steps that take effect all or none: a scope that keeps assignments until the step is over."""

from __future__ import annotations

from typing import Any

from kerasish.tensor import Journal


class StepJournal(Journal):
    """Keeps what a step assigns until `commit` makes the assignments.

    A Ctrl-C in the middle of it is answered after all are made, so that the variables always
    belong to one finished step.
    """

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
