"""The point at which an interrupted training continues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class ResumePoint(NamedTuple):
    """Where a training continues.

    Attributes:
        first: the epoch that the run began with, which `peek` has opened.
        epoch: the epoch to continue with.
        batch: batches of it that are done.
        redraw: sets the process's random sequences to where they were when `epoch` began; to be
            called before the epoch is opened.
        state: what `Data.state` returned when the training was saved.
    """

    first: int
    epoch: int
    batch: int
    redraw: Callable[[], None]
    state: dict[str, Any] | None = None

    @property
    def is_start(self) -> bool:
        """Whether nothing was read: the first epoch begins."""
        return (self.epoch, self.batch) == (self.first, 0)
