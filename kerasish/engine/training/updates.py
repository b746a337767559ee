"""Which batches callbacks are called for."""

from __future__ import annotations

import time

from kerasish.callbacks import CallbackList
from kerasish.ranks import current_sharding

SECONDS_BETWEEN_UPDATES = 0.1


class Updates:
    """Says which batches the callbacks are called for, and by which numbers.

    Callbacks that want every batch are called once per execution: `steps_per_execution` batches,
    whose first and last number they get; as in Keras the last execution counts as if it were
    complete. Callbacks content with a few updates per second are called when the next one is due.

    Args:
        callbacks: the callbacks of this loop.
        mode: "train", "test" or "predict".
        steps: batches per execution.
    """

    def __init__(self, callbacks: CallbackList, mode: str, steps: int) -> None:
        self.every = callbacks.wants_batches(mode)
        sharding = current_sharding()
        if sharding is not None:
            # A callback on one rank only: all ranks go batch by batch.
            self.every = any(sharding.group.gather(self.every))
        self.per_call = steps if self.every else 1
        self.some = self.every or callbacks.wants_updates(mode)
        self.last = time.perf_counter()

    def begins(self, batch: int) -> bool:
        """Return whether the callbacks are called before a batch."""
        return self.every and batch % self.per_call == 0

    def ends(self, batch: int) -> bool:
        """Return whether an execution ends with a batch."""
        return (batch + 1) % self.per_call == 0

    def number(self, batch: int) -> int:
        """Return the number of the last batch of an execution."""
        return batch - batch % self.per_call + self.per_call - 1

    def due(self, batch: int) -> bool:
        """Return whether the callbacks are called after a batch."""
        if self.every:
            return self.ends(batch)
        if not self.some:
            return False
        now = time.perf_counter()
        if now - self.last < SECONDS_BETWEEN_UPDATES:
            return False
        self.last = now
        return True
