"""Callback: the hooks that `fit`, `evaluate` and `predict` call while they run."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kerasish.callbacks.state_checks import Check, check_values
from kerasish.reprs import arguments_repr
from kerasish.tracebacks import ShortInitTracebacks

if TYPE_CHECKING:
    from kerasish.engine.model.model import Model


Logs = dict[str, Any]
# The default of `logs`: None. Typed so that an override `def on_epoch_end(self, epoch, logs=None)`
# may write `logs["loss"]`: type checkers take the type from here, and `fit` always gives a dict.
NO_LOGS: Any = None

BATCH_HOOKS = {
    "train": (
        "on_train_batch_begin",
        "on_train_batch_end",
        "on_batch_begin",
        "on_batch_end",
    ),
    "test": ("on_test_batch_begin", "on_test_batch_end"),
    "predict": ("on_predict_batch_begin", "on_predict_batch_end"),
}
_FIRST_HOOKS = ("on_train_begin", "on_epoch_begin", "on_train_batch_begin", "on_batch_begin")


class Callback(ShortInitTracebacks):
    """Hooks around epochs and batches; override the ones you need.

    `logs` holds the results so far, such as `{"loss": 0.31, "val_loss": 0.4}`; in batch hooks these
    are the running means of the epoch. Epochs and batches count from 0. A hook sets
    `self.model.stop_training = True` to end training after the batch or the epoch.

    Attributes:
        model: the model being trained; a copy or a pickle of a callback has no model.
        params: {"verbose", "epochs", "steps"}; None for an unknown number of steps.
        every_batch: whether the batch hooks must be called for each batch. If False, they are
            called a few times per second with the latest batch, and always for the last one;
            engines can then run many steps per call.
        everywhere: whether the hooks are called on every rank of data-parallel training. If False,
            as for callbacks that write files or print, they are called only on rank 0. All ranks
            see equal logs. All ranks are given the same callbacks.
        saves_optimizer: whether hooks save the model, with the optimizer's slots. Where ranks
            divide these (`DataParallel(shard_optimizer=True)`), all ranks call `model.save()`
            together, so such hooks are called on every rank; rank 0 writes.

    Example:
        >>> class Greet(Callback):
        ...     def on_epoch_end(self, epoch, logs=None):
        ...         print("epoch", epoch, "loss", logs["loss"])
        >>> Greet().on_epoch_end(0, {"loss": 0.5})
        epoch 0 loss 0.5
    """

    params: dict[str, Any] | None = None
    every_batch: bool = True
    everywhere: bool = True
    saves_optimizer: bool = False
    _model: Any = None
    # The attributes that a checkpoint must keep so that a resumed training gives the same result.
    _state: tuple[str, ...] = ()
    _checks: Mapping[str, Check] = MappingProxyType({})  # checks of the values in the state

    def __init__(self) -> None:
        self.params = None
        self._model = None

    @property
    def model(self) -> Model:
        """The model being trained, or None before `set_model`."""
        return self._model

    def set_params(self, params: dict[str, Any] | None) -> None:
        """Set {"verbose", "epochs", "steps"} of the next run."""
        self.params = params

    def set_model(self, model: Model) -> None:
        """Set the model that the hooks use as `self.model`."""
        self._model = model

    @property
    def needs_weights(self) -> bool:
        """Whether a hook may read the model's weights before the first step.

        Then a model that its first step would build is built before. True of callbacks of the
        user's with a hook that begins something.
        """
        ours = type(self).__module__.partition(".")[0] == __name__.partition(".")[0]
        return not ours and any(has_hook(self, hook) for hook in _FIRST_HOOKS)

    def wants_batches(self, mode: str) -> bool:
        """Whether a batch hook of `mode` ("train", "test" or "predict") must see each batch."""
        return self.every_batch and self.wants_updates(mode)

    def wants_updates(self, mode: str) -> bool:
        """Whether this callback has a batch hook of `mode` at all."""
        return any(has_hook(self, hook) for hook in BATCH_HOOKS[mode])

    def get_state(self) -> dict[str, Any]:
        """Return the state that a resumed run needs: JSON values, arrays, lists of arrays."""
        return {name: getattr(self, name) for name in self._state}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the result of `get_state`; call it after `on_train_begin`, which resets it.

        Raises:
            ValueError: `state` does not have exactly this callback's names.
        """
        if set(state) != set(self._state):
            raise ValueError(
                f"{type(self).__name__}: expected a state with {sorted(self._state)}, "
                f"got {sorted(state)}"
            )
        self._check_state(state)
        for name, value in state.items():
            setattr(self, name, value)

    def _check_state(self, state: dict[str, Any]) -> None:
        """Raise ValueError if a value of `state` is of another kind than `get_state` returns."""
        check_values(f"the state of {type(self).__name__}", state, self._checks)

    def on_train_begin(self, logs: Logs = NO_LOGS) -> None: ...

    def on_train_end(self, logs: Logs = NO_LOGS) -> None: ...

    def on_test_begin(self, logs: Logs = NO_LOGS) -> None: ...

    def on_test_end(self, logs: Logs = NO_LOGS) -> None: ...

    def on_predict_begin(self, logs: Logs = NO_LOGS) -> None: ...

    def on_predict_end(self, logs: Logs = NO_LOGS) -> None: ...

    def on_epoch_begin(self, epoch: int, logs: Logs = NO_LOGS) -> None: ...

    def on_epoch_end(self, epoch: int, logs: Logs = NO_LOGS) -> None: ...

    def on_train_batch_begin(self, batch: int, logs: Logs = NO_LOGS) -> None:
        self.on_batch_begin(batch, logs)

    def on_train_batch_end(self, batch: int, logs: Logs = NO_LOGS) -> None:
        self.on_batch_end(batch, logs)

    def on_batch_begin(self, batch: int, logs: Logs = NO_LOGS) -> None: ...

    def on_batch_end(self, batch: int, logs: Logs = NO_LOGS) -> None: ...

    def on_test_batch_begin(self, batch: int, logs: Logs = NO_LOGS) -> None: ...

    def on_test_batch_end(self, batch: int, logs: Logs = NO_LOGS) -> None: ...

    def on_predict_batch_begin(self, batch: int, logs: Logs = NO_LOGS) -> None: ...

    def on_predict_batch_end(self, batch: int, logs: Logs = NO_LOGS) -> None: ...

    def _idle(self) -> tuple[str, ...]:
        """The hooks of this class that do nothing with the callback's current arguments."""
        return ()

    def _is_working(self) -> bool:
        """Whether a thread of this callback still works on something that the state refers to."""
        return False

    def flush_state(self) -> None:
        """Wait for such a thread; raise its error, if any."""

    def _release(self) -> None:
        """Close open bars and files; called when a run ends with an error."""

    def __getstate__(self) -> dict[str, Any]:
        # scikit-learn clones estimators with their callbacks; this must not copy the model.
        return {name: value for name, value in vars(self).items() if name != "_model"}

    __repr__ = arguments_repr


HOOKS = tuple(name for name in vars(Callback) if name.startswith("on_"))


def has_hook(callback: Callback, hook: str) -> bool:
    """Whether `callback` defines `hook`, in its class or on the instance."""
    own = getattr(getattr(callback, hook), "__func__", None) is not getattr(Callback, hook)
    return own and hook not in callback._idle()
