"""What a layer adds to the loss: penalties of a call, and those on its weights."""

from __future__ import annotations

from typing import Any

from kerasish import ops, tree
from kerasish.engine.layer.call_context import NOWHERE, context
from kerasish.tensor import convert
from kerasish.typing import AnyTensor


class LossesMixin:
    """The part of a layer for losses; mixed into `Layer`."""

    def add_loss(self: Any, loss: AnyTensor) -> None:
        """Add a number (or several) to what training minimizes, for the call under way."""
        if context.root is NOWHERE:
            return
        for one in tree.flatten(loss):
            result = convert(one)
            if result.shape != ():
                result = ops.sum(result)
            root = context.root
            if root is not None and root is not self:
                root._losses.append(result)
            if self._losses_of != context.serial and root is not None:
                self._losses, self._losses_of = [], context.serial
            self._losses.append(result)

    def add_metric(self, *args: Any, **kwargs: Any) -> None:
        """Not part of Keras 3: raises, and says what to do."""
        raise TypeError(
            "add_metric was removed in Keras 3: keep a metric as an attribute of the layer and "
            "call its update_state() in call()."
        )

    @property
    def losses(self: Any) -> list[Any]:
        """The penalties of the last call, then those on the weights."""
        penalties = [
            v.regularizer(v)
            for v in self.trainable_weights
            if getattr(v, "regularizer", None) is not None
        ]
        return [*self._losses, *penalties]
