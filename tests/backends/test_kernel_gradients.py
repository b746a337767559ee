"""Kernel gradients of convolutions in generated loops, against NumPy."""

from __future__ import annotations

from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest

from kerasish import config, ops
from kerasish.autodiff import grad
from kerasish.backends.onednn.library import has_bfloat16
from kerasish.backends.static.engine import COMPILED_PLANS, Static
from kerasish.backends.static.lowering import kernel_gradients, program_threads
from kerasish.backends.static.lowering.kernel_gradients import LANES, KernelGradientUnit
from kerasish.backends.static.machine.machine_code import host_target
from kerasish.ops import dtypes

pytestmark = pytest.mark.skipif(
    host_target().lanes != LANES, reason="these loops need vectors of 16 numbers"
)
needs_pairs = pytest.mark.skipif(
    not host_target().bfloat16 or not has_bfloat16(), reason="bfloat16 is computed in float32 here"
)
BFLOAT16 = 2.0**-8  # half of the distance between numbers near 1


class Case(NamedTuple):
    x: tuple[int, int, int, int]
    filters: int
    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: str = "same"


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    monkeypatch.setattr(kernel_gradients, "LEAST_FLOPS", 0)
    monkeypatch.setattr(kernel_gradients, "LEAST_PIXELS", 0)
    monkeypatch.setattr(kernel_gradients, "BALANCED", 0.0)
    monkeypatch.setattr(kernel_gradients, "GRAIN", 1)
    monkeypatch.setattr(kernel_gradients, "make_winograd_gradient", lambda *_, **__: None)
    monkeypatch.setattr(program_threads, "SMALL_PROGRAM", 0)
    COMPILED_PLANS.clear()
    yield
    COMPILED_PLANS.clear()


def computed(case, x, dy, dtype="float32"):
    """Return the gradient, and the units that are generated loops."""
    shape = (*case.kernel, case.x[-1], case.filters)

    def gradient(x, dy):
        x, dy = ops.cast(x, dtype), ops.cast(dy, dtype)

        def loss(kernel):
            y = ops.conv(
                x, kernel, strides=case.strides, padding=case.padding, dilation_rate=case.dilation
            )
            return ops.sum(ops.multiply(y, dy))

        return ops.cast(grad(loss)(ops.zeros(shape, dtype)), "float32")

    step = Static().compile(gradient)
    result = np.asarray(step(*map(ops.convert_to_tensor, (x, dy))))
    units = [u for e in step.executables() for u in e.units if isinstance(u, KernelGradientUnit)]
    return result, units


def output_size(size, kernel, stride, dilation, padding):
    reach = (kernel - 1) * dilation
    return -(-size // stride) if padding == "same" else (size - reach - 1) // stride + 1


def sizes_of(case):
    axes = zip(case.x[1:3], case.kernel, case.strides, case.dilation)
    return tuple(output_size(*axis, case.padding) for axis in axes)


def numbers(case, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 4, case.x).astype("float32")
    dy = rng.integers(-2, 3, (case.x[0], *sizes_of(case), case.filters)).astype("float32")
    return x, dy


def expected(case, x, dy):
    pads = []
    for size, out, kernel, stride, apart in zip(
        case.x[1:3], sizes_of(case), case.kernel, case.strides, case.dilation
    ):
        needed = max((out - 1) * stride + (kernel - 1) * apart + 1 - size, 0)
        pads.append((needed // 2, needed) if case.padding == "same" else (0, 0))
    padded = np.pad(x.astype("float64"), ((0, 0), *pads, (0, 0)))
    result = np.zeros((*case.kernel, case.x[-1], case.filters))
    (height, width), (down, right), (below, apart) = sizes_of(case), case.strides, case.dilation
    for i, j in np.ndindex(*case.kernel):
        rows = slice(i * below, i * below + (height - 1) * down + 1, down)
        columns = slice(j * apart, j * apart + (width - 1) * right + 1, right)
        result[i, j] = np.einsum("nyxc,nyxf->cf", padded[:, rows, columns], dy)
    return result


@pytest.mark.parametrize(
    "case",
    [
        Case((2, 9, 11, 8), 16, (3, 3)),
        Case((2, 9, 11, 8), 48, (1, 3), padding="valid"),
        Case((3, 40, 40, 8), 64, (3, 3)),  # blocks of 19 rows, over the ends of images
        Case((1, 3, 800, 8), 32, (3, 2)),  # a row is larger than a block
        Case((2, 10, 12, 8), 32, (3, 3), dilation=(2, 3)),
        Case((2, 10, 12, 8), 32, (2, 4), strides=(2, 1)),
        Case((1, 5, 5, 8), 16, (5, 5)),
    ],
    ids=str,
)
def test_sums_of_products(case):
    x, dy = numbers(case)
    results = []
    for threads in (1, 2, 3):
        with config.using_threads(threads):
            result, units = computed(case, x, dy)
        assert [u.threads for u in units] == [threads]
        results.append(result)
    np.testing.assert_array_equal(results[0], expected(case, x, dy))
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@needs_pairs
@pytest.mark.parametrize(
    "case",
    [
        Case((2, 30, 41, 16), 16, (3, 3), strides=(1, 2)),
        Case((3, 70, 70, 32), 8, (3, 3), strides=(2, 2)),  # blocks over the ends of images
        Case((2, 40, 50, 32), 16, (2, 2), strides=(2, 2)),
        Case((5, 40, 40, 16), 8, (3, 3)),  # the last sample has no partner
        Case((1, 3, 800, 16), 16, (3, 2)),  # a row is larger than a block
        Case((4, 9, 11, 48), 24, (1, 3), padding="valid"),
        Case((2, 10, 12, 32), 8, (3, 3), dilation=(2, 3)),
        Case((70, 4, 4, 16), 8, (3, 3)),  # many images in a block
    ],
    ids=str,
)
def test_bfloat16_is_rounded_once(case):
    x, dy = numbers(case)
    results = []
    for threads in (1, 2, 3):
        with config.using_threads(threads):
            result, units = computed(case, x, dy, "bfloat16")
        assert [u.threads for u in units] == [threads]
        results.append(result)
    want = expected(case, x, dy)
    assert case.x[1] < 30 or np.abs(want).max() > 256  # some are rounded
    np.testing.assert_array_equal(results[0], want.astype(ml_dtypes.bfloat16).astype("float32"))
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@needs_pairs
def test_numbers_of_one_sample_that_are_not_finite_stay_in_their_filters_and_channels():
    case = Case((3, 6, 6, 16), 16, (3, 3))
    x, dy = numbers(case)
    x[2, 2, 3, 5] = np.nan  # the sample without a partner
    dy[1, 0, 0, 7] = np.inf
    result, units = computed(case, x, dy, "bfloat16")
    assert len(units) == 1
    finite = np.isfinite(result)
    assert not finite[:, :, 5].any()
    # Taps that pixel (0, 0) does not reach inside the image do not read the infinite number.
    assert finite[0, :, :5, 7].all() and finite[:, 0, :5, 7].all()
    finite[:, :, 5] = finite[..., 7] = True
    assert finite.all()


@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=needs_pairs)])
@pytest.mark.parametrize("seed", range(40))
def test_random_sizes(seed, dtype):
    rng = np.random.default_rng(seed)
    dilated = rng.random() < 0.3
    case = Case(
        (int(rng.integers(1, 4)), *map(int, rng.integers(1, 30, 2)), 8 * int(rng.integers(1, 4))),
        16 * int(rng.integers(1, 5)),
        (int(rng.integers(1, 5)), int(rng.integers(2, 6))),
        (int(rng.integers(1, 4)), 1) if not dilated else (1, 1),
        tuple(map(int, rng.integers(1, 4, 2))) if dilated else (1, 1),
        str(rng.choice(["same", "valid"])),
    )
    if min(sizes_of(case)) < 1:
        case = case._replace(padding="same")
    x, dy = numbers(case, seed)
    result, _ = computed(case, x, dy, dtype)
    want = expected(case, x, dy)
    np.testing.assert_array_equal(result, want.astype(dtypes.array_dtype(dtype)))


def test_numbers_that_are_not_finite_stay_in_their_filters_and_channels():
    case = Case((1, 6, 6, 8), 32, (3, 3))
    x, dy = numbers(case)
    x[0, 2, 3, 5] = np.nan
    dy[0, 0, 0, 7] = np.inf
    result, units = computed(case, x, dy)
    assert len(units) == 1
    finite = np.isfinite(result)
    assert not finite[:, :, 5].any()
    # Taps that pixel (0, 0) does not reach inside the image do not read the infinite number.
    assert finite[0, :, :5, 7].all() and finite[:, 0, :5, 7].all()
    finite[:, :, 5] = finite[..., 7] = True
    assert finite.all()


@pytest.mark.parametrize(
    ("x", "filters", "kernel", "strides", "dtype"),
    [
        ((2, 16, 16, 6), 16, (3, 3), 1, "float32"),  # channels that fill no tile
        ((2, 16, 16, 8), 24, (3, 3), 1, "float32"),  # filters that fill no vector
        ((2, 16, 16, 8), 16, (1, 1), 1, "float32"),
        ((2, 16, 16, 8), 16, (3, 3), 2, "float32"),  # oneDNN is faster
        ((2, 16, 16, 8), 16, (3, 3), 1, "bfloat16"),  # channels that fill no vector
        ((2, 16, 16, 16), 12, (3, 3), 1, "bfloat16"),  # filters that fill no tile
        ((2, 16, 1, 16), 16, (3, 3), 1, "bfloat16"),  # rows too short to be copied
        ((2, 3, 3, 8), 16, (5, 5), 1, "float32"),  # no pixel reaches all taps, both ends miss some
    ],
    ids=str,
)
def test_others_are_left_to_the_library(x, filters, kernel, strides, dtype):
    case = Case(x, filters, kernel, (strides, strides))
    a, dy = numbers(case)
    result, units = computed(case, a, dy, dtype)
    assert units == []
    np.testing.assert_allclose(result, expected(case, a, dy), rtol=2 * BFLOAT16)


def test_few_tiles_for_many_threads_are_left_to_the_library(monkeypatch):
    monkeypatch.setattr(kernel_gradients, "BALANCED", 0.85)
    case = Case((2, 16, 16, 8), 16, (3, 3))  # 3 tiles
    with config.using_threads(2):
        assert computed(case, *numbers(case))[1] == []
    COMPILED_PLANS.clear()
    with config.using_threads(3):
        assert len(computed(case, *numbers(case))[1]) == 1
