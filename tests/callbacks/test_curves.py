"""The curves of a training."""

from __future__ import annotations

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
