"""CallbackList: order, errors, states, defaults."""

from __future__ import annotations

import sys

import pytest

from kerasish.callbacks import (
    Callback,
    CallbackList,
    EarlyStopping,
    History,
    LambdaCallback,
    ProgbarLogger,
)
from kerasish.callbacks.callback import HOOKS


def names(callbacks):
    return [type(callback).__name__ for callback in callbacks.callbacks]


def test_defaults_are_added_once():
    both = CallbackList(add_history=True, add_progbar=True)
    assert names(both) == ["History", "ProgbarLogger"]
    own = History()
    mine = CallbackList([own, [ProgbarLogger()]], add_history=True, add_progbar=True)
    assert names(mine) == ["History", "ProgbarLogger"]
    assert mine.history is own
    assert CallbackList().callbacks == []


def test_single_callback_and_append():
    callbacks = CallbackList(Callback(), model="model", epochs=3, verbose=0)
    callbacks.append(History())
    assert [c.model for c in callbacks.callbacks] == ["model"] * 2
    assert [c.params for c in callbacks.callbacks] == [{"epochs": 3, "verbose": 0}] * 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [("early", "got 'early'"), (3, "got 3"), (History, r"the class History; write History\(\)")],
)
def test_what_is_no_callback(wrong, message):
    with pytest.raises(TypeError, match=message):
        CallbackList([wrong])


def recorder(calls, name):
    """A callback that writes down each call of each hook, but those of the old names."""
    hooks = [h for h in HOOKS if h not in ("on_batch_begin", "on_batch_end")]
    return LambdaCallback(**{h: lambda *a, h=h: calls.append((name, h, *a)) for h in hooks})


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_reaches_all_in_order(hook):
    calls = []
    callbacks = CallbackList([recorder(calls, "first"), recorder(calls, "second")])
    logs = {"loss": 1.0}
    args = (4, logs) if "batch" in hook or "epoch" in hook else (logs,)
    getattr(callbacks, hook)(*args)
    called = hook.replace("on_batch", "on_train_batch")
    assert calls == [("first", called, *args), ("second", called, *args)]
    assert calls[0][-1] is logs
    getattr(callbacks, hook)(*args[:-1])
    assert calls[-1][-1] == {}


def test_what_one_adds_to_the_logs_the_next_sees():
    callbacks = CallbackList(
        [LambdaCallback(on_epoch_end=lambda epoch, logs: logs.update(rate=0.1))], add_history=True
    )
    callbacks.on_epoch_end(0, {})
    assert callbacks.history.history == {"rate": [0.1]}


def test_callbacks_with_the_old_batch_hooks_are_called():
    class Old(Callback):
        def on_batch_begin(self, batch, logs=None):
            self.began = batch

    old = Old()
    CallbackList([old]).on_train_batch_begin(5)
    assert old.began == 5


@pytest.mark.parametrize("kind", [KeyError, KeyboardInterrupt])
def test_an_error_reaches_the_user_unchanged(kind):
    closed = []

    class Open(Callback):
        def _release(self):
            closed.append(True)

    error = kind("mine")

    class Wrong(Callback):
        def on_epoch_end(self, epoch, logs=None):
            raise error

    with pytest.raises(kind) as raised:
        CallbackList([Open(), Wrong()]).on_epoch_end(0)
    assert raised.value is error
    assert error.args == ("mine",)
    assert closed == [True]
    if sys.version_info >= (3, 11):
        assert error.__notes__ == ["raised in Wrong.on_epoch_end"]


def test_trouble_while_closing_does_not_hide_the_error():
    class Bad(Callback):
        def _release(self):
            raise OSError("full")

        def on_epoch_end(self, epoch, logs=None):
            raise KeyError("first")

    with pytest.warns(UserWarning, match="Bad could not close"), pytest.raises(KeyError):
        CallbackList([Bad()]).on_epoch_end(0)


def test_states_of_all():
    callbacks = CallbackList([EarlyStopping("loss", patience=2)], add_history=True)
    callbacks.on_train_begin()
    callbacks.on_epoch_end(0, {"loss": 0.5})
    callbacks.on_epoch_end(1, {"loss": 0.6})
    again = CallbackList([EarlyStopping("loss", patience=2)], add_history=True)
    again.on_train_begin()
    again.set_state(callbacks.get_state())
    assert again.callbacks[0].wait == 1
    assert again.history.history == {"loss": [0.5, 0.6]}
    assert again.history.epoch == [0, 1]
    again.on_epoch_end(2, {"loss": 0.1})
    assert callbacks.history.epoch == [0, 1]
    with pytest.raises(ValueError, match="these are"):
        CallbackList([History()]).set_state(callbacks.get_state())
