"""`fit(resume=...)`: cut off anywhere and run again, a training ends with the same bits."""

from __future__ import annotations

import contextlib
import os
import warnings

import numpy as np
import pytest
import threadpoolctl

import kerasish as keras
from kerasish import config, layers
from kerasish.callbacks import Resume

X = np.random.default_rng(0).normal(size=(50, 6)).astype("float32")
Y = (X[:, :2] + 0.1).argmax(axis=1)
BATCHES = 5


class Cut(BaseException):
    """Ends a run as a kill would: no handler catches it."""


class CutAt(keras.callbacks.Callback):
    """Ends the run at a moment: (hook, epoch, batch)."""

    def __init__(self, hook, epoch, batch=None):
        super().__init__()
        self.hook, self.at, self.epoch = hook, (epoch, batch), 0
        setattr(self, hook, self.cut)

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_test_begin(self, logs=None):
        if self.hook == "validation" and self.epoch == self.at[0]:
            raise Cut

    def validation(self):
        """Takes the place of the hook of validation."""

    def cut(self, number, logs=None):
        now = (number, None) if "epoch" in self.hook else (self.epoch, number)
        if self.hook == "on_epoch_begin":
            self.epoch = number
        if now == self.at:
            raise Cut


@pytest.fixture(autouse=True)
def no_waiting_for_disks(monkeypatch):
    """What survives a loss of power is no matter here."""
    monkeypatch.setattr(os, "fsync", lambda number: None)


@pytest.fixture
def eager():
    before = config.backend()
    config.set_backend("eager")
    yield
    config.set_backend(before)


def make(seed=1, kind=keras.Sequential, **compiled):
    if seed is not None:
        keras.utils.set_random_seed(seed)
    model = kind(
        [keras.Input((6,)), layers.Dense(8, activation="relu"), layers.Dropout(0.3),
         layers.BatchNormalization(), layers.Dense(2)]
    )  # fmt: skip
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(**{"optimizer": "adam", "loss": loss, "metrics": ["accuracy"], **compiled})
    return model


def all_of(model, history):
    """Return everything that two runs must agree in."""
    values = [*model.variables, *model.optimizer.variables]
    return [np.array(v) for v in values], history.history, history.epoch, config.next_seed()


def assert_same(found, wanted):
    assert found[1:] == wanted[1:]
    for a, b in zip(found[0], wanted[0], strict=True):
        np.testing.assert_array_equal(a, b)


def train(tmp_path, cut=None, resume=None, made=make, data=None, **kwargs):
    model = made()
    data = {"x": X, "y": Y, "batch_size": 10} if data is None else data()
    log = tmp_path / "log.csv"
    callbacks = [
        keras.callbacks.CSVLogger(log),
        keras.callbacks.EarlyStopping("loss", patience=3, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau("val_loss", patience=1, factor=0.5, cooldown=1),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.97),
    ]
    if cut is not None:
        callbacks.insert(2, cut)
    fitted = {"epochs": 4, "verbose": 0, "validation_data": (X[:20], Y[:20]), **data, **kwargs}
    history = model.fit(callbacks=callbacks, resume=resume, **fitted)
    return *all_of(model, history), log.read_text()


MOMENTS = [
    ("on_train_batch_begin", 0, 0),
    ("on_train_batch_end", 0, 2),
    ("on_train_batch_end", 1, BATCHES - 1),
    ("on_epoch_begin", 2),
    ("on_train_batch_begin", 2, 3),
    ("validation", 2),
    ("on_epoch_end", 3),
]


@pytest.mark.parametrize("background", [False, True])
def test_cut_again_and_again(tmp_path, engine, background):
    wanted = train(tmp_path)
    folder = tmp_path / "states"
    for moment in MOMENTS:
        resume = Resume(folder, every=2, background=background)
        with pytest.raises(Cut):
            train(tmp_path, CutAt(*moment), resume)
    assert_same(train(tmp_path, resume=str(folder)), wanted)
    # What had ended gives the same again, without training.
    assert_same(train(tmp_path, resume=folder), wanted)


@pytest.mark.parametrize("moment", MOMENTS)
def test_cut_once(tmp_path, eager, moment):
    wanted = train(tmp_path)
    with pytest.raises(Cut):
        train(tmp_path, CutAt(*moment), Resume(tmp_path / "states", every=1, background=False))
    assert_same(train(tmp_path, resume=tmp_path / "states"), wanted)


def test_stopping_early_is_kept(tmp_path, eager):
    """A run that ended between the last epoch and its end has not to be trained further."""

    def run(cut=None):
        model = make()
        stopping = keras.callbacks.EarlyStopping("loss", patience=1, min_delta=10)
        model.fit(
            X, Y, epochs=20, verbose=0, callbacks=[stopping, *([cut] if cut else [])],
            resume=Resume(tmp_path / "states", background=False),
        )  # fmt: skip
        return stopping.stopped_epoch

    with pytest.raises(Cut):
        run(CutAtTheEnd())
    assert run() == run() == 1


class CutAtTheEnd(keras.callbacks.Callback):
    def on_train_end(self, logs=None):
        raise Cut


def test_more_epochs_later(tmp_path, engine):
    wanted = train(tmp_path)
    train(tmp_path, resume=tmp_path / "states", epochs=2)
    assert_same(train(tmp_path, resume=tmp_path / "states"), wanted)


def test_without_a_seed_the_draws_go_on(tmp_path, eager):
    """Weights, order and masks of the first run are taken, whatever the second one drew."""
    first = make(seed=5)
    with pytest.raises(Cut):
        train(
            tmp_path, CutAt("on_train_batch_begin", 1, 3), Resume(tmp_path / "s", every=1),
            made=lambda: first,
        )  # fmt: skip
    result = train(tmp_path, resume=tmp_path / "s", made=lambda: make(seed=77))
    wanted = train(tmp_path, made=lambda: make(seed=5))
    assert_same(result, wanted)


class Own(keras.Sequential):
    """A training step with logs of its own."""

    def train_step(self, data):
        return {**super().train_step(data), "mine": self.optimizer.iterations * 2}


@pytest.mark.parametrize("moment", MOMENTS[2::2])
def test_own_logs_of_a_step(tmp_path, eager, moment):
    def made():
        return make(kind=Own)

    wanted = train(tmp_path, made=made)
    assert wanted[1]["mine"][:2] == [2.0 * BATCHES, 4.0 * BATCHES]
    with pytest.raises(Cut):
        train(tmp_path, CutAt(*moment), Resume(tmp_path / "s", every=1), made=made)
    assert_same(train(tmp_path, resume=tmp_path / "s", made=made), wanted)


# --- data that is no array ------------------------------------------------------------------------


def noisy(rows):
    """Return a batch that NumPy's shared generator has a part in."""
    return X[rows] + np.random.normal(size=X[rows].shape) * 0.1, Y[rows]  # noqa: NPY002


def generator():
    while True:
        for i in np.random.permutation(BATCHES):  # noqa: NPY002
            yield noisy(slice(10 * i, 10 * i + 10))


class Passes:
    """Gives its batches in a new order each time."""

    def __init__(self, rows=10):
        self.rows = rows

    def __iter__(self):
        for i in np.random.permutation(50 // self.rows):  # noqa: NPY002
            yield noisy(slice(self.rows * i, self.rows * (i + 1)))


class Batches(keras.utils.PyDataset):
    def __init__(self, rows=10):
        super().__init__()
        self.rows = rows

    def __len__(self):
        return 50 // self.rows

    def __getitem__(self, index):
        return noisy(slice(self.rows * index, self.rows * (index + 1)))


class Shuffled(Batches):
    """Keeps an order of its own, changed after each epoch."""

    def __init__(self):
        super().__init__()
        self.order = np.arange(BATCHES)

    def __getitem__(self, index):
        return super().__getitem__(int(self.order[index]))

    def on_epoch_end(self):
        np.random.default_rng(int(self.order[0])).shuffle(self.order)


SOURCES = {
    "generator": lambda: {"x": generator(), "steps_per_epoch": BATCHES},
    "passes": lambda: {"x": Passes()},
    "passes in parts": lambda: {"x": Passes(5), "steps_per_epoch": 5},
    "dataset": lambda: {"x": Batches()},
    "dataset in parts": lambda: {"x": Batches(5), "steps_per_epoch": 5},
    "dataset that shuffles": lambda: {"x": Shuffled()},
    "arrays in parts": lambda: {"x": X, "y": Y, "batch_size": 5, "steps_per_epoch": 5},
}
WARNS = ("generator", "passes", "passes in parts", "dataset that shuffles")


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("moment", [("on_train_batch_begin", 0, 1), ("on_train_batch_end", 2, 1),
                                    ("on_epoch_begin", 3)])  # fmt: skip
def test_other_data(tmp_path, eager, name, moment):
    wanted = train(tmp_path, data=SOURCES[name])
    with pytest.raises(Cut):
        train(
            tmp_path, CutAt(*moment), Resume(tmp_path / "s", every=1, background=False),
            data=SOURCES[name],
        )  # fmt: skip
    np.random.seed(99)  # noqa: NPY002 (the state has the draws, whatever was drawn meanwhile)
    with warnings.catch_warnings(record=True) as reported:
        warnings.simplefilter("always")
        assert_same(train(tmp_path, resume=tmp_path / "s", data=SOURCES[name]), wanted)
    texts = [str(w.message) for w in reported]
    if name in ("generator", "passes in parts"):
        assert len(texts) == 1
        assert "cannot be positioned: its first" in texts[0]
    assert set(texts) == set() or name in WARNS


# --- where it cannot continue ---------------------------------------------------------------------


def test_state_of_another_model(tmp_path, eager):
    train(tmp_path, resume=tmp_path / "s", epochs=1)
    other = keras.Sequential([keras.Input((6,)), layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    other.compile("adam", loss, metrics=["accuracy"])
    before = [np.array(w) for w in other.get_weights()]
    with pytest.raises(ValueError, match=r"(?s)another model.*\(6, 8\) float32 in the state"):
        other.fit(X, Y, batch_size=10, verbose=0, resume=tmp_path / "s")
    for a, b in zip(before, other.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_state_of_other_callbacks(tmp_path, eager):
    train(tmp_path, resume=tmp_path / "s", epochs=1)
    with pytest.raises(ValueError, match="the state is of the callbacks"):
        make().fit(X, Y, batch_size=10, verbose=0, resume=tmp_path / "s")


def test_a_damaged_state_is_passed_over(tmp_path, eager):
    wanted = train(tmp_path)
    resume = Resume(tmp_path / "s", every=1, background=False)
    with pytest.raises(Cut):
        train(tmp_path, CutAt("on_epoch_end", 2), resume)
    latest = max((tmp_path / "s").iterdir())
    latest.write_bytes(latest.read_bytes()[:-1])
    with pytest.warns(UserWarning, match=rf"{latest.name}.*damaged.* Took the one before"):
        result = train(tmp_path, resume=tmp_path / "s")
    assert_same(result, wanted)


def test_nothing_whole_is_left(tmp_path, eager):
    train(tmp_path, resume=tmp_path / "s", epochs=1)
    for path in (tmp_path / "s").iterdir():
        path.write_bytes(b"")
    with pytest.raises(ValueError, match="no state in .* is whole: .*header is cut off.*Delete"):
        train(tmp_path, resume=tmp_path / "s")


def test_an_error_in_the_background_surfaces_at_a_batch(tmp_path, engine, monkeypatch):
    resume = Resume(tmp_path / "s", every=1)
    monkeypatch.setattr(resume, "_write", full)
    with pytest.raises(OSError, match="the disk is full"):
        make().fit(X, Y, batch_size=10, epochs=500, verbose=0, resume=resume)


def full(state):
    raise OSError("the disk is full")


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"directory": ""}, "expected the name of a folder"),
        ({"directory": "a", "every": 0}, "every is a number of batches"),
        ({"directory": "a", "every": 1.5}, "every is a number of batches"),
        ({"directory": "a", "seconds": 0}, "seconds must be positive"),
    ],
)
def test_arguments(kwargs, message):
    with pytest.raises(ValueError, match=message):
        Resume(**kwargs)


def test_one_place_to_resume_from(tmp_path, eager):
    with pytest.raises(ValueError, match="one place to resume from, got Resume, Resume"):
        make().fit(X, Y, callbacks=[Resume(tmp_path)], resume=tmp_path)
    with pytest.raises(ValueError, match="resume is a folder"):
        make().fit(X, Y, resume=3)


# --- when states are saved ------------------------------------------------------------------------


class Told(Resume):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, background=False, **kwargs)
        self.places = []

    def save(self, epoch, batch, logs=None):
        super().save(epoch, batch, logs)
        self.places.append((epoch, batch))


def test_saved_at_exactly_these_batches(tmp_path, engine):
    reported = Told(tmp_path, every=2)
    make().fit(X, Y, batch_size=10, epochs=2, verbose=0, callbacks=[reported])
    assert reported.places == [(0, 0), (0, 2), (0, 4), (1, 0), (1, 2), (1, 4), (2, 0), (2, 0)]


def test_saved_by_time(tmp_path, engine):
    reported = Told(tmp_path, seconds=1e-6)
    make().fit(X, Y, batch_size=10, epochs=1, verbose=0, resume=reported)
    assert reported.places == [(0, n) for n in range(6)] + [(1, 0), (1, 0)]


def test_saved_at_epochs_alone(tmp_path, engine):
    reported = Told(tmp_path, seconds=None)
    make().fit(X, Y, batch_size=10, epochs=2, verbose=0, resume=reported)
    assert reported.places == [(0, 0), (1, 0), (2, 0), (2, 0)]


def test_the_background_leaves_states_out(tmp_path, eager):
    """It keeps to its share of the time: not all of the batches can be saved."""
    saved = []

    class Counted(Resume):
        def save(self, epoch, batch, logs=None):
            super().save(epoch, batch, logs)
            saved.append((epoch, batch))

    make().fit(X, Y, batch_size=1, epochs=2, verbose=0, resume=Counted(tmp_path, every=1))
    assert saved[0] == (0, 0)
    assert saved[-1] == (2, 0)
    assert 2 <= len(saved) < 100


# --- engines and threads --------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["static", "eager"])
def test_across_engines_as_close_as_the_engines_are(tmp_path, first):
    """Not bit for bit: the two add up in different orders."""
    second = {"static": "eager", "eager": "static"}[first]
    before = config.backend()
    try:
        config.set_backend(first)
        wanted = train(tmp_path, epochs=2)
        with pytest.raises(Cut):
            train(tmp_path, CutAt("on_train_batch_begin", 1, 2), Resume(tmp_path / "s", every=1),
                  epochs=2)  # fmt: skip
        config.set_backend(second)
        with pytest.warns(UserWarning, match=f"another engine.*{first}, .* now {second}.*not bit"):
            result = train(tmp_path, resume=tmp_path / "s", epochs=2)
    finally:
        config.set_backend(before)
    for a, b in zip(result[0], wanted[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@contextlib.contextmanager
def threads(count):
    """Let both engines use this many threads: ours, and NumPy's BLAS."""
    with config.using_threads(count), threadpoolctl.threadpool_limits(count, "blas"):
        yield


def test_on_another_number_of_threads(tmp_path, engine):
    """Not bit for bit either: sums are split among the threads."""
    with threads(1):
        wanted = train(tmp_path, epochs=2)
        with pytest.raises(Cut):
            train(tmp_path, CutAt("on_epoch_begin", 1), Resume(tmp_path / "s"), epochs=2)
    reported = "1 threads; now .* 2 threads.*not bit"
    with threads(2), pytest.warns(UserWarning, match=reported):
        result = train(tmp_path, resume=tmp_path / "s", epochs=2)
    for a, b in zip(result[0], wanted[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("moment", [("on_train_batch_begin", 1, 3), ("on_epoch_begin", 2)])
def test_averaged_weights_and_an_autopsy(tmp_path, engine, moment):
    """Callbacks that hold or exchange weights of their own."""

    def run(cut=None, resume=None):
        model = make(optimizer=keras.optimizers.Adam(use_ema=True, ema_momentum=0.9))
        callbacks = [
            keras.callbacks.SwapEMAWeights(swap_on_epoch=True),
            keras.callbacks.NaNAutopsy(tmp_path / "autopsy.npz"),
            *([] if cut is None else [cut]),
        ]
        history = model.fit(
            X, Y, batch_size=10, epochs=3, verbose=0, validation_data=(X, Y), callbacks=callbacks,
            resume=resume,
        )  # fmt: skip
        return all_of(model, history)

    wanted = run()
    with pytest.raises(Cut):
        run(CutAt(*moment), Resume(tmp_path / "s", every=1, background=False))
    assert_same(run(resume=tmp_path / "s"), wanted)


@pytest.mark.filterwarnings("ignore:.*holds NaN in row 47")
def test_an_autopsy_after_a_resume(tmp_path, engine):
    """The step that it repeats is counted, and begun, from where the training went on."""

    def run(cut=None):
        autopsy = keras.callbacks.NaNAutopsy(tmp_path / "autopsy.npz")
        x = X.copy()
        if cut is None:
            x[47] = np.nan
        make().fit(
            x, Y, batch_size=10, epochs=2, verbose=0, shuffle=False,
            resume=Resume(tmp_path / "s", every=1, background=False),
            callbacks=[autopsy, *([] if cut is None else [cut])],
        )  # fmt: skip
        return autopsy.finding

    with pytest.raises(Cut):
        run(CutAt("on_train_batch_begin", 0, 3))
    with pytest.warns(UserWarning, match="but other numbers"):  # of row 47
        result = run()
    assert (result.epoch, result.batch, result.step) == (0, 4, 4)
    assert result.origin is not None


def test_data_that_goes_through_the_host(tmp_path, eager):
    """Layers that run on the host (Hashing) precede the step: `HostStageData`."""

    def made():
        keras.utils.set_random_seed(3)
        model = keras.Sequential(
            [keras.Input((1,), dtype="string"), layers.Hashing(7), layers.Embedding(7, 3),
             layers.Flatten(), layers.Dropout(0.3), layers.Dense(2)]
        )  # fmt: skip
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss)
        return model

    def texts():
        while True:
            for i in np.random.permutation(BATCHES):  # noqa: NPY002
                yield np.array([[f"word {i} {j}"] for j in range(10)]), Y[10 * i : 10 * i + 10]

    def data():
        return {"x": texts(), "steps_per_epoch": BATCHES, "validation_data": None}

    def run(**more):
        return train(tmp_path, made=made, data=data, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ReduceLROnPlateau has no val_loss
        wanted = run()
        with pytest.raises(Cut):
            run(cut=CutAt("on_train_batch_begin", 1, 3), resume=Resume(tmp_path / "s", every=1))
        assert_same(run(resume=tmp_path / "s"), wanted)
