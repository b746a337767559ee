"""BackupAndRestore: where a run goes on, and that one backup is whole at each moment."""

from __future__ import annotations

import json
import os

import pytest

from kerasish.callbacks import BackupAndRestore


class Killed(BaseException):
    """Ends a run as `kill -9` would: nobody handles it."""


def train(backup, model, epochs, batches=3, dies_in=None):
    """Run the loop of an engine; the weight counts the batches."""
    model._initial_epoch = model._initial_batch = 0
    backup.set_model(model)
    backup.on_train_begin()
    begun = (model._initial_epoch, model._initial_batch)
    batch = model._initial_batch
    for epoch in range(model._initial_epoch, epochs):
        backup.on_epoch_begin(epoch)
        while batch < batches:
            if (epoch, batch) == dies_in:
                raise Killed
            model.weight += 1
            backup.on_train_batch_end(batch)
            batch += 1
        batch = 0
        backup.on_epoch_end(epoch)
    backup.on_train_end()
    return begun


@pytest.mark.parametrize(
    ("save_freq", "dies_in", "begun"),
    [
        ("epoch", (0, 2), (0, 0)),
        ("epoch", (2, 1), (2, 0)),
        (2, (1, 2), (1, 1)),
        (2, (1, 0), (0, 2)),
        (1, (1, 0), (0, 3)),
    ],
)
@pytest.mark.parametrize("double", [False, True])
def test_goes_on_where_the_backup_stands(tmp_path, make_model, save_freq, dies_in, begun, double):
    folder = tmp_path / "backup"

    def backup():
        return BackupAndRestore(folder, save_freq, double_checkpoint=double)

    with pytest.raises(Killed):
        train(backup(), make_model(), 4, dies_in=dies_in)
    model = make_model()
    assert train(backup(), model, 4) == begun
    assert model.weight == 12  # as if never cut off
    assert not folder.exists()


def test_a_finished_backup_can_be_kept(tmp_path, make_model):
    keep = BackupAndRestore(tmp_path, delete_checkpoint=False)
    train(keep, make_model(), 2)
    model = make_model()
    assert train(BackupAndRestore(tmp_path, delete_checkpoint=False), model, 3) == (2, 0)
    assert model.weight == 9
    assert sorted(os.listdir(tmp_path)) == ["backup-2.weights.h5", "training_metadata.json"]


def test_files_of_others_stay(tmp_path, make_model):
    (tmp_path / "notes.txt").write_text("mine")
    train(BackupAndRestore(tmp_path), make_model(), 2)
    assert os.listdir(tmp_path) == ["notes.txt"]


@pytest.mark.parametrize("moment", ["save_weights", "replace"])
def test_a_save_cut_off_leaves_the_backup_before(tmp_path, make_model, monkeypatch, moment):
    model = make_model()
    backup = BackupAndRestore(tmp_path)
    with pytest.raises(Killed):
        train(backup, model, 4, dies_in=(2, 0))

    def cut(path, *args, **kwargs):
        if moment == "save_weights":
            open(path, "w").close()  # half a file
        raise Killed

    with monkeypatch.context() as patch:
        if moment == "replace":
            patch.setattr(os, "replace", cut)
        else:
            patch.setattr(model, "save_weights", cut)
        with pytest.raises(Killed):
            backup.on_epoch_end(2)
    again = make_model()
    assert train(BackupAndRestore(tmp_path, delete_checkpoint=False), again, 4) == (2, 0)
    assert again.weight == 12
    assert sorted(p for p in os.listdir(tmp_path) if p.endswith(".h5")) == ["backup-3.weights.h5"]


def test_reserve_of_a_damaged_backup(tmp_path, make_model):
    with pytest.raises(Killed):
        train(BackupAndRestore(tmp_path, double_checkpoint=True), make_model(), 4, dies_in=(2, 0))
    (tmp_path / "backup-1.weights.h5").write_text("damaged")
    model = make_model()
    with pytest.warns(UserWarning, match="damaged .*; took the one before"):
        assert train(BackupAndRestore(tmp_path, double_checkpoint=True), model, 4) == (1, 0)
    assert model.weight == 12


def test_damage_without_a_reserve(tmp_path, make_model):
    with pytest.raises(Killed):
        train(BackupAndRestore(tmp_path), make_model(), 4, dies_in=(2, 0))
    (tmp_path / "backup-1.weights.h5").write_text("damaged")
    with pytest.raises(ValueError, match="cannot load the backup"):
        train(BackupAndRestore(tmp_path), make_model(), 4)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"epoch": 1, "batch": 0}'])
def test_damaged_record(tmp_path, make_model, text):
    (tmp_path / "training_metadata.json").write_text(text)
    with pytest.raises(ValueError, match="is not a record of a backup"):
        train(BackupAndRestore(tmp_path), make_model(), 2)


def test_a_record_cannot_point_outside_its_folder(tmp_path, make_model):
    folder = tmp_path / "backup"
    folder.mkdir()
    (tmp_path / "other.weights.h5").write_text("5.0")
    record = {"epoch": 1, "batch": 0, "number": 0, "weights": "../other.weights.h5"}
    (folder / "training_metadata.json").write_text(json.dumps({**record, "previous": []}))
    with pytest.raises(ValueError, match="cannot load the backup"):
        train(BackupAndRestore(folder), make_model(), 2)


@pytest.mark.parametrize(
    ("args", "message"), [(("",), "must name a folder"), (("b", "batch"), "got 'batch'")]
)
def test_arguments(args, message):
    with pytest.raises(ValueError, match=message):
        BackupAndRestore(*args)
