"""`predict` of one small array takes a short way: the same results as batch by batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kerasish
from kerasish import layers

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
