"""CallbackList: calls the same hook of many callbacks, and records which of them need batches."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from kerasish import tree
from kerasish.callbacks.callback import HOOKS, Callback, Logs, has_hook
from kerasish.callbacks.foreign import ForeignCallback, is_callback, label_of
from kerasish.callbacks.history import History
from kerasish.callbacks.progress import ProgbarLogger
from kerasish.ranks import current_group, divides_slots, writes_here

if TYPE_CHECKING:
    from kerasish.engine.model.model import Model
    from kerasish.engine.training.interface import TrainedModel

# Callback's on_train_batch_* calls on_batch_*: a callback with the latter has both hooks.
ALIASES = {"on_train_batch_begin": "on_batch_begin", "on_train_batch_end": "on_batch_end"}


class CallbackList(Callback):
    """Calls each hook on each callback in order, and only on those that have it.

    Args:
        callbacks: callbacks, also nested in lists; None for none.
        add_history: whether to add a `History` if there is none.
        add_progbar: whether to add a `ProgbarLogger` if there is none.
        model: passed to each callback by `set_model`; None: `set_model` is called later.
        params: `verbose`, `epochs`, `steps` for `set_params`.

    An error in a hook closes the other callbacks' bars and files and is raised unchanged. From
    Python 3.11 on a note on it names the callback and the hook.

    Example:
        >>> callbacks = CallbackList(add_history=True, epochs=2)
        >>> callbacks.on_epoch_end(0, {"loss": 0.5})
        >>> callbacks.history.history
        {'loss': [0.5]}
        >>> callbacks.wants_batches("train")
        False
    """

    def __init__(
        self,
        callbacks: Callback | Iterable[Any] | None = None,
        add_history: bool = False,
        add_progbar: bool = False,
        model: TrainedModel | None = None,
        **params: Any,
    ) -> None:
        super().__init__()
        self.callbacks: list[Callback] = [checked(c) for c in flattened(callbacks)]
        if add_history and self.history is None:
            self.callbacks.append(History())
        if add_progbar and not self._has(ProgbarLogger):
            self.callbacks.append(ProgbarLogger())
        self._find_hooks()
        if model is not None:
            self.set_model(cast("Model", model))
        if params:
            self.set_params(params)

    @property
    def history(self) -> History | None:
        """The first `History` of the list, or None."""
        return next((c for c in self.callbacks if isinstance(c, History)), None)

    def append(self, callback: Callback) -> None:
        """Add `callback` at the end, with the model and the params of the list."""
        callback = checked(callback)
        self.callbacks.append(callback)
        if self._model is not None:
            callback.set_model(self._model)
        if self.params is not None:
            callback.set_params(self.params)
        self._find_hooks()

    def set_params(self, params: dict[str, Any] | None) -> None:
        self.params = params
        for callback in self.callbacks:
            callback.set_params(params)

    def set_model(self, model: Model) -> None:
        super().set_model(model)
        for callback in self.callbacks:
            callback.set_model(model)

    def wants_batches(self, mode: str) -> bool:
        return any(callback.wants_batches(mode) for callback in self.callbacks)

    def wants_updates(self, mode: str) -> bool:
        return any(callback.wants_updates(mode) for callback in self.callbacks)

    def get_state(self) -> dict[str, Any]:
        """Return {"History:0": state, ...}, by class and index, of the callbacks with a state."""
        states = {key: callback.get_state() for key, callback in self._keyed().items()}
        return {key: state for key, state in states.items() if state}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the state of each callback; the list must have the same callbacks."""
        keyed = {key: c for key, c in self._keyed().items() if key in state or c.get_state()}
        if set(state) != set(keyed):
            raise ValueError(
                f"the state is of the callbacks {sorted(state)}, but these are {sorted(keyed)}"
            )
        for key, callback in keyed.items():
            if acts(callback):
                callback.set_state(state[key])

    def release(self) -> None:
        """Close the callbacks' bars and files, for a run that ends with an error or Ctrl-C."""
        for callback in self.callbacks:
            try:
                callback._release()
            except Exception as error:  # noqa: BLE001 (another error is being raised already)
                warnings.warn(f"{label_of(callback)} could not close: {error!r}", stacklevel=2)

    def _release(self) -> None:
        self.release()

    def _is_working(self) -> bool:
        return any(callback._is_working() for callback in self.callbacks)

    def flush_state(self) -> None:
        for callback in self.callbacks:
            callback.flush_state()

    def _keyed(self) -> dict[str, Callback]:
        results: dict[str, Callback] = {}
        counts: Counter[str] = Counter()
        for callback in self.callbacks:
            name = label_of(callback)
            results[f"{name}:{counts[name]}"] = callback
            counts[name] += 1
        return results

    def _has(self, kind: type[Callback]) -> bool:
        return any(isinstance(callback, kind) for callback in self.callbacks)

    def _find_hooks(self) -> None:
        acting = [c for c in self.callbacks if acts(c)]
        self._hooks = {hook: [c for c in acting if answers(c, hook)] for hook in HOOKS}
        several = current_group().size > 1
        self._only_here = {id(c) for c in acting if several and not acts_everywhere(c)}

    def _call(self, hook: str, *args: Any) -> None:
        for callback in self._hooks[hook]:
            progress = current_group().progress if id(callback) in self._only_here else None
            before = "" if progress is None else progress.only_here
            if progress is not None:
                progress.only_here = f"{label_of(callback)}.{hook}"
            try:
                getattr(callback, hook)(*args)
            except BaseException as error:
                if hasattr(error, "add_note"):
                    error.add_note(f"raised in {label_of(callback)}.{hook}")
                self.release()
                raise
            finally:
                if progress is not None:
                    progress.only_here = before

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._find_hooks()
        self._call("on_train_begin", known(logs))

    def on_train_end(self, logs: Logs | None = None) -> None:
        self._call("on_train_end", known(logs))

    def on_test_begin(self, logs: Logs | None = None) -> None:
        self._call("on_test_begin", known(logs))

    def on_test_end(self, logs: Logs | None = None) -> None:
        self._call("on_test_end", known(logs))

    def on_predict_begin(self, logs: Logs | None = None) -> None:
        self._call("on_predict_begin", known(logs))

    def on_predict_end(self, logs: Logs | None = None) -> None:
        self._call("on_predict_end", known(logs))

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._call("on_epoch_begin", epoch, known(logs))

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self._call("on_epoch_end", epoch, known(logs))

    def on_train_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        self._call("on_train_batch_begin", batch, known(logs))

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self._call("on_train_batch_end", batch, known(logs))

    def on_test_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        self._call("on_test_batch_begin", batch, known(logs))

    def on_test_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self._call("on_test_batch_end", batch, known(logs))

    def on_predict_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        self._call("on_predict_batch_begin", batch, known(logs))

    def on_predict_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self._call("on_predict_batch_end", batch, known(logs))

    # The old names of the training hooks.

    def on_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        self.on_train_batch_begin(batch, logs)

    def on_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self.on_train_batch_end(batch, logs)


def flattened(callbacks: Any) -> list[Any]:
    """Return the callbacks of a nested structure in order."""
    return [] if callbacks is None else tree.flatten(callbacks)


def checked(callback: object) -> Callback:
    """Return `callback` if it is a Callback, an adapter of an object with the methods of one.

    Raises:
        TypeError: it is a class, or an object without any of the methods.
    """
    if isinstance(callback, Callback):
        return callback
    if isinstance(callback, type) and is_callback(callback):
        name = callback.__name__
        raise TypeError(f"callbacks: expected an instance, got the class {name}; write {name}()")
    if is_callback(callback):
        return ForeignCallback(callback)
    raise TypeError(
        "callbacks: expected objects with methods such as on_epoch_end(epoch, logs), got "
        f"{callback!r} ({type(callback).__module__}.{type(callback).__name__}); derive its class "
        "from kerasish.callbacks.Callback, or give it the methods"
    )


def acts(callback: Callback) -> bool:
    """Whether the hooks of `callback` are called in this process."""
    return writes_here() or acts_everywhere(callback)


def acts_everywhere(callback: Callback) -> bool:
    """Whether the hooks of `callback` are called on every rank."""
    return callback.everywhere or (callback.saves_optimizer and divides_slots())


def answers(callback: Callback, hook: str) -> bool:
    """Whether a call of `hook` of `callback` does anything."""
    alias = ALIASES.get(hook)
    return has_hook(callback, hook) or (alias is not None and has_hook(callback, alias))


def known(logs: Logs | None) -> Logs:
    """Return `logs` itself, so that callbacks may add to it, or an empty dict."""
    return {} if logs is None else logs
