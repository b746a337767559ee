"""Predictions in blocks of rows: equal to those of all rows at once, for any threads and rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kerasish
from kerasish import layers, ops
from kerasish.backends.onednn import native
from kerasish.backends.static import engine
from kerasish.backends.static.lowering import recurrent
from kerasish.backends.static.runtime import blocks, lanes

FEW = 1e-6


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    kerasish.config.set_backend("static")
    kerasish.utils.set_random_seed(5)
    monkeypatch.setattr(native, "processors", lambda: 3)
    monkeypatch.setattr(recurrent, "STEP_FLOPS", 0)  # so that no recurrence is short
    for name, value in {"SMALL": 0, "FEWEST": 2, "MOST": 3, "BLOCKS": 2}.items():
        monkeypatch.setattr(blocks, name, value)


def dense() -> Any:
    return kerasish.Sequential(
        [kerasish.Input((6,)), layers.Dense(200, activation="relu"), layers.Dense(3)]
    )


def convolutional() -> Any:
    x = kerasish.Input((7, 6, 2))
    y = layers.Conv2D(5, 3, padding="same", activation="relu")(x)
    y = layers.BatchNormalization()(layers.Conv2D(5, 3, padding="same")(y) + y)
    y = layers.GlobalAveragePooling2D()(layers.MaxPooling2D()(y))
    return kerasish.Model(x, layers.Dense(4)(y))


def remembering() -> Any:
    x = kerasish.Input((5,), dtype="int32")
    y = layers.Embedding(7, 4, mask_zero=True)(x)
    y = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(y)
    return kerasish.Model(x, [layers.GRU(4)(y), layers.TimeDistributed(layers.Dense(2))(y)])


def attending() -> Any:
    x = kerasish.Input((5, 8))
    y = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x))
    return kerasish.Model(x, layers.Dense(3, activation="softmax")(y))


MODELS = {f.__name__: f for f in (dense, convolutional, remembering, attending)}


def data(model: Any, rows: int) -> Any:
    shape = (rows, *model.inputs[0].shape[1:])
    rng = np.random.default_rng(rows)
    if model.inputs[0].dtype == "int32":
        return rng.integers(0, 7, shape, dtype="int32")
    return rng.normal(size=shape).astype("float32")


def blocks_of(model: Any) -> list[Any]:
    """Return rows and rows of a block of all that is compiled; None: not in blocks."""
    calls = model.training_program.step("predict")._calls()
    return [c._blocks and (c._blocks.blocks.rows, c._blocks.blocks.block) for c in calls]


def predict(model: Any, x: Any) -> list[Any]:
    found = model.predict(x, batch_size=len(x), verbose=0)
    return found if isinstance(found, list) else [found]


@pytest.mark.parametrize("name", MODELS)
def test_blocks_give_what_all_rows_give(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS[name]()
    for rows in (3, 7, 12) if name != "remembering" else (7,):
        x = data(model, rows)
        results = []
        for threads in (1, 2, 3):
            with kerasish.config.using_threads(threads):
                results.append(predict(model, x))
                again = predict(model, x)
            assert all(a.tobytes() == b.tobytes() for a, b in zip(results[-1], again))
            if rows == 3 and threads == 3:
                assert blocks_of(model)[-1] is None  # two blocks for three threads
                continue
            assert blocks_of(model)[-1] == (rows, {3: 2, 7: 3, 12: 3}[rows])
            assert all(a.tobytes() == b.tobytes() for a, b in zip(results[0], results[-1]))
        with monkeypatch.context() as patch:
            patch.setattr(engine, "in_blocks", lambda traced: None)
            whole = kerasish.models.clone_model(model)
            whole.set_weights(model.get_weights())
            expected = predict(whole, x)
        assert not any(blocks_of(whole))
        for own in results:
            for a, b in zip(own, expected):
                np.testing.assert_allclose(a, b, 1e-5, FEW)


def test_changed_weights_are_used_by_all_blocks() -> None:
    model = dense()
    x = data(model, 12)
    with kerasish.config.using_threads(2):
        before = predict(model, x)[0]
        model.layers[0].kernel.assign(-model.layers[0].kernel)
        after = predict(model, x)[0]
        again = predict(model, x)[0]
    assert not np.allclose(before, after) and after.tobytes() == again.tobytes()
    expected = np.maximum(x @ model.layers[0].kernel.numpy(), 0) @ model.layers[1].kernel.numpy()
    np.testing.assert_allclose(after, expected, 1e-5, FEW)


def test_arrays_of_other_layouts_and_dtypes() -> None:
    model = dense()
    x = data(model, 24)
    expected = predict(model, np.ascontiguousarray(x[::2]))[0]
    assert predict(model, x[::2])[0].tobytes() == expected.tobytes()
    assert predict(model, np.asfortranarray(x[::2]))[0].tobytes() == expected.tobytes()
    assert predict(model, x[::2].astype("float64"))[0].tobytes() == expected.tobytes()
    assert predict(model, x[::2].tolist())[0].tobytes() == expected.tobytes()


def test_what_is_not_divided() -> None:
    x = kerasish.Input((4,))
    centered = kerasish.Model(x, layers.Lambda(lambda x: x - ops.mean(x, axis=0))(x))
    rows = data(centered, 9)
    np.testing.assert_allclose(predict(centered, rows)[0], rows - rows.mean(0), 1e-5, FEW)
    assert blocks_of(centered) == [None]
    model = dense()
    predict(model, data(model, 1))
    with kerasish.config.using_threads(3):
        predict(model, data(model, 4))
    assert blocks_of(model) == [None, None]  # two blocks for three threads


@pytest.mark.parametrize("threads", [1, 2])
def test_an_index_out_of_range_is_explained(threads: int) -> None:
    model = kerasish.Sequential(
        [kerasish.Input((2,), dtype="int32"), layers.Embedding(7, 4, name="words")]
    )
    x = np.zeros((12, 2), "int32")
    with kerasish.config.using_threads(threads):
        predict(model, x)
        assert blocks_of(model)[-1]
        x[7, 1], x[11, 0] = 9, 8
        with pytest.raises(IndexError, match=r"Index 9 of layer '.*words'"):
            predict(model, x)
        assert predict(model, x * 0)[0].shape == (12, 2, 4)
    (own,) = [c._lanes for c in model.training_program.step("predict")._calls()]
    assert not own._runs and not own._more


def test_a_profile_adds_up_all_blocks() -> None:
    model = dense()
    x = data(model, 7)
    expected = predict(model, x)[0]
    step = model.training_program.step("predict")
    result, timings = step.call_timed(x)
    assert np.asarray(result).tobytes() == expected.tobytes()
    assert sum(t.seconds for t in timings) > 0 and any("dense" in t.layer for t in timings)


@pytest.mark.parametrize("threads", [1, 2])
def test_memory_is_that_of_a_block_for_each_thread(threads: int) -> None:
    model = convolutional()
    x = data(model, 300)
    with kerasish.config.using_threads(threads):
        predict(model, x)
        (call,) = model.training_program.step("predict")._calls()
        report = call.memory()
    assert report["inputs"] == threads * 3 * 7 * 6 * 2 * 4
    assert report["planned"] < threads * x.nbytes


def test_callers_share_the_executables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run takes what is free, and leaves at least one for each run that waits."""
    model = dense()
    x = data(model, 12)
    with kerasish.config.using_threads(3):
        expected = predict(model, x)[0]
        predict(model, x)
        (call,) = model.training_program.step("predict")._calls()
        own: lanes.Lanes = call._lanes
        if not own._shares:
            pytest.skip("strict memory: runs take turns, their memory is checked")
        assert len(own._free) == 3
        first = own.enter()
        assert own.others(1) and len(own._free) == 1
        monkeypatch.setattr(own, "_waiting", 1)
        assert own.others(2) == [] or len(own._free) == 1
        monkeypatch.setattr(own, "_waiting", 0)
        own.leave()
        assert len(own._free) == 3 and first in own._free
        assert predict(model, x)[0].tobytes() == expected.tobytes()


def test_rows_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert blocks.block_rows(256, 1000, 8) == 64
    assert blocks.block_rows(256, 1 << 30, 8) == 8
    assert blocks.block_rows(100, 1000, 8) == 25  # as equal as can be
    assert blocks.block_rows(4, 1000, 8) is None
    assert blocks.block_rows(100, 1 << 30, 32) is None  # four blocks of 25 are too small


def test_large_weights_are_read_by_large_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    kerasish.config.set_backend("static")
    for width, rows, block in ((280, 60, 15), (900, 60, None), (900, 200, 50)):
        model = kerasish.Sequential([kerasish.Input((600,)), layers.Dense(width, name="d")])
        predict(model, np.ones((rows, 600), "float32"))
        assert blocks_of(model) == [block and (rows, block)]
