"""`pytest -m gpu`: convolution and attention on the GPU, by cuDNN and without it, as on the CPU.

The rest runs where there is none: the same checks on the fake, where cuDNN is never there.
"""

from __future__ import annotations

import warnings

import gpu_checks as checks
import numpy as np
import pytest

import kerasish
from kerasish import layers, ops
from kerasish.backends.eager import Eager
from kerasish.backends.eager.cuda import cudnn
from kerasish.ops.arrays.core import derivatives
from kerasish.ops.op import REGISTRY, using_engine

# x, kernel, strides, padding, dilation, groups
CONVOLUTIONS = {
    "3x3": ((4, 16, 16, 32), (3, 3, 32, 64), 1, "same", 1, 1),
    "7x7 by 2, three channels": ((2, 32, 32, 3), (7, 7, 3, 16), 2, "same", 1, 1),
    "1x1": ((4, 8, 8, 64), (1, 1, 64, 32), 1, "valid", 1, 1),
    "uneven": ((2, 9, 7, 5), (3, 2, 5, 7), (2, 1), ((1, 0), (0, 1)), (1, 2), 1),
    "groups": ((2, 8, 8, 16), (3, 3, 4, 32), 1, "same", 1, 4),
    "depthwise": ((2, 9, 9, 16), (3, 3, 1, 16), 1, "same", 1, 16),
    "depthwise, two each": ((2, 9, 9, 8), (3, 3, 1, 16), 2, "same", 1, 8),
    "one axis, causal": ((2, 20, 16), (3, 16, 8), 1, "causal", 2, 1),
    "three axes": ((2, 4, 6, 6, 8), (3, 3, 3, 8, 8), (2, 1, 1), "same", 1, 1),
    "three axes, groups": ((2, 4, 6, 6, 8), (3, 3, 3, 4, 8), 1, "same", 1, 2),
    "dilated": ((2, 12, 12, 8), (3, 3, 8, 8), 1, "same", 2, 1),
}

# query, key and value; other arguments
ATTENTIONS = {
    "plain": ((4, 64, 4, 64), (4, 64, 4, 64), {}),
    "causal, odd lengths": ((2, 33, 4, 32), (2, 33, 4, 32), {"is_causal": True}),
    "shared keys": ((2, 16, 8, 64), (2, 24, 2, 64), {"scale": 0.2}),
    "one target": ((2, 1, 4, 64), (2, 40, 4, 64), {}),
    "small": ((2, 5, 2, 8), (2, 7, 2, 8), {}),
    "mask": ((2, 16, 4, 32), (2, 20, 4, 32), {"mask": np.arange(20) < [[[[13]]], [[[20]]]]}),
    "sizes not in eights": ((2, 5, 2, 6), (2, 5, 2, 6), {}),
}


@pytest.fixture(params=["cuDNN", "without"])
def switched(request, monkeypatch):
    """Whether cuDNN is on."""
    monkeypatch.setenv("KERASISH_CUDNN", "1" if request.param == "cuDNN" else "0")
    return request.param == "cuDNN"


def check_convolution(gpu, name, dtype):
    """The op and its gradients are the CPU's; the same bits twice."""
    x, kernel, strides, padding, dilation, groups = CONVOLUTIONS[name]
    attrs = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
    checks.check_op(gpu, REGISTRY["convolution"], ((x, kernel), attrs), dtype)
    bits = []
    for _ in range(2):
        with kerasish.device(gpu.device), using_engine(gpu):
            rng = np.random.default_rng(0)
            given = [ops.cast(rng.standard_normal(s).astype("float32"), dtype) for s in (x, kernel)]
            y = REGISTRY["convolution"](*given, **attrs)
            slopes = derivatives["vjp"](
                lambda *a: REGISTRY["convolution"](*a, **attrs), given, [ops.ones_like(y)]
            )
            bits.append([t.numpy().tobytes() for t in (y, *slopes)])
    assert bits[0] == bits[1]


def check_attention(gpu, name, dtype, biased=False):
    """The result and the gradients are those of float32 on the CPU."""
    query, key, more = ATTENTIONS[name]
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(s).astype("float32") for s in (query, key, key)]
    if biased:
        arrays.append(rng.standard_normal((query[2], query[1], key[1])).astype("float32"))

    def f(*given):
        return ops.dot_product_attention(*given, **more)

    found = []
    for engine, kind in ((Eager(), "float32"), (gpu, dtype)):
        with kerasish.device(getattr(engine, "device", "cpu")), using_engine(engine):
            given = [ops.cast(kerasish.Tensor(a), kind) for a in arrays]
            y = f(*given)
            g = np.random.default_rng(5).standard_normal(y.shape).astype("float32")
            slopes = derivatives["vjp"](f, given, [ops.cast(g, kind)])
            found.append([ops.cast(t, "float32").numpy() for t in (y, *slopes)])
    for a, b in zip(found[1], found[0]):
        size = max(1.0, np.abs(b).max())
        np.testing.assert_allclose(a, b, rtol=0, atol=2 * checks.TOLERANCES[dtype] * size)


def check_transformer(gpu, dtype):
    """A layer's training step loses what it loses on the CPU."""
    x = np.random.default_rng(2).standard_normal((4, 24, 32)).astype("float32")
    values = []
    for engine in (Eager(), gpu):
        kerasish.utils.set_random_seed(1)
        layer = layers.MultiHeadAttention(4, 16, dtype=dtype)
        layer.build(x.shape, x.shape)

        def loss(x, layer=layer):
            y = layer(x, x, use_causal_mask=True)
            return ops.mean(ops.square(ops.cast(y, "float32")))

        step = kerasish.value_and_grad(loss, variables=layer.trainable_variables, argnums=0)
        value, slopes = engine.compile(step)(x)
        values.append([t.numpy() for t in (value, *kerasish.tree.flatten(slopes))])
    for b, a in zip(*values):
        tolerance = 0.1 if dtype != "float32" else 1e-4
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(1e-3, np.abs(b).max()))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(gpu, switched, name, dtype):
    check_convolution(gpu, name, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention(gpu, switched, name, dtype, biased):
    check_attention(gpu, name, dtype, biased)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_attention_layers(gpu, switched, dtype):
    check_transformer(gpu, dtype)


@pytest.mark.gpu
def test_cudnn_is_there_and_says_nothing(gpu):
    """Where cuDNN is installed, it is used, and no warning tells why not."""
    with gpu.xp.cuda.Device(gpu.device.index), warnings.catch_warnings():
        warnings.simplefilter("error")
        if cudnn.usable() is None:
            pytest.skip("cuDNN is not installed, or the engine is the fake's")
        cudnn._plan.cache_clear()
        check_convolution(gpu, "3x3", "bfloat16")
        assert cudnn._plan.cache_info().currsize == 3
        check_attention(gpu, "plain", "bfloat16")
        assert cudnn._plan.cache_info().currsize == 5


@pytest.mark.gpu
def test_plans_come_back_from_the_disk(gpu, monkeypatch, tmp_path):
    monkeypatch.setenv("KERASISH_CACHE_DIR", str(tmp_path))
    with gpu.xp.cuda.Device(gpu.device.index):
        if cudnn.usable() is None:
            pytest.skip("cuDNN is not installed, or the engine is the fake's")
    calls, build = [], cudnn.build

    def counted(*args):
        calls.append(args)
        return build(*args)

    monkeypatch.setattr(cudnn, "build", counted)
    for made in (5, 0):
        calls.clear()
        cudnn._plan.cache_clear()
        check_convolution(gpu, "groups", "float16")
        check_attention(gpu, "small", "float16")
        assert len(calls) == made


# --- the checks themselves, on the fake -------------------------------------------------------


@pytest.mark.parametrize("name", ["uneven", "depthwise", "one axis, causal"])
def test_convolutions_on_the_fake_gpu(fake_gpu, name):
    check_convolution(fake_gpu, name, "float16")


@pytest.mark.parametrize("name", ["small", "mask"])
def test_attention_on_the_fake_gpu(fake_gpu, name):
    check_attention(fake_gpu, name, "bfloat16", biased=True)


def test_attention_layers_on_the_fake_gpu(fake_gpu):
    check_transformer(fake_gpu, "mixed_bfloat16")
