"""Tracebacks: short by default, the user's frames kept, the fix in the last line."""

from __future__ import annotations

import copy
import gc
import inspect
import json
import os
import pickle
import re
import subprocess
import sys
import traceback
import weakref
from pathlib import Path

import numpy as np
import pytest
from common_mistakes import MISTAKES, traceback_of

import kerasish as keras
from kerasish import (
    callbacks,
    config,
    constraints,
    initializers,
    layers,
    losses,
    metrics,
    ops,
    optimizers,
    regularizers,
)
from kerasish.errors import ShapeError

RECORDED = json.loads((Path(__file__).parent / "data" / "traceback_lines.json").read_text("utf-8"))
# Keras looks up zeros: there is no traceback to compare with, so no more than for other mistakes.
MOST_LINES = {"index beyond an embedding": 8}
# Python 3.10 raises the traceback that a wrapper caught, and with it the wrapper's own frame.
NO_WRAPPERS = sys.version_info >= (3, 11)
X, Y = np.ones((8, 4), "float32"), np.ones((8, 1), "float32")


@pytest.fixture(autouse=True)
def filtering():
    """Users' default: tests of other files see all frames (conftest)."""
    config.enable_traceback_filtering()
    yield
    config.disable_traceback_filtering()


def frames_of(error):
    """Return (file's name, function) of the frames behind this file's first."""
    return [(Path(f.filename).name, f.name) for f in traceback.extract_tb(error.__traceback__)][1:]


def own_frames(error):
    return [f for f in traceback.extract_tb(error.__traceback__) if "kerasish" in f.filename
            and Path(keras.__file__).parent in Path(f.filename).parents]  # fmt: skip


def compiled(*stack):
    model = keras.Sequential([keras.Input((4,)), *stack, layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


# --- the commonest mistakes -------------------------------------------------------------------


@pytest.mark.parametrize("name", MISTAKES)
def test_no_longer_than_that_of_keras_and_the_last_line_names_the_fix(name, engine):
    text = traceback_of(name, keras, layers, np)
    lines = text.rstrip("\n").splitlines()
    if sys.version_info[:2] == (3, 11):  # as recorded: others mark other parts of lines
        assert len(lines) <= (RECORDED["lines"][name] or MOST_LINES[name]), text
    assert MISTAKES[name][1] in lines[-1], text
    assert f'File "<{name}>"' in text


def test_all_mistakes_are_recorded():
    assert set(RECORDED["lines"]) == set(MISTAKES)


def test_without_filtering_all_frames_are_there():
    short = traceback_of("wrong input shape", keras, layers, np)
    config.disable_traceback_filtering()
    assert not config.is_traceback_filtering_enabled()
    full = traceback_of("wrong input shape", keras, layers, np)
    assert full.count("  File ") > 8 and short.count("  File ") == 2
    assert "arrange.py" in full and "arrange.py" not in short


def test_an_environment_variable_shows_all_frames():
    code = "import kerasish; print(kerasish.config.is_traceback_filtering_enabled())"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "KERASISH_FULL_TRACEBACKS": "1"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.strip() == "False", done.stderr


# --- what stays -----------------------------------------------------------------------------------


class Faulty(layers.Layer):
    """Fails in a function of the user's."""

    def call(self, inputs):
        return self.compute(inputs)

    def compute(self, inputs):
        return ops.matmul(inputs, ops.ones((7, 3)))


def test_the_frames_of_a_layer_of_the_users_stay(engine):
    model = keras.Sequential([keras.Input((4,)), layers.Dense(4)])
    model.add(layers.Lambda(lambda x: x))
    net = keras.Sequential([layers.Dense(4), Faulty(name="bad")])
    net.compile("sgd", "mse")
    with pytest.raises(ShapeError) as caught:
        net.fit(X, Y, verbose=0)
    names = [name for _, name in frames_of(caught.value)]
    assert names[0] == "fit" and names[1:3] == ["call", "compute"]
    assert len(own_frames(caught.value)) == 1


def test_the_frames_of_a_callback_and_of_a_generator_stay():
    class Report(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["no such metric"]

    def batches():
        yield X, Y
        raise RuntimeError("the disk is gone")

    for data, given, name in (((X, Y), [Report()], "on_epoch_end"), ((batches(),), [], "batches")):
        with pytest.raises((KeyError, RuntimeError)) as caught:
            compiled().fit(*data, callbacks=given, verbose=0)
        assert [n for _, n in frames_of(caught.value)] == ["fit", name]


def test_libraries_called_by_users_stay():
    class Solves(layers.Layer):
        def call(self, inputs):
            np.linalg.inv(np.zeros((2, 2)))
            return inputs

    with pytest.raises(np.linalg.LinAlgError) as caught:
        Solves()(X)
    assert [n for _, n in frames_of(caught.value)][:3] == ["__call__", "call", "inv"]


def test_the_entry_called_by_kerasish_hides_nothing_itself():
    inner = Faulty()

    class Catches(layers.Layer):
        def call(self, inputs):
            try:
                return inner(inputs)
            except ShapeError as error:
                self.seen = frames_of(error)
                raise ValueError("shown to the user") from error

    layer = Catches()
    with pytest.raises(ValueError, match="shown to the user") as caught:
        layer(X)
    cause = caught.value.__cause__
    assert isinstance(cause, ShapeError)
    names = [f.name for f in traceback.extract_tb(cause.__traceback__)]
    assert names == ["call", "call", "compute"]


def test_an_error_that_users_are_handling_stays_its_context():
    def recovers():
        try:
            {}["missing"]
        except KeyError:
            keras.Sequential([layers.Dense(1)]).fit(X, Y)

    with pytest.raises(ValueError, match="compile") as caught:
        recovers()
    assert isinstance(caught.value.__context__, KeyError)
    assert "During handling" in "".join(traceback.format_exception(caught.value))


def test_an_error_that_only_repeats_is_left_out(engine):
    with pytest.raises(IndexError) as caught:
        layers.Embedding(5, 2)(np.full((2, 3), 7))
    text = "".join(traceback.format_exception(caught.value))
    assert "direct cause" not in text and text.count("out of bounds") == 1


def test_the_error_stays_the_object_that_it_is_and_can_be_pickled():
    error = ValueError("mine", 3)

    class Raises(layers.Layer):
        def call(self, inputs):
            raise error

    with pytest.raises(ValueError, match="mine") as caught:
        Raises()(X)
    assert caught.value is error and error.args == ("mine", 3)
    twin = pickle.loads(pickle.dumps(error))
    assert twin.args == error.args and copy.copy(error).args == error.args


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_no_error_passes_untouched(kind):
    class Stops(layers.Layer):
        def call(self, inputs):
            raise kind

    with pytest.raises(kind) as caught:
        compiled(Stops()) if kind is GeneratorExit else Stops()(X)
    assert len(own_frames(caught.value)) >= 1


def test_a_recursion_ends_in_its_error():
    class Recursive(layers.Layer):
        def call(self, inputs):
            return self(inputs)

    with pytest.raises(RecursionError):
        Recursive()(X)


def test_an_error_holds_no_array_once_it_is_handled():
    class Held(np.ndarray):
        """An array that can be watched."""

    x = np.ones((8, 4), "float32").view(Held)
    layer = Faulty()
    gc.collect()
    gc.disable()
    try:
        watched = weakref.ref(x)
        try:
            layer(x)
        except ShapeError:
            pass
        else:
            raise AssertionError("no error")
        del x
        assert watched() is None
    finally:
        gc.enable()


def test_classes_that_had_defaults_show_the_same_frame():
    """`kerasish.defaults` wraps a class's constructor for good."""
    with keras.defaults(layers.Dense, activation="relu"):
        layers.Dense(2)
    test_constructors_show_their_own_frame()
    with pytest.raises(TypeError, match="Did you mean 'activation'"):
        layers.Dense(3, activaton="relu")


def test_constructors_show_their_own_frame():
    with pytest.raises(ValueError, match="units") as caught:
        layers.Dense("16")
    frames = frames_of(caught.value)
    assert frames[-1] == ("core.py", "__init__")
    assert len(frames) == 1 or not NO_WRAPPERS


def test_constructors_of_users_are_not_wrapped():
    class Own(layers.Layer):
        def __init__(self, size):
            super().__init__(nme="x")
            self.size = size

    own = Own.__init__
    assert not hasattr(own, "hides_frames") and own.__code__.co_name == "__init__"
    with pytest.raises(TypeError, match="Did you mean 'name'") as caught:
        Own(3)
    assert next(name for _, name in frames_of(caught.value)) == "__init__"


def test_ops_show_the_users_line_and_one_frame():
    for call in (
        lambda: ops.matmul(X, X),
        lambda: ops.reshape(X, (5, 5)),
        lambda: ops.softmax(X, axis=7),
        lambda: ops.concatenate([X, np.ones((3, 3), "float32")]),
    ):
        with pytest.raises(ValueError) as caught:
            call()
        frames = frames_of(caught.value)
        assert frames[0][0] == "test_tracebacks.py"
        assert len(frames) == 2 or not NO_WRAPPERS, frames


def test_other_entries_show_one_frame_of_kerasish():
    x = ops.ones((3, 4))
    wrong = np.ones((3, 5), "float32")
    variable = keras.Variable(np.ones(4, "float32"))
    compiled_square = keras.function(lambda a: ops.matmul(a, a))
    model = keras.Sequential([layers.Conv2D(3, 3)])
    for call, last in (
        (lambda: x + ops.ones((5,)), "__add__"),
        (lambda: keras.Input((3,)) * keras.Input((4,)), "__mul__"),
        (lambda: x[7], "__getitem__"),
        (lambda: losses.MeanSquaredError()(x, wrong), "__call__"),
        (lambda: metrics.Accuracy()(x, wrong), "__call__"),
        (lambda: optimizers.Adam().apply_gradients([(np.ones(3), variable)]), "apply_gradients"),
        (lambda: compiled_square(x), "<lambda>"),
        (lambda: keras.grad(lambda a: ops.matmul(a, a))(x), "<lambda>"),
        (lambda: model.build((None, 3)), "build"),
        (lambda: model.build((None, 3)), "build"),
    ):
        with pytest.raises((ValueError, IndexError)) as caught:
            call()
        if NO_WRAPPERS:
            assert len(own_frames(caught.value)) == 1, own_frames(caught.value)
            assert frames_of(caught.value)[-1][1] == last
        text = "".join(traceback.format_exception(caught.value))
        assert "direct cause" not in text and "During handling" not in text


def test_estimators_of_scikit_learn_show_one_frame_of_kerasish():
    from kerasish.wrappers import KerasClassifier

    def net():
        return keras.Sequential([keras.Input((5,)), layers.Dense(2, activation="softmax")])

    with pytest.raises(ShapeError, match="must have shape") as caught:
        KerasClassifier(net, loss="sparse_categorical_crossentropy").fit(X, np.arange(8) % 2)
    assert [f.name for f in own_frames(caught.value)][-1:] == ["fit"]
    assert len(own_frames(caught.value)) == 1 or not NO_WRAPPERS


def test_notebooks_show_the_same():
    ultratb = pytest.importorskip("IPython.core.ultratb", reason="IPython is not installed")
    with pytest.raises(ShapeError) as caught:
        compiled().fit(X[:, :3], Y, verbose=0)
    error = caught.value
    shown = ultratb.VerboseTB().structured_traceback(type(error), error, error.__traceback__)
    text = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(shown))
    assert text.count("\nFile ") == 2 and "arrange.py" not in text
    assert "Give rows of shape (4,)" in text.rstrip().splitlines()[-1]


# --- indices out of range ---------------------------------------------------------------------


def lookup():
    """Return a model whose Embedding no check of the inputs sees."""
    shifted = layers.Lambda(lambda x: x + 5)
    words = layers.Embedding(10, 2, name="words")
    model = keras.Sequential([shifted, words, layers.Flatten(), layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


@pytest.mark.parametrize("method", ["fit", "evaluate", "predict", "predict_on_batch", "call"])
def test_an_index_out_of_range_names_the_layer_and_the_index(method, engine):
    x = np.zeros((96, 3), "int32")
    x[70] = 7  # in the third batch: epochs run many steps in one native call
    model = lookup()
    run = model if method == "call" else getattr(model, method)
    more = (np.ones((96, 1)),) if method in ("fit", "evaluate") else ()
    options = {"shuffle": False} if method == "fit" else {}
    with pytest.raises(IndexError, match=r"(?s)(Index 12 of layer .*words'|\"words\": index 12)"):
        run(x, *more, **options)
    x[70] = 0
    assert np.isfinite(model.predict(x, verbose=0)).all()  # the model is as good as before


def test_an_index_out_of_range_in_a_loop(engine):
    class Walk(layers.Layer):
        def build(self, shape):
            self.table = self.add_weight(shape=(5, 2), initializer="ones")

        def call(self, x):
            def go_on(at, total):
                return ops.sum(total) < 100.0

            def step(at, total):
                return at + 1, total + ops.sum(ops.take(self.table, at, axis=0))

            return ops.while_loop(go_on, step, (ops.cast(x[0, 0], "int32"), ops.sum(x) * 0.0))[1]

    with pytest.raises(IndexError, match="out of (range|bounds)"):
        keras.function(Walk())(np.zeros((1, 1), "float32"))


# --- keywords -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "wrong", "right"),
    [
        ("fit", "epoch", "epochs"),
        ("fit", "batchsize", "batch_size"),
        ("fit", "validation_spilt", "validation_split"),
        ("compile", "optimiser", "optimizer"),
        ("compile", "metric", "metrics"),
        ("evaluate", "return_dictionary", "return_dict"),
        ("predict", "batchsize", "batch_size"),
        ("train_on_batch", "sample_weights", "sample_weight"),
        ("save", "over_write", "overwrite"),
    ],
)
def test_misspelled_arguments_of_methods(method, wrong, right):
    with pytest.raises((TypeError, ValueError), match=f"Did you mean '{right}'"):
        getattr(compiled(), method)("a.keras" if method == "save" else X, **{wrong: 1})


def test_an_unknown_argument_of_fit_lists_those_that_it_takes():
    with pytest.raises(TypeError, match=r"argument 'zzz'. It takes x, y, batch_size, epochs"):
        compiled().fit(X, Y, zzz=1)


@pytest.mark.parametrize("data", [X, keras.Input((4,))], ids=["array", "symbolic"])
def test_misspelled_arguments_of_a_call(data):
    with pytest.raises(TypeError, match="Did you mean 'training'"):
        layers.Dropout(0.5)(data, trainin=True)


def test_signatures_show_no_more_than_before():
    shown = inspect.signature(keras.Model.fit).parameters
    assert list(shown)[:3] == ["self", "x", "y"] and list(shown)[-1] == "resume"
    assert list(inspect.signature(keras.Model.predict).parameters)[1:3] == ["x", "batch_size"]
    assert "units" in inspect.signature(layers.Dense).parameters
    assert inspect.unwrap(keras.Model.predict).__code__.co_name == "predict"


FAMILIES = {
    "optimizer": optimizers,
    "loss": losses,
    "metric": metrics,
    "callback": callbacks,
    "initializer": initializers,
    "regularizer": regularizers,
    "constraint": constraints,
    "schedule": optimizers.schedules,
    "layer": layers,
}


# Their keywords are hooks and parameters of the user's.
ANY_KEYWORDS = {"CallbackList", "LambdaCallback"}


def classes_with_a_long_keyword():
    """Yield (class, keyword) of the exported classes that have a keyword with a default."""
    for module in FAMILIES.values():
        for name in dir(module):
            cls = getattr(module, name)
            if (
                inspect.isclass(cls)
                and cls.__module__.startswith("kerasish.")
                and name not in ANY_KEYWORDS
            ):
                parameters = inspect.signature(cls.__init__).parameters.values()
                names = [
                    p.name for p in parameters
                    if p.default is not p.empty and len(p.name) > 5 and "_" in p.name
                ]  # fmt: skip
                if names and "get_config" in dir(cls) or names and "on_epoch_end" in dir(cls):
                    yield cls, names[0]


TYPOS = sorted(set(classes_with_a_long_keyword()), key=lambda pair: pair[0].__qualname__)


def test_misspelled_arguments_of_all_classes():
    assert len(TYPOS) > 150
    for cls, keyword in TYPOS:
        wrong = keyword.replace("_", "", 1)
        with pytest.raises((TypeError, ValueError)) as caught:
            cls(**{wrong: 0})
        assert f"Did you mean '{keyword}'?" in str(caught.value), (cls, str(caught.value))


def test_warnings_of_constructors_and_files_name_the_users_line(tmp_path):
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
    model.save_weights(tmp_path / "a.weights.h5")
    other = keras.Sequential([keras.Input((3,)), layers.Dense(4)])
    for warn in (
        lambda: callbacks.EarlyStopping(mode="up"),
        lambda: layers.InputLayer(input_shape=(3,)),
        lambda: layers.STFTSpectrogram(fft_length=100, frame_length=100),
        lambda: other.load_weights(tmp_path / "a.weights.h5", skip_mismatch=True),
    ):
        with pytest.warns(UserWarning, match=".") as caught:
            warn()
        assert [Path(w.filename).name for w in caught] == ["test_tracebacks.py"]
