"""The curves of a training."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
from matplotlib import pyplot

import kerasish
from kerasish import layers
from kerasish.callbacks import History
from kerasish.errors import UnknownNameError


@pytest.fixture
def history():
    model = kerasish.Sequential([kerasish.Input((2,)), layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])
    x = np.ones((8, 2))
    return model.fit(x, x[:, :1], epochs=3, verbose=0, validation_split=0.25)


def test_each_log_has_its_curves(history, tmp_path):
    figure = history.plot(path=tmp_path / "curves.png")
    drawn = {axes.get_ylabel(): axes.get_lines() for axes in figure.axes}
    assert set(drawn) == {"loss", "mae"}
    training, validation = drawn["mae"]
    assert training.get_ydata().tolist() == history.history["mae"]
    assert validation.get_ydata().tolist() == history.history["val_mae"]
    assert list(training.get_xdata()) == [1, 2, 3]
    assert (tmp_path / "curves.png").read_bytes()[:4] == b"\x89PNG"
    pyplot.close(figure)


def test_some_logs_can_be_chosen(history, tmp_path):
    figure = history.plot("loss", path=tmp_path / "loss.png")
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss"]
    pyplot.close(figure)
    with pytest.raises(UnknownNameError, match="'loss'"):
        history.plot("los")
    with pytest.raises(ValueError, match="no epoch"):
        History().plot()


def test_without_matplotlib_the_error_says_what_to_install(history, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'kerasish\[plot\]'"):
        history.plot()


@pytest.mark.parametrize("epochs", [1, 2, 3, 7, 40])
def test_ticks_are_whole_epochs(epochs, tmp_path):
    history = History()
    for epoch in range(epochs):
        history.on_epoch_end(epoch, {"loss": 1 / (epoch + 1)})
    figure = history.plot(path=tmp_path / "curves.png")
    (axes,) = figure.axes
    ticks = [tick for tick in axes.get_xticks() if 1 <= tick <= epochs]
    assert ticks and all(tick == int(tick) for tick in ticks), ticks
    pyplot.close(figure)


def test_a_notebook_draws_a_figure_once_per_cell(history, monkeypatch):
    displayed = []
    shell = type("ZMQInteractiveShell", (), {"execution_count": 3})()
    package = types.ModuleType("IPython")
    package.get_ipython = lambda: shell
    package.display = types.ModuleType("IPython.display")
    package.display.display = displayed.append
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", package.display)
    monkeypatch.setattr(pyplot, "show", lambda: displayed.append("shown"))
    figure = history.plot()
    figure._ipython_display_()  # what the notebook does with the result of the cell
    assert displayed == ["shown"]
    shell.execution_count = 4
    figure._ipython_display_()  # the figure is the result of a later cell
    assert displayed == ["shown", figure] and not hasattr(figure, "_ipython_display_")
    pyplot.close(figure)
