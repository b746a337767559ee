"""SwapEMAWeights: evaluates a model with its averaged weights during training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish.callbacks.callback import Callback, Logs
from kerasish.callbacks.state_checks import check_values, is_bool

if TYPE_CHECKING:
    from kerasish.engine.model.model import Model


class SwapEMAWeights(Callback):
    """Evaluates the model with the optimizer's running averages of the weights.

    average = momentum * average + (1 - momentum) * weight, computed by an optimizer with
    `use_ema=True`. Before `evaluate`, `predict` or a validation, weights and averages are swapped;
    afterwards they are swapped back. No further copy of the weights is needed.

    Args:
        swap_on_epoch: whether the model also holds the averages from the end of each epoch to the
            start of the next, so that callbacks listed after this one (ModelCheckpoint) save them.

    Raises:
        ValueError: the optimizer was created without `use_ema=True`.

    Source: B. Polyak, A. Juditsky, Acceleration of stochastic approximation by averaging, 1992.

    Example:
        >>> import kerasish as keras
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        >>> model.compile(keras.optimizers.SGD(use_ema=True, ema_momentum=0.9), "mse")
        >>> history = model.fit([[1.0]], [[2.0]], verbose=0, callbacks=[SwapEMAWeights()])
    """

    def __init__(self, swap_on_epoch: bool = False) -> None:
        super().__init__()
        self.swap_on_epoch = swap_on_epoch

    def _optimizers(self) -> list[Any]:
        """Return the optimizers that keep averages: one, or several inside a MultiOptimizer."""
        many, optimizer = _averaging(self.model), self.model.optimizer
        if not many:
            raise ValueError(
                f"SwapEMAWeights: the optimizer {type(optimizer).__name__} keeps no averages; "
                "compile the model with one made with use_ema=True"
            )
        return many

    def _swap(self, averages_in: bool) -> None:
        """Swap weights and averages, unless the model already holds the requested ones."""
        for optimizer in self._optimizers():
            if optimizer.built and optimizer.averages_swapped != averages_in:
                optimizer.swap_averages(self.model.trainable_variables)

    def get_state(self) -> dict[str, Any]:
        """Return whether the model holds the averages."""
        swapped = self.model is not None and any(o.averages_swapped for o in self._optimizers())
        return {"averages_swapped": bool(swapped)}

    def set_state(self, state: dict[str, Any]) -> None:
        check_values("the state of SwapEMAWeights", state, {"averages_swapped": is_bool})
        if self.model is not None:
            for optimizer in self._optimizers():
                optimizer.averages_swapped = bool(state["averages_swapped"])

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._optimizers()  # raises now for a wrong optimizer, not after an epoch

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        if self.swap_on_epoch:
            self._swap(averages_in=False)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if self.swap_on_epoch:
            self._swap(averages_in=True)

    def on_test_begin(self, logs: Logs | None = None) -> None:
        self._swap(averages_in=True)

    def on_test_end(self, logs: Logs | None = None) -> None:
        self._swap(averages_in=False)

    def on_predict_begin(self, logs: Logs | None = None) -> None:
        self._swap(averages_in=True)

    def on_predict_end(self, logs: Logs | None = None) -> None:
        self._swap(averages_in=False)

    def _release(self) -> None:
        if any(optimizer.averages_swapped for optimizer in _averaging(self.model)):
            self._swap(averages_in=False)


def _averaging(model: Model) -> list[Any]:
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    many = getattr(optimizer, "optimizers", [optimizer])
    return [one for one in many if getattr(one, "use_ema", False)]
