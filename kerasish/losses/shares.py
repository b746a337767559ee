"""Shares: what a loss needs where a batch is computed in shards, here or on several ranks.

The loss of a shard is multiplied by the shard's share of the rows, and these products are added up.
A mean over rows is then exact as it is. A sum, and a mean over weights or over a mask, is not: its
divisor belongs to the whole batch. `reduce_losses` asks the shares in force for it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish import ops
from kerasish.overriding import override

if TYPE_CHECKING:
    from kerasish.tensor import Tensor


class Shares:
    """The divisors of one shard's losses.

    Args:
        factor: rows of the batch / rows of the shard.
        totals: the sums over all shards of what `total` is asked for, in the order of the calls;
            None: not known yet.

    Attributes:
        own: what `total` was called with, in order.
    """

    def __init__(self, factor: float, totals: Sequence[Tensor] | None = None) -> None:
        self.factor, self.totals = factor, totals
        self.own: list[Tensor] = []

    @property
    def complete(self) -> bool:
        """Whether every total that was asked for was known."""
        return not self.own or self.totals is not None

    def total(self, own: Tensor) -> Tensor:
        """Return the sum over all shards of numbers; this shard's, while it is not known.

        The gradient by this shard's numbers is multiplied by `factor`, as the loss is not: what
        depends on the whole batch counts once, not by the shard's share of the rows.
        """
        self.own.append(own)
        if self.totals is None:
            return own
        known = self.totals[len(self.own) - 1]
        if not own.tracked:
            return known
        moving = ops.subtract(own, ops.stop_gradient(own))  # 0, with the gradient of own
        return ops.add(known, ops.multiply(moving, self.factor))


class _InForce(threading.local):
    shares: Shares | None = None


_in_force = _InForce()


def current_shares() -> Shares | None:
    """Return the shares in force in this thread; None: losses are those of whole batches."""
    return _in_force.shares


def batch_sum(x: Tensor, axis: Any = None) -> Tensor:
    """Return the sum of x over axes; over the rows of the whole batch where these are among them.

    Args:
        x: values whose first axis counts the rows.
        axis: the axes of the sum; None: all.
    """
    total, shares = ops.sum(x, axis), current_shares()
    axes = range(len(x.shape)) if axis is None else np.atleast_1d(axis)
    if shares is None or not any(a in (0, -len(x.shape)) for a in axes):
        return total
    return shares.total(total)


def using_shares(shares: Shares | None) -> AbstractContextManager[None]:
    """Let losses of this thread be shares, inside the block."""
    return override(_in_force, "shares", shares)
