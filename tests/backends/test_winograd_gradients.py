"""Kernel gradients of 3x3 convolutions by Winograd's method, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from winograd_cases import SAME, VALID, Case

from kerasish import config, ops
from kerasish.backends.static.engine import COMPILED_PLANS, Static
from kerasish.backends.static.lowering import kernel_gradients, program_threads, winograd_gradients
from kerasish.backends.static.lowering.kernel_gradients import LANES, KernelGradientUnit
from kerasish.backends.static.lowering.winograd_gradients import WinogradGradientUnit
from kerasish.backends.static.machine.machine_code import host_target
from kerasish.ops.basic.convolution import convolution_kernel_gradient

pytestmark = pytest.mark.skipif(
    host_target().lanes != LANES, reason="these loops need vectors of 16 numbers"
)


CASES = [
    Case((2, 8, 8, 16), 16),
    Case((3, 7, 9, 32), 64),  # odd sizes: the last tiles are partly outside
    Case((2, 9, 8, 16), 48, VALID),
    Case((1, 11, 6, 48), 32, ((2, 0), (0, 1))),
    Case((1, 5, 6, 16), 32, ((0, 5), (2, 4))),  # windows of zeros only
    Case((2, 6, 7, 16), 16, ((4, 0), (1, 2))),
    Case((5, 1, 1, 16), 16),
    Case((1, 1, 40, 16), 32),
    Case((2, 40, 1, 32), 16),
    Case((1, 3, 3, 64), 32, VALID),  # one pixel
    Case((1, 4, 260, 16), 32),  # a row of tiles is larger than a block
    Case((70, 2, 2, 32), 32),  # many images in a block
    Case((3, 30, 31, 16), 96),  # blocks over the ends of images, and a rest
]


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    for module in (kernel_gradients, winograd_gradients):
        monkeypatch.setattr(module, "LEAST_FLOPS", 0)
        monkeypatch.setattr(module, "BALANCED", 0.0)
        monkeypatch.setattr(module, "GRAIN", 1)
    monkeypatch.setattr(kernel_gradients, "LEAST_PIXELS", 0)
    monkeypatch.setattr(winograd_gradients, "WORTH", np.inf)
    monkeypatch.setattr(program_threads, "SMALL_PROGRAM", 0)
    COMPILED_PLANS.clear()
    yield
    COMPILED_PLANS.clear()


def computed(case, x, dy, size=(3, 3), **attributes):
    """Return the gradient, and its units that are generated loops."""

    def gradient(x, dy):
        return convolution_kernel_gradient(x, dy, padding=case.padding, size=size, **attributes)

    step = Static().compile(gradient)
    result = np.asarray(step(*map(ops.convert_to_tensor, (x, dy))))
    kinds = (WinogradGradientUnit, KernelGradientUnit)
    return result, [u for e in step.executables() for u in e.units if isinstance(u, kinds)]


def directly(case, x, dy, monkeypatch):
    """Return the sums of the direct loops."""
    with monkeypatch.context() as patch:
        patch.setattr(kernel_gradients, "make_winograd_gradient", lambda node, skips: None)
        COMPILED_PLANS.clear()
        result, units = computed(case, x, dy)
    COMPILED_PLANS.clear()
    assert [type(u) for u in units] == [KernelGradientUnit]
    return result


def numbers(case, seed=0):
    """Return small integers: all sums are exact, in any order."""
    rng = np.random.default_rng(seed)
    arrays = rng.integers(-3, 4, case.x), 4 * rng.integers(-2, 3, case.y)
    return tuple(a.astype("float32") for a in arrays)


def normal(case, seed=0):
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal(shape).astype("float32") for shape in (case.x, case.y))


def expected(case, x, dy):
    """Return the sums of products; those of pixels outside are left out."""
    (height, width), ((top, _), (left, _)) = case.y[1:3], case.padding
    x, dy = x.astype("float64"), dy.astype("float64")
    result = np.zeros((3, 3, case.x[3], case.filters))
    for i, j in np.ndindex(3, 3):
        first, before = max(top - i, 0), max(left - j, 0)
        last = min(height, case.x[1] + top - i)
        after = min(width, case.x[2] + left - j)
        if last <= first or after <= before:
            continue
        window = x[:, first + i - top : last + i - top, before + j - left : after + j - left]
        pixels = dy[:, first:last, before:after].reshape(-1, case.filters)
        result[i, j] = window.reshape(-1, case.x[3]).T @ pixels
    return result


@pytest.mark.parametrize("case", CASES, ids=str)
def test_sums_of_products(case):
    x, dy = numbers(case)
    want = expected(case, x, dy)
    for threads in (1, 2, 3, 5, 16):
        COMPILED_PLANS.clear()
        with config.using_threads(threads):
            result, units = computed(case, x, dy)
        assert [(type(u), u.threads) for u in units] == [(WinogradGradientUnit, threads)]
        np.testing.assert_array_equal(result, want)


@pytest.mark.parametrize("seed", range(40))
def test_random_sizes(seed):
    rng = np.random.default_rng(seed)
    padding = tuple(map(int, rng.integers(0, 3, 4)))
    case = Case(
        (int(rng.integers(1, 5)), *map(int, rng.integers(2, 34, 2)), 16 * int(rng.integers(1, 5))),
        16 * int(rng.integers(1, 6)),
        (padding[:2], padding[2:]),
    )
    if min(case.y) < 1:
        case = case._replace(padding=SAME)
    x, dy = numbers(case, seed)
    with config.using_threads(int(rng.integers(1, 5))):
        result, units = computed(case, x, dy)
    assert [type(u) for u in units] == [WinogradGradientUnit]
    np.testing.assert_array_equal(result, expected(case, x, dy))


@pytest.mark.parametrize("case", [Case((8, 13, 13, 32), 64, VALID), Case((4, 32, 32, 16), 16)])
def test_bits_do_not_depend_on_the_threads(case):
    x, dy = normal(case)
    results = []
    for threads in (1, 2, 3, 5):
        COMPILED_PLANS.clear()
        with config.using_threads(threads):
            results.append(computed(case, x, dy)[0])
    for result in results[1:]:
        np.testing.assert_array_equal(results[0], result)


@pytest.mark.parametrize(
    "case",
    [
        Case((8, 13, 13, 32), 64, VALID), Case((8, 32, 32, 16), 16), Case((4, 8, 8, 64), 64),
        Case((2, 48, 48, 32), 32), Case((16, 4, 4, 64), 128),
    ],
    ids=str,
)  # fmt: skip
def test_rounding_errors_are_about_those_of_direct_sums(case, monkeypatch):
    x, dy = normal(case)
    want = expected(case, x, dy)
    result, _ = computed(case, x, dy)
    error = np.sqrt(np.mean((result - want) ** 2))
    direct = np.sqrt(np.mean((directly(case, x, dy, monkeypatch) - want) ** 2))
    assert 0 < error < 2 * direct


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0, 0), (1, 3, 2), (1, 4, 6)])
@pytest.mark.parametrize("channels", [16, 32])
def test_numbers_that_are_not_finite_reach_only_their_taps(number, place, channels):
    case = Case((2, 5, 7, channels), channels)
    for first in (True, False):
        x, dy = numbers(case)
        (x if first else dy)[(*place, 11)] = number
        with np.errstate(all="ignore"):
            want = expected(case, x, dy).astype("float32")
        result, units = computed(case, x, dy)
        assert [type(u) for u in units] == [WinogradGradientUnit]
        np.testing.assert_array_equal(result, want)


def test_numbers_whose_differences_are_infinite():
    case = Case((2, 5, 7, 16), 16)
    for first in (True, False):
        x, dy = numbers(case)
        large, small = (x, dy) if first else (dy, x)
        small /= 64
        large[1, 2, 2, 11], large[1, 3, 2, 11], large[1, 3, 4, 11] = 3e38, -3e38, -3e38
        want = expected(case, x, dy)
        assert 1e37 < abs(want).max() < 3e38
        result, units = computed(case, x, dy)
        assert [type(u) for u in units] == [WinogradGradientUnit]
        np.testing.assert_allclose(result, want, rtol=0, atol=1e-6 * abs(want).max())


def test_infinite_numbers_of_both_signs():
    case = Case((1, 6, 6, 16), 16)
    x, dy = numbers(case)
    x[0, 2, 2, 3], x[0, 2, 4, 3], dy[0, 0, 0, 7] = np.inf, -np.inf, -np.inf
    with np.errstate(all="ignore"):
        want = expected(case, x, dy).astype("float32")
    assert np.isnan(want).any() and np.isinf(want).any() and np.isfinite(want).any()
    np.testing.assert_array_equal(computed(case, x, dy)[0], want)


@pytest.mark.parametrize("threads", [1, 3])
def test_nothing_is_finite(threads):
    case = Case((2, 7, 6, 32), 48, VALID)
    x, dy = numbers(case)
    with config.using_threads(threads):
        result, units = computed(case, x * np.nan, dy)
    assert [type(u) for u in units] == [WinogradGradientUnit]
    assert np.isnan(result).all()


@pytest.mark.parametrize(
    ("case", "attributes"),
    [
        (Case((2, 16, 16, 8), 16), {}),  # channels that fill no vector
        (Case((2, 16, 16, 16), 24), {}),  # filters that fill no vector
        (Case((2, 16, 16, 16), 16, ((1, 1), (3, 0))), {}),  # two tiles lie left of the image
        (Case((2, 16, 16, 32), 16), {"groups": 2}),
        (Case((2, 16, 16, 16), 16), {"size": (1, 3)}),
        (Case((2, 16, 16, 16), 16), {"size": (3, 1)}),
        (Case((2, 16, 16, 16), 16), {"strides": (2, 1)}),
        (Case((2, 16, 16, 16), 16), {"dilation": (1, 2)}),
    ],
    ids=str,
)
def test_others_are_left_to_other_units(case, attributes):
    size, stride = attributes.get("size", (3, 3)), attributes.get("strides", (1, 1))
    apart, pads = attributes.get("dilation", (1, 1)), case.padding
    places = [
        (n + sum(pad) - (k - 1) * a - 1) // s + 1
        for n, pad, k, a, s in zip(case.x[1:3], pads, size, apart, stride)
    ]
    dy = np.ones((case.x[0], *places, case.filters), "float32")
    result, units = computed(case, numbers(case)[0], dy, **attributes)
    assert not any(isinstance(u, WinogradGradientUnit) for u in units)
    assert result.shape == (*size, case.x[3] // attributes.get("groups", 1), case.filters)


@pytest.mark.parametrize(
    ("size", "channels", "winograd"),
    [
        ((8, 8), 16, True),
        ((6, 6), 16, False),  # transforms of few channels take long
        ((6, 5), 64, True),
        ((5, 5), 64, False),  # many tiles are partly outside
        ((2, 2), 16, True),  # direct loops would leave out more than half of the taps
        ((3, 3), 16, False),
        ((3, 3), 128, True),
        ((1, 20), 128, False),
    ],
)
def test_it_is_used_where_it_saves_products(size, channels, winograd, monkeypatch):
    monkeypatch.setattr(winograd_gradients, "WORTH", 0.9)
    monkeypatch.setattr(kernel_gradients, "LEAST_PIXELS", 16)
    case = Case((4, *size, channels), channels)
    _, units = computed(case, *numbers(case))
    assert any(isinstance(u, WinogradGradientUnit) for u in units) == winograd


def test_no_sample(monkeypatch):
    monkeypatch.setattr(kernel_gradients, "LEAST_FLOPS", 1)
    case = Case((0, 8, 8, 16), 16)
    result, units = computed(case, *numbers(case))
    assert not any(isinstance(u, WinogradGradientUnit) for u in units)
    np.testing.assert_array_equal(result, np.zeros((3, 3, 16, 16)))


def test_few_shares_for_many_threads_are_left_to_other_units(monkeypatch):
    monkeypatch.setattr(winograd_gradients, "BALANCED", 0.85)
    for filters, kind in ((32, KernelGradientUnit), (64, WinogradGradientUnit)):  # 4 and 8 shares
        case = Case((2, 16, 16, 16), filters)
        with config.using_threads(3):
            assert [type(u) for u in computed(case, *numbers(case))[1]] == [kind]
