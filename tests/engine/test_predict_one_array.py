"""`predict` of one small array takes a short way: the same results as batch by batch."""

from __future__ import annotations

import inspect
import pickle
import threading
from typing import Any

import numpy as np
import pytest

import kerasish
from kerasish import layers
from kerasish.backends.static.machine import guard_pages
from kerasish.backends.static.runtime import ready as ready_calls
from kerasish.devices import device

DTYPES = ["float32", "float64", "float16", ">f4", ">i4", "int64", "int8", "uint8", "bool"]


@pytest.fixture(params=["static", "eager"], autouse=True)
def _engine(request: pytest.FixtureRequest) -> Any:
    before = kerasish.config.backend()
    kerasish.config.set_backend(request.param)
    yield
    kerasish.config.set_backend(before)


def numbers() -> Any:
    model = kerasish.Sequential([kerasish.Input((4,)), layers.Dense(3)])
    return model, np.random.default_rng(0).integers(0, 2, (6, 4))


def tokens() -> Any:
    x = kerasish.Input((4,), dtype="int32")
    y = layers.Flatten()(layers.Embedding(9, 5)(x))
    return kerasish.Model(x, layers.Dense(3)(y)), np.random.default_rng(0).integers(0, 9, (6, 4))


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_dtypes(dtype: str) -> None:
    for make in (numbers, tokens) if dtype in ("int64", ">i4", "uint8") else (numbers,):
        model, x = make()
        x = x.astype(dtype)
        for rows in (x, x[::2], x[::-1]):
            found = model.predict(rows, verbose=0)
            for turn in (
                model.predict_on_batch(rows),
                model.predict(rows, batch_size=2, verbose=0),
            ):
                np.testing.assert_allclose(found, turn, rtol=1e-6, atol=1e-6)
            assert found.flags.writeable and found.dtype == "float32"


def test_results_are_the_callers() -> None:
    model, x = numbers()
    first = model.predict(x, verbose=0)
    kept = first.copy()
    model.predict(x + 1, verbose=0)
    np.testing.assert_array_equal(first, kept)
    first[:] = 7.0
    np.testing.assert_array_equal(model.predict(x, verbose=0), kept)


def test_several_outputs_and_dicts() -> None:
    x = kerasish.Input((4,))
    model = kerasish.Model(x, {"a": layers.Dense(2)(x), "b": layers.Dense(3)(x)})
    rows = np.ones((2, 4), "float32")
    for _ in range(2):
        found = model.predict(rows, verbose=0)
        assert found["a"].shape == (2, 2) and found["b"].shape == (2, 3)
    one = kerasish.Model(x, [layers.Dense(2)(x)])
    assert isinstance(one.predict(rows, verbose=0), list)


# --- ready calls: what the short way takes for granted -----------------------------------------


def ready(model: Any, x: Any) -> bool:
    """Return whether the next prediction takes the short way, on the static engine."""
    call = model.training_program.ready_calls.get(x.shape, (None, None))[0]
    return call is not None and call(x) is not None


def prepared(model: Any, x: Any) -> Any:
    """Predict until the short way is there; return the result."""
    for _ in range(3):
        result = model.predict(x, verbose=0)
    assert ready(model, x) == (kerasish.config.backend() == "static" and not guard_pages.mode())
    return result


def test_changes_are_seen() -> None:
    model, x = numbers()
    x = x.astype("float32")
    kernel = model.layers[0].kernel
    for _ in range(3):
        before = prepared(model, x)
        kernel.assign(kernel.numpy() + 1.0)
        assert not ready(model, x)
        after = model.predict(x, verbose=0)
        np.testing.assert_allclose(after - before, x.sum(1, keepdims=True).repeat(3, 1), atol=1e-4)
    prepared(model, x)
    model.layers[0].activation = kerasish.activations.relu
    assert not ready(model, x)
    assert (model.predict(x - 9, verbose=0) >= 0).all()
    prepared(model, x)
    model.compile("sgd", "mse")
    model.fit(x, np.zeros((6, 3)), verbose=0)
    before = prepared(model, x)
    model.fit(x, np.zeros((6, 3)), verbose=0)
    assert not ready(model, x) and not np.allclose(model.predict(x, verbose=0), before)


def test_values_of_closures_are_seen() -> None:
    scale = [2.0]
    model = kerasish.Sequential([kerasish.Input((4,)), layers.Lambda(lambda x: x * scale[0])])
    x = np.ones((2, 4), "float32")
    assert prepared(model, x)[0, 0] == 2.0
    scale[0] = 3.0
    assert not ready(model, x)
    assert model.predict(x, verbose=0)[0, 0] == 3.0


def test_settings_are_seen() -> None:
    model, x = numbers()
    x = x.astype("float32")
    expected = prepared(model, x)
    engine = kerasish.config.backend()
    kerasish.config.set_backend("eager" if engine == "static" else "static")
    assert not ready(model, x)
    np.testing.assert_allclose(model.predict(x, verbose=0), expected, 1e-6, 1e-6)
    kerasish.config.set_backend(engine)
    prepared(model, x)
    model.run_eagerly = True
    assert not ready(model, x)
    model.run_eagerly = False
    prepared(model, x)
    with kerasish.config.using_threads(1):
        assert not ready(model, x)
    with device("cpu"):
        assert not ready(model, x)
    kerasish.config.set_threads(2)
    assert not ready(model, x)
    kerasish.config.set_threads(None)
    prepared(model, x)
    model.add(layers.ReLU())
    assert not ready(model, x) and (model.predict(-x, verbose=0) >= 0).all()


def test_other_arrays_of_the_shape() -> None:
    model, x = numbers()
    x = x.astype("float32")
    expected = prepared(model, x)
    for other in (x[::-1], np.asfortranarray(x), x.astype("float64"), x.astype("int32")):
        found = model.predict(other, verbose=0)
        turn = expected[::-1] if other is not x and other.strides[0] < 0 else expected
        np.testing.assert_allclose(found, turn, 1e-6, 1e-6)
    wide = model.predict(np.concatenate([x] * 8), batch_size=6, verbose=0)
    np.testing.assert_allclose(wide, np.concatenate([expected] * 8), 1e-6, 1e-6)


def test_errors_of_ready_calls() -> None:
    model, x = tokens()
    x = x.astype("int32")
    prepared(model, x)
    wrong = x.copy()
    wrong[2, 1] = 9
    for _ in range(2):
        with pytest.raises(IndexError):
            model.predict(wrong, verbose=0)
    prepared(model, x)
    with pytest.raises(TypeError, match="Did you mean 'verbose'"):
        model.predict(x, verbos=0)
    assert "unexpected" not in str(inspect.signature(model.predict))


def test_inside_a_trace_the_model_is_a_part_of_it() -> None:
    model, x = numbers()
    x = x.astype("float32")
    expected = prepared(model, x)
    copied = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copied.predict(x, verbose=0), expected)
    many = [np.ones((n, 4), "float32") for n in range(1, 40)]
    for rows in many:
        model.predict(rows, batch_size=40, verbose=0)
    assert len(model.training_program.ready_calls) <= 32
    prepared(model, x)


def test_long_runs_take_memory_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready_calls, "SHORT", 0.0)
    model, x = numbers()
    x = x.astype("float32")
    expected = prepared(model, x).tobytes()
    results: list[bool] = []

    def call() -> None:
        for _ in range(300):
            results.append(model.predict(x, verbose=0).tobytes() == expected)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == 900 and all(results)
    for call_ in model.training_program.step("predict")._calls() if ready(model, x) else ():
        assert not call_._lanes._runs
