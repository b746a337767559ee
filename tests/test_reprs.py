"""What objects show of themselves: `repr` of all public classes, and tables in notebooks."""

from __future__ import annotations

import html.parser
import importlib.util
import inspect
import sys
from pathlib import Path

import numpy as np
import pytest

import kerasish as keras
from kerasish import callbacks, layers, optimizers
from kerasish.engine.model.summary import summary_table
from kerasish.reprs import arguments_repr, given_arguments, shown
from kerasish.tables import colored_style, html_table, plain_style, terminal_style

REFERENCE = Path(__file__).parents[1] / "docs" / "_ext" / "public_names.py"


def public_classes():
    spec = importlib.util.spec_from_file_location("names_for_reprs", REFERENCE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its NamedTuple reads it
    spec.loader.exec_module(module)
    return {n.address: n.value for n in module.public() if inspect.isclass(n.value)}


CLASSES = public_classes()


# --- repr -----------------------------------------------------------------------------------------


def test_no_public_class_shows_an_address():
    assert len(CLASSES) > 300
    plain = [a for a, cls in CLASSES.items() if cls.__repr__ is object.__repr__]
    assert not plain, f"Give these a __repr__ (kerasish.reprs.arguments_repr): {plain}"


def test_what_can_be_built_without_arguments_shows_no_address():
    built = 0
    for address, cls in CLASSES.items():
        if issubclass(cls, BaseException) or "wrappers" in address:
            continue
        try:
            thing = cls()
        except (TypeError, ValueError, NotImplementedError):
            continue  # it needs arguments
        built += 1
        text = repr(thing)
        assert " at 0x" not in text and cls.__name__.lstrip("_") in text, (address, text)
    assert built > 150


@pytest.mark.parametrize(
    ("thing", "text"),
    [
        (optimizers.Adam(), "Adam(learning_rate=0.001)"),
        (optimizers.SGD(0.1, momentum=0.9), "SGD(learning_rate=0.1, momentum=0.9)"),
        (
            optimizers.Adam(optimizers.schedules.CosineDecay(0.1, 100)),
            "Adam(learning_rate=CosineDecay(initial_learning_rate=0.1, decay_steps=100))",
        ),
        (callbacks.EarlyStopping(patience=3), "EarlyStopping(patience=3)"),
        (callbacks.ModelCheckpoint("a.keras"), "ModelCheckpoint(filepath='a.keras')"),
        (callbacks.LearningRateScheduler(max), "LearningRateScheduler(schedule=max)"),
        (keras.regularizers.L2(0.1), "L2(l2=0.1)"),
        (keras.regularizers.L2(), "L2()"),
        (keras.constraints.MaxNorm(3), "MaxNorm(max_value=3)"),
        (keras.random.SeedGenerator(7), "SeedGenerator(seed=7)"),
        (keras.name_scope("a"), "name_scope(name='a')"),
    ],
)
def test_given_arguments_are_shown(thing, text):
    assert repr(thing) == text


def test_a_layer_that_is_not_initialized_has_a_repr():
    class Forgetful(layers.Layer):
        def __init__(self):
            pass

    assert repr(Forgetful()) == "<Forgetful without super().__init__()>"


def test_an_optimizer_inside_a_compiled_function_has_a_repr():
    optimizer, texts = optimizers.Adam(0.25), []

    @keras.function
    def scaled(x):
        texts.append(repr(optimizer))
        return x * optimizer.learning_rate

    assert float(scaled(keras.ops.ones(()))) == 0.25
    assert texts[0].startswith("Adam(learning_rate=")


def test_values_are_short_and_run_no_code_of_the_users():
    class Loud:
        def __repr__(self):
            raise AssertionError("no code of the user's runs")

    class Holder:
        def __init__(self, big, loud, numbers, offset=0.0, name=None):
            self.big, self.loud, self._numbers = big, loud, numbers
            self.offset, self.name = offset, name

        __repr__ = arguments_repr

    text = repr(Holder(np.zeros((500, 500)), Loud(), list(range(99))))
    assert text == (
        "Holder(big=<ndarray shape=(500, 500), dtype=float64>, loud=<Loud>, "
        "numbers=[0, 1, 2, 3, 4, 5, ...])"
    )
    assert given_arguments(Holder(1, 2, 3, offset=0.0))["big"] == "1"
    assert len(shown("t" * 500)) <= 60 and shown(True) == "True"


# --- tables ---------------------------------------------------------------------------------------


class Balanced(html.parser.HTMLParser):
    """Collects texts and checks that every tag is closed."""

    def __init__(self):
        super().__init__()
        self.open, self.texts = [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def texts_of(markup):
    parser = Balanced()
    parser.feed(markup)
    parser.close()
    assert not parser.open
    return parser.texts


def small(name="net"):
    return keras.Sequential(
        [keras.Input((4,)), layers.Dense(3, name="first"), layers.Dense(1)], name=name
    )


def test_a_model_is_a_table_in_notebooks_and_names_are_escaped():
    model = small("<img src=x onerror=alert(1)>")
    markup = model._repr_html_()
    assert "<img" not in markup
    texts = texts_of(markup)
    assert 'Sequential "<img src=x onerror=alert(1)>"' in texts
    assert "first (Dense)" in texts and "15" in texts and "Trainable params: 19 (76.00 B)" in texts
    assert "unbuilt" in keras.Sequential([layers.Dense(3)])._repr_html_()


def test_the_table_is_that_of_summary(capsys):
    model = small()
    model.summary()
    printed = capsys.readouterr().out
    table = summary_table(model)
    for row in table.rows:
        assert all(cell in printed for cell in row)
    assert "\x1b" not in printed  # no terminal


def test_a_history_is_a_line_and_a_table():
    model = small()
    model.compile("sgd", "mse")
    x, y = np.ones((8, 4), "float32"), np.ones((8, 1), "float32")
    history = model.fit(x, y, epochs=3, verbose=0, validation_data=(x, y), validation_freq=2)
    assert repr(history).startswith("<History of 3 epochs: loss=")
    texts = texts_of(history._repr_html_())
    assert texts[:3] == ["History of 3 epochs", "epoch", "loss"]
    assert f"{history.history['loss'][2]:.4f}" in texts
    assert any(text.startswith("val_loss: ") and "last of 1" in text for text in texts)
    long = callbacks.History()
    for epoch in range(50):
        long.on_epoch_end(epoch, {"<b>": float(epoch)})
    assert "<b></b>" not in long._repr_html_() and "The last 20 of 50" in long._repr_html_()
    assert repr(callbacks.History()) == "<History of 0 epochs>"
    assert texts_of(callbacks.History()._repr_html_())[0] == "History of 0 epochs"


def test_colors_stand_in_terminals_only(monkeypatch, capsys):
    class Terminal:
        def __init__(self):
            self.text = ""

        def write(self, text):
            self.text += text

        def flush(self):
            pass

        def isatty(self):
            return True

    for variables, colored in (
        ({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({"NO_COLOR": ""}, True),
    ):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setenv("TERM", "xterm")
            patch.delenv("NO_COLOR", raising=False)
            for name, value in variables.items():
                patch.setenv(name, value)
            terminal = Terminal()
            patch.setattr(sys, "stdout", terminal)
            assert (terminal_style() is colored_style) == colored
            small().summary()
            lines = []
            small().summary(print_fn=lines.append)
        assert ("\x1b[" in terminal.text) == colored, variables
        assert "\x1b[" not in lines[0]
    assert terminal_style() is plain_style  # pytest's output is none


def test_colors_take_no_place():
    import re

    model = small()
    table = summary_table(model)
    for kind, cells in zip(table.titles, zip(*table.rows)):
        for cell in cells:
            assert re.sub(r"\x1b\[\d+m", "", colored_style(kind, cell)) == cell
    assert "\x1b[34m(Dense)\x1b[0m" in colored_style("Layer (type)", "first (Dense)")


def test_every_text_of_a_table_is_escaped():
    markup = html_table("<i>", ["<a>"], [["<td>"]], ["<p>"], numeric=["<a>"])
    assert texts_of(markup) == ["<i>", "<a>", "<td>", "<p>"]
    assert markup.count("text-align:right") == 2


# --- pictures -------------------------------------------------------------------------------------


def test_plot_model_returns_what_notebooks_draw(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))  # without Graphviz
    drawing = keras.utils.plot_model(small(), to_file=None, show_shapes=True)
    markup = drawing._repr_svg_()
    assert markup.startswith("<svg") and "(None, 3)" in markup
    file = tmp_path / "model.svg"
    assert keras.utils.plot_model(small(), file)._repr_svg_() == file.read_text()
    with pytest.raises(ImportError, match="to_file=None"):
        keras.utils.plot_model(small(), tmp_path / "model.png")
    assert " at 0x" not in repr(drawing)


def test_svg_is_drawn_by_kerasish_where_graphviz_is_installed(tmp_path, monkeypatch):
    program = tmp_path / "dot"
    program.write_text("#!/bin/sh\necho not ours\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    keras.utils.plot_model(small(), tmp_path / "model.svg")
    assert (tmp_path / "model.svg").read_text().startswith("<svg")
