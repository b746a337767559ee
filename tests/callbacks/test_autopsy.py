"""NaNAutopsy: made accidents of each kind, on both engines, and what it costs in states."""

from __future__ import annotations

import json

import numpy as np
import pytest

import kerasish as keras
from kerasish import ops
from kerasish.callbacks import NaNAutopsy

RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 3)).astype("float32")
Y = X.sum(1, keepdims=True)


class Root(keras.layers.Layer):
    """sqrt(relu(x)): finite, but at 0 its gradient is not."""

    def call(self, x):
        return ops.sqrt(ops.relu(x))


class Logarithm(keras.layers.Layer):
    def call(self, x):
        return ops.log(x)


def make(*middle, loss="mse", rate=1e-3, eager=False, dropout=0.0):
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(4, name="first"), keras.layers.Dropout(dropout),
         *middle, keras.layers.Dense(1, name="last")]
    )  # fmt: skip
    model.compile(keras.optimizers.SGD(rate), loss, run_eagerly=eager)
    return model


def fit(model, autopsy, x=X, y=Y, more=(), **options):
    options = {"batch_size": 8, "epochs": 3, "verbose": 0, "shuffle": False, **options}
    return model.fit(x, y, callbacks=[*more, autopsy], **options)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "autopsy.npz"


# Another callback that wants batches takes the loop the other way: batch by batch.
WATCHING = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: None)
WAYS = pytest.mark.parametrize(
    ("eager", "more"), [(False, ()), (False, (WATCHING,)), (True, ())],
    ids=["rows", "batches", "eager"],
)  # fmt: skip


@WAYS
def test_a_gradient(path, capsys, eager, more):
    model = make(Root(name="root"), eager=eager)
    x = X.copy()
    model.layers[0].set_weights([np.abs(model.layers[0].kernel.numpy()), np.zeros(4, "float32")])
    x = np.abs(x)
    x[29] = 0.0  # relu gives 0 there, where the root's slope is infinite
    autopsy = NaNAutopsy(path)
    fit(model, autopsy, x, more=more)
    finding = autopsy.finding
    origin = finding.origin
    assert (origin.direction, origin.op, origin.layer) == ("backward", "sqrt", "root")
    assert origin.source.startswith("test_autopsy.py:")
    assert (finding.epoch, finding.batch, finding.step) == (0, 3, 3)
    assert origin.rows == (5,) and finding.data_rows == (29,)
    assert all(np.isfinite(w).all() for w in model.get_weights()), "as before the step"
    assert "gradient of sqrt in 'root' at test_autopsy.py" in capsys.readouterr().out


@WAYS
def test_going_forward(path, eager, more):
    x = np.abs(X) + 0.5
    model = make(Logarithm(name="log"), eager=eager)
    model.layers[0].set_weights([np.eye(3, 4, dtype="float32"), np.full(4, 0.1, "float32")])
    x[[10, 12]] = -5.0
    autopsy = NaNAutopsy(path)
    fit(model, autopsy, x, more=more)
    origin = autopsy.finding.origin
    assert (origin.direction, origin.op, origin.layer, origin.kind) == (
        "forward",
        "log",
        "log",
        "NaN",
    )
    assert origin.rows == (2, 4)
    assert autopsy.finding.batch == 1


@WAYS
def test_rows_of_shuffled_data_are_named(path, eager, more):
    x = np.abs(X) + 0.5
    x[[10, 40]] = -5.0
    model = make(Logarithm(name="log"), eager=eager)
    model.layers[0].set_weights([np.eye(3, 4, dtype="float32"), np.full(4, 0.1, "float32")])
    autopsy = NaNAutopsy(path)
    fit(model, autopsy, x, more=more, shuffle=True)
    assert autopsy.finding.data_rows and set(autopsy.finding.data_rows) <= {10, 40}


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.filterwarnings("ignore:.*NaN")
def test_data(path, eager):
    x = X.copy()
    x[19, 1] = np.nan
    autopsy = NaNAutopsy(path)
    fit(make(eager=eager), autopsy, x)
    origin = autopsy.finding.origin
    assert (origin.direction, origin.layer, origin.rows, origin.bad) == ("data", "x", (3,), 1)


def test_a_loss_that_explodes(path):
    autopsy = NaNAutopsy(path)
    fit(make(rate=1e6), autopsy, epochs=40)
    origin = autopsy.finding.origin
    assert origin.direction in ("forward", "backward", "update")
    assert autopsy.finding.step > 0


def test_a_loss_of_ones_own(path):
    def own(y, p):
        return ops.log(y - 1e9) * p

    autopsy = NaNAutopsy(path)
    fit(make(loss=own), autopsy)
    origin = autopsy.finding.origin
    assert (origin.op, origin.direction, origin.layer) == ("log", "forward", "own")
    assert origin.source.startswith("test_autopsy.py:")
    assert len(origin.rows) == 8


def test_masks_of_minus_infinity_are_innocent(path):
    class Masked(keras.layers.Layer):
        def call(self, x):
            hidden = ops.where(x > 1e9, x, -np.inf)
            kept = ops.where(x > -1e9, x, -np.inf)
            return ops.softmax(kept) + ops.max(hidden, axis=-1, keepdims=True) * 0.0

    autopsy = NaNAutopsy(path)
    fit(make(Masked(name="masked")), autopsy)
    origin = autopsy.finding.origin
    assert (origin.kind, origin.op, origin.layer) == ("NaN", "multiply", "masked")


def test_a_train_step_of_ones_own(path):
    class Own(keras.Model):
        def __init__(self):
            super().__init__(name="own")
            self.dense = keras.layers.Dense(1, name="dense")

        def call(self, x):
            return self.dense(x)

        def train_step(self, data):
            x, _ = data
            with keras.GradientTape() as tape:
                loss = ops.mean(ops.log(self(x, training=True) - 1e9))
            grads = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
            return {"loss": loss}

    model = Own()
    model.compile("sgd", "mse")
    autopsy = NaNAutopsy(path)
    fit(model, autopsy)
    assert autopsy.finding.origin.op == "log"
    assert autopsy.finding.origin.source.startswith("test_autopsy.py:")


@pytest.mark.parametrize("again", [False, True], ids=["fresh arrays", "one array"])
def test_generators(path, again):
    def batches():
        x, y = np.empty((8, 3), "float32"), np.empty((8, 1), "float32")
        for i in range(1000):
            if not again:
                x, y = np.empty((8, 3), "float32"), np.empty((8, 1), "float32")
            x[:], y[:] = 1.0 + i % 7, 1.0
            if i == 41:
                x[6] = -5.0
            yield x, y

    model = make(Logarithm(name="log"))
    model.layers[0].set_weights([np.eye(3, 4, dtype="float32"), np.full(4, 0.1, "float32")])
    autopsy = NaNAutopsy(path)
    model.fit(batches(), steps_per_epoch=30, epochs=4, verbose=0, callbacks=[autopsy])
    finding = autopsy.finding
    assert (finding.epoch, finding.batch, finding.origin.rows) == (1, 11, (6,))


@WAYS
def test_dropout_is_repeated(path, eager, more):
    """The step found has the same masks as the one that failed."""
    model = make(Logarithm(name="log"), eager=eager, dropout=0.01)
    model.layers[0].set_weights([np.eye(3, 4, dtype="float32"), np.ones(4, "float32")])
    autopsy = NaNAutopsy(path)
    fit(model, autopsy, np.abs(X) + 0.5, more=more, epochs=20)
    origin = autopsy.finding.origin
    assert (origin.direction, origin.op, origin.layer) == ("forward", "log", "log")
    assert 1 <= origin.bad <= 4, "what was dropped, not all"


def test_the_replay_file_repeats_the_step(path):
    model = make(Logarithm(name="log"))
    autopsy = NaNAutopsy(path)
    fit(model, autopsy)
    origin = autopsy.finding.origin
    fresh = make(Logarithm(name="log"))
    assert NaNAutopsy.replay(fresh, path) == origin
    for one, other in zip(fresh.get_weights(), model.get_weights()):
        np.testing.assert_array_equal(one, other)
    with np.load(path) as file:
        head = json.loads(str(file["head"]))
        x = file["data/x/0"]
    assert head["finding"]["origin"]["op"] == "log"
    np.testing.assert_array_equal(x, X[:8])
    assert NaNAutopsy.replay(make(), path) is None, "without the logarithm all is well"
    other = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    other.compile("sgd", "mse")
    with pytest.raises(ValueError, match="variables of other shapes"):
        NaNAutopsy.replay(other, path)


def test_dicts_go_into_the_file_and_back(path):
    a, b = keras.Input((3,), name="a"), keras.Input((3,), name="b")
    model = keras.Model({"a": a, "b": b}, keras.layers.Dense(1, name="d")(ops.log(a) + b))
    model.compile("sgd", "mse")
    autopsy = NaNAutopsy(path)
    fit(model, autopsy, {"a": X, "b": X})
    assert autopsy.finding.origin.op == "log"
    assert NaNAutopsy.replay(model, path) == autopsy.finding.origin


def test_with_an_error(path):
    with pytest.raises(RuntimeError, match="log in 'log'.*Replay:"):
        fit(make(Logarithm(name="log")), NaNAutopsy(path, raise_error=True))


@WAYS
def test_a_healthy_training_is_left_alone(path, eager, more):
    plain, watched = make(eager=eager, dropout=0.2), make(eager=eager, dropout=0.2)
    expected = plain.fit(X, Y, epochs=3, batch_size=8, verbose=0, shuffle=False).history
    autopsy = NaNAutopsy(path)
    result = fit(watched, autopsy, more=more).history
    assert result["loss"] == expected["loss"]
    for one, other in zip(plain.get_weights(), watched.get_weights()):
        np.testing.assert_array_equal(one, other)
    assert autopsy.finding is None and not path.exists()
    names = {type(f).__name__ for f in (s for _, s in watched.training_program.compiled_steps())}
    assert "_WatchedStep" not in names, "nothing stays behind"


def test_native_loops_stay_native():
    autopsy = NaNAutopsy()
    assert not autopsy.wants_updates("train") and not autopsy.wants_batches("train")
