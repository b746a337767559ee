"""Time steps that compute inputs of later ones: results, memory and sizes."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from kerasish.backends.static.codegen import direct, driver, interleaved, kernels
from kerasish.backends.static.codegen.description import Kernel, KernelBuilder
from kerasish.backends.static.machine import machine_code

_ORDER = ["avx512", "avx2", "sse"]
_HOST = machine_code.host_target("avx512").level
LEVELS = _ORDER[_ORDER.index(_HOST) :] if _HOST in _ORDER else ["generic"]


def plus(level: str) -> Kernel:
    k = KernelBuilder()
    k.output(k.input("float32") + k.input("float32", level=level))
    return k.build()


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def aligned(array: Any) -> Any:
    owner = np.zeros(array.size + 16, np.float32)
    first = -owner.ctypes.data % 64 // 4
    result = owner[first : first + array.size]
    result[:] = array.reshape(-1)
    return result


def call(kernel: Any, block: Any, level: str) -> None:
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    address = kernels.compile_one(kernel, machine_code.host_target(level))
    assert function(address)(block.ctypes.data) == 0


def product(x: Any, weights: Any, packed: Any, bias: Any, level: str) -> Any:
    """Return (rows of x) weights + bias by `direct`, one row at a time."""
    y, table = np.zeros((len(x), weights.shape[1]), np.float32), driver.load_runtime().table
    d = direct.product(plus("column"), 1, x.shape[1], weights.shape[1], x.shape[1])
    for row, result in zip(x, y):
        operands = [(bias.ctypes.data, 0), (result.ctypes.data, 0)]
        block = direct.pack(
            d, table=table, n=1, x=row.ctypes.data, weights=packed.ctypes.data, operands=operands
        )
        call(d, block, level)
    return y


def same(result: Any, expected: Any, level: str) -> None:
    """Check for equal bits, or nearly equal numbers where `direct` adds up in another order."""
    if level == "avx512":
        assert result.tobytes() == expected.tobytes()
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


# Time steps, numbers of an input and of the state, results: all groups full or not, both sums
# short, long and of odd numbers of terms, several strips.
SIZES = [
    (16, 128, 128, 512), (19, 64, 64, 256), (24, 1, 129, 256), (23, 300, 64, 256),
    (17, 70, 517, 512), (16, 256, 128, 256), (31, 384, 257, 256),
]  # fmt: skip


def random_sizes(seed: int) -> tuple[int, int, int, int]:
    rng = np.random.default_rng(seed)
    times, features, units = rng.integers((16, 1, 1), (40, 700, 700)).tolist()
    return times, features, units, 256 * int(rng.integers(1, 4))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("sizes", [*SIZES, *map(random_sizes, range(5))])
def test_results_are_those_of_two_products(level: str, sizes: tuple[int, int, int, int]) -> None:
    times, features, units, width = sizes
    gap = 3  # numbers between rows of the inputs
    x = numbers(times, features + gap)
    kernel, recurrent = numbers(features, width, seed=1), numbers(units, width, seed=2)
    bias, states = numbers(width, seed=3), numbers(times, units, seed=4)
    packed, packed_recurrent = map(aligned, map(direct.pack_weights, (kernel, recurrent)))
    inputs = product(np.ascontiguousarray(x[:, :features]), kernel, packed, bias, level)
    none = np.zeros(width, np.float32)
    sums = inputs + product(states, recurrent, packed_recurrent, none, level)

    structure = interleaved.Interleaved(
        direct.product(plus("element"), 1, units, width, units),
        direct.product(plus("column"), times, features, width, features + gap),
    )
    before = interleaved.rows_before(times)
    assert before in range(8, 16) and (times - before) % 8 == 0
    # Rows of NaN before and behind: nothing may be written there.
    z = np.full((times + 16, width), np.nan, np.float32)
    z[8 : 8 + before] = inputs[:before]
    for t in range(times):
        g = np.full(width + 64, np.nan, np.float32)
        block = interleaved.pack(
            structure, table=driver.load_runtime().table, time=t, state=states[t].ctypes.data,
            weights=packed_recurrent.ctypes.data, x=x.ctypes.data, input_weights=packed.ctypes.data,
            operands=[
                (z[8 + t].ctypes.data, width), (g.ctypes.data, width),
                (bias.ctypes.data, 0), (z[8].ctypes.data, width),
            ],
        )  # fmt: skip
        call(structure, block, level)
        same(g[:width], sums[t], level)
        assert np.isnan(g[width:]).all()
        there = 8 + before + 8 * max(0, (t + 1 - times % 8) // 8)
        assert np.isnan(z[min(there + 8, 8 + times) :]).all()
    same(z[8:-8], inputs, level)
    assert np.isnan(z[:8]).all() and np.isnan(z[-8:]).all()


def test_operands_are_counted() -> None:
    both = direct.product(plus("column"), 16, 4, 256, 4)
    structure = interleaved.Interleaved(direct.product(plus("element"), 1, 4, 256, 4), both)
    with pytest.raises(ValueError, match="the epilogues have 4 operands, got 3"):
        interleaved.pack(
            structure, table=0, time=0, state=0, weights=0, x=0, input_weights=0,
            operands=[(0, 0)] * 3,
        )  # fmt: skip
