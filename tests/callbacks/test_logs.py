"""CSVLogger: Keras's files; LambdaCallback."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish.callbacks import CSVLogger, LambdaCallback
from kerasish.errors import UnknownNameError


def write(logger, *rows, first=0):
    logger.on_train_begin()
    for epoch, logs in enumerate(rows, first):
        logger.on_epoch_end(epoch, logs)
    logger.on_train_end()


def lines(path):
    text = path.read_bytes().decode()
    assert text.endswith("\r\n")
    return text.removesuffix("\r\n").split("\r\n")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log.csv"


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_columns_are_sorted_and_val_ones_kept_free(path, separator):
    write(CSVLogger(path, separator), {"loss": 0.5, "acc": 1}, {"loss": 0.25, "val_loss": 2.0})
    assert [line.split(separator) for line in lines(path)] == [
        ["epoch", "acc", "loss", "val_acc", "val_loss"],
        ["0", "1", "0.5", "NA", "NA"],
        ["1", "NA", "0.25", "NA", "2.0"],
    ]


def test_values_stand_as_in_keras(path, late):
    # The second line was written by Keras 3.15.1.
    values = {
        "a": [1, 2],
        "b": np.array([1.0, 2.0]),
        "c": np.float64(0.1),
        "d": np.array(2.0),
        "e": late(0.5),
        "s": "str",
        "val_a": 0,
    }
    write(CSVLogger(path), values)
    assert lines(path)[1] == '0,"""[1, 2]""","""[1.0, 2.0]""",0.1,2.0,0.5,str,0'


def test_a_column_too_late_is_told_once(path):
    logger = CSVLogger(path)
    with pytest.warns(UserWarning, match="has no columns for new") as reported:
        write(logger, {"loss": 0.5}, {"loss": 0.5, "new": 1}, {"loss": 0.5, "new": 1})
    assert len(reported) == 1
    assert len(lines(path)) == 4


def test_append_keeps_the_columns_of_the_file(path):
    write(CSVLogger(path), {"loss": 0.5, "val_loss": 1.0})
    write(CSVLogger(path, append=True), {"loss": 0.25}, first=1)
    assert lines(path) == ["epoch,loss,val_loss", "0,0.5,1.0", "1,0.25,NA"]


def test_append_to_nothing_writes_a_header(path):
    write(CSVLogger(path, append=True), {"loss": 0.5, "val_loss": 1.0})
    assert lines(path) == ["epoch,loss,val_loss", "0,0.5,1.0"]


def test_without_append_the_old_file_goes_with_the_first_row(path):
    write(CSVLogger(path), {"old": 1.0, "val_old": 1.0})
    logger = CSVLogger(path)
    logger.on_train_begin()
    logger._release()
    assert lines(path)[0] == "epoch,old,val_old"
    write(logger, {"loss": 0.5, "val_loss": 1.0})
    assert lines(path) == ["epoch,loss,val_loss", "0,0.5,1.0"]


def test_each_row_is_on_disk_at_once(path):
    logger = CSVLogger(path)
    logger.on_train_begin()
    logger.on_epoch_end(0, {"loss": 0.5, "val_loss": 1.0})
    assert len(lines(path)) == 2
    logger.on_train_end()


@pytest.mark.parametrize("append", [False, True])
def test_a_resumed_run_drops_the_rows_that_come_again(path, append):
    row = {"loss": 0.5, "val_loss": 1.0}
    logger = CSVLogger(path, append=append)
    logger.on_train_begin()
    logger.on_epoch_end(0, row)
    state = logger.get_state()
    logger.on_epoch_end(1, row)
    logger._release()
    again = CSVLogger(path, append=append)
    again.on_train_begin()
    again.set_state(state)
    again.on_epoch_end(1, {"loss": 0.25, "val_loss": 2.0})
    again.on_train_end()
    assert lines(path) == ["epoch,loss,val_loss", "0,0.5,1.0", "1,0.25,2.0"]


def test_state_of_another_file(path):
    with pytest.raises(ValueError, match="has 0 bytes, but had 50"):
        CSVLogger(path).set_state({"keys": ["loss"], "position": 50})


def test_wrong_path_shows_at_the_start(tmp_path):
    with pytest.raises(FileNotFoundError):
        CSVLogger(tmp_path / "none" / "log.csv").on_train_begin()


def test_not_begun(path):
    with pytest.raises(RuntimeError, match="call on_train_begin"):
        CSVLogger(path).on_epoch_end(0, {})


def test_lambda_callback():
    seen = []
    callback = LambdaCallback(
        on_train_begin=lambda logs: seen.append(logs),
        on_test_batch_end=lambda batch, logs: seen.append((batch, logs)),
        note="mine",
    )
    callback.on_train_begin({})
    callback.on_test_batch_end(2, {"loss": 1.0})
    callback.on_epoch_end(0, {})
    assert seen == [{}, (2, {"loss": 1.0})]
    assert callback.note == "mine"


def test_lambda_callback_knows_its_hooks():
    with pytest.raises(UnknownNameError, match=r"'on_epoch_edn'.*on_epoch_end"):
        LambdaCallback(on_epoch_edn=print)
