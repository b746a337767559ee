"""Profiler: the parts of training steps, their times, and the page."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import numpy as np
import pytest

import kerasish
from kerasish import layers
from kerasish.backends.backend import Peaks, Timing
from kerasish.backends.origins import Origins
from kerasish.backends.static.runtime import peaks
from kerasish.callbacks import Profiler
from kerasish.callbacks.wrapped_step import layers_of


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
        assert sum(t.seconds for t in timings) == pytest.approx(seconds)
        assert sum(t.seconds for t in timings[:-1]) > 0 and timings[-1].name == "Python"
    assert all(row[3] >= 1 and row[4] >= 0 and row[5] >= 0 for row in rows)


def test_what_does_not_change_is_looked_up_once(tmp_path, monkeypatch):
    asked = []
    layer = Origins.layer
    monkeypatch.setattr(
        Origins, "layer", lambda self, values: (asked.append(tuple(values)), layer(self, values))[1]
    )
    model = _model()
    profilers = [Profiler(tmp_path / f"{n}.html", batches=(2, 6)) for n in range(2)]
    for profiler in profilers:
        model.fit(*_data(), batch_size=64, verbose=0, callbacks=[profiler])
    steps = [step for profiler in profilers for step in profiler.timings]
    described = [[t._replace(seconds=0.0) for t in step] for step in steps]
    assert described == described[:1] * 10
    assert 0 < len(asked) < len(described[0])
    assert all(t.seconds >= 0 for step in steps for t in step)
    assert len({t.seconds for step in steps for t in step}) > len(steps)


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
    events = [e for e in trace["traceEvents"] if e["ph"] != "M"]
    assert all(e["dur"] >= 0 and e["ph"] == "X" for e in events)
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


class Block(layers.Layer):
    def __init__(self):
        super().__init__(name="block")
        self.dense = layers.Dense(64, name="inner")

    def call(self, x):
        y = self.dense(x)
        return y * kerasish.ops.sigmoid(y)  # LINE


@pytest.mark.parametrize("eagerly", [False, True])
def test_parts_have_lines_work_and_a_share_of_the_peak(eagerly, tmp_path):
    inputs = layers.Input((64,))
    wide = layers.Dense(256, "relu", name="wide")  # WIDE
    model = kerasish.Model(inputs, layers.Dense(1)(Block()(wide(inputs))))
    model.compile("adam", "mse", run_eagerly=eagerly)
    profiler = Profiler(tmp_path / "p.html", batches=(1, 3))
    model.fit(*_data(), batch_size=64, verbose=0, callbacks=[profiler])
    with open(__file__, encoding="utf-8") as file:
        marked = [n for n, t in enumerate(file, 1) if t.endswith(("# LINE\n", "# WIDE\n"))]
    lines = {part.line.rpartition(":")[2] for part in profiler.table() if __file__ in part.line}
    assert len(marked) == 2 and {str(n) for n in marked} <= lines
    by_layer = {}
    for t in profiler.timings[0]:
        by_layer[t.layer] = by_layer.get(t.layer, 0) + t.flops
    # Forward, and the gradient of the kernel: two products of 64 x 64 x 256, and more.
    wide_flops = sum(n for layer, n in by_layer.items() if layer.endswith("/wide"))
    assert 2 * 2 * 64 * 64 * 256 <= wide_flops < 2.2 * 2 * 64 * 64 * 256
    if not eagerly:
        assert profiler.peaks.flops > 1e8 and profiler.peaks.nbytes > 1e8
        assert all(part.share is None or part.share > 0 for part in profiler.table())
    assert ("% of the peak" in (tmp_path / "p.html").read_text()) and "test_profiler.py" in (
        tmp_path / "p.html"
    ).read_text()


def test_only_the_measured_batches_leave_the_native_loop(tmp_path, monkeypatch):
    model, profiler = _model(), Profiler(tmp_path / "p.html", batches=(2, 3))
    x, y = _data()
    model.fit(x, y, batch_size=64, verbose=0)
    step = model.training_program.step("train")
    calls = []
    monkeypatch.setattr(type(step), "__call__", lambda self, *args: calls.append(args))
    model.fit(x, y, batch_size=64, verbose=0, callbacks=[profiler])
    assert calls == [] and len(profiler.timings) == 2
    assert profiler.plain_seconds > 0
    assert any("gather" in t.name for t in profiler.timings[0])


@pytest.mark.filterwarnings("ignore::kerasish.errors.AdviceWarning")
def test_the_autopsy_counts_measured_batches(tmp_path):
    model, profiler = _model(), Profiler(tmp_path / "p.html", batches=(1, 4))
    autopsy = kerasish.callbacks.NaNAutopsy(tmp_path / "autopsy.npz")
    x, y = _data()
    x[400] = np.nan  # in batch 6 of 10
    for order in ([profiler, autopsy], [autopsy, profiler]):
        model = _model()
        model.fit(x, y, batch_size=64, verbose=0, callbacks=order, shuffle=False)
        assert autopsy.finding.batch == 6 and len(profiler.timings) == 4
        step = model.training_program.step("train")
        assert len([*layers_of(step)]) == 1, "nothing stays around the step"


@pytest.mark.filterwarnings("ignore::kerasish.errors.AdviceWarning")
def test_the_autopsy_does_not_watch_its_own_replay(tmp_path, monkeypatch, capsys):
    """However often it reads the loss, as on a slow machine."""
    monkeypatch.setattr("kerasish.callbacks.autopsy._SECONDS_BETWEEN_LOOKS", 0.0)
    test_the_autopsy_counts_measured_batches(tmp_path)
    assert capsys.readouterr().out.count("Replay:") == 2  # one per training


def test_peaks_are_measured_once_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("KERASISH_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(peaks, "_known", {})
    first = peaks.measured_peaks()
    (file,) = (tmp_path / "peaks").iterdir()
    monkeypatch.setattr(peaks, "_known", {})
    monkeypatch.setattr(peaks, "_measured", None)  # not called again
    assert peaks.measured_peaks() == first
    monkeypatch.setattr(peaks, "_known", {})
    monkeypatch.setattr(peaks, "_measured", lambda threads, path: "measured")
    file.write_bytes(file.read_bytes()[:-3] + b"999")
    assert peaks.measured_peaks() == "measured"


def test_a_share_is_the_least_time_by_the_time():
    at_best = Peaks(flops=100.0, nbytes=10.0)
    assert at_best.share(Timing("a", "", "", 4.0, 20, 100)) == 0.5
    assert at_best.share(Timing("a", "", "", 4.0, 0, 100)) == 0.25
    assert at_best.share(Timing("a", "", "", 0.0, 0, 0)) == 0.0
