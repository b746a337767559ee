"""Convolutions and products with packed weights against a plain sum in NumPy."""

from __future__ import annotations

import ctypes
import itertools
import math
from typing import Any

import numpy as np
import pytest

from kerasish.backends.onednn.convolution import Geometry
from kerasish.backends.static.codegen import direct, driver, kernels, skipping
from kerasish.backends.static.codegen.description import Kernel, KernelBuilder
from kerasish.backends.static.codegen.epilogue import followed_by
from kerasish.backends.static.machine import machine_code

_ORDER = ["avx512", "avx2", "sse"]
_HOST = machine_code.host_target("avx512").level
LEVELS = _ORDER[_ORDER.index(_HOST) :] if _HOST in _ORDER else ["generic"]
GEOMETRIES = {
    "same": Geometry((2, 9, 8, 3), 16, (3, 3), (), (), ((1, 1), (1, 1))),
    "valid": Geometry((1, 7, 30, 1), 40, (3, 3)),
    "strides": Geometry((1, 8, 9, 5), 7, (3, 3), (2, 2), (), ((0, 1), (1, 1))),
    "dilation": Geometry((2, 11, 10, 4), 33, (3, 2), (), (3, 2), ((3, 3), (1, 1))),
    "point": Geometry((2, 6, 6, 20), 150, (1, 1), (2, 2)),
    "line": Geometry((3, 21, 6), 64, (5,), (1,), (), ((4, 0),)),
    "volume": Geometry((1, 5, 4, 6, 3), 9, (2, 3, 3), (), (), ((0, 1), (1, 1), (1, 1))),
    "wide padding": Geometry((1, 2, 3, 4), 8, (5, 7), (), (), ((2, 2), (3, 3))),
}


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def biased(activation: str = "relu") -> Kernel:
    k = KernelBuilder()
    product, bias = k.input("float32"), k.input("float32", level="column")
    k.output(k.op(activation, product + bias))
    return k.build()


def call(
    d: direct.Direct, target: Any, n: int, x: Any, matrix: Any, operands: Any, note: Any = None
) -> None:
    packed = direct.pack_weights(matrix)
    size = packed.nbytes
    packed = np.append(packed, skipping.finite_note(packed) if note is None else note)
    owner, at = driver.aligned(packed.nbytes)
    ctypes.memmove(at, packed.ctypes.data, packed.nbytes)
    block = direct.pack(
        d, table=driver.load_runtime().table, n=n, x=x.ctypes.data, weights=at, operands=operands,
        note=at + size,
    )  # fmt: skip
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    assert function(kernels.compile_one(d, target))(block.ctypes.data) == 0
    assert len(owner)


def reference(g: Geometry, x: Any, weights: Any) -> Any:
    """Return the convolution as a sum over the places of the kernel."""
    padded = np.pad(x, [(0, 0), *g.padding, (0, 0)]).astype("float64")
    y = np.zeros(g.y_shape)
    for place in itertools.product(*map(range, g.kernel)):
        windows = tuple(
            slice(k * d, k * d + (size - 1) * s + 1, s)
            for k, d, size, s in zip(place, g.dilations, g.y_shape[1:-1], g.strides)
        )
        y += padded[(slice(None), *windows)] @ weights[place]
    return y


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", GEOMETRIES)
def test_convolutions(level: str, name: str) -> None:
    g = GEOMETRIES[name]
    x, bias = numbers(*g.x_shape), numbers(g.filters, seed=1)
    weights = numbers(*g.weights_shape, seed=2)
    y = np.full(g.y_shape, np.nan, np.float32)
    channels = g.x_shape[-1]
    d = direct.Direct(
        biased(), g.x_shape[1:-1], channels, channels, g.y_shape[1:-1], g.kernel, g.strides,
        g.dilations, tuple(before for before, _ in g.padding), g.filters,
    )  # fmt: skip
    operands = [(bias.ctypes.data, 0), (y.ctypes.data, g.filters)]
    matrix = weights.reshape(-1, g.filters)
    call(d, machine_code.host_target(level), g.x_shape[0], x, matrix, operands)
    expected = np.maximum(reference(g, x, weights) + bias, 0)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("channels", [3, 16, 45])
def test_depthwise_convolutions(level: str, channels: int) -> None:
    g = Geometry((2, 7, 9, channels), channels, (3, 3), (2, 1), (), ((1, 1), (1, 1)), channels)
    x, bias = numbers(*g.x_shape), numbers(channels, seed=1)
    weights = numbers(3, 3, channels, seed=2)
    y = np.full(g.y_shape, np.nan, np.float32)
    d = direct.Direct(
        biased(), (7, 9), channels, 1, g.y_shape[1:-1], (3, 3), (2, 1), (1, 1), (1, 1), channels,
        True,
    )  # fmt: skip
    operands = [(bias.ctypes.data, 0), (y.ctypes.data, channels)]
    call(d, machine_code.host_target(level), 2, x, weights.reshape(9, -1), operands)
    every = weights[:, :, None] * np.eye(channels, dtype="float32")[:, :]
    expected = np.maximum(reference(g, x, every) + bias, 0)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "sizes", [
        (1, 1, 1), (1, 300, 70), (5, 3, 128), (64, 32, 10), (33, 13, 300),
        # Sums in blocks, with one to eight sums at the same time.
        (3, 401, 1), (2, 259, 40), (5, 257, 16), (7, 384, 17), (1, 515, 33), (4, 256, 30),
    ],
)  # fmt: skip
def test_products_of_rows_apart(level: str, sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    a, b, bias = numbers(m, k + 3), numbers(k, n, seed=1), numbers(n, seed=2)
    y = np.full((m, n + 1), np.nan, np.float32)
    d = direct.product(biased("stop_gradient"), m, k, n, k + 3)
    operands = [(bias.ctypes.data, 0), (y.ctypes.data, n + 1)]
    call(d, machine_code.host_target(level), 1, a, b, operands)
    np.testing.assert_allclose(y[:, :n], a[:, :k] @ b + bias, rtol=1e-4, atol=1e-4)
    assert np.isnan(y[:, n]).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", GEOMETRIES)
def test_tiles_cover_each_output_once_and_fit_the_registers(level: str, name: str) -> None:
    g, target = GEOMETRIES[name], machine_code.host_target(level)
    channels = g.x_shape[-1]
    d = direct.Direct(
        biased(), g.x_shape[1:-1], channels, channels, g.y_shape[1:-1], g.kernel, g.strides,
        g.dilations, tuple(before for before, _ in g.padding), g.filters,
    )  # fmt: skip
    pixels, vectors = direct.choose_tile(d, target)
    assert pixels * vectors + vectors < (32 if level == "avx512" else 16)
    covered = [
        b.start + i + j * b.size
        for b in direct.blocks_of(d, pixels)
        for j in range(b.turns)
        for i in range(b.size)
    ]
    assert covered == list(range(d.result[-1]))
    assert d.depth == math.prod(g.kernel) * channels


def test_an_epilogue_goes_on_with_another_kernel() -> None:
    k = KernelBuilder()
    old, product, scale = (k.input("float32") for _ in range(3))
    k.output((product - old) * scale)
    k.output(product)
    both = followed_by(biased(), k.build(), 1)
    a, b, bias = numbers(4, 6), numbers(6, 20, seed=1), numbers(20, seed=2)
    other, scales = numbers(4, 20, seed=3), numbers(4, 20, seed=4)
    y, z = np.zeros((4, 20), np.float32), np.zeros((4, 20), np.float32)
    operands = [(bias.ctypes.data, 0), *((v.ctypes.data, 20) for v in (other, scales, y, z))]
    target = machine_code.host_target()
    call(direct.product(both, 4, 6, 20, 6), target, 1, a, b, operands)
    expected = np.maximum(a @ b + bias, 0)
    np.testing.assert_allclose(z, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(y, (expected - other) * scales, rtol=1e-4, atol=1e-5)


def test_blocks_have_an_operand_for_each_input_and_output() -> None:
    d = direct.product(biased(), 1, 2, 3, 2)
    with pytest.raises(ValueError, match="the epilogue has 2 operands, got 1"):
        direct.pack(d, table=0, n=1, x=0, weights=0, operands=[(0, 0)])


# --- factors of zero --------------------------------------------------------------------------


def row_product(x: Any, weights: Any, level: str, skips: bool, note: Any = None) -> Any:
    """Return the product of a row; with `skips`, weights of zeros need not be read."""
    (k, n), y = weights.shape, np.full(weights.shape[1], np.nan, np.float32)
    d = direct.product(biased("stop_gradient"), 1, k, n, k, skips)
    bias = numbers(n, seed=7)
    operands = [(bias.ctypes.data, 0), (y.ctypes.data, n)]
    call(d, machine_code.host_target(level), 1, x, weights, operands, note)
    return y


def row(k: int, zeros: float) -> Any:
    x = numbers(k)
    x[np.random.default_rng(1).random(k) < zeros] = 0.0
    x[: k // 4 : 5] *= -1.0  # some zeros are -0
    return x


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("sizes", [(256, 128), (300, 10), (784, 300), (4740, 140)])
@pytest.mark.parametrize("zeros", [0.0, 0.1, 0.5, 0.97, 1.0])
def test_factors_of_zero_change_no_bit(level: str, sizes: tuple[int, int], zeros: float) -> None:
    x, weights = row(sizes[0], zeros), numbers(*sizes, seed=1)
    found = row_product(x, weights, level, True)
    assert found.tobytes() == row_product(x, weights, level, False).tobytes()


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_factors_of_zero_by_weights_that_are_not_finite(bad: float) -> None:
    x, weights = row(512, 0.9), numbers(512, 128, seed=1)
    weights[int(np.flatnonzero(x == 0)[3]), 17] = bad
    found = row_product(x, weights, LEVELS[0], True)
    np.testing.assert_array_equal(np.isnan(found), np.arange(128) == 17)
    np.testing.assert_array_equal(found, row_product(x, weights, LEVELS[0], False))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 63, 64, 300, 511, 512, 529])  # 512 and on: after all blocks
def test_a_factor_that_is_not_finite_counts(bad: float, place: int) -> None:
    x, weights = row(530, 0.9), numbers(530, 128, seed=1)
    x[place] = bad
    found = row_product(x, weights, LEVELS[0], True)
    assert not np.isfinite(found).any()
    np.testing.assert_array_equal(found, row_product(x, weights, LEVELS[0], False))


@pytest.mark.parametrize("count", [0, 1, 2, 11, 12, 13])
def test_few_factors_that_are_not_zero(count: int) -> None:
    x, weights = np.full(600, -0.0, np.float32), numbers(600, 256, seed=1)
    x[np.random.default_rng(count).permutation(600)[:count]] = 1.5
    found = row_product(x, weights, LEVELS[0], True)
    assert found.tobytes() == row_product(x, weights, LEVELS[0], False).tobytes()


@pytest.mark.skipif(LEVELS[0] != "avx512", reason="a tile has fewer vectors on this processor")
@pytest.mark.parametrize("zeros", [16, 15])
def test_weights_of_zeros_are_not_read_where_there_are_many(zeros: int) -> None:
    x, weights = numbers(256), numbers(256, 128, seed=1)
    for start in (0, 128):
        x[start + 5 : start + 5 + 7 * zeros : 7] = 0.0
    weights[x == 0] = np.nan
    none = np.zeros(skipping.NOTE, np.float32)
    found = row_product(x, weights, LEVELS[0], True, none)
    assert np.isnan(found).all() == (zeros < 16) and np.isnan(found).any() == (zeros < 16)


def test_a_structure_that_skips_needs_a_note() -> None:
    d = direct.product(biased(), 1, 256, 3, 256, True)
    with pytest.raises(ValueError, match="needs a note"):
        direct.pack(d, table=0, n=1, x=0, weights=0, operands=[(0, 0)] * 2)
    assert not direct.product(biased(), 2, 256, 3, 256, True).skips
    assert not direct.product(biased(), 1, 255, 3, 255, True).skips
