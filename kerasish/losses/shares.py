"""Shares: what a loss needs where a batch is computed in shards, here or on several ranks.

The loss of a shard is multiplied by the shard's share of the rows, and these products are added up.
A mean over rows is then exact as it is. A sum, and a mean over weights or over a mask, is not: its
divisor belongs to the whole batch. `reduce_losses` asks the shares in force for it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kerasish.tensor import Tensor


class Shares:
    """The divisors of one shard's losses.

    Args:
        factor: rows of the batch / rows of the shard.
        totals: the sums over all shards of what `total` is asked for, in the order of the calls;
            None: not known yet.

    Attributes:
        own: what `total` was asked for, in order.
    """

    def __init__(self, factor: float, totals: Sequence[Tensor] | None = None) -> None:
        self.factor, self.totals = factor, totals
        self.own: list[Tensor] = []

    @property
    def complete(self) -> bool:
        """Whether every total that was asked for was known."""
        return not self.own or self.totals is not None

    def total(self, own: Tensor) -> Tensor:
        """Return the sum over all shards of a number; this shard's, while it is not known."""
        self.own.append(own)
        if self.totals is None:
            return own
        return self.totals[len(self.own) - 1]


class _InForce(threading.local):
    shares: Shares | None = None


_in_force = _InForce()


def current_shares() -> Shares | None:
    """Return the shares in force in this thread; None: losses are those of whole batches."""
    return _in_force.shares


@contextmanager
def using_shares(shares: Shares | None) -> Iterator[None]:
    """Let losses of this thread be shares, inside the block."""
    before, _in_force.shares = _in_force.shares, shares
    try:
        yield
    finally:
        _in_force.shares = before
