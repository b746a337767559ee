"""Progress: one clean line an epoch; on no terminal under 200 bytes without control codes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import numpy as np
import pytest

import kerasish as keras
from kerasish.callbacks import Callback, CallbackList, ProgbarLogger
from kerasish.callbacks.progress import Progbar, formatted, in_notebook, readable, shortened

LOGS = {"accuracy": 0.98765, "loss": 0.12341}
PLAIN = re.compile(
    r"Epoch 1/2 - 3/3 - [\d.]+\ws - [\d.]+\ws/step - loss: 0\.1234 - accuracy: 0\.9877 - "
    r"val_loss: 0\.5000\n"
)


def fit(callbacks, epochs=2, steps=3):
    callbacks.on_train_begin()
    for epoch in range(epochs):
        callbacks.on_epoch_begin(epoch)
        for step in range(steps):
            callbacks.on_train_batch_end(step, dict(LOGS))
        callbacks.on_test_begin()
        callbacks.on_test_batch_end(0, {"loss": 0.5})
        callbacks.on_test_end({"loss": 0.5})
        callbacks.on_epoch_end(epoch, {**LOGS, "val_loss": 0.5})
    callbacks.on_train_end()


@pytest.mark.parametrize("verbose", [1, 2, "auto"])
def test_a_line_an_epoch(verbose, capsys):
    fit(CallbackList(add_progbar=True, epochs=2, steps=3, verbose=verbose))
    lines = capsys.readouterr().out.splitlines(keepends=True)
    assert len(lines) == 2
    assert PLAIN.fullmatch(lines[0])
    assert lines[1].startswith("Epoch 2/2 - 3/3")


@pytest.mark.parametrize("eagerly", [False, True])
@pytest.mark.parametrize("kind", ["arrays", "dataset", "generator"])
def test_a_line_says_all_steps_of_a_quick_epoch(eagerly, kind, capsys):
    """No update is due within an epoch of milliseconds; the last batch is reported all the same."""
    x, y = np.ones((320, 3), "float32"), np.ones((320, 1), "float32")
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=eagerly)
    if kind == "arrays":
        model.fit(x, y, epochs=2, verbose=2)
    elif kind == "dataset":
        model.fit(keras.data.Dataset.from_tensor_slices((x, y)).batch(32), epochs=2, verbose=2)
    else:
        batches = ((x[:32], y[:32]) for _ in range(20))
        model.fit(batches, steps_per_epoch=10, epochs=2, verbose=2)
    lines = capsys.readouterr().out.splitlines()
    assert [" - 10/10 - " in line for line in lines] == [True, True], lines


def test_verbose_0_is_silent(capsys):
    fit(CallbackList(add_progbar=True, epochs=2, steps=3, verbose=0))
    assert capsys.readouterr() == ("", "")


def test_unknown_steps_are_counted(capsys):
    fit(CallbackList(add_progbar=True, epochs=None, steps=None, verbose=2))
    assert capsys.readouterr().out.startswith("Epoch 1 - 3/3 - ")


def test_evaluate_and_predict(capsys):
    callbacks = CallbackList(add_progbar=True, epochs=1, steps=2, verbose=1)
    callbacks.on_test_begin()
    for step in range(2):
        callbacks.on_test_batch_end(step, {"loss": 1.0})
    callbacks.on_test_end({"loss": 0.25})
    callbacks.on_predict_begin()
    for step in range(2):
        callbacks.on_predict_batch_end(step, {"outputs": np.zeros(3)})
    callbacks.on_predict_end()
    tested, predicted = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"Evaluate - 2/2 - .*/step - loss: 0\.2500", tested)
    assert re.fullmatch(r"Predict - 2/2 - .*/step", predicted)


def test_engines_may_report_a_few_steps_only(capsys):
    callbacks = CallbackList(add_progbar=True, epochs=1, steps=100, verbose=2)
    callbacks.on_train_begin()
    callbacks.on_epoch_begin(0)
    for step in (40, 99):
        callbacks.on_train_batch_end(step, LOGS)
    callbacks.on_epoch_end(0, LOGS)
    assert capsys.readouterr().out.startswith("Epoch 1/1 - 100/100 - ")


@pytest.mark.parametrize("name", ["metric", "métrique-äöü", "colour\x1b[31m\r"])
@pytest.mark.parametrize("count", [1, 4, 9, 40])
def test_under_200_bytes_without_control_codes(name, count, capsys):
    callbacks = CallbackList(add_progbar=True, epochs=100, steps=10**6, verbose=1)
    callbacks.on_epoch_begin(0)
    callbacks.on_epoch_end(0, {f"{name}{i}": 0.5 for i in range(count)})
    out = capsys.readouterr().out
    assert len(out.encode()) < 200
    assert out.endswith("\n")
    assert out.removesuffix("\n").isprintable()


def test_values_are_asked_for_only_to_be_shown(capsys, late):
    asked = []

    class Asked(late):
        def __float__(self):
            asked.append(1)
            return 0.5

    callbacks = CallbackList(add_progbar=True, epochs=1, steps=1000, verbose=1)
    callbacks.on_epoch_begin(0)
    for step in range(1000):
        callbacks.on_train_batch_end(step, {"loss": Asked(0.5)})
    assert asked == []
    callbacks.on_epoch_end(0, {"loss": Asked(0.5)})
    assert asked == [1]
    assert "loss: 0.5000" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("logs", "text"),
    [
        ({}, ""),
        ({"val_acc": 1, "val_loss": 1, "acc": 1, "loss": 1},
         "loss: 1.0000 - acc: 1.0000 - val_loss: 1.0000 - val_acc: 1.0000"),
        ({"a": 0.0, "b": -2e-4, "c": 1e-3}, "a: 0.0000e+00 - b: -2.0000e-04 - c: 1.0000e-03"),
        ({"a": float("nan"), "b": float("inf")}, "a: nan - b: inf"),
        ({"a": np.array([1.0, 2.0]), "b": [3, 4], "c": None, "d": "x"},
         "a: 1.5000 - b: 3.5000 - c: None - d: x"),
    ],
)  # fmt: skip
def test_formatted(logs, text):
    assert formatted(logs) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0us"), (0.0012, "1.2ms"), (59.9, "59.9s"), (119.6, "2m00s"), (3599.7, "1h00m")],
)
def test_readable(seconds, text):
    assert readable(seconds) == text


def test_shortened_cuts_between_values():
    line = "Epoch 1/1 - " + " - ".join(f"m{i}: 0.1234" for i in range(30))
    cut = shortened(line, 60)
    assert cut == "Epoch 1/1 - m0: 0.1234 - m1: 0.1234 - m2: 0.1234 ..."
    assert shortened("short", 60) == "short"


# --------------------------------------------------------------------------------- Progbar


def drive(capsys, *calls, **kwargs):
    bar = Progbar(10, **kwargs)
    for current, values in calls:
        bar.update(current, values)
    return capsys.readouterr().out


def test_progbar_means_are_weighted_by_steps(capsys):
    calls = (2, [("a", 1.0), ("b", 1.0)]), (5, [("a", 2.0), ("b", 2.0)]), (10, [("b", 3.0)])
    out = drive(capsys, *calls, verbose=2)
    assert out.endswith("a: 1.6000 - b: 3.0000\n")
    out = drive(capsys, *calls, verbose=2, stateful_metrics=["a"])
    assert out.endswith("a: 2.0000 - b: 3.0000\n")
    out = drive(capsys, *calls, verbose=2, stateless_metrics=["b"])
    assert out.endswith("a: 2.0000 - b: 3.0000\n")


def test_progbar_lines(capsys):
    out = drive(capsys, (4, None), (10, [("loss", 0.5)]), unit_name="row")
    assert re.fullmatch(r"10/10 - [\d.]+\ws - [\d.]+\ws/row - loss: 0\.5000\n", out)
    assert drive(capsys, (10, None), verbose=0) == ""
    assert drive(capsys, (9, None)) == ""


def test_progbar_add_and_unknown_target(capsys):
    bar = Progbar(None)
    bar.add(2)
    bar.add(3, [("a", 1.0)])
    bar.update(5, finalize=True)
    assert re.fullmatch(r"5/5 - .* - a: 1\.0000\n", capsys.readouterr().out)


def test_progbar_takes_one_of_the_lists():
    with pytest.raises(ValueError, match="not both"):
        Progbar(1, stateful_metrics=[], stateless_metrics=[])


# ------------------------------------------------------------------------------- terminals

SCRIPT = textwrap.dedent(
    """
    import sys, time
    from kerasish.callbacks import Callback, CallbackList, EarlyStopping, LearningRateScheduler
    from kerasish.callbacks.message import say

    class Speaks(Callback):
        def on_train_batch_end(self, batch, logs=None):
            time.sleep(0.06)
            if sys.argv[1] == "fails" and batch == 2:
                raise KeyError("mine")
        def on_epoch_end(self, epoch, logs=None):
            say("a message")

    steps = None if sys.argv[1] == "unknown" else 5
    callbacks = CallbackList([Speaks()], add_progbar=True, epochs=1, steps=steps, verbose=1)
    callbacks.on_train_begin()
    callbacks.on_epoch_begin(0)
    for step in range(5):
        callbacks.on_train_batch_end(step, {"loss": 0.5})
    callbacks.on_epoch_end(0, {"loss": 0.25, "val_loss": 0.75})
    callbacks.on_train_end()
    print("END")
    """
)


def in_terminal(case, tmp_path, columns=100):
    """Run SCRIPT in a pseudo-terminal and return all that came out."""
    pty = pytest.importorskip("pty", reason="pseudo-terminals are a thing of Unix")
    import fcntl
    import struct
    import termios

    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    path = os.pathsep.join(p for p in sys.path if p)
    plain = {"PYTHONIOENCODING": "utf-8", "PYTHON_COLORS": "0"}  # Python 3.13 paints tracebacks
    env = {**os.environ, "PYTHONPATH": path, **plain}
    with subprocess.Popen(
        [sys.executable, str(script), case], stdout=slave, stderr=subprocess.STDOUT, env=env
    ) as process:
        os.close(slave)
        parts = []
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:  # Linux says so when the other end is closed
                break
            if not part:
                break
            parts.append(part)
    os.close(master)
    return b"".join(parts).decode(), process.returncode


def screen(text):
    """Return the lines that are left to see: a carriage return starts the line again."""
    rows = []
    for row in text.replace("\r\n", "\n").split("\n"):
        shown = ""
        for part in row.split("\r"):
            part = re.sub(r"\x1b\[\w+", "", part)
            shown = part + shown[len(part) :]
        rows.append(shown.rstrip())
    return [row for row in rows if row]


def test_terminal(tmp_path):
    text, code = in_terminal("works", tmp_path)
    assert code == 0, text
    message, line, end = screen(text)
    assert message == "a message"
    assert re.fullmatch(
        r"Epoch 1/1 - 5/5 - [\d.]+[mu]?s - .*/step - loss: 0\.2500 - val_loss: 0\.75.*", line
    )
    assert end == "END"
    drawn = [part for part in text.split("\r") if "%|" in part]
    assert len(drawn) >= 2
    assert any(re.search(r"Epoch 1/1 +\d+%\|.*\| \d/5 \[.*<.*, loss: 0\.5000\]", d) for d in drawn)
    assert all(len(re.sub(r"\x1b\[\w+", "", d)) <= 100 for d in drawn)


@pytest.mark.parametrize(("columns", "bars"), [(60, True), (50, False)])
def test_a_narrow_terminal_shortens_the_bar_before_the_values(tmp_path, columns, bars):
    text, code = in_terminal("works", tmp_path, columns=columns)
    assert code == 0, text
    drawn = [re.sub(r"\x1b\[\w+", "", part) for part in text.split("\r") if "/5 [" in part]
    valued = [part for part in drawn if "loss:" in part]
    assert valued and all(part.rstrip().endswith("loss: 0.5000]") for part in valued), drawn
    assert all(len(part.rstrip()) <= columns for part in drawn)
    widths = [len(re.search(r"%(\|.*\|)? ", part).group(1) or "") for part in valued]
    assert all(4 < w < 22 for w in widths) if bars else not any(widths), widths


def test_terminal_that_does_not_know_its_width(tmp_path):
    text, code = in_terminal("works", tmp_path, columns=0)
    assert code == 0, text
    drawn = [re.sub(r"\x1b\[\w+", "", part) for part in text.split("\r")]
    assert any("%|" in part for part in drawn)
    assert all(len(part) <= 80 for part in drawn if "%|" in part)


def test_terminal_with_an_unknown_number_of_steps(tmp_path):
    text, code = in_terminal("unknown", tmp_path)
    assert code == 0, text
    assert "loss: 0.5000" in text
    assert screen(text)[-2].startswith("Epoch 1/1 - 5/5 - ")


def test_terminal_after_an_error(tmp_path):
    text, code = in_terminal("fails", tmp_path)
    assert code == 1
    rows = screen(text)
    begin = rows.index("Traceback (most recent call last):")
    assert "%|" in rows[begin - 1]  # the bar stays where it stopped, on a line of its own
    assert "KeyError: 'mine'" in rows
    assert "END" not in rows


def test_an_error_leaves_no_bar_open(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    logger = ProgbarLogger()

    class Wrong(Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise KeyError

    callbacks = CallbackList([logger, Wrong()], epochs=1, steps=3, verbose=1)
    callbacks.on_train_begin()
    callbacks.on_epoch_begin(0)
    live = logger._bar._live
    assert not live.disable
    with pytest.raises(KeyError):
        callbacks.on_train_batch_end(0, LOGS)
    assert live.disable  # closed, in tqdm's words
    assert logger._bar is None


def test_notebook(monkeypatch, capsys):
    class ZMQInteractiveShell:
        pass

    assert not in_notebook()
    shell = SimpleNamespace(get_ipython=ZMQInteractiveShell)
    monkeypatch.setitem(sys.modules, "IPython", shell)
    assert in_notebook()
