"""ModelCheckpoint: names of files, endings, messages; its choices are in test_decisions."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import kerasish as keras
from kerasish.callbacks import ModelCheckpoint


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"filepath": "a"}, r"must end in '\.keras' or '\.h5', got 'a'"),
        ({"filepath": "a.h5", "save_weights_only": True}, r"must end in '\.weights\.h5'"),
        ({"filepath": "a.keras", "save_freq": "batch"}, "save_freq must be 'epoch' or"),
        ({"filepath": "a.keras", "save_freq": 0}, "got 0"),
        ({"filepath": "a.keras", "save_freq": True}, "got True"),
        ({"filepath": "a.keras", "save_freq": 1.5}, r"got 1\.5"),
    ],
)
def test_arguments(kwargs, message):
    with pytest.raises(ValueError, match=message):
        ModelCheckpoint(**kwargs)


def test_name_from_logs_in_a_new_folder(attach, tmp_path, late):
    path = tmp_path / "new" / "{epoch:02d}-{val_loss:.2f}-{acc}.keras"
    checkpoint = attach(ModelCheckpoint(path))
    checkpoint.on_epoch_end(0, {"val_loss": late(0.128), "acc": np.float32(0.5)})
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["01-0.13-0.5.keras"]


def test_name_that_the_logs_lack(attach, tmp_path):
    with pytest.raises(KeyError, match="asks for 'val_loss', but there are: epoch, loss"):
        attach(ModelCheckpoint(tmp_path / "{val_loss}.keras")).on_epoch_end(0, {"loss": 1.0})


def test_weights_only(attach, model, tmp_path):
    model.weight[...] = 4.0
    path = tmp_path / "best.weights.h5"
    attach(ModelCheckpoint(path, save_weights_only=True)).on_epoch_end(0, {})
    assert path.read_text() == "4.0"


def test_messages(attach, tmp_path, capsys):
    path = tmp_path / "a.keras"
    checkpoint = attach(ModelCheckpoint(path, "loss", verbose=1, save_best_only=True))
    for epoch, loss in enumerate([0.5, 0.75, 0.25]):
        checkpoint.on_epoch_end(epoch, {"loss": loss})
    assert capsys.readouterr().out == (
        f"Epoch 1: loss 0.5 is the best, saved to {path}\n"
        f"Epoch 2: loss 0.75 is not better than 0.5\n"
        f"Epoch 3: loss 0.25 is the best (before 0.5), saved to {path}\n"
    )


def test_best_stays_over_several_fits(attach, model, tmp_path):
    checkpoint = attach(ModelCheckpoint(tmp_path / "a.keras", "loss", save_best_only=True))
    checkpoint.on_epoch_end(0, {"loss": 0.5})
    checkpoint.on_train_begin()
    checkpoint.on_epoch_end(0, {"loss": 0.75})
    assert model.saved == ["a.keras"]


def test_best_of_a_vector_saves_with_a_warning(attach, model, tmp_path):
    checkpoint = attach(ModelCheckpoint(tmp_path / "a.keras", "loss", save_best_only=True))
    with pytest.warns(UserWarning, match="single number, got .*; saving without comparing"):
        checkpoint.on_epoch_end(0, {"loss": np.ones(2)})
    assert model.saved == ["a.keras"]


def test_a_missing_value_saves_only_where_no_best_is_known(attach, model, tmp_path):
    checkpoint = attach(ModelCheckpoint(tmp_path / "{epoch}.keras", save_best_only=True))
    with pytest.warns(UserWarning, match="no 'val_loss'"):
        checkpoint.on_epoch_end(0, {"loss": 1.0})
    checkpoint.on_epoch_end(1, {"loss": 1.0, "val_loss": 0.5})
    checkpoint.on_epoch_end(2, {"loss": 1.0})
    assert model.saved == ["1.keras", "2.keras"]


def test_best_of_what_has_no_direction(attach, model, tmp_path):
    checkpoint = attach(ModelCheckpoint(tmp_path / "a.keras", "kappa", save_best_only=True))
    with pytest.raises(ValueError, match="cannot tell"):
        checkpoint.on_epoch_end(0, {"kappa": 1.0})
    assert model.saved == []


@pytest.mark.parametrize(
    ("keep", "message"),
    [(0, "got 0"), (1.5, r"got 1\.5"), (3, "needs a filepath that changes.*got 'a.keras'")],
)
def test_keep_is_checked(keep, message):
    with pytest.raises(ValueError, match=message):
        ModelCheckpoint("a.keras", keep=keep)


def test_the_newest_files_are_kept(attach, tmp_path):
    checkpoint = attach(ModelCheckpoint(tmp_path / "{epoch}.keras", keep=2))
    for epoch in range(4):
        checkpoint.on_epoch_end(epoch, {})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["3.keras", "4.keras"]
    again = attach(ModelCheckpoint(tmp_path / "{epoch}.keras", keep=2))
    again.set_state(checkpoint.get_state())
    (tmp_path / "3.keras").unlink()  # as a run may have done before it was killed
    again.on_epoch_end(4, {})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["4.keras", "5.keras"]


def test_the_best_files_are_kept(attach, tmp_path):
    path = tmp_path / "{epoch}.keras"
    checkpoint = attach(ModelCheckpoint(path, "loss", save_best_only=True, keep=2))
    for epoch, loss in enumerate([0.9, 0.8, 0.85, 0.7, 0.75]):
        checkpoint.on_epoch_end(epoch, {"loss": loss})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["2.keras", "4.keras"]


class Gate:
    """Keeps the thread that saves waiting; copies of a model share it."""

    def __init__(self):
        self.event = threading.Event()

    def __deepcopy__(self, memo):
        return self


def test_the_background_saves_what_was_there(attach, tmp_path, make_model):
    class Slow(make_model):
        def __init__(self):
            super().__init__()
            self.gate = Gate()

        def save(self, filepath, overwrite=True):
            assert self.gate.event.wait(60)
            super().save(filepath, overwrite)

    model = Slow()
    checkpoint = attach(ModelCheckpoint(tmp_path / "{epoch}.keras", background=True), model)
    model.weight[...] = 1.0
    checkpoint.on_epoch_end(0, {})
    model.weight[...] = 2.0
    assert checkpoint._is_working()
    assert not (tmp_path / "1.keras").exists()
    model.gate.event.set()
    checkpoint.on_epoch_end(1, {})  # waits: at most one is being written
    checkpoint.on_train_end()
    assert not checkpoint._is_working()
    assert (tmp_path / "1.keras").read_text() == "model 1.0"
    assert (tmp_path / "2.keras").read_text() == "model 2.0"


def test_errors_of_the_background_surface_at_a_batch(attach, tmp_path, make_model):
    class Full(make_model):
        def save(self, filepath, overwrite=True):
            raise OSError("the disk is full")

    checkpoint = attach(ModelCheckpoint(tmp_path / "a.keras", background=True), Full())
    checkpoint.on_epoch_end(0, {})
    while checkpoint._is_working():
        time.sleep(0.001)
    with pytest.raises(OSError, match="full"):
        checkpoint.on_train_batch_end(0)
    checkpoint.on_train_batch_end(1)  # said once
    checkpoint.on_train_end()


def test_a_model_that_cannot_be_copied(attach, tmp_path, model):
    model.lock = threading.Lock()
    checkpoint = attach(ModelCheckpoint(tmp_path / "a.keras", background=True))
    with pytest.raises(ValueError, match="cannot be copied.*lock"):
        checkpoint.on_epoch_end(0, {})


@pytest.mark.parametrize("weights_only", [False, True])
def test_files_from_the_background_are_those_of_the_epoch(tmp_path, weights_only):
    def train(folder, background):
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile("adam", "mse")
        ending = "weights.h5" if weights_only else "keras"
        checkpoint = ModelCheckpoint(
            folder / f"{{epoch}}.{ending}", save_weights_only=weights_only, background=background
        )
        x = np.random.default_rng(0).normal(size=(20, 4)).astype("float32")
        model.fit(x, x[:, :3], epochs=3, batch_size=5, verbose=0, callbacks=[checkpoint])
        result = []
        for path in sorted(folder.iterdir()):
            model.load_weights(path)
            result.append([np.array(w) for w in (*model.weights, *model.optimizer.variables)])
        return result

    here, aside = (train(tmp_path / str(b), b) for b in (False, True))
    assert len(here) == len(aside) == 3
    for a, b in zip(here, aside, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


def test_what_saves_cut_off_have_left_is_cleared_when_training_begins(tmp_path):
    left = [".1.weights.h5.kerasish-new", ".07.weights.h5.kerasish-new"]
    others = [".1.keras.kerasish-new", "1.weights.h5", ".other", ".-1.weights.h5.kerasish-old"]
    for name in (*left, *others):
        (tmp_path / name).write_bytes(b"x")
    checkpoint = ModelCheckpoint(tmp_path / "{epoch}.weights.h5", save_weights_only=True)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(np.zeros((4, 4)), np.zeros(4), epochs=1, verbose=0, callbacks=[checkpoint])
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(others)
    checkpoint.filepath = str(tmp_path / "{epoch}" / "a.weights.h5")  # nothing to search
    checkpoint.on_train_begin()
    checkpoint.filepath = str(tmp_path / "new" / "{epoch}.weights.h5")
    checkpoint.on_train_begin()
    assert not (tmp_path / "new").exists()
