"""Compiled loops and products of the eager engine: NumPy's numbers, on any number of threads."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from loops_of_any_size import loops_of_any_size

import kerasish
from kerasish import layers
from kerasish.backends.eager import (
    fused_on_cpu,
    loop_elements,
    loop_norm,
    loop_random,
    loop_softmax,
    memory,
    native_loops,
    numpy_norm,
    numpy_random,
    onednn_product,
)
from kerasish.backends.eager.numpy_kernels import KERNELS
from kerasish.backends.onednn import native
from kerasish.ops.op import REGISTRY
from tests.backends.test_eager_kernels import both, derivatives_of

RNG = np.random.default_rng(0)
EXACT = [name for name, op in REGISTRY.items() if op.exact]
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, 3e38, -3e38], "float32")


def normal(*shape):
    return RNG.standard_normal(shape).astype("float32")


def special(*shape):
    """Return normal numbers among which are special ones."""
    x = normal(*shape)
    places = RNG.random(shape) < 0.2
    x[places] = RNG.choice(SPECIAL, places.sum())
    return x


@pytest.fixture
def by_loops():
    """Compute arrays of any size by loops, and check that a test's calls do."""
    if (
        native_loops.CompiledLoop(lambda k: k.output(k.op("negative", k.input("float32")))).find()
        is None
    ):
        pytest.skip("no loops can be compiled here")
    with loops_of_any_size():
        yield


def on_threads(compute):
    """Return what `compute` returns; check that its bits are the same on 1, 2, 3 and 5 threads."""
    results = []
    before = kerasish.config.threads()
    try:
        for threads in (1, 2, 3, 5):
            native.set_threads(threads)
            results.append(compute())
    finally:
        native.set_threads(before)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a.view("uint32"), b.view("uint32"))
    return results[0]


def test_exact_ops_run_in_loops():
    kinds = (loop_elements.Unary, loop_elements.Binary)
    by_loop = {name for name, kernel in KERNELS.items() if isinstance(kernel, kinds)}
    assert by_loop == set(EXACT) and len(EXACT) == 12


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.usefixtures("by_loops")
def test_element_wise_ops_have_the_bits_of_numpy(name):
    kernel = KERNELS[name]
    count = REGISTRY[name].arity
    for shape in ((1,), (77,), (3, 5, 7), (40, 1031)):
        given = [special(*shape) for _ in range(count)]
        with np.errstate(all="ignore"):
            expected = kernel.plain(*given)
        (y,) = on_threads(lambda given=given: [kernel(*given)])
        assert y.dtype == np.float32 and y.shape == shape
        np.testing.assert_array_equal(y, expected)
        if name not in ("relu", "maximum", "minimum"):  # either zero is their result
            np.testing.assert_array_equal(np.signbit(y), np.signbit(expected))


BROADCASTS = [
    ((6, 5, 7), (7,)),
    ((6, 5, 7), (5, 7)),
    ((6, 5, 7), (1, 1, 7)),
    ((6, 5, 32), (6, 5, 1)),
    ((6, 32), (6, 1)),
    ((6, 5, 7), (1,)),
    ((6, 5, 7), ()),
    ((64, 3), (3,)),
    ((6, 5, 7), (6, 1, 7)),  # left to NumPy, as what follows
    ((6, 5, 7), (1, 5, 1)),
    ((5, 1), (1, 7)),
    ((1, 7), (2, 1, 7)),
]


@pytest.mark.parametrize(("large", "small"), BROADCASTS)
@pytest.mark.usefixtures("by_loops")
def test_operands_broadcast_as_in_numpy(large, small):
    kernel = KERNELS["subtract"]
    a, b = normal(*large), normal(*small)
    for one, other in ((a, b), (b, a)):
        y = kernel(one, other)
        expected = np.subtract(one, other)
        assert y.dtype == expected.dtype and y.shape == expected.shape
        np.testing.assert_array_equal(y, expected)


@pytest.mark.usefixtures("by_loops")
def test_other_arrays_go_to_numpy():
    add, relu = KERNELS["add"], KERNELS["relu"]
    for x in (
        normal(6, 8)[:, ::2], normal(6, 8).T, normal(6, 8)[::-1], normal(0, 8), normal(6, 8) > 0,
        normal(6, 8).astype("float64"), normal(6, 8).astype("float16"), np.arange(12),
        kerasish.ops.ones((3, 4), "bfloat16").value,
    ):  # fmt: skip
        for y, expected in ((add(x, x), np.add(x, x)), (relu(x), np.maximum(x, x.dtype.type(0)))):
            assert y.dtype == expected.dtype
            np.testing.assert_array_equal(y, expected)
    mixed = add(normal(4, 4), np.ones(4, "float64"))
    assert mixed.dtype == np.float64


@pytest.mark.parametrize("shape", [(1, 3), (17, 3), (64, 16), (960, 24), (1200, 7), (5, 2000)])
@pytest.mark.usefixtures("by_loops")
def test_sums_are_exact_and_do_not_depend_on_threads(shape):
    x = normal(*shape)
    columns, rows, largest = on_threads(
        lambda: [
            KERNELS["reduce_sum"](x, axis=(0,), keepdims=False),
            KERNELS["reduce_sum"](x, axis=(1,), keepdims=False),
            KERNELS["reduce_max"](x, axis=(1,), keepdims=True),
        ]
    )
    wide = x.astype("float64")
    np.testing.assert_allclose(columns, wide.sum(0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(rows, wide.sum(1), rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(largest, x.max(1, keepdims=True))
    x[0, 1] = np.nan
    assert np.isnan(KERNELS["reduce_max"](x, axis=(1,), keepdims=False)[0])
    assert np.isnan(KERNELS["reduce_sum"](x, axis=(0,), keepdims=False)).sum() == 1


@pytest.mark.parametrize("size", [3, 40, 5000])
def test_rows_of_any_frequency_are_added(size):
    """Some indices occur once, some a few times, some hundreds of times."""
    indices = (RNG.random(700) ** 3 * 2 * size - size).astype("int32")
    rows = normal(700, 6)
    expected = np.zeros((size, 6))
    np.add.at(expected, indices, rows)
    y = KERNELS["add_rows"](rows, indices, size=size, axis=0)
    close([y], [expected.astype("float32")])


@pytest.mark.usefixtures("by_loops")
def test_one_number_that_is_not_finite_is_seen():
    x = normal(40, 50)
    assert loop_elements.is_finite(x)
    for value in (np.nan, np.inf, -np.inf):
        x[17, 31] = value
        assert not loop_elements.is_finite(x)


@pytest.mark.usefixtures("by_loops")
def test_the_gradient_of_relu_multiplies():
    g, y = special(40, 50), special(40, 50)
    with np.errstate(invalid="ignore"):
        expected = g * (y > 0)
    (result,) = on_threads(lambda: [loop_elements.through_relu(g, y)])
    np.testing.assert_array_equal(result, expected)


def close(results, expected):
    for a, b in zip(results, expected, strict=True):
        assert a.dtype == b.dtype == np.float32 and a.shape == b.shape
        scale = max(1.0, np.abs(b).max(initial=0))
        np.testing.assert_allclose(a / scale, b / scale, atol=3e-6)


@pytest.mark.parametrize("shape", [(2, 3), (64, 33, 5), (17, 100), (8, 16, 16, 16)])
@pytest.mark.usefixtures("by_loops")
def test_normalizations_are_those_of_numpy(shape, monkeypatch):
    x, g = normal(*shape) * 2 + 1, normal(*shape)
    gamma, beta, moving = (RNG.random(shape[-1]).astype("float32") + 0.5 for _ in range(3))

    def compute():
        y = numpy_norm.batch_norm_training(x, gamma, beta, moving, moving, 0.9, 1e-3)
        parts = [*y, *numpy_norm.batch_norm_gradient(g, x, y[3], y[4], gamma)]
        for centered in (True, False):
            z = numpy_norm.layer_norm(x, gamma, beta if centered else None, 1e-3, centered)
            parts += [*z, *numpy_norm.layer_norm_gradient(g, x, gamma, z[1], z[2], centered)]
        return parts

    assert loop_norm.batch_norm_training(x, gamma, beta, 1e-3) is not None
    assert loop_norm.layer_norm(x, gamma, beta, 1e-3, True) is not None
    results = on_threads(compute)
    monkeypatch.setattr(loop_norm, "fits_fused", lambda *arrays: False)
    close(results, compute())


@pytest.mark.usefixtures("by_loops")
def test_nan_stays_in_its_column_and_row():
    x = normal(40, 30)
    x[3, 5] = np.nan
    one, zero = np.ones(30, "float32"), np.zeros(30, "float32")
    y = numpy_norm.batch_norm_training(x, one, zero, zero, one, 0.9, 1e-3)[0]
    assert np.isnan(y[:, 5]).all() and np.isfinite(np.delete(y, 5, 1)).all()
    y = numpy_norm.layer_norm(x, one, zero, 1e-3)[0]
    assert np.isnan(y[3]).all() and np.isfinite(np.delete(y, 3, 0)).all()


@pytest.mark.parametrize("logarithm", [False, True])
@pytest.mark.parametrize("shape", [(3, 1), (5, 7, 33), (64, 64), (2, 5000)])
@pytest.mark.usefixtures("by_loops")
def test_softmax_is_that_of_numpy(shape, logarithm, monkeypatch):
    x, g = normal(*shape) * 20, normal(*shape)
    x[0, ..., -1] = -np.inf

    def compute():
        y = loop_softmax.softmax(x, logarithm)
        return [y, loop_softmax.softmax_gradient(g, np.where(np.isfinite(y), y, -1), logarithm)]

    with np.errstate(invalid="ignore"):
        results = on_threads(compute)
        monkeypatch.setattr(loop_softmax, "fits_fused", lambda *arrays: False)
        for a, b in zip(results, compute(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)  # sums of 5,000 numbers
    closed = np.full((4, 9), -np.inf, "float32")
    with np.errstate(invalid="ignore"):
        assert np.isnan(loop_softmax.softmax(closed, logarithm)).all()


@pytest.mark.parametrize("shape", [(1,), (3, 7), (65,), (130, 1001)])
@pytest.mark.usefixtures("by_loops")
def test_random_words_and_masks_are_those_of_numpy(shape):
    state, x = np.array([4_000_000_000, 7], "uint32"), special(*shape)
    (words, y) = on_threads(
        lambda: [loop_random.random_bits(state, shape=shape), loop_random.dropout(state, x, 0.3)]
    )
    np.testing.assert_array_equal(words, numpy_random.random_bits(state, shape=shape))
    with np.errstate(over="ignore"):
        expected = np.where(words < round(0.3 * 2**32), np.float32(0), x * np.float32(1 / 0.7))
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("rows", [3, 300])
def test_dropout_is_its_composition(rows):
    def run(x):
        x = kerasish.ops.convert_to_tensor(x)
        with kerasish.autodiff.GradientTape() as tape:
            tape.watch(x)
            y = kerasish.random.dropout(x, 0.4, seed=3)
            total = kerasish.ops.sum(kerasish.ops.square(y))
        return np.asarray(y), np.asarray(tape.gradient(total, x))

    fused, composed = both(run, normal(rows, 100))
    for a, b in zip(fused, composed, strict=True):
        np.testing.assert_array_equal(a, b)


# --- products -------------------------------------------------------------------------------------


PRODUCTS = [
    ((5, 3), (3, 4)),
    ((70, 130), (130, 90)),
    ((2, 9, 30), (30, 50)),
    ((2, 3, 40, 30), (2, 3, 30, 20)),
    ((2, 1, 40, 30), (3, 30, 20)),
    ((1, 300), (300, 400)),
    ((400, 1), (1, 300)),
    ((0, 3), (3, 2)),
    ((3, 0), (0, 2)),
    ((3,), (3, 4)),
    ((4, 3), (3,)),
]


@pytest.mark.parametrize(("left", "right"), PRODUCTS)
@pytest.mark.parametrize("layout", ["plain", "transposed", "strided", "reversed"])
@pytest.mark.usefixtures("by_loops")
def test_products_are_those_of_numpy(left, right, layout):
    a, b = normal(*left), normal(*right)
    if layout == "transposed":
        a, b = (np.ascontiguousarray(x.swapaxes(0, -1)).swapaxes(0, -1) for x in (a, b))
    elif layout == "strided":
        a, b = (np.repeat(x, 2, axis=-1)[..., ::2] for x in (a, b))
    elif layout == "reversed":
        a, b = a[::-1], b[..., ::-1]
    y, expected = onednn_product.matmul(a, b), np.matmul(a, b)
    assert y.shape == expected.shape
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(bool(native.available()), reason=native.available() or "-")
def test_onednn_computes_products_of_slices():
    """A slice of a larger array is read as it lies, or copied; its neighbors are not read."""
    whole = np.full((80, 200), np.nan, "float32")
    whole[3:73, 5:135] = normal(70, 130)
    b = normal(130, 900)
    y = onednn_product.matmul(whole[3:73, 5:135], b)
    close([y], [whole[3:73, 5:135] @ b])
    assert onednn_product._by_onednn(whole[3:73, 5:135], b, None, None) is not None


@pytest.mark.parametrize("rows", [3, 300])
@pytest.mark.usefixtures("by_loops")
def test_affine_keeps_nan_through_relu(rows):
    x, kernel, bias = normal(rows, 40), normal(40, 30), normal(30)
    x[1, 2] = np.nan
    y = onednn_product.affine(x, kernel, bias, "relu")
    close([np.delete(y, 1, 0)], [np.delete(np.maximum(x @ kernel + bias, 0), 1, 0)])
    assert np.isnan(y[1]).all()


@pytest.mark.parametrize("units", [3, 200])
@pytest.mark.parametrize("activation", [None, "relu", "softmax"])
def test_fused_layers_are_their_compositions(units, activation):
    x = normal(40, 6, units)

    def run(x):
        layer = layers.Dense(units, activation=activation)
        layer.build(x.shape)
        rng = np.random.default_rng(1)
        values = [rng.normal(size=w.shape) / units**0.5 for w in layer.weights]
        layer.set_weights([v.astype("float32") for v in values])
        return derivatives_of(layer, x)(x)

    fused, composed = both(run, x)
    for a, b in zip(fused, composed, strict=True):
        scale = max(1.0, np.abs(b).max())
        np.testing.assert_allclose(a / scale, b / scale, atol=1e-4)


@pytest.mark.parametrize(("classes", "dtype"), [(3, "int32"), (2000, "int32"), (3, "int64")])
def test_the_loss_of_classes_is_its_composition(classes, dtype):
    x = normal(40, 5, classes) * 3
    x[0, 0, 1], x[0, 1, 2], x[0, 2, 0] = np.nan, -np.inf, np.inf
    target = RNG.integers(-1, classes + 1, (40, 5)).astype(dtype)
    target[0, :3] = 0, 2, -1
    if dtype == "int64":
        target[0, 3] = 2**32 + 1  # 1 in 32 bits

    def run(x):
        x = kerasish.ops.convert_to_tensor(x)
        with kerasish.autodiff.GradientTape() as outer:
            outer.watch(x)
            with kerasish.autodiff.GradientTape() as tape:
                tape.watch(x)
                loss = kerasish.ops.sparse_categorical_crossentropy(target, x, from_logits=True)
                total = kerasish.ops.sum(loss[1:] * kerasish.ops.arange(5, dtype="float32"))
                total = total + kerasish.ops.sum(loss[0])
            first = tape.gradient(total, x)
            squares = kerasish.ops.sum(kerasish.ops.square(first[1:]))
        return [np.asarray(v) for v in (loss, first, outer.gradient(squares, x))]

    fused, composed = both(run, x)
    for a, b in zip(fused, composed, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_an_input_used_twice_gets_both_gradients():
    """What has arrived at an input is added inside the product; it is not changed."""
    kernel = normal(600, 600)

    def run(x):
        x, k = kerasish.ops.convert_to_tensor(x), kerasish.ops.convert_to_tensor(kernel)
        with kerasish.autodiff.GradientTape() as tape:
            tape.watch([x, k])
            y = kerasish.ops.arrays.contraction.affine(x, k, k[0]) * x
        return [np.asarray(g) for g in tape.gradient(y, [x, k])]

    fused, composed = both(run, normal(50, 600))
    close(*[[g / 600 for g in some] for some in (fused, composed)])


# --- memory, threads, processes -------------------------------------------------------------------


def test_memory_is_used_again_when_nobody_refers_to_it():
    pool = memory.Pool()
    first = pool.empty((400, 300), np.dtype("float32"))
    first[:] = 1
    second = pool.empty((400, 300), np.dtype("float32"))
    assert not np.shares_memory(first, second)
    place, part = first.ctypes.data, first[7:9, ::2].T
    del first
    third = pool.empty((300, 400), np.dtype("float32"))
    assert not np.shares_memory(part, third)
    part[:] = 2
    del part
    again = pool.empty((200, 300), np.dtype("float64"))
    assert again.ctypes.data == place and again.dtype == np.float64 and again.flags.c_contiguous
    assert pool.held() == 3 * 480_000


def test_memory_of_views_by_other_means_is_not_used_again():
    pool = memory.Pool()
    x = pool.empty((1000, 100), np.dtype("float32"))
    view = memoryview(x)
    del x
    y = pool.empty((1000, 100), np.dtype("float32"))
    assert not np.shares_memory(np.asarray(view), y)


def test_memory_that_is_not_asked_for_is_dropped(monkeypatch):
    monkeypatch.setattr(memory, "GENERATION", 5)
    pool = memory.Pool()
    pool.empty((1 << 20,), np.dtype("float32"))
    for _ in range(20):
        pool.empty((1 << 16,), np.dtype("float32"))
    assert pool.held() <= 1 << 20
    small = pool.empty((5,), np.dtype("float32"))
    assert small.base is None


def test_threads_share_the_memory_and_the_loops():
    wrong = []

    def work(seed):
        x = np.full((200, 300), seed, "float32")
        for _ in range(50):
            y = KERNELS["add"](x, x)
            z = KERNELS["multiply"](y, x)
            sums = KERNELS["reduce_sum"](z, axis=(0,), keepdims=False)
            if not ((y == 2 * seed).all() and (sums == 200 * 2 * seed * seed).all()):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_runs_loops():
    x = normal(500, 400)
    before = KERNELS["reduce_sum"](x, axis=(0,), keepdims=False)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            after = KERNELS["reduce_sum"](x, axis=(0,), keepdims=False)
            status = int(not np.array_equal(before, after))
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_without_a_compiler_numpy_computes(monkeypatch):
    monkeypatch.setattr(native_loops.CompiledLoop, "find", lambda self: None)
    x, b = normal(300, 200), normal(200)
    np.testing.assert_array_equal(KERNELS["add"](x, b), x + b)
    np.testing.assert_array_equal(KERNELS["relu"](x), np.maximum(x, 0))
    close([KERNELS["reduce_sum"](x, axis=(0,), keepdims=False)], [x.sum(0)])
    y = numpy_norm.batch_norm_training(x, b, b, b, b, 0.9, 1e-3)
    assert len(numpy_norm.batch_norm_gradient(x, x, y[3], y[4], b)) == 3
    close([loop_softmax.softmax(x).sum(-1)], [np.ones(300, "float32")])


def test_every_function_of_the_table_is_composed_of_ops():
    assert all(hasattr(f, "__wrapped__") for f in fused_on_cpu._FUSED)


def test_products_of_a_row_or_two_are_left_to_numpy():
    def plan(*shape):
        a, b = (np.ones(s, "float32") for s in (shape, (shape[-1], 512)))
        return onednn_product.plan_of((a.shape, a.strides), (b.shape, b.strides))

    assert plan(1, 784) is plan(3, 784) is plan(1, 3, 784) is None
    assert None not in (plan(4, 784), plan(4, 1, 784))
