"""BackupAndRestore: Keras's arguments and files on top of `Resume`."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

import kerasish as keras
from kerasish.callbacks import BackupAndRestore

X = np.random.default_rng(0).normal(size=(24, 4)).astype("float32")
Y = X[:, :1] * 2


class Killed(BaseException):
    """Ends a run as `kill -9` would: no handler catches it."""


class Die(keras.callbacks.Callback):
    def __init__(self, epoch, batch):
        super().__init__()
        self.at, self.epoch = (epoch, batch), 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if (self.epoch, batch) == self.at:
            raise Killed


def make():
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile("adam", "mse", run_eagerly=True)
    return model


def train(backup, dies_in=None, epochs=4):
    model = make()
    callbacks = [backup] if dies_in is None else [backup, Die(*dies_in)]
    history = model.fit(X, Y, batch_size=8, epochs=epochs, verbose=0, callbacks=callbacks)
    return model.get_weights(), history


def assert_same(found, wanted):
    for a, b in zip(found[0], wanted[0], strict=True):
        np.testing.assert_array_equal(a, b)
    assert found[1].history == wanted[1].history


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train(BackupAndRestore(tmp_path_factory.mktemp("whole")))


@pytest.mark.parametrize(
    ("save_freq", "dies_in", "begun"),
    [
        ("epoch", (0, 2), (0, 0)),
        ("epoch", (2, 1), (2, 0)),
        (2, (1, 2), (1, 2)),
        (2, (1, 1), (1, 0)),
        (1, (3, 1), (3, 1)),
    ],
)
@pytest.mark.parametrize("double", [False, True])
def test_goes_on_where_the_backup_stands(tmp_path, whole, save_freq, dies_in, begun, double):
    folder = tmp_path / "backup"
    with pytest.raises(Killed):
        train(BackupAndRestore(folder, save_freq, double_checkpoint=double), dies_in)
    record = json.loads((folder / "training_metadata.json").read_text())
    assert (record["epoch"], record["batch"]) == begun
    assert (folder / "latest.weights.h5.bkp").exists() is (double and dies_in != (0, 2))
    assert_same(train(BackupAndRestore(folder, save_freq, double_checkpoint=double)), whole)
    assert not folder.exists()


def test_a_finished_backup_can_be_kept(tmp_path, whole):
    train(BackupAndRestore(tmp_path, delete_checkpoint=False), epochs=2)
    keep = BackupAndRestore(tmp_path, delete_checkpoint=False)
    assert_same(train(keep), whole)
    assert sorted(os.listdir(tmp_path)) == [
        "latest.weights.h5",
        "state-00000005.safetensors",
        "state-00000006.safetensors",
        "training_metadata.json",
    ]
    model = make()
    model.load_weights(tmp_path / "latest.weights.h5")
    np.testing.assert_array_equal(model.get_weights()[0], whole[0][0])


def test_files_of_others_stay(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    train(BackupAndRestore(tmp_path))
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_backup_of_keras(tmp_path):
    first = make()
    first.fit(X, Y, batch_size=8, epochs=2, verbose=0, shuffle=False)
    first.save_weights(tmp_path / "latest.weights.h5")
    (tmp_path / "training_metadata.json").write_text('{"epoch": 2, "batch": 0}')
    model = make()
    with pytest.warns(UserWarning, match="is Keras's.* continues at epoch 3"):
        history = model.fit(
            X, Y, batch_size=8, epochs=4, verbose=0, shuffle=False,
            callbacks=[BackupAndRestore(tmp_path)],
        )  # fmt: skip
    first.fit(X, Y, batch_size=8, epochs=2, verbose=0, shuffle=False)
    assert history.epoch == [2, 3]
    for a, b in zip(model.get_weights(), first.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"epoch": 1}'])
def test_damaged_record_of_keras(tmp_path, text):
    (tmp_path / "training_metadata.json").write_text(text)
    with pytest.raises(ValueError, match="is not a record of a backup"):
        train(BackupAndRestore(tmp_path))


@pytest.mark.parametrize(
    ("args", "message"), [(("",), "must name a folder"), (("b", "batch"), "got 'batch'")]
)
def test_arguments(args, message):
    with pytest.raises(ValueError, match=message):
        BackupAndRestore(*args)
