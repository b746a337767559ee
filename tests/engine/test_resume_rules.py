"""What `fit(resume=...)` refuses, warns of and accepts; and states with changed contents."""

from __future__ import annotations

import copy
import os
import random
import signal
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

import kerasish as keras
from kerasish import config, layers
from kerasish.callbacks import BackupAndRestore, Resume
from kerasish.errors import FolderInUseError, ResumeError
from kerasish.saving.files.folder_lock import NAME, FolderLock
from kerasish.saving.formats.state_file import StateFolder, read_state, write_state

X = np.random.default_rng(0).normal(size=(32, 3)).astype("float32")
Y = X @ np.array([[1.0], [-2.0], [0.5]], "float32")
BATCHES = 8


class Cut(BaseException):
    """Ends a run as a kill would: no handler catches it."""


class CutAfter(keras.callbacks.Callback):
    """Ends the run after this many batches."""

    def __init__(self, batches):
        super().__init__()
        self.left = batches

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if self.left < 0:
            raise Cut


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda number: None)
    before = config.backend()
    config.set_backend("eager")
    yield
    config.set_backend(before)


def make(optimizer=None, loss="mse", metrics=("mae",), units=4):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((3,)), layers.Dense(units, "tanh"), layers.Dense(1)])
    optimizer = keras.optimizers.Adam(0.01) if optimizer is None else optimizer
    model.compile(optimizer, loss, metrics=list(metrics))
    return model


def run(folder, model=None, cut=None, epochs=4, callbacks=(), x=X, y=Y, every=1, **kwargs):
    model = make() if model is None else model
    own = [keras.callbacks.EarlyStopping("loss", patience=9), *callbacks]
    own += [] if cut is None else [CutAfter(cut)]
    resume = None if folder is None else Resume(folder, every=every, background=False)
    fitted = {"batch_size": 4, "epochs": epochs, "verbose": 0, **kwargs}
    history = model.fit(x, y, callbacks=own, resume=resume, **fitted)
    return model, history


def values(model):
    return [np.array(v) for v in [*model.variables, *model.optimizer.variables]]


def assert_same(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def cut_off(folder, batches=11):
    """Train until the run is cut off in its second epoch."""
    with pytest.raises(Cut):
        run(folder, cut=batches)


class RandomRate(keras.callbacks.Callback):
    """Draws each batch's learning rate from Python's random numbers, which keep a spare one."""

    def on_train_batch_begin(self, batch, logs=None):
        self.model.optimizer.learning_rate = abs(random.gauss(0.01, 0.001))


@pytest.mark.parametrize("batches", [11, 12])
def test_python_s_random_numbers_go_on(tmp_path, batches):
    wanted, _ = run(None, callbacks=[RandomRate()])
    with pytest.raises(Cut):
        run(tmp_path / "s", cut=batches, callbacks=[RandomRate()])
    random.seed(99)
    result, _ = run(tmp_path / "s", callbacks=[RandomRate()])
    assert_same(values(result), values(wanted))


def test_weights_of_other_shapes_are_refused(tmp_path):
    """As many weights, so that each has its partner in the state."""
    cut_off(tmp_path / "s")
    other = make(units=5)
    before = values(other)
    text = r"(?s)another model.*\(3, 4\) float32 in the state, .*\(3, 5\) float32 in this model"
    with pytest.raises(ResumeError, match=text):
        run(tmp_path / "s", other)
    assert_same(values(other)[: len(before)], before)


# --- fewer epochs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["eager", "static"])
def test_fewer_epochs_give_what_was_saved_and_keep_it(tmp_path, engine):
    config.set_backend(engine)
    wanted, whole = run(None)
    cut_off(tmp_path / "s")
    latest = max((tmp_path / "s").glob("state-*"))
    state = latest.read_bytes()
    kept = list(read_state(str(latest))["variables"].values())
    text = r"has 1 epochs and 3 batches done, more than epochs=1\. Nothing is trained"
    with pytest.warns(UserWarning, match=text):
        model, history = run(tmp_path / "s", epochs=1)
    assert int(model.optimizer.iterations) == 11 and history.epoch == [0]
    assert_same(values(model), kept[: len(values(model))])
    assert max((tmp_path / "s").glob("state-*")).read_bytes() == state
    again, history = run(tmp_path / "s")
    assert int(again.optimizer.iterations) == 32
    assert_same(values(again), values(wanted))
    assert history.history == whole.history


def test_a_training_that_had_ended_is_not_cut_short(tmp_path):
    trained, _ = run(tmp_path / "s")
    with pytest.warns(UserWarning, match="has 4 epochs done, more than epochs=2"):
        model, history = run(tmp_path / "s", epochs=2)
    assert_same(values(model), values(trained))
    assert len(history.epoch) == 4
    longer, _ = run(tmp_path / "s", epochs=5)  # no warning
    assert int(longer.optimizer.iterations) == 40


def test_a_backup_is_not_deleted_by_fewer_epochs(tmp_path):
    def fit(epochs, cut=None):
        model = make()
        backup = BackupAndRestore(tmp_path / "b", save_freq=1)
        callbacks = [backup, *([] if cut is None else [CutAfter(cut)])]
        model.fit(X, Y, batch_size=4, epochs=epochs, verbose=0, callbacks=callbacks)
        return model

    with pytest.raises(Cut):
        fit(4, cut=11)
    with pytest.warns(UserWarning, match="Nothing is trained"):
        fit(1)
    assert int(fit(4).optimizer.iterations) == 32
    assert not (tmp_path / "b").exists()


# --- another training -----------------------------------------------------------------------------

REFUSED = {
    "loss": {"model": lambda: make(loss="mae")},
    "loss by an argument": {"model": lambda: make(loss=keras.losses.Huber(2.0))},
    "metrics": {"model": lambda: make(metrics=["mse"])},
    "optimizer": {"model": lambda: make(keras.optimizers.Nadam(0.01))},
    "optimizer's argument": {"model": lambda: make(keras.optimizers.Adam(0.01, beta_1=0.5))},
    "batches": {"batch_size": 8},
    "batches by steps": {"steps_per_epoch": 4},
    "shuffle": {"shuffle": False},
    "data": {"x": X[:28], "y": Y[:28]},
    "data with weights": {"sample_weight": np.ones(32, "float32")},
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("batches", [8, 11])
def test_another_training_is_refused(tmp_path, name, batches):
    cut_off(tmp_path / "s", batches)
    given = dict(REFUSED[name])
    model = given.pop("model", make)()
    keras.utils.set_random_seed(7)
    before, at = [np.array(w) for w in model.get_weights()], np.random.get_state()[1].copy()  # noqa: NPY002
    files = {p.name: p.read_bytes() for p in (tmp_path / "s").iterdir()}
    what = name.partition(" ")[0].partition("'")[0]
    text = rf"(?s)another training:\n.*  {what}: .* in the state, .* now\nTrain as before"
    with pytest.raises(ResumeError, match=text):
        run(tmp_path / "s", model, **given)
    assert_same([np.array(w) for w in model.get_weights()], before)
    np.testing.assert_array_equal(np.random.get_state()[1], at)  # noqa: NPY002
    assert {p.name: p.read_bytes() for p in (tmp_path / "s").iterdir()} == files


def test_another_learning_rate_is_named_and_the_states_holds(tmp_path):
    wanted, _ = run(None)
    cut_off(tmp_path / "s")
    text = r"began with learning_rate \[0\.0099.*\], \[0\.5\] is given now\. The state's holds"
    with pytest.warns(UserWarning, match=text):
        model, _ = run(tmp_path / "s", make(keras.optimizers.Adam(0.5)))
    assert_same(values(model), values(wanted))


def test_other_numbers_of_the_data_are_named(tmp_path):
    cut_off(tmp_path / "s")
    other = X.copy()
    other[-1] += 1
    with pytest.warns(UserWarning, match="but other numbers"):
        model, _ = run(tmp_path / "s", x=other)
    assert int(model.optimizer.iterations) == 32


def test_equal_ways_to_say_the_same_are_equal(tmp_path):
    wanted, _ = run(None)
    cut_off(tmp_path / "s")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model, _ = run(tmp_path / "s", make(loss="mean_squared_error"))
    assert_same(values(model), values(wanted))


# --- one training at a time -----------------------------------------------------------------------

HOLDER = """
import sys, time
from kerasish.saving.files.folder_lock import FolderLock
lock = FolderLock(sys.argv[1])
lock.take()
print("taken", flush=True)
time.sleep(600)
"""


def test_two_processes_do_not_share_a_folder(tmp_path):
    """A killed process holds no lock, and what it left is no hindrance."""
    cut_off(tmp_path / "s")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "s")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "taken\n"
        files = sorted(os.listdir(tmp_path / "s"))
        with pytest.raises(FolderInUseError, match=rf"process {holder.pid} on .*, since 20.*Wait"):
            run(tmp_path / "s")
        assert sorted(os.listdir(tmp_path / "s")) == files
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait(60)
        holder.stdout.close()
    assert (tmp_path / "s" / NAME).exists()
    model, _ = run(tmp_path / "s")
    assert int(model.optimizer.iterations) == 32
    assert not (tmp_path / "s" / NAME).exists()


def test_two_threads_do_not_share_a_folder(tmp_path):
    begun, over, errors = threading.Event(), threading.Event(), []

    class Waits(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            begun.set()
            over.wait(60)

    thread = threading.Thread(target=lambda: run(tmp_path / "s", callbacks=[Waits()]))
    thread.start()
    try:
        assert begun.wait(60)
        with pytest.raises(FolderInUseError, match="this process"):
            run(tmp_path / "x" / ".." / "s")
    except BaseException as error:
        errors.append(error)
        raise
    finally:
        over.set()
        thread.join(60)
    assert sorted(p.name[:5] for p in (tmp_path / "s").iterdir()) == ["state", "state"]


def test_a_lock_is_given_back_whatever_happens(tmp_path):
    with pytest.raises(ValueError, match="epochs is a number"):
        run(tmp_path / "s", epochs=-1)
    assert not (tmp_path / "s").exists()  # as it was before
    cut_off(tmp_path / "s")
    FolderLock(str(tmp_path / "s")).take()
    with pytest.raises(FolderInUseError):
        FolderLock(str(tmp_path / "s")).take()


# --- states with changed contents -----------------------------------------------------------------


def places(value, at=()):
    """Yield the way to each value inside a tree."""
    yield at
    if isinstance(value, (dict, list)):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(part, (*at, key))


OTHERS = (
    None, True, -1, 0, 3, 2**70, 1.5, float("nan"), "", "text", [], [1, None], {}, {"a": 1},
    np.zeros(0, "float32"), np.ones((2, 3), "int8"), np.array(7),
)  # fmt: skip


def changed(state, rng):
    """Return the state with one to three of its values changed, left out or put elsewhere."""
    state = copy.deepcopy(state)
    for _ in range(rng.integers(1, 4)):
        ways = [way for way in places(state) if way]
        way = ways[rng.integers(len(ways))]
        owner = state
        for key in way[:-1]:
            owner = owner[key]
        what = rng.integers(4)
        if what == 0 and isinstance(owner, dict):
            del owner[way[-1]]
        elif what == 1 and isinstance(owner, list):
            owner.append(copy.deepcopy(OTHERS[rng.integers(len(OTHERS))]))
        elif what == 2 and isinstance(owner[way[-1]], np.ndarray) and owner[way[-1]].size:
            flat = owner[way[-1]].copy().reshape(-1)
            flat[rng.integers(flat.size)] = 1
            owner[way[-1]] = flat if rng.integers(2) else flat.astype("float64")
        else:
            owner[way[-1]] = copy.deepcopy(OTHERS[rng.integers(len(OTHERS))])
    return state


def fuzz(folder, numbers):
    """Resume from changed states; return how many were refused, passed over and taken."""
    os.makedirs(folder)
    log = folder.parent / "log.csv"

    def fit(cut=None):
        callbacks = [
            keras.callbacks.ReduceLROnPlateau("loss", patience=1),
            keras.callbacks.ModelCheckpoint(folder.parent / "best.keras", monitor="loss",
                                            save_best_only=True),
            keras.callbacks.CSVLogger(log),
        ]  # fmt: skip
        return run(folder, cut=cut, epochs=2, callbacks=callbacks, every=None)

    with pytest.raises(Cut):
        fit(cut=11)
    states = sorted(folder.glob("state-*"))
    whole, rows = states[-1].read_bytes(), log.read_bytes()
    state = read_state(str(states[-1]))
    counts = {"refused": 0, "passed over": 0, "taken": 0}
    for number in numbers:
        rng = np.random.default_rng(number)
        for path in folder.iterdir():
            path.unlink()
        log.write_bytes(rows)
        write_state(StateFolder(str(folder)).file(1), changed(state, rng))
        older = bool(rng.integers(2))
        if older:
            (folder / states[-1].name.replace(states[-1].name[6:14], "00000000")).write_bytes(whole)
        with warnings.catch_warnings(record=True) as reported:
            warnings.simplefilter("always")
            try:
                fit()
            except ResumeError as error:
                counts["refused"] += str(error).startswith("Resume: ")
            else:
                over = any("Took the one before" in str(w.message) for w in reported)
                counts["passed over" if over else "taken"] += 1
    assert sum(counts.values()) == len(numbers)
    return counts


@pytest.mark.parametrize("name", ["learning_rate", "contents", "loss"])
def test_a_fact_that_is_missing_is_another_one(tmp_path, name):
    cut_off(tmp_path / "s")
    latest = max((tmp_path / "s").glob("state-*"))
    state = read_state(str(latest))
    del state["facts"][name]
    write_state(str(latest), state)
    if name == "loss":
        with pytest.raises(ResumeError, match="loss: None in the state"):
            run(tmp_path / "s")
    else:
        with pytest.warns(UserWarning, match="learning_rate None|other numbers"):
            run(tmp_path / "s")


@pytest.mark.slow
def test_changed_contents_end_in_one_kind_of_error(tmp_path):
    counts = fuzz(tmp_path / "s", range(300))
    assert min(counts.values()) > 5


@pytest.mark.slow
def test_many_changed_contents_end_in_one_kind_of_error(tmp_path):
    counts = fuzz(tmp_path / "s", range(1000, 1000 + int(os.environ.get("KERASISH_FUZZ", "500"))))
    assert min(counts.values()) > 10
