"""3x3 convolutions and their data gradients by Winograd's filtering, against NumPy."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from winograd_cases import VALID, Case

import kerasish
from kerasish import config, ops
from kerasish.backends.static.engine import COMPILED_PLANS, Static
from kerasish.backends.static.lowering import program_threads, winograd
from kerasish.backends.static.lowering.winograd import LANES, WinogradUnit
from kerasish.backends.static.machine.machine_code import host_target
from kerasish.ops.basic.convolution import convolution, convolution_data_gradient

pytestmark = pytest.mark.skipif(
    host_target().lanes != LANES, reason="these loops need vectors of 16 numbers"
)
MOST_PRODUCTS = winograd.MOST_PRODUCTS


CASES = [
    Case((2, 8, 8, 16), 16),
    Case((3, 7, 9, 32), 64),  # odd sizes: the last tiles are partly outside
    Case((2, 9, 8, 16), 48, VALID),
    Case((1, 11, 6, 48), 32, ((2, 0), (0, 1))),
    Case((1, 5, 6, 16), 32, ((0, 3), (4, 2))),  # windows of zeros only
    Case((5, 1, 1, 16), 16),
    Case((1, 1, 40, 16), 32),
    Case((2, 40, 1, 32), 16),
    Case((1, 3, 3, 64), 32, VALID),  # one pixel
    Case((70, 2, 2, 32), 32),  # many images at a time
    Case((1, 30, 31, 16), 16),  # tiles of several rows at a time, and a rest
]


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    monkeypatch.setattr(winograd, "LEAST_FLOPS", 0)
    monkeypatch.setattr(winograd, "MOST_PRODUCTS", np.inf)
    monkeypatch.setattr(winograd, "GRAIN", 1)
    monkeypatch.setattr(program_threads, "SMALL_PROGRAM", 0)
    COMPILED_PLANS.clear()
    yield
    COMPILED_PLANS.clear()


@contextlib.contextmanager
def backend(name):
    before = config.backend()
    config.set_backend(name)
    try:
        yield
    finally:
        config.set_backend(before)


def run(function, *arrays):
    """Return the result of a compiled function, and its Winograd units."""
    step = Static().compile(function)
    result = np.asarray(step(*map(ops.convert_to_tensor, arrays)))
    return result, [u for e in step.executables() for u in e.units if isinstance(u, WinogradUnit)]


def computed(case, a, kernel, gradient):
    def step(a, kernel):
        if gradient:
            size = case.x[1:3]
            return convolution_data_gradient(a, kernel, size=size, padding=case.padding)
        return convolution(a, kernel, padding=case.padding)

    return run(step, a, kernel)


def numbers(case, gradient, seed=0):
    """Return small integers: all sums are exact, in any order."""
    rng = np.random.default_rng(seed)
    a = rng.integers(-3, 4, case.y if gradient else case.x).astype("float32")
    return a, 4 * rng.integers(-2, 3, case.kernel).astype("float32")


def normal(case, gradient, seed=0):
    rng = np.random.default_rng(seed)
    shapes = case.y if gradient else case.x, case.kernel
    return tuple(rng.standard_normal(shape).astype("float32") for shape in shapes)


def expected(case, a, kernel, gradient, dtype="float64"):
    """Return the sums of products that are inside; 0 times infinity outside is left out."""
    (top, bottom), (left, right) = case.padding
    result = np.zeros(case.x if gradient else case.y, dtype)
    padded = np.zeros(
        (case.x[0], case.x[1] + top + bottom, case.x[2] + left + right, case.x[3]), dtype
    )
    inner = (slice(None), slice(top, top + case.x[1]), slice(left, left + case.x[2]))
    height, width = case.y[1:3]
    for i, j in np.ndindex(3, 3):
        window = (slice(None), slice(i, i + height), slice(j, j + width))
        if gradient:
            padded[window] += a.astype(dtype) @ kernel[i, j].astype(dtype).T
        else:
            inside = np.zeros(padded.shape[1:3], bool)
            inside[inner[1:]] = True
            padded[inner] = a
            part = padded[window] @ kernel[i, j].astype(dtype)
            result += np.where(inside[window[1:]][None, ..., None], part, 0)
    return padded[inner] if gradient else result


both = pytest.mark.parametrize("gradient", [False, True], ids=["forward", "gradient"])


@both
@pytest.mark.parametrize("case", CASES, ids=str)
def test_sums_of_products(case, gradient):
    arrays = numbers(case, gradient)
    want = expected(case, *arrays, gradient)
    for threads in (1, 2, 3, 5):
        COMPILED_PLANS.clear()
        with config.using_threads(threads):
            result, units = computed(case, *arrays, gradient)
        assert [u.threads for u in units] == [threads]
        np.testing.assert_array_equal(result, want)


@both
@pytest.mark.parametrize("case", CASES, ids=str)
def test_bits_do_not_depend_on_the_threads(case, gradient):
    arrays = normal(case, gradient)
    results = []
    for threads in (1, 2, 3, 5):
        COMPILED_PLANS.clear()
        with config.using_threads(threads):
            results.append(computed(case, *arrays, gradient)[0])
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


@both
@pytest.mark.parametrize("case", CASES, ids=str)
def test_errors_are_about_those_of_direct_sums(case, gradient):
    arrays = normal(case, gradient)
    want = expected(case, *arrays, gradient)
    direct = expected(case, *arrays, gradient, "float32")
    result, _ = computed(case, *arrays, gradient)
    assert np.abs(result - want).max() <= 4 * np.abs(direct - want).max() + 1e-6


@pytest.mark.parametrize("seed", range(40))
def test_random_sizes(seed):
    rng = np.random.default_rng(seed)
    samples, height, width = map(int, rng.integers(1, (6, 20, 20)))
    channels, filters = (16 * int(n) for n in rng.integers(1, 6, 2))
    top, bottom, left, right = map(int, rng.integers(0, 4, 4))
    bottom, right = max(bottom, 3 - height - top), max(right, 3 - width - left)
    padding = ((top, bottom), (left, right))
    case, gradient = Case((samples, height, width, channels), filters, padding), seed % 2 == 1
    arrays = numbers(case, gradient, seed)
    with config.using_threads(int(rng.integers(1, 4))):
        result, units = computed(case, *arrays, gradient)
    assert len(units) == 1
    np.testing.assert_array_equal(result, expected(case, *arrays, gradient))


# --- numbers that are not finite --------------------------------------------------------------


@both
@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan], ids=str)
def test_numbers_that_are_not_finite_reach_the_outputs_of_their_windows(gradient, number):
    case = Case((2, 7, 9, 16), 32)
    a, kernel = normal(case, gradient)
    clean, _ = computed(case, a, kernel, gradient)
    a[1, 4, 5, 3] = number
    result, units = computed(case, a, kernel, gradient)
    assert len(units) == 1
    with np.errstate(invalid="ignore"):
        want = expected(case, a, kernel, gradient)
    finite = np.isfinite(want)
    assert (~finite).sum() == 9 * want.shape[-1]
    np.testing.assert_array_equal(result[~finite], want[~finite])
    np.testing.assert_array_equal(result[finite], clean[finite])


@both
def test_infinities_of_both_signs_in_one_window(gradient):
    case = Case((1, 8, 8, 16), 16)
    a, kernel = np.ones(case.y if gradient else case.x, "float32"), np.ones(case.kernel, "float32")
    a[0, 2, 2, 0], a[0, 2, 3, 1], a[0, 6, 6, 2] = np.inf, -np.inf, np.inf
    result, _ = computed(case, a, kernel, gradient)
    with np.errstate(invalid="ignore"):
        want = expected(case, a, kernel, gradient)
    assert np.isnan(want).any() and np.isposinf(want).any() and np.isneginf(want).any()
    np.testing.assert_array_equal(result, want)


@both
def test_an_infinite_weight_reaches_its_outputs_only(gradient):
    case = Case((2, 6, 5, 16), 32)
    a, kernel = normal(case, gradient)
    clean, _ = computed(case, a, kernel, gradient)
    kernel[0, 2, 5, 7] = np.inf
    result, _ = computed(case, a, kernel, gradient)
    with np.errstate(invalid="ignore"):
        want = expected(case, a, kernel, gradient)
    finite = np.isfinite(want)
    assert finite[..., 5 if gradient else 7].any()  # where that weight is outside the image
    np.testing.assert_array_equal(result[~finite], want[~finite])
    np.testing.assert_allclose(result[finite], clean[finite], rtol=1e-4, atol=1e-4)


@both
def test_the_largest_numbers_do_not_overflow(gradient):
    case = Case((1, 8, 9, 16), 16)
    a = np.zeros(case.y if gradient else case.x, "float32")
    kernel = np.zeros(case.kernel, "float32")
    a[0, ::2, :, 3] = np.finfo("float32").max
    a[0, 1::2, :, 3] = -np.finfo("float32").max
    kernel[1, 1, 3, 3] = 1
    result, _ = computed(case, a, kernel, gradient)
    np.testing.assert_array_equal(result, expected(case, a, kernel, gradient))
    kernel[...] = np.finfo("float32").max
    a = np.zeros_like(a)
    a[0, 3, 3, 3] = 0.5
    result, _ = computed(case, a, kernel, gradient)
    np.testing.assert_array_equal(result, expected(case, a, kernel, gradient))


# --- what follows a convolution ---------------------------------------------------------------


@pytest.mark.parametrize("last", ["", "added", "relu"])
@pytest.mark.parametrize("biased", [False, True])
def test_what_follows_is_part_of_the_convolution(last, biased):
    case = Case((3, 19, 21, 32), 48)
    x, kernel = numbers(case, False)
    rng = np.random.default_rng(1)
    bias = rng.integers(-9, 10, case.filters).astype("float32")
    rest = rng.integers(-9, 10, case.y).astype("float32")
    x[1, 5, 6, 7], x[2, 0, 0, 7] = np.inf, np.nan
    kernel[..., 7, :] = 4

    def step(x, kernel, bias, rest):
        y = convolution(x, kernel, padding=case.padding)
        if biased:
            y = ops.add(y, bias)
        if last == "added":
            # A convolution by ones: its result is in memory that the sum may overwrite.
            y = ops.add(y, convolution(rest, ops.reshape(ops.eye(case.filters), (1, 1, 48, 48))))
        return ops.relu(y) if last == "relu" else y

    result, units = run(step, x, kernel, bias, rest)
    (unit,) = units
    assert unit.winograd[1:] == (biased, last == "relu", last == "added")
    want = expected(case, x, kernel, False) + biased * bias + (last == "added") * rest
    assert np.isinf(want).sum() == 9 * case.filters and np.isnan(want).sum() == 4 * case.filters
    want = np.maximum(want, 0) if last == "relu" else want
    np.testing.assert_array_equal(result, want)


def test_a_training_step_equals_that_of_the_eager_engine():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((8, 12, 11, 16)).astype("float32"), rng.integers(0, 3, 8)

    def trained(name):
        with backend(name):
            kerasish.utils.set_random_seed(0)
            layers = kerasish.layers
            inputs = kerasish.Input((12, 11, 16))
            z = layers.Conv2D(32, 3, padding="same", activation="relu")(inputs)
            z = layers.Add()([layers.Conv2D(32, 3, padding="same")(z), z])
            z = layers.Conv2DTranspose(16, 3)(z)
            z = layers.Dense(3)(layers.GlobalAveragePooling2D()(z))
            model = kerasish.Model(inputs, z)
            loss = kerasish.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(kerasish.optimizers.SGD(0.1), loss)
            model.fit(x, y, batch_size=8, epochs=3, verbose=0)
            return [model.predict(x, verbose=0), *model.get_weights()]

    for a, b in zip(trained("static"), trained("eager"), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def test_a_prediction_transforms_changed_weights():
    """The transformed kernel is kept until the weights change."""
    layers = kerasish.layers
    stack = [layers.Conv2D(32, 3), layers.Conv2DTranspose(16, 3)]
    model = kerasish.Sequential([kerasish.Input((9, 9, 16)), *stack])
    x = np.random.default_rng(0).standard_normal((4, 9, 9, 16)).astype("float32")
    for scale in (1.0, 2.0, 0.5):
        model.set_weights([scale * w for w in model.get_weights()])
        got = model.predict(x, verbose=0)
        with backend("eager"):
            want = model.predict(x, verbose=0)
        for _ in range(2):
            np.testing.assert_allclose(model.predict(x, verbose=0), got, rtol=0)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


# --- what is left to the library ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "kernel", "options"),
    [
        ((2, 8, 8, 24), (3, 3, 24, 16), {}),  # channels that fill no vector
        ((2, 8, 8, 16), (3, 3, 16, 24), {}),
        ((2, 8, 8, 16), (3, 5, 16, 16), {}),
        ((2, 8, 8, 16), (1, 1, 16, 16), {}),
        ((2, 8, 8, 16), (3, 3, 16, 16), {"strides": 2}),
        ((2, 8, 8, 16), (3, 3, 16, 16), {"dilation": 2}),
        ((2, 8, 8, 32), (3, 3, 16, 32), {"groups": 2}),
        ((2, 8, 16), (3, 16, 16), {}),
    ],
    ids=str,
)
def test_others_are_left_to_the_library(x, kernel, options):
    rng = np.random.default_rng(0)
    a = rng.integers(-3, 4, x).astype("float32")
    k = rng.integers(-3, 4, kernel).astype("float32")
    result, units = run(lambda x, k: convolution(x, k, padding="same", **options), a, k)
    assert units == []
    want = np.asarray(convolution(a, k, padding="same", **options))
    np.testing.assert_array_equal(result, want)


@both
@pytest.mark.parametrize(
    ("x", "forward", "backward"),
    [
        ((32, 4, 4, 16), True, True),
        ((32, 2, 2, 16), False, False),  # direct sums skip the padding: as many products
        ((16, 3, 3, 16), False, False),
        ((2, 7, 7, 16), False, False),  # the transform of the kernel takes as long
        ((1, 12, 12, 16), True, False),
        ((1, 14, 14, 16), True, True),
        ((1, 1, 300, 16), False, False),
    ],
    ids=str,
)
def test_only_where_there_are_fewer_products(x, forward, backward, gradient, monkeypatch):
    monkeypatch.setattr(winograd, "MOST_PRODUCTS", MOST_PRODUCTS)
    case = Case(x, 16)
    arrays = numbers(case, gradient)
    result, units = computed(case, *arrays, gradient)
    assert len(units) == (backward if gradient else forward)
    np.testing.assert_array_equal(result, expected(case, *arrays, gradient))
