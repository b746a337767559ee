"""bfloat16 in loops: every number is read exactly, and rounded to the nearest even number."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish import ops, random
from kerasish.backends.static.codegen.plan import plan_loops
from kerasish.backends.static.engine import COMPILED_PLANS, Static
from kerasish.backends.static.lowering import loops
from kerasish.backends.static.lowering.loops import LoopUnit
from kerasish.backends.static.machine import guard_pages
from kerasish.backends.static.machine.machine_code import host_target

all_numbers = pytest.mark.skipif(
    bool(guard_pages.mode()), reason="one of all numbers marks unwritten memory"
)
EVERY = np.arange(1 << 16, dtype=np.uint32) << 16  # upper halves: all bfloat16 numbers
LOWER_HALVES = (0, 1, 0x4000, 0x7FFF, 0x8000, 0x8001, 0xFFFF)


@pytest.fixture(autouse=True)
def own_code_for_columns(monkeypatch):
    monkeypatch.setattr(loops, "OWN_CODE_FOR_COLUMNS", 0)
    COMPILED_PLANS.clear()
    yield
    COMPILED_PLANS.clear()


def rounded(bits):
    """Return the bits of float32 numbers as bfloat16, by integers."""
    nearest = bits + ((bits >> 16) & 1) + 0x7FFF
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return (np.where(is_nan, bits | 0x400000, nearest) >> 16).astype(np.uint16)


def in_rows(bits, columns):
    """Return all numbers in rows, the last row filled with the first numbers."""
    rows = -(-bits.size // columns)
    return np.resize(bits, (rows, columns))


def lanes_of(step):
    units = [u for e in step.executables() for u in e.units if isinstance(u, LoopUnit)]
    return {plan_loops(u.kernel).lanes(host_target()) for u in units}


def same_bits(result, want, bits):
    result = np.asarray(result).view(want.dtype)
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    np.testing.assert_array_equal(result[~is_nan], want[~is_nan])
    assert np.isnan(np.asarray(ops.cast(result.view("bfloat16"), "float32"))[is_nan]).all()


@all_numbers
@pytest.mark.parametrize("columns", [3, 8, 16, 17, 32, 40, 70])
@pytest.mark.parametrize("lower", LOWER_HALVES, ids=hex)
def test_float32_is_rounded(columns, lower):
    bits = in_rows(EVERY | np.uint32(lower), columns)
    step = Static().compile(lambda x: ops.cast(x, "bfloat16"))
    same_bits(step(ops.convert_to_tensor(bits.view("float32"))), rounded(bits), bits)


@all_numbers
def test_four_vectors_are_rounded_together():
    bits = in_rows(EVERY | np.uint32(0x8001), 64)

    def kept(x):  # random numbers are computed in vectors of 64
        return ops.cast(random.dropout(x, 1e-9, seed=1), "bfloat16")

    step = Static().compile(kept)
    result = step(ops.convert_to_tensor(bits.view("float32")))
    assert max(lanes_of(step)) == 4 * host_target().lanes
    same_bits(result, rounded(bits), bits)


@all_numbers
@pytest.mark.parametrize("columns", [3, 8, 16, 17, 32, 40, 70])
def test_bfloat16_is_read_exactly(columns):
    bits = in_rows((EVERY >> 16).astype(np.uint16), columns)
    step = Static().compile(lambda x: ops.cast(x, "float32"))
    result = np.asarray(step(ops.convert_to_tensor(bits.view("bfloat16"), "bfloat16")))
    np.testing.assert_array_equal(result.view(np.uint32), bits.astype(np.uint32) << 16)


@pytest.mark.parametrize("columns", [5, 16, 24, 32])
@pytest.mark.parametrize("rows", [1, 63, 64, 130])
def test_short_rows_with_columns_that_all_rows_read(rows, columns):
    rng = np.random.default_rng(rows)
    x = rng.normal(size=(rows, columns)).astype("float32")
    a, b = rng.normal(size=(2, columns)).astype("float32")
    step = Static().compile(lambda x, a, b: ops.relu(x * a + b))
    result = np.asarray(step(*map(ops.convert_to_tensor, (x, a, b))))
    np.testing.assert_allclose(result, np.maximum(x * a + b, 0), rtol=1e-5, atol=1e-6)
