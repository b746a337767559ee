"""Attention by cuDNN: whole where it does it, composed where not; seen on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
from cudnn_on_cpu import Frontend

import kerasish
from kerasish import config, layers, ops
from kerasish.backends.eager import Eager
from kerasish.backends.eager.cuda import cudnn
from kerasish.ops.arrays.core import derivatives
from kerasish.ops.op import using_engine

TOLERANCES = {"float16": 6e-3, "bfloat16": 5e-2}


@pytest.fixture
def lib(monkeypatch):
    made = Frontend()
    monkeypatch.setenv("KERASISH_CACHE_DIR", "")
    monkeypatch.delenv("KERASISH_CUDNN", raising=False)
    monkeypatch.setattr(cudnn, "library", lambda version: made)
    monkeypatch.setattr(cudnn, "_kind_of", lambda index: "a GPU 9.0 132")
    monkeypatch.setattr(cudnn, "_failed", set())
    monkeypatch.setattr(config._Settings, "flash_attention", None)
    cudnn._plan.cache_clear()
    cudnn._handle.cache_clear()
    yield made
    cudnn._plan.cache_clear()
    cudnn._handle.cache_clear()


@pytest.fixture
def gpu(lib, gpu):
    return gpu


# batch, heads, key heads, targets, sources, size, value size
SIZES = [
    (2, 2, 2, 5, 5, 8, 8),
    (1, 4, 2, 3, 7, 16, 8),
    (2, 6, 1, 4, 4, 8, 16),
    (3, 1, 1, 1, 6, 8, 8),
]


def _inputs(sizes, dtype):
    n, h, hk, t, s, d, dv = sizes
    rng = np.random.default_rng(4)
    shapes = ((n, t, h, d), (n, s, hk, d), (n, s, hk, dv))
    return [rng.standard_normal(shape).astype("float32") for shape in shapes]


def _derive(f, inputs, dtype, again=False):
    """Return the result, the gradients and, if asked for, the gradients of these."""
    rng = np.random.default_rng(6)
    given = [ops.cast(kerasish.Tensor(x), dtype) for x in inputs]
    y = f(*given)
    g = ops.cast(kerasish.Tensor(rng.standard_normal(y.shape).astype("float32")), dtype)
    slopes = derivatives["vjp"](f, given, [g])
    found = [y, *slopes]
    if again:
        arriving = [
            ops.cast(kerasish.Tensor(rng.standard_normal(x.shape).astype("float32")), dtype)
            for x in inputs
        ]
        found += derivatives["vjp"](lambda *x: derivatives["vjp"](f, list(x), [g]), given, arriving)
    return [ops.convert_to_numpy(ops.cast(x, "float32")) for x in found]


def _compare(gpu, f, inputs, dtype, again=False):
    with using_engine(Eager()):
        expected = _derive(f, inputs, "float32", again)
    with kerasish.device("gpu"), using_engine(gpu):
        found = _derive(f, inputs, dtype, again)
    assert len(found) == len(expected)
    for a, b in zip(found, expected):
        size = max(1.0, np.abs(b).max())
        np.testing.assert_allclose(a, b, rtol=0, atol=TOLERANCES.get(dtype, 1e-5) * size)


def _asked(lib):
    return lib.asked.get("execute", 0)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_attention_and_its_gradients(gpu, lib, sizes, dtype, causal):
    def f(q, k, v):
        return ops.dot_product_attention(q, k, v, is_causal=causal)

    _compare(gpu, f, _inputs(sizes, dtype), dtype)
    assert _asked(lib) == 3  # the result twice, all gradients at once


@pytest.mark.parametrize("shape", [(5,), (1, 5), (4, 5), (2, 1, 1, 5), (1, 2, 4, 5), (2, 2, 4, 5)])
@pytest.mark.parametrize("kind", ["bias", "mask", "both"])
def test_bias_and_mask(gpu, lib, kind, shape):
    rng = np.random.default_rng(1)
    more = {}
    if kind != "mask":
        more["bias"] = rng.standard_normal(shape).astype("float32")
    if kind != "bias":
        more["mask"] = rng.random(shape) < 0.7
        more["mask"][..., 0] = True

    def f(q, k, v):
        return ops.dot_product_attention(q, k, v, scale=0.3, **more)

    _compare(gpu, f, _inputs((2, 2, 2, 4, 5, 8, 8), "float16"), "float16")
    assert _asked(lib) == 3


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shape", [(4, 5), (2, 1, 1, 5), (2, 2, 4, 5)])
def test_a_bias_gets_its_gradient(gpu, lib, shape, masked):
    inputs = _inputs((2, 2, 2, 4, 5, 8, 8), "float16")
    inputs.append(np.random.default_rng(1).standard_normal(shape).astype("float32"))
    mask = np.arange(5) < 3 if masked else None

    def f(q, k, v, bias):
        return ops.dot_product_attention(q, k, v, bias=bias, mask=mask)

    _compare(gpu, f, inputs, "float16")
    assert _asked(lib) == 3


def test_gradients_of_gradients_are_composed(gpu, lib):
    inputs = _inputs((1, 2, 2, 3, 4, 8, 8), "float16")
    inputs.append(np.random.default_rng(1).standard_normal((3, 4)).astype("float32"))
    _compare(gpu, ops.dot_product_attention, inputs, "float16", again=True)
    assert _asked(lib) > 3


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_row_that_may_attend_to_nothing_leaves_the_others_alone(gpu, lib, dtype):
    mask = np.arange(3)[:, None] != np.array([[1, 1, 1, 1]])

    def f(q, k, v):
        found = ops.dot_product_attention(q, k, v, mask=mask)
        return found[:, ::2]

    _compare(gpu, f, _inputs((1, 2, 2, 3, 4, 8, 8), dtype), dtype)
    q, k, v = (kerasish.Tensor(x) for x in _inputs((1, 2, 2, 3, 4, 8, 8), dtype))
    with kerasish.device("gpu"), using_engine(gpu):
        given = [ops.cast(x, dtype) for x in (q, k, v)]
        found = ops.cast(ops.dot_product_attention(*given, mask=mask), "float32").numpy()
    assert np.abs(found[:, 1]).max() <= np.abs(v.numpy()).max() * 1.01
    assert lib.asked["execute"] == 4


COMPOSED = {
    "float32": ((2, 2, 2, 5, 5, 8, 8), "float32", {}),
    "sizes not in eights": ((2, 2, 2, 5, 5, 6, 8), "float16", {}),
    "value sizes not in eights": ((2, 2, 2, 5, 5, 8, 4), "float16", {}),
    "a cap": ((2, 2, 2, 5, 5, 8, 8), "float16", {"attn_logits_soft_cap": 3.0}),
    "asked to": ((2, 2, 2, 5, 5, 8, 8), "float16", {"flash_attention": False}),
}


@pytest.mark.parametrize("name", sorted(COMPOSED))
def test_what_cudnn_does_not_do_is_composed(gpu, lib, name):
    sizes, dtype, more = COMPOSED[name]

    def f(q, k, v):
        return ops.dot_product_attention(q, k, v, **more)

    _compare(gpu, f, _inputs(sizes, dtype), dtype)
    assert not lib.asked


@pytest.mark.parametrize("why", ["the setting", "the switch", "forward", "gradient"])
def test_it_is_composed_where_it_is_off_or_refused(gpu, lib, monkeypatch, why):
    if why == "the setting":
        config.disable_flash_attention()
    elif why == "the switch":
        monkeypatch.setenv("KERASISH_CUDNN", "0")
    else:
        name = "attention" if why == "forward" else "attention_gradient"
        lib.refuse = lambda nodes: nodes[0][0] == name
    _compare(gpu, ops.dot_product_attention, _inputs(SIZES[0], "float16"), "float16")
    assert _asked(lib) == (1 if why == "gradient" else 0)  # the first result wants no gradient


def test_wrong_shapes_are_told_as_ever(gpu, lib):
    q, k, v = (kerasish.Tensor(x.astype("float16")) for x in _inputs((2, 3, 2, 4, 4, 8, 8), ""))
    with (
        using_engine(gpu),
        pytest.raises(ValueError, match="3 heads are no multiple of the key's 2"),
    ):
        ops.dot_product_attention(q, k, v)
    with using_engine(gpu), pytest.raises(ValueError, match="must have the shape"):
        ops.dot_product_attention(q[0], k, v)


@pytest.mark.parametrize("flash", [None, True, False])
def test_layers_come_to_it(gpu, lib, flash):
    x = np.random.default_rng(2).standard_normal((3, 6, 16)).astype("float32")
    results = []
    for engine, dtype in ((Eager(), "float32"), (gpu, "mixed_bfloat16")):
        kerasish.utils.set_random_seed(1)
        layer = layers.MultiHeadAttention(2, 8, flash_attention=flash, dtype=dtype)
        layer.build(x.shape, x.shape)
        step = kerasish.value_and_grad(
            lambda x: ops.sum(ops.square(ops.cast(layer(x, x, use_causal_mask=True), "float32"))),  # noqa: B023
            variables=layer.trainable_variables, argnums=0,
        )  # fmt: skip
        value, slopes = engine.compile(step)(x)
        results.append([t.numpy() for t in (value, *kerasish.tree.flatten(slopes))])
    for a, b in zip(*results):
        np.testing.assert_allclose(b, a, rtol=0, atol=0.08 * np.abs(a).max())
    assert _asked(lib) == (0 if flash is False else 2)
