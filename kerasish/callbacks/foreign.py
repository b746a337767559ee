"""Callbacks of other packages: any object with the methods, of any class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish.callbacks.callback import HOOKS, Callback

if TYPE_CHECKING:
    from kerasish.engine.model.model import Model

# Packages whose class `Callback` defines every hook, each of which does nothing.
_BASES = ("keras", "tf_keras", "tensorflow")


class ForeignCallback(Callback):
    """An object with some of the hooks, called as a `Callback`.

    Args:
        callback: any object with at least one method of `HOOKS`, or `set_model`. It may also have
            `set_params`, and the attributes `every_batch` and `everywhere` of `Callback`.

    Example:
        >>> class Report:
        ...     def on_epoch_end(self, epoch, logs=None):
        ...         print(epoch, logs)
        >>> ForeignCallback(Report()).on_epoch_end(0, {"loss": 0.5})
        0 {'loss': 0.5}
    """

    def __init__(self, callback: Any) -> None:
        super().__init__()
        self.callback = callback
        self.every_batch = getattr(callback, "every_batch", True)
        self.everywhere = getattr(callback, "everywhere", True)
        self.saves_optimizer = getattr(callback, "saves_optimizer", False)
        for hook in HOOKS:
            method = getattr(callback, hook, None)
            if callable(method) and not _does_nothing(method, hook):
                setattr(self, hook, method)

    def set_params(self, params: dict[str, Any] | None) -> None:
        super().set_params(params)
        if callable(getattr(self.callback, "set_params", None)):
            self.callback.set_params(params)

    def set_model(self, model: Model) -> None:
        super().set_model(model)
        if callable(getattr(self.callback, "set_model", None)):
            self.callback.set_model(model)

    @property
    def needs_weights(self) -> bool:
        """True: what the object reads from the model is not known."""
        return True


def is_callback(value: object) -> bool:
    """Return whether a value has a method that `fit` calls.

    Example:
        >>> is_callback("on_epoch_end"), is_callback(Callback())
        (False, True)
    """
    return any(callable(getattr(value, name, None)) for name in (*HOOKS, "set_model"))


def label_of(callback: Callback) -> str:
    """Return the name of the class that the user wrote."""
    written = callback.callback if isinstance(callback, ForeignCallback) else callback
    return type(written).__name__


def _does_nothing(method: Any, hook: str) -> bool:
    """Return whether a hook is the empty one of another package's base class.

    Calling it would cost a call per batch, and would keep engines from running many steps per call.
    """
    package = str(getattr(method, "__module__", "")).partition(".")[0]
    return package in _BASES and getattr(method, "__qualname__", "") == f"Callback.{hook}"
