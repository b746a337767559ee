"""Profiler: the parts of training steps, their times, and the page."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import numpy as np
import pytest

import kerasish
from kerasish import layers
from kerasish.callbacks import Profiler


def _model(eagerly=False, width=256):
    kerasish.utils.set_random_seed(0)
    model = kerasish.Sequential(
        [layers.Input((64,)), layers.Dense(width, "relu", name="wide"), layers.Dense(1, name="out")]
    )
    model.compile("adam", "mse", run_eagerly=eagerly)
    return model


def _data(rows=640):
    rng = np.random.default_rng(0)
    return rng.normal(size=(rows, 64)).astype("float32"), rng.normal(size=(rows, 1))


@pytest.mark.parametrize("eagerly", [False, True])
def test_parts_add_up_to_the_step(eagerly, tmp_path):
    model, profiler = _model(eagerly), Profiler(tmp_path / "steps.html", batches=(2, 6))
    x, y = _data()
    model.fit(x, y, batch_size=64, epochs=3, verbose=0, callbacks=[profiler])
    assert len(profiler.timings) == len(profiler.seconds) == 5
    rows = profiler.table()
    named = {row[1].rpartition("/")[2] for row in rows}
    assert "wide" in named
    for timings, seconds in zip(profiler.timings, profiler.seconds):
        assert 0 < sum(t.seconds for t in timings) <= seconds
    assert all(row[3] >= 1 and row[4] >= 0 and row[5] >= 0 for row in rows)


@pytest.mark.parametrize("eagerly", [False, True])
def test_measured_training_gives_the_same_bits(eagerly, tmp_path):
    x, y = _data()
    plain, profiled = _model(eagerly), _model(eagerly)
    plain.fit(x, y, batch_size=64, epochs=2, verbose=0, shuffle=False)
    profiled.fit(
        x, y, batch_size=64, epochs=2, verbose=0, shuffle=False,
        callbacks=[Profiler(tmp_path / "p.html", batches=(0, 13))],
    )  # fmt: skip
    for a, b in zip(plain.get_weights(), profiled.get_weights()):
        np.testing.assert_array_equal(a, b)


def test_steps_after_the_measured_epoch_are_native_again(tmp_path):
    model, profiler = _model(), Profiler(tmp_path / "p.html", batches=(0, 1))
    x, y = _data()
    seen = []
    look = kerasish.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(
            type(model.training_program.step("train")).__name__
        )
    )
    model.fit(x, y, batch_size=64, epochs=3, verbose=0, callbacks=[profiler, look])
    assert seen == ["TracedStep"] * 3


def test_the_page_is_well_formed_and_needs_nothing_else(tmp_path):
    model, path = _model(), tmp_path / "new" / "steps.html"
    x, y = _data(128)
    model.layers[0].name = "<wide & 'quoted'>"
    model.fit(x, y, batch_size=64, verbose=0, callbacks=[Profiler(path, batches=(0, 0))])
    text = path.read_text()

    class Balanced(HTMLParser):
        open: list[str] = []

        def handle_starttag(self, tag, attrs):
            assert tag not in ("script", "link", "img")
            if tag != "meta":
                self.open.append(tag)

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

    Balanced().feed(text)
    assert Balanced.open == []
    assert "<wide" not in text.replace("&lt;wide", "")
    trace = json.loads(path.with_suffix(".json").read_text())
    assert all(e["dur"] >= 0 and e["ph"] == "X" for e in trace["traceEvents"])
    assert len(trace["traceEvents"]) > 3


def test_a_model_whose_python_reads_numbers(tmp_path):
    class Asks(kerasish.Model):
        def __init__(self):
            super().__init__()
            self.a, self.b = layers.Dense(1), layers.Dense(1)

        def call(self, x):
            return self.a(x) if kerasish.ops.mean(x) > 0 else self.b(x)

    model, profiler = Asks(), Profiler(tmp_path / "p.html", batches=(0, 9))
    model.compile("sgd", "mse")
    model.fit(*_data(), batch_size=64, verbose=0, callbacks=[profiler])
    assert len(profiler.timings) == 10 and all(profiler.timings)


def test_wrong_arguments():
    with pytest.raises(ValueError, match=r"ends in \.html"):
        Profiler("steps.txt")
    with pytest.raises(ValueError, match="first <= last"):
        Profiler("steps.html", batches=(3, 1))
