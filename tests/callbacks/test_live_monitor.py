"""LiveMonitor: the numbers of layers, the views, and a training that stays what it was."""

from __future__ import annotations

import sys
import types
from html.parser import HTMLParser

import numpy as np
import pytest

import kerasish
from kerasish import layers, ops
from kerasish.callbacks import LiveMonitor
from kerasish.callbacks.live_monitor import sparkline

X = np.random.default_rng(0).normal(size=(64, 5)).astype("float32")
Y = X[:, :1] - X[:, 1:2]


def make(eagerly=False):
    kerasish.utils.set_random_seed(0)
    model = kerasish.Sequential(
        [
            kerasish.Input((5,)),
            layers.Dense(8, "relu", name="a"),
            layers.BatchNormalization(name="norm"),
            layers.Dropout(0.5, name="drop"),
            layers.Dense(1, name="b"),
        ]
    )
    model.compile("adam", "mse", metrics=["mae"], run_eagerly=eagerly)
    return model


def fit(model, *callbacks, **options):
    return model.fit(X, Y, batch_size=16, verbose=0, callbacks=[*callbacks], **options)


@pytest.mark.parametrize("eagerly", [False, True])
def test_the_training_stays_what_it_was(eagerly):
    plain = make(eagerly)
    first = fit(plain, epochs=3).history
    monitor, watched = LiveMonitor(seconds=1e-9, share=1.0, verbose=0), make(eagerly)
    assert fit(watched, monitor, epochs=3).history == first
    for a, b in zip(plain.get_weights(), watched.get_weights()):
        np.testing.assert_array_equal(a, b)
    assert 0 < monitor.cost <= 1
    points = {len(p) for p in monitor.curves.values()}
    assert len(points) == 1 and min(points) >= 3
    assert watched.training_program.example is None


@pytest.mark.parametrize("eagerly", [False, True])
def test_numbers_of_layers(eagerly):
    model = make(eagerly)
    model.compile(kerasish.optimizers.SGD(0.0), "mse", run_eagerly=eagerly)
    monitor = LiveMonitor(rows=16, verbose=0)
    fit(model, monitor, shuffle=False)
    curves = {name.partition("/")[::2]: points[-1] for name, points in monitor.curves.items()}
    columns = {kind: {p.rpartition("/")[2]: v for (k, p), v in curves.items() if k == kind}
               for kind in ("gradient", "activation", "zeros", "weight")}  # fmt: skip
    kernel, bias = (w.numpy() for w in model.layers[0].weights)
    hidden = np.maximum(X[:16] @ kernel + bias, 0)
    close = {"rel": 1e-4}
    assert columns["activation"]["a"] == pytest.approx(hidden.std(), **close)
    assert columns["zeros"]["a"] == pytest.approx((hidden == 0).mean(), **close)
    norm = np.sqrt((kernel**2).sum() + (bias**2).sum())
    assert columns["weight"]["a"] == pytest.approx(norm, **close)
    with kerasish.GradientTape() as tape:
        loss = ops.mean(ops.square(Y[:16] - model(X[:16], training=False)))
    last = model.layers[-1].trainable_weights
    slopes = [np.asarray(g) for g in tape.gradient(loss, last)]
    expected = np.sqrt(sum((g**2).sum() for g in slopes))
    assert columns["gradient"]["b"] == pytest.approx(expected, **close)
    assert "drop" in columns["activation"] and "drop" not in columns["gradient"]


def test_prints_of_the_model_are_not_doubled(capsys):
    class Prints(layers.Layer):
        def call(self, x):
            ops.print("batch", x[0, 0])
            return x

    model = kerasish.Sequential([kerasish.Input((5,)), Prints(), layers.Dense(1)])
    model.compile("sgd", "mse")
    fit(model, LiveMonitor(seconds=1e-9, share=1.0, verbose=0))
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_lines_per_epoch_where_nothing_can_be_redrawn(capsys):
    fit(make(), LiveMonitor(), epochs=2)
    text = capsys.readouterr().out
    assert "epoch 1/2, end" in text and "epoch 2/2, end" in text and "\x1b" not in text
    (row,) = [line for line in text.splitlines() if line.startswith("loss")][-1:]
    assert row.split()[-1][0] in "▁█" and "gradient" in text
    assert [line.split()[0].rpartition("/")[2] for line in text.splitlines()[-4:]] == [
        "a", "norm", "drop", "b",
    ]  # fmt: skip


def test_a_terminal_is_redrawn(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    fit(make(), LiveMonitor(), epochs=2)
    text = capsys.readouterr().out
    count = text.partition("\x1b[")[0].count("\n")
    assert count > 5 and f"\x1b[{count}F\x1b[J" in text
    assert max(len(line.rpartition("\x1b[J")[2]) for line in text.splitlines()) < 60


def test_a_notebook_gets_drawings(monkeypatch):
    views = []

    class Handle:
        def update(self, view):
            views.append(view)

    def display(view, display_id):
        views.append(view)
        return Handle()

    ipython = types.ModuleType("IPython")
    ipython.get_ipython = type("ZMQInteractiveShell", (), {})
    drawing = types.ModuleType("IPython.display")
    drawing.HTML, drawing.display = str, display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", drawing)
    fit(make(), LiveMonitor(), epochs=2)
    assert len(views) >= 2 and views[-1].count("<svg") == 2 + 4 * 4 - 2
    stack = []

    class Balanced(HTMLParser):
        def handle_starttag(self, tag, attrs):
            assert tag != "script"
            stack.append(tag)

        def handle_startendtag(self, tag, attrs):
            assert tag == "polyline"

        def handle_endtag(self, tag):
            assert stack.pop() == tag

    Balanced().feed(views[-1])
    assert stack == []


def test_a_model_with_a_step_of_its_own_shows_its_logs():
    class Own(kerasish.Sequential):
        def train_step(self, data):
            return super().train_step(data)

    model = Own([kerasish.Input((5,)), layers.Dense(1)])
    model.compile("sgd", "mse")
    monitor = LiveMonitor(verbose=0)
    fit(model, monitor)
    assert set(monitor.curves) == {"loss"}


def test_curves_stay_short_and_sparklines_too():
    monitor = LiveMonitor()
    for i in range(2000):
        monitor._add("loss", float(i))
    points = monitor.curves["loss"]
    assert len(points) <= 512 and points == sorted(points) and points[-1] == 1999.0
    assert len(sparkline(points, 32)) == 32
    assert sparkline([]) == "" and sparkline([2.0, 2.0]) == "▁▁"
    assert sparkline([float("inf"), float("nan")]) == "!!"


def test_wrong_arguments():
    for wrong in ({"seconds": 0}, {"rows": 0}, {"rows": 1.5}, {"share": 0}, {"share": 2}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            LiveMonitor(**wrong)
