"""Convolution against sums written out place by place, over many geometries."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kerasish import ops
from kerasish.autodiff import grad
from kerasish.backends.eager import numpy_conv
from kerasish.errors import ShapeError, UnknownNameError
from kerasish.ops.op import REGISTRY
from kerasish.ops.shapes import Spec
from kerasish.testing import gradient_check

rng = np.random.default_rng(0)


def same_padding(n, w, s, d):
    """TensorFlow's rule: ceil(n / s) windows, the odd place of the padding after."""
    total = max((-(-n // s) - 1) * s + d * (w - 1) + 1 - n, 0)
    return total // 2, total - total // 2


def pairs_of(padding, sizes, window, strides, dilation):
    if padding == "valid":
        return [(0, 0)] * len(sizes)
    if padding == "causal":
        return [(d * (w - 1), 0) for w, d in zip(window, dilation)]
    return [same_padding(*q) for q in zip(sizes, window, strides, dilation)]


def written_out(x, kernel, strides, padding, dilation, groups=1):
    """The definition, one number at a time."""
    sizes, window = x.shape[1:-1], kernel.shape[:-2]
    pairs = pairs_of(padding, sizes, window, strides, dilation)
    counts = [
        (n + sum(p) - d * (w - 1) - 1) // s + 1
        for n, w, s, p, d in zip(sizes, window, strides, pairs, dilation)
    ]
    part, results = kernel.shape[-2:]
    y = np.zeros((x.shape[0], *counts, results))
    for at in itertools.product(*map(range, counts)):
        for k in itertools.product(*map(range, window)):
            place = [i * s + j * d - p[0] for i, j, s, d, p in zip(at, k, strides, dilation, pairs)]
            if any(q < 0 or q >= n for q, n in zip(place, sizes)):
                continue
            for o in range(results):
                g = o // (results // groups)
                seen = x[(slice(None), *place)][:, g * part : (g + 1) * part]
                y[(slice(None), *at, o)] += seen @ kernel[k][:, o]
    return y


GEOMETRIES = [
    (sizes, window, strides, padding, dilation, channels, results, groups)
    for (sizes, window), strides, padding, dilation, (channels, results, groups) in (
        itertools.product(
            [
                ((6,), (3,)),
                ((7,), (2,)),
                ((5, 6), (2, 3)),
                ((4, 3, 5), (2, 1, 3)),
                ((4, 4), (1, 1)),
            ],
            [1, 2, 3],
            ["valid", "same"],
            [1, 2],
            [(2, 3, 1), (4, 6, 2), (3, 6, 3), (6, 2, 1)],
        )
    )
    if strides == 1 or dilation == 1 or len(sizes) == 1
]


@pytest.mark.parametrize("case", GEOMETRIES, ids=str)
def test_convolution_is_the_written_out_sum(case):
    sizes, window, strides, padding, dilation, channels, results, groups = case
    ndim = len(sizes)
    x = rng.normal(size=(2, *sizes, channels))
    kernel = rng.normal(size=(*window, channels // groups, results))
    expected = written_out(x, kernel, (strides,) * ndim, padding, (dilation,) * ndim, groups)
    got = ops.conv(x, kernel, strides, padding, "channels_last", dilation)
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)
    first = ops.conv(np.moveaxis(x, -1, 1), kernel, strides, padding, "channels_first", dilation)
    np.testing.assert_allclose(np.moveaxis(first.numpy(), 1, -1), got, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", GEOMETRIES[::3], ids=str)
def test_gradient_ops_are_transposes_and_fast_kernels_agree(case):
    """<conv(x, k), g> = <x, data gradient> = <k, kernel gradient>, in both sets of kernels."""
    sizes, window, strides, padding, dilation, channels, results, groups = case
    ndim = len(sizes)
    x = rng.normal(size=(3, *sizes, channels))
    kernel = rng.normal(size=(*window, channels // groups, results))
    settings = {
        "strides": (strides,) * ndim,
        "dilation": (dilation,) * ndim,
        "groups": groups,
    }
    pairs = tuple(pairs_of(padding, sizes, window, (strides,) * ndim, (dilation,) * ndim))
    settings["padding"] = pairs
    both = []
    for run in (
        lambda name, *a, **k: REGISTRY[name].kernel(np, *a, **k),
        lambda name, *a, **k: numpy_conv.KERNELS[name](*a, **k),
    ):
        y = run("convolution", x, kernel, **settings)
        g = np.cos(np.arange(y.size)).reshape(y.shape)
        dx = run("convolution_data_gradient", g, kernel, size=sizes, **settings)
        dk = run("convolution_kernel_gradient", x, g, size=window, **settings)
        assert dx.shape == x.shape
        assert dk.shape == kernel.shape
        np.testing.assert_allclose([np.sum(dx * x), np.sum(dk * kernel)], np.sum(y * g), rtol=1e-8)
        both.append((y, dx, dk))
    for reference, fast in zip(*both):
        np.testing.assert_allclose(fast, reference, rtol=1e-8, atol=1e-10)


def test_large_batches_go_in_chunks(monkeypatch):
    x, kernel = rng.normal(size=(7, 6, 6, 6)), rng.normal(size=(3, 3, 6, 4))
    deep = rng.normal(size=(3, 3, 6, 2))
    whole = [ops.conv(x, kernel, 2, "same"), ops.depthwise_conv(x, deep, 1, "same")]
    monkeypatch.setattr(numpy_conv, "ROWS_BYTES", 5000)
    monkeypatch.setattr(numpy_conv, "CACHE_BYTES", 5000)
    parts = [ops.conv(x, kernel, 2, "same"), ops.depthwise_conv(x, deep, 1, "same")]
    for a, b in zip(whole, parts):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    gradient_check(lambda a: ops.conv(a, kernel, 2, "same"), [x[:3]], order=1)


@pytest.mark.parametrize("strides", [1, 2])
@pytest.mark.parametrize("name", ["conv", "depthwise_conv"])
def test_gradients_of_large_batches_go_in_chunks(name, strides, monkeypatch):
    """One sample a chunk: the gradients are those of all samples together."""
    x = rng.normal(size=(5, 6, 6, 6))
    kernel = rng.normal(size=(3, 3, 6, 4 if name == "conv" else 2))

    def loss(a, b):
        return ops.sum(ops.sin(getattr(ops, name)(a, b, strides, "same")))

    whole = grad(loss, argnums=(0, 1))(x, kernel)
    monkeypatch.setattr(numpy_conv, "ROWS_BYTES", 1)
    monkeypatch.setattr(numpy_conv, "CACHE_BYTES", 1)
    for a, b in zip(whole, grad(loss, argnums=(0, 1))(x, kernel)):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("strides", [1, 2])
@pytest.mark.parametrize("multiplier", [1, 2])
def test_depthwise_and_separable(strides, multiplier):
    x = rng.normal(size=(2, 5, 4, 3))
    kernel = rng.normal(size=(3, 2, 3, multiplier))
    y = ops.depthwise_conv(x, kernel, strides, "same").numpy()
    for c in range(3):
        alone = ops.conv(x[..., c : c + 1], kernel[:, :, c : c + 1], strides, "same").numpy()
        np.testing.assert_allclose(
            y[..., c * multiplier : (c + 1) * multiplier], alone, rtol=1e-10, atol=1e-12
        )
    point = rng.normal(size=(1, 1, 3 * multiplier, 5))
    both = ops.separable_conv(x, kernel, point, strides, "same")
    np.testing.assert_allclose(both, y @ point[0, 0], rtol=1e-10, atol=1e-12)
    gradient_check(lambda a, k: ops.depthwise_conv(a, k, strides, "same"), [x[:1, :3, :3], kernel])


@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("strides", [1, 2, 3])
def test_causal_sees_no_later_place(strides, dilation):
    x, kernel = rng.normal(size=(1, 9, 2)), rng.normal(size=(3, 2, 2))
    settings = ((strides,), "causal", (dilation,))
    y = ops.conv(x, kernel, strides, "causal", "channels_last", dilation).numpy()
    np.testing.assert_allclose(y, written_out(x, kernel, *settings), rtol=1e-10, atol=1e-12)
    later = x.copy()
    later[:, 5:] += 1
    again = ops.conv(later, kernel, strides, "causal", "channels_last", dilation).numpy()
    seen = -(-5 // strides)
    np.testing.assert_array_equal(y[:, :seen], again[:, :seen])


# What Keras 3.15 gives for x = 1, 2, ..., n and kernel = 1, 4, 9, ...:
# (padding, n, window, stride, dilation, output_padding) -> numbers; the same on its backends
# TensorFlow (without dilation), JAX and PyTorch.
KERAS_TRANSPOSED = {
    ("valid", 4, 1, 1, 1, None): [1, 2, 3, 4],
    ("valid", 4, 1, 1, 1, 0): [1, 2, 3, 4],
    ("valid", 4, 1, 2, 1, None): [1, 0, 2, 0, 3, 0, 4, 0],
    ("valid", 4, 1, 2, 1, 0): [1, 0, 2, 0, 3, 0, 4],
    ("valid", 4, 1, 2, 1, 1): [1, 0, 2, 0, 3, 0, 4, 0],
    ("valid", 4, 1, 2, 2, None): [1, 0, 2, 0, 3, 0, 4, 0],
    ("valid", 4, 1, 2, 2, 0): [1, 0, 2, 0, 3, 0, 4],
    ("valid", 4, 1, 2, 2, 1): [1, 0, 2, 0, 3, 0, 4, 0],
    ("valid", 4, 1, 3, 1, None): [1, 0, 0, 2, 0, 0, 3, 0, 0, 4, 0, 0],
    ("valid", 4, 1, 3, 1, 0): [1, 0, 0, 2, 0, 0, 3, 0, 0, 4],
    ("valid", 4, 1, 3, 1, 1): [1, 0, 0, 2, 0, 0, 3, 0, 0, 4, 0],
    ("valid", 4, 1, 3, 1, 2): [1, 0, 0, 2, 0, 0, 3, 0, 0, 4, 0, 0],
    ("valid", 4, 2, 1, 1, None): [1, 6, 11, 16, 16],
    ("valid", 4, 2, 1, 1, 0): [1, 6, 11, 16, 16],
    ("valid", 4, 2, 2, 1, None): [1, 4, 2, 8, 3, 12, 4, 16],
    ("valid", 4, 2, 2, 1, 0): [1, 4, 2, 8, 3, 12, 4, 16],
    ("valid", 4, 2, 2, 1, 1): [1, 4, 2, 8, 3, 12, 4, 16, 0],
    ("valid", 4, 2, 2, 2, None): [1, 0, 6, 0, 11, 0, 16, 0, 16],
    ("valid", 4, 2, 2, 2, 0): [1, 0, 6, 0, 11, 0, 16, 0, 16],
    ("valid", 4, 2, 2, 2, 1): [1, 0, 6, 0, 11, 0, 16, 0, 16, 0],
    ("valid", 4, 2, 3, 1, None): [1, 4, 0, 2, 8, 0, 3, 12, 0, 4, 16, 0],
    ("valid", 4, 2, 3, 1, 0): [1, 4, 0, 2, 8, 0, 3, 12, 0, 4, 16],
    ("valid", 4, 2, 3, 1, 1): [1, 4, 0, 2, 8, 0, 3, 12, 0, 4, 16, 0],
    ("valid", 4, 2, 3, 1, 2): [1, 4, 0, 2, 8, 0, 3, 12, 0, 4, 16, 0, 0],
    ("valid", 4, 3, 1, 1, None): [1, 6, 20, 34, 43, 36],
    ("valid", 4, 3, 1, 1, 0): [1, 6, 20, 34, 43, 36],
    ("valid", 4, 3, 2, 1, None): [1, 4, 11, 8, 21, 12, 31, 16, 36],
    ("valid", 4, 3, 2, 1, 0): [1, 4, 11, 8, 21, 12, 31, 16, 36],
    ("valid", 4, 3, 2, 1, 1): [1, 4, 11, 8, 21, 12, 31, 16, 36, 0],
    ("valid", 4, 3, 2, 2, None): [1, 0, 6, 0, 20, 0, 34, 0, 43, 0, 36],
    ("valid", 4, 3, 2, 2, 0): [1, 0, 6, 0, 20, 0, 34, 0, 43, 0, 36],
    ("valid", 4, 3, 2, 2, 1): [1, 0, 6, 0, 20, 0, 34, 0, 43, 0, 36, 0],
    ("valid", 4, 3, 3, 1, None): [1, 4, 9, 2, 8, 18, 3, 12, 27, 4, 16, 36],
    ("valid", 4, 3, 3, 1, 0): [1, 4, 9, 2, 8, 18, 3, 12, 27, 4, 16, 36],
    ("valid", 4, 3, 3, 1, 1): [1, 4, 9, 2, 8, 18, 3, 12, 27, 4, 16, 36, 0],
    ("valid", 4, 3, 3, 1, 2): [1, 4, 9, 2, 8, 18, 3, 12, 27, 4, 16, 36, 0, 0],
    ("valid", 4, 4, 1, 1, None): [1, 6, 20, 50, 75, 84, 64],
    ("valid", 4, 4, 1, 1, 0): [1, 6, 20, 50, 75, 84, 64],
    ("valid", 4, 4, 2, 1, None): [1, 4, 11, 24, 21, 44, 31, 64, 36, 64],
    ("valid", 4, 4, 2, 1, 0): [1, 4, 11, 24, 21, 44, 31, 64, 36, 64],
    ("valid", 4, 4, 2, 1, 1): [1, 4, 11, 24, 21, 44, 31, 64, 36, 64, 0],
    ("valid", 4, 4, 2, 2, None): [1, 0, 6, 0, 20, 0, 50, 0, 75, 0, 84, 0, 64],
    ("valid", 4, 4, 2, 2, 0): [1, 0, 6, 0, 20, 0, 50, 0, 75, 0, 84, 0, 64],
    ("valid", 4, 4, 2, 2, 1): [1, 0, 6, 0, 20, 0, 50, 0, 75, 0, 84, 0, 64, 0],
    ("valid", 4, 4, 3, 1, None): [1, 4, 9, 18, 8, 18, 35, 12, 27, 52, 16, 36, 64],
    ("valid", 4, 4, 3, 1, 0): [1, 4, 9, 18, 8, 18, 35, 12, 27, 52, 16, 36, 64],
    ("valid", 4, 4, 3, 1, 1): [1, 4, 9, 18, 8, 18, 35, 12, 27, 52, 16, 36, 64, 0],
    ("valid", 4, 4, 3, 1, 2): [1, 4, 9, 18, 8, 18, 35, 12, 27, 52, 16, 36, 64, 0, 0],
    ("same", 4, 1, 1, 1, None): [1, 2, 3, 4],
    ("same", 4, 1, 1, 1, 0): [1, 2, 3, 4],
    ("same", 4, 1, 2, 1, None): [1, 0, 2, 0, 3, 0, 4, 0],
    ("same", 4, 1, 2, 1, 0): [1, 0, 2, 0, 3, 0, 4],
    ("same", 4, 1, 2, 1, 1): [1, 0, 2, 0, 3, 0, 4, 0],
    ("same", 4, 1, 2, 2, None): [1, 0, 2, 0, 3, 0, 4, 0],
    ("same", 4, 1, 2, 2, 0): [1, 0, 2, 0, 3, 0, 4],
    ("same", 4, 1, 2, 2, 1): [1, 0, 2, 0, 3, 0, 4, 0],
    ("same", 4, 1, 3, 1, None): [1, 0, 0, 2, 0, 0, 3, 0, 0, 4, 0, 0],
    ("same", 4, 1, 3, 1, 0): [1, 0, 0, 2, 0, 0, 3, 0, 0, 4],
    ("same", 4, 1, 3, 1, 1): [1, 0, 0, 2, 0, 0, 3, 0, 0, 4, 0],
    ("same", 4, 1, 3, 1, 2): [1, 0, 0, 2, 0, 0, 3, 0, 0, 4, 0, 0],
    ("same", 4, 2, 1, 1, None): [1, 6, 11, 16],
    ("same", 4, 2, 1, 1, 0): [6, 11, 16],
    ("same", 4, 2, 2, 1, None): [1, 4, 2, 8, 3, 12, 4, 16],
    ("same", 4, 2, 2, 1, 0): [4, 2, 8, 3, 12, 4],
    ("same", 4, 2, 2, 1, 1): [1, 4, 2, 8, 3, 12, 4],
    ("same", 4, 2, 2, 2, None): [1, 0, 6, 0, 11, 0, 16, 0],
    ("same", 4, 2, 2, 2, 0): [0, 6, 0, 11, 0, 16, 0],
    ("same", 4, 2, 2, 2, 1): [1, 0, 6, 0, 11, 0, 16, 0],
    ("same", 4, 2, 3, 1, None): [1, 4, 0, 2, 8, 0, 3, 12, 0, 4, 16, 0],
    ("same", 4, 2, 3, 1, 0): [4, 0, 2, 8, 0, 3, 12, 0, 4],
    ("same", 4, 2, 3, 1, 1): [1, 4, 0, 2, 8, 0, 3, 12, 0, 4],
    ("same", 4, 2, 3, 1, 2): [1, 4, 0, 2, 8, 0, 3, 12, 0, 4, 16],
    ("same", 4, 3, 1, 1, None): [6, 20, 34, 43],
    ("same", 4, 3, 1, 1, 0): [6, 20, 34, 43],
    ("same", 4, 3, 2, 1, None): [1, 4, 11, 8, 21, 12, 31, 16],
    ("same", 4, 3, 2, 1, 0): [4, 11, 8, 21, 12, 31, 16],
    ("same", 4, 3, 2, 1, 1): [1, 4, 11, 8, 21, 12, 31, 16],
    ("same", 4, 3, 2, 2, None): [0, 6, 0, 20, 0, 34, 0, 43],
    ("same", 4, 3, 2, 2, 0): [6, 0, 20, 0, 34, 0, 43],
    ("same", 4, 3, 2, 2, 1): [0, 6, 0, 20, 0, 34, 0, 43],
    ("same", 4, 3, 3, 1, None): [1, 4, 9, 2, 8, 18, 3, 12, 27, 4, 16, 36],
    ("same", 4, 3, 3, 1, 0): [4, 9, 2, 8, 18, 3, 12, 27, 4, 16],
    ("same", 4, 3, 3, 1, 1): [1, 4, 9, 2, 8, 18, 3, 12, 27, 4, 16],
    ("same", 4, 3, 3, 1, 2): [1, 4, 9, 2, 8, 18, 3, 12, 27, 4, 16, 36],
    ("same", 4, 4, 1, 1, None): [6, 20, 50, 75],
    ("same", 4, 4, 1, 1, 0): [20, 50, 75],
    ("same", 4, 4, 2, 1, None): [4, 11, 24, 21, 44, 31, 64, 36],
    ("same", 4, 4, 2, 1, 0): [11, 24, 21, 44, 31, 64],
    ("same", 4, 4, 2, 1, 1): [4, 11, 24, 21, 44, 31, 64],
    ("same", 4, 4, 2, 2, None): [6, 0, 20, 0, 50, 0, 75, 0],
    ("same", 4, 4, 2, 2, 0): [0, 20, 0, 50, 0, 75, 0],
    ("same", 4, 4, 2, 2, 1): [6, 0, 20, 0, 50, 0, 75, 0],
    ("same", 4, 4, 3, 1, None): [1, 4, 9, 18, 8, 18, 35, 12, 27, 52, 16, 36],
    ("same", 4, 4, 3, 1, 0): [9, 18, 8, 18, 35, 12, 27, 52, 16],
    ("same", 4, 4, 3, 1, 1): [4, 9, 18, 8, 18, 35, 12, 27, 52, 16],
    ("same", 4, 4, 3, 1, 2): [4, 9, 18, 8, 18, 35, 12, 27, 52, 16, 36],
}


@pytest.mark.parametrize("case", KERAS_TRANSPOSED.items(), ids=str)
def test_conv_transpose_is_keras(case):
    (padding, n, window, stride, dilation, extra), expected = case
    x = np.arange(1.0, n + 1).reshape(1, n, 1)
    kernel = (np.arange(1.0, window + 1) ** 2).reshape(window, 1, 1)
    y = ops.conv_transpose(x, kernel, stride, padding, extra, "channels_last", dilation)
    assert y.numpy().ravel().tolist() == expected


@pytest.mark.parametrize("output_padding", [None, 1, (0, 1)])
@pytest.mark.parametrize("padding", ["valid", "same"])
def test_conv_transpose_in_two_axes(padding, output_padding):
    """Each axis on its own: a product kernel transposes axis by axis."""
    x = rng.normal(size=(1, 3, 4, 1))
    a, b = rng.normal(size=3), rng.normal(size=2)
    kernel = (a[:, None] * b)[:, :, None, None]
    y = ops.conv_transpose(x, kernel, 2, padding, output_padding).numpy()
    first, second = output_padding if isinstance(output_padding, tuple) else (output_padding,) * 2
    rows = x[0, :, :, 0].T[..., None]
    rows = ops.conv_transpose(rows, a[:, None, None], 2, padding, first).numpy()[..., 0].T
    both = ops.conv_transpose(rows[..., None], b[:, None, None], 2, padding, second).numpy()
    np.testing.assert_allclose(y[0, ..., 0], both[..., 0], rtol=1e-10, atol=1e-12)
    channels = rng.normal(size=(2, 2, 3, 4))
    flipped = ops.conv_transpose(
        rng.normal(size=(1, 4, 3, 3)), channels, 2, padding, None, "channels_first"
    )
    assert flipped.shape == (1, 3, 6, 6)
    gradient_check(lambda q, k: ops.conv_transpose(q, k, 2, padding, output_padding), [x, kernel])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_summed_in_single(dtype):
    x, kernel = rng.normal(size=(1, 6, 6, 64)), rng.normal(size=(3, 3, 64, 8))
    half = [ops.cast(ops.cast(a, "float32"), dtype) for a in (x, kernel)]
    y = ops.conv(*half)
    assert y.dtype == dtype
    exact = ops.conv(*(ops.cast(h, "float32") for h in half))
    np.testing.assert_array_equal(ops.cast(exact, dtype).numpy(), y.numpy())


def rule(shape, kernel, **attrs):
    op = REGISTRY["convolution"]
    _, attrs = op.bind((0, 0), attrs)
    attrs = op.canonical([shape, kernel], attrs)
    return op.shape(Spec(shape, "float32"), Spec(kernel, "float32"), **attrs).shape


def test_unknown_sizes():
    assert rule((None, None, 8, 3), (3, 3, 3, 5), strides=2, padding="same") == (None, None, 4, 5)
    assert rule((None, 7, 8, 3), (3, 3, 3, 5), padding="same") == (None, 7, 8, 5)
    assert rule((None, 7, 3), (3, 3, 5), strides=2, padding="causal") == (None, 4, 5)
    assert rule((2, None, 3), (3, 3, 5)) == (2, None, 5)


def test_errors_name_what_does_not_fit():
    with pytest.raises(ShapeError, match="window of 5 places does not fit into the 3"):
        ops.conv(np.ones((1, 3, 1)), np.ones((5, 1, 1)))
    with pytest.raises(ShapeError, match=r"channels \(3\)"):
        ops.conv(np.ones((1, 5, 3)), np.ones((2, 2, 4)))
    with pytest.raises(ShapeError, match="3 results are not cut into 2"):
        ops.conv(np.ones((1, 5, 4)), np.ones((2, 2, 3)))
    with pytest.raises(UnknownNameError, match="'same'"):
        ops.conv(np.ones((1, 5, 4)), np.ones((2, 4, 3)), padding="sane")
    with pytest.raises(ShapeError, match="strides"):
        ops.conv(np.ones((1, 5, 4)), np.ones((2, 4, 3)), strides=0)
    with pytest.raises(ShapeError, match="3 to 5 axes"):
        ops.conv(np.ones((5, 4)), np.ones((2, 4, 3)))
    with pytest.raises(ShapeError, match="for 2 channels"):
        ops.depthwise_conv(np.ones((1, 5, 4)), np.ones((2, 2, 3)))
