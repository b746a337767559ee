"""ModelCheckpoint: names of files, endings, messages; its choices are in test_decisions."""

from __future__ import annotations

import numpy as np
import pytest

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
