"""The eager engine's kernels by oneDNN and its fused ones: NumPy's numbers, for all sizes."""

from __future__ import annotations

import os
import threading
import tracemalloc

import numpy as np
import pytest

from kerasish import backends, config, layers, ops
from kerasish.autodiff import GradientTape
from kerasish.backends.eager import (
    Eager,
    numpy_conv,
    numpy_norm,
    numpy_pool,
    onednn_conv,
    onednn_pool,
    onednn_runner,
)
from kerasish.backends.onednn import native
from kerasish.ops.op import using_engine

needs_onednn = pytest.mark.skipif(bool(native.available()), reason=native.available() or "-")
RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape).astype("float32")


def close(result, expected):
    assert result.dtype == expected.dtype and result.shape == expected.shape
    scale = max(1.0, np.abs(expected).max(initial=0))
    np.testing.assert_allclose(result / scale, expected / scale, atol=3e-6)


# x, kernel, strides, padding, dilation, groups
CONVOLUTIONS = [
    ((2, 8, 3), (3, 3, 4), (1,), ((1, 1),), (1,), 1),
    ((2, 8, 3), (3, 3, 4), (1,), ((2, 0),), (1,), 1),  # the shapes of the case before
    ((2, 9, 5), (4, 5, 2), (3,), ((0, 2),), (2,), 1),
    ((3, 7, 8, 4), (3, 3, 4, 6), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    ((1, 8, 7, 16), (3, 2, 16, 32), (2, 2), ((0, 1), (1, 0)), (1, 1), 1),
    ((2, 9, 9, 6), (3, 3, 2, 9), (2, 1), ((1, 1), (0, 0)), (1, 2), 3),
    ((2, 7, 6, 5), (1, 1, 5, 8), (2, 2), ((0, 0), (0, 0)), (1, 1), 1),
    ((2, 7, 6, 5), (1, 1, 5, 8), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    ((2, 6, 6, 5), (3, 3, 1, 5), (1, 1), ((1, 1), (1, 1)), (1, 1), 5),
    ((2, 6, 6, 4), (3, 3, 1, 8), (2, 2), ((0, 1), (0, 1)), (1, 1), 4),
    ((1, 5, 6, 4, 3), (2, 3, 2, 3, 4), (1, 2, 1), ((0, 0), (1, 1), (1, 0)), (1, 1, 1), 1),
]


@pytest.mark.parametrize(("x", "kernel", "strides", "padding", "dilation", "groups"), CONVOLUTIONS)
def test_convolutions_are_those_of_numpy(x, kernel, strides, padding, dilation, groups):
    settings = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
    x, kernel = normal(*x), normal(*kernel)
    for _ in range(2):  # made, and then run with other arrays
        x, kernel = x[::-1], kernel + 1  # negative strides
        y = onednn_conv.convolution(x, kernel, **settings)
        close(y, numpy_conv.KERNELS["convolution"](x, kernel, **settings))
        g = normal(*y.shape)
        sizes = {"size": x.shape[1:-1], **settings}
        dx = onednn_conv.convolution_data_gradient(g, kernel, **sizes)
        close(dx, numpy_conv.KERNELS["convolution_data_gradient"](g, kernel, **sizes))
        sizes = {"size": kernel.shape[:-2], **settings}
        dk = onednn_conv.convolution_kernel_gradient(x, g, **sizes)
        close(dk, numpy_conv.KERNELS["convolution_kernel_gradient"](x, g, **sizes))


@needs_onednn
def test_onednn_computes_them():
    settings = {"strides": (1, 1), "padding": ((1, 1),) * 2, "dilation": (1, 1), "groups": 1}
    runner = onednn_conv._find(
        "convolution", normal(1), normal(1), (2, 8, 8, 3), (3, 3, 3, 4), None, settings
    )
    assert runner is not None and runner.steps


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32"])
def test_other_dtypes_and_empty_arrays_go_to_numpy(dtype):
    settings = {"strides": (1,), "padding": ((0, 0),), "dilation": (1,), "groups": 1}
    x, kernel = (normal(2, 6, 3) * 4).astype(dtype), (normal(2, 3, 2) * 4).astype(dtype)
    y = onednn_conv.convolution(x, kernel, **settings)
    np.testing.assert_array_equal(y, numpy_conv.KERNELS["convolution"](x, kernel, **settings))
    assert onednn_conv.convolution(x[:0], kernel, **settings).shape == (0, 5, 2)
    pool = {"size": (2,), "strides": (2,), "padding": ((0, 0),)}
    np.testing.assert_array_equal(
        onednn_pool.pool_max(x, **pool), numpy_pool.KERNELS["pool_max"](x, **pool)
    )
    assert onednn_pool.pool_max(x[:0], **pool).shape == (0, 3, 3)


def test_without_onednn_numpy_computes(monkeypatch):
    monkeypatch.setattr(native, "available", lambda: "not here")
    monkeypatch.setattr(onednn_runner, "_memory", onednn_runner._Memory())
    settings = {"strides": (1,), "padding": ((1, 1),), "dilation": (1,), "groups": 1}
    x, kernel = normal(2, 6, 3), normal(3, 3, 2)
    y = onednn_conv.convolution(x, kernel, **settings)
    np.testing.assert_array_equal(y, numpy_conv.KERNELS["convolution"](x, kernel, **settings))


POOLINGS = [
    ((2, 9, 3), (2,), (2,), ((0, 0),)),
    ((2, 9, 3), (3,), (1,), ((1, 1),)),
    ((2, 8, 7, 5), (2, 2), (2, 2), ((0, 0), (0, 0))),
    ((2, 8, 7, 5), (3, 2), (2, 1), ((0, 1), (1, 0))),
    ((1, 4, 5, 6, 2), (2, 2, 3), (2, 2, 1), ((0, 0), (0, 1), (1, 1))),
    ((2, 5, 5, 1), (1, 1), (2, 2), ((0, 0), (0, 0))),
]


@pytest.mark.parametrize(("shape", "size", "strides", "padding"), POOLINGS)
@pytest.mark.parametrize("kind", ["plain", "ties", "nan", "inf", "-inf"])
def test_poolings_are_those_of_numpy(shape, size, strides, padding, kind, monkeypatch):
    monkeypatch.setattr(onednn_pool, "LEAST", 1)
    settings = {"size": size, "strides": strides, "padding": padding}
    x = normal(*shape)
    if kind == "ties":
        x = np.round(x)
    elif kind != "plain":
        x[RNG.random(shape) < 0.4] = float(kind)
    y = onednn_pool.pool_max(x, **settings)
    np.testing.assert_array_equal(y, numpy_pool.KERNELS["pool_max"](x, **settings))
    g = normal(*y.shape)
    dx = onednn_pool.pool_max_gradient(g, x, **settings)
    expected = numpy_pool.KERNELS["pool_max_gradient"](g, x, **settings)
    np.testing.assert_allclose(dx, expected, rtol=1e-6, atol=1e-6)
    if kind == "plain":
        close(
            onednn_pool.pool_average(x, **settings),
            numpy_pool.KERNELS["pool_average"](x, **settings),
        )
        sizes = {"sizes": shape[1:-1], **settings}
        close(
            onednn_pool.pool_average_gradient(g, **sizes),
            numpy_pool.KERNELS["pool_average_gradient"](g, **sizes),
        )


def test_huge_numbers_are_pooled_as_they_are(monkeypatch):
    monkeypatch.setattr(onednn_pool, "LEAST", 1)
    x = np.array([3e38, 3.2e38, -3e38, 1.0], "float32").reshape(1, 4, 1)
    settings = {"size": (2,), "strides": (2,), "padding": ((0, 0),)}
    with np.errstate(over="ignore"):  # as the engine runs kernels
        y = onednn_pool.pool_max(x, **settings)
    assert y.ravel().tolist() == [x[0, 1, 0], 1.0]


@needs_onednn
def test_each_thread_has_memory_of_its_own():
    """Threads that convolve at once neither mix their numbers nor wait for each other."""
    settings = {"strides": (1, 1), "padding": ((1, 1),) * 2, "dilation": (1, 1), "groups": 1}
    kernel = normal(3, 3, 16, 24)
    wrong = []

    def work(seed):
        x = np.full((4, 24, 24, 16), seed, "float32")
        own = kernel + seed
        expected = numpy_conv.KERNELS["convolution"](x, own, **settings)
        for _ in range(20):
            y = onednn_conv.convolution(x, own, **settings)
            if not np.allclose(y, expected, rtol=1e-3, atol=1e-2):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@needs_onednn
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_computes():
    settings = {"strides": (1,), "padding": ((1, 1),), "dilation": (1,), "groups": 1}
    x, kernel = normal(64, 256, 16), normal(3, 16, 32)
    before = onednn_conv.convolution(x, kernel, **settings)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            after = onednn_conv.convolution(x, kernel, **settings)
            status = int(not np.allclose(before, after, atol=1e-4))
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@needs_onednn
def test_runners_are_bounded_and_keep_no_arrays(monkeypatch):
    monkeypatch.setattr(onednn_runner, "_KEPT", 3)
    memory = onednn_runner._Memory()
    monkeypatch.setattr(onednn_runner, "_memory", memory)
    settings = {"strides": (1,), "padding": ((1, 1),), "dilation": (1,), "groups": 1}
    kernel = normal(3, 2, 4)
    for n in range(1, 9):
        onednn_conv.convolution(normal(n, 5, 2), kernel, **settings)
        assert len(memory.runners) == min(n, 3)
    x = normal(500, 1000, 2)
    tracemalloc.start()
    try:
        onednn_conv.convolution(x, kernel, **settings)
        start = tracemalloc.get_traced_memory()[0]
        for _ in range(3):
            onednn_conv.convolution(x, kernel, **settings)
        assert tracemalloc.get_traced_memory()[0] - start < 100_000
    finally:
        tracemalloc.stop()


# --- fused kernels ------------------------------------------------------------------------------


def both(function, *arrays):
    """Return what a function gives by the fused kernels, and by the ops that compose it."""
    engine = backends.get("eager")
    with using_engine(engine):
        fused = function(*arrays)
    try:
        type(engine).fuses_calls = False
        with using_engine(engine):
            composed = function(*arrays)
    finally:
        type(engine).fuses_calls = True
    return fused, composed


def derivatives_of(layer, x, training=True):
    """Return the result, first gradients, and gradients of a function of these."""

    def run(x):
        x = ops.convert_to_tensor(x)
        variables = layer.trainable_variables
        with GradientTape() as outer:
            outer.watch(x)
            with GradientTape() as inner:
                inner.watch(x)
                y = layer(x, training=training)
                loss = ops.sum(ops.square(y) * ops.sin(x) + y)
            first = inner.gradient(loss, [x, *variables])
            second_loss = sum(ops.sum(ops.square(g)) for g in first)
        second = outer.gradient(second_loss, [x, *variables])
        return [np.asarray(v) for v in (y, *first, *second, *layer.non_trainable_variables)]

    return run


SHAPES = [(4, 3), (5, 7, 3), (2, 4, 3, 6), (300, 40, 7), (1, 5)]


# Rows of one element have no spread: their second derivatives are only rounding.
@pytest.mark.parametrize(
    ("kind", "shape"),
    [(kind, shape) for kind in ("batch", "layer", "rms") for shape in SHAPES] + [("batch", (3, 1))],
)
def test_fused_normalizations_are_their_compositions(shape, kind):
    def run(x):
        make = {
            "batch": lambda: layers.BatchNormalization(momentum=0.7),
            "layer": lambda: layers.LayerNormalization(),
            "rms": lambda: layers.RMSNormalization(),
        }[kind]
        layer = make()
        layer.build(shape)
        rng = np.random.default_rng(1)
        layer.set_weights([rng.random(w.shape).astype("float32") + 0.5 for w in layer.weights])
        return derivatives_of(layer, x)(x)

    x = normal(*shape) * 2 + 1
    fused, composed = both(run, x)
    assert len(fused) == len(composed) > 3
    for a, b in zip(fused, composed):
        scale = max(1.0, np.abs(b).max())
        np.testing.assert_allclose(a / scale, b / scale, atol=2e-4)


def test_batch_moments_of_many_rows_are_exact():
    """A sum of 400,000 numbers in single precision is right to six digits."""
    x = normal(400_000, 3) + np.array([0.0, 100.0, -1000.0], "float32")
    mean, variance = numpy_norm._column_moments(x)
    np.testing.assert_allclose(mean, x.mean(0, dtype="float64"), rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(variance, x.var(0, dtype="float64"), rtol=2e-6)


def test_nan_and_infinity_stay_in_their_columns_and_rows():
    x = normal(4, 3)
    x[1, 2] = np.nan
    one, zero = np.ones(3, "float32"), np.zeros(3, "float32")
    y = numpy_norm.batch_norm_training(x, one, zero, zero, one, 0.9, 1e-3)[0]
    assert np.isnan(y[:, 2]).all() and np.isfinite(y[:, :2]).all()
    y = numpy_norm.layer_norm(x, one, zero, 1e-3)[0]
    assert np.isnan(y[1]).all() and np.isfinite(np.delete(y, 1, 0)).all()


def test_relus_gradient_is_its_composition():
    def run(x):
        x = ops.convert_to_tensor(x)
        with GradientTape() as outer:
            outer.watch(x)
            with GradientTape() as tape:
                tape.watch(x)
                y = ops.sum(ops.exp(ops.relu(x)))
            g = tape.gradient(y, x)
        return np.asarray(g), np.asarray(outer.gradient(g, x))

    x = normal(7, 5)
    x[0] = [np.nan, np.inf, -np.inf, 0.0, -0.0]
    fused, composed = both(run, x)
    for a, b in zip(fused, composed):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("backend", ["static", "eager"])
def test_calls_outside_of_steps_take_one_kernel_per_composed_function(backend, monkeypatch):
    config.set_backend(backend)
    applied = []
    apply = Eager.apply
    monkeypatch.setattr(
        Eager, "apply", lambda self, op, *rest: (applied.append(op.kind), apply(self, op, *rest))[1]
    )
    x = normal(4, 6)
    layer = layers.Dense(3, activation="relu")
    layer.build(x.shape)
    applied.clear()
    y = layer(x)
    assert applied == ["fused"]
    close(y.numpy(), np.maximum(x @ layer.kernel.numpy() + layer.bias.numpy(), 0))
    applied.clear()
    close(ops.softmax(y).numpy().sum(-1), np.ones(4, "float32"))
    assert applied == ["fused"]
