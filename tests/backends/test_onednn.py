"""oneDNN's primitives against NumPy, over shapes, strides, dtypes, post-ops and threads."""

import gc
import math
import os
import subprocess
import sys
import threading

import convolution_reference as reference
import numpy as np
import pytest

from kerasish.backends import onednn
from kerasish.backends.onednn import Buffer, Geometry, native
from kerasish.backends.onednn import library as onednn_library
from kerasish.backends.onednn import primitive as onednn_primitive
from kerasish.backends.onednn.renamed_library import load_renamed

pytestmark = pytest.mark.skipif(bool(native.available()), reason=f"no oneDNN: {native.available()}")
RNG = np.random.default_rng(7)


def random(*shape, dtype="float32"):
    return RNG.standard_normal(shape).astype(dtype)


@pytest.fixture(name="scratch", params=["as here", "always"])
def _scratch(request, monkeypatch):
    """Scratchpads as this processor needs them, and one for every primitive, as others may.

    oneDNN does not touch a scratchpad that it did not request.
    """
    asked = onednn_primitive._optional

    def answer(descriptor, what, index=0):
        result = asked(descriptor, what, index)
        if what == onednn_library.QUERY_SCRATCHPAD and result is None and request.param == "always":
            return onednn.strided((4096,), (1,), "uint8")
        return result

    monkeypatch.setattr(onednn_primitive, "_optional", answer)
    onednn.clear_cache()
    gc.collect()
    yield request.param
    onednn.clear_cache()
    gc.collect()


def run(primitive, **buffers):
    """Bind (with scratchpad and workspace of the right size, if not given) and run."""
    binding = primitive.bind({**primitive.scratch(), **buffers})
    binding.execute()
    return binding


def moved(array, source, destination):
    """Copy an array of layout `source` into new memory of layout `destination`."""
    if source == destination:
        return array
    out = np.zeros(destination.nbytes, np.uint8)
    run(onednn.reorder(source, destination), source=array, destination=out)
    return out


def close(got, expected, tolerance=2e-5):
    scale = max(1.0, float(np.max(np.abs(expected))))
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * scale)


# oneDNN reads its level once: each of these runs in a process of its own. Those above this
# processor's own change nothing.
each_level = pytest.mark.parametrize(
    "level",
    [{}, {"ONEDNN_MAX_CPU_ISA": "AVX2"}, {"ONEDNN_MAX_CPU_ISA": "SSE41"}],
    ids=["as here", "AVX2", "SSE 4.1"],
)

# ---------------------------------------------------------------------------------------- matmul


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(
    ("batch", "m", "k", "n"),
    [((), 1, 1, 1), ((), 32, 20, 32), ((), 7, 13, 5), ((), 1, 64, 33), ((), 65, 1, 3),
     ((), 128, 130, 64), ((3,), 5, 6, 7), ((2, 3), 8, 4, 16)],
)  # fmt: skip
def test_matmul_is_numpys(batch, m, k, n, transposed, threads):
    left, right = transposed
    a = random(*batch, *((k, m) if left else (m, k)))
    b = random(*batch, *((n, k) if right else (k, n)))
    out = np.full((*batch, m, n), np.nan, np.float32)
    product = onednn.matmul(
        (*batch, m, k), (*batch, k, n), transpose_a=left, transpose_b=right, threads=threads
    )
    run(product, a=a, b=b, out=out)
    close(out, (np.swapaxes(a, -1, -2) if left else a) @ (np.swapaxes(b, -1, -2) if right else b))


@pytest.mark.parametrize(
    ("a_shape", "b_shape"),
    [
        ((4, 5, 6), (6, 7)),
        ((5, 6), (3, 6, 7)),
        ((2, 1, 5, 6), (1, 3, 6, 7)),
        ((4, 5, 6), (1, 6, 7)),
    ],
)
def test_matmul_broadcasts_batches(a_shape, b_shape):
    a, b = random(*a_shape), random(*b_shape)
    out = np.empty((a @ b).shape, np.float32)
    run(onednn.matmul(a_shape, b_shape), a=a, b=b, out=out)
    close(out, a @ b)


def test_matmul_of_slices_of_larger_arrays():
    whole_a, whole_b, whole_out = random(10, 40), random(30, 50), np.zeros((10, 60), np.float32)
    a, b, out = whole_a[:, 5:25], whole_b[4:24, 7:37], whole_out[:, 11:41]
    product = onednn.matmul(
        (10, 20), (20, 30), a_strides=(40, 1), b_strides=(50, 1), out_strides=(60, 1)
    )
    run(product, a=a, b=b, out=out)
    close(out, a @ b)
    assert not whole_out[:, :11].any()
    assert not whole_out[:, 41:].any()


def test_heads_of_attention_lie_inside_one_array():
    n, t, heads, d = 3, 9, 4, 8
    q, k = random(n, t, heads, d), random(n, t, heads, d)
    out = np.empty((n, heads, t, t), np.float32)
    steps = (t * heads * d, d, heads * d, 1)
    turned = (t * heads * d, d, 1, heads * d)
    product = onednn.matmul((n, heads, t, d), (n, heads, d, t), a_strides=steps, b_strides=turned)
    run(product, a=q, b=k, out=out)
    close(out, np.einsum("nthd,nshd->nhts", q, k))


_erf = np.vectorize(math.erf)
ELTWISE = {
    ("relu",): lambda x: np.maximum(x, 0),
    ("relu", 0.2): lambda x: np.where(x > 0, x, 0.2 * x),
    ("tanh",): np.tanh,
    ("logistic",): lambda x: 1 / (1 + np.exp(-x)),
    ("elu", 1.5): lambda x: np.where(x > 0, x, 1.5 * np.expm1(x)),
    ("gelu_erf",): lambda x: x * 0.5 * (1 + _erf(x / np.sqrt(2))),
    ("gelu_tanh",): lambda x: x * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    ("swish",): lambda x: x / (1 + np.exp(-x)),
    ("soft_relu",): lambda x: np.log1p(np.exp(x)),
    ("linear", 2.0, 1.0): lambda x: 2 * x + 1,
    ("clip", -0.5, 0.75): lambda x: np.clip(x, -0.5, 0.75),
    ("square",): np.square,
    ("abs",): np.abs,
    ("exp",): np.exp,
    ("mish",): lambda x: x * np.tanh(np.log1p(np.exp(x))),
    ("hard_swish", 1 / 6, 0.5): lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    ("hard_sigmoid", 1 / 6, 0.5): lambda x: np.clip(x / 6 + 0.5, 0, 1),
}


@pytest.mark.parametrize("post", ELTWISE, ids=str)
def test_bias_and_activation_after_the_product(post):
    a, b, bias = random(24, 10) / 4, random(10, 18), random(18)
    out = np.empty((24, 18), np.float32)
    product = onednn.matmul((24, 10), (10, 18), bias="float32", post=[post])
    run(product, a=a, b=b, bias=bias, out=out)
    close(out, ELTWISE[post]((a @ b + bias).astype(np.float64)), 2e-4)


@pytest.mark.parametrize("shape", [(24, 18), (1, 18), (24, 1), (18,)])
@pytest.mark.parametrize("name", ["add", "mul", "sub", "max"])
def test_operands_of_post_operations_broadcast(name, shape):
    a, b, other = random(24, 10), random(10, 18), random(*shape)
    out = np.empty((24, 18), np.float32)
    product = onednn.matmul((24, 10), (10, 18), post=[("relu",), (name, shape)])
    run(product, a=a, b=b, out=out, post1=other)
    function = {"add": np.add, "mul": np.multiply, "sub": np.subtract, "max": np.maximum}[name]
    close(out, function(np.maximum(a @ b, 0), other))


@pytest.mark.parametrize("batch", [(), (3,)])
def test_sum_adds_to_what_was_there(batch):
    a, b, before = random(*batch, 9, 10), random(*batch, 10, 8), random(*batch, 9, 8)
    out = before.copy()
    run(onednn.matmul(a.shape, b.shape, post=[("sum", 0.5), ("relu",)]), a=a, b=b, out=out)
    close(out, np.maximum(a @ b + 0.5 * before, 0))


@pytest.mark.parametrize("out_dtype", ["float32", "bfloat16"])
def test_bfloat16_products_are_right_where_the_processor_has_them(out_dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    bf16 = ml_dtypes.bfloat16
    a, b = random(16, 32).astype(bf16), random(32, 24).astype(bf16)
    out = np.empty((16, 24), bf16 if out_dtype == "bfloat16" else np.float32)
    try:
        product = onednn.matmul((16, 32), (32, 24), dtype="bfloat16", out_dtype=out_dtype)
    except onednn.Unsupported:
        pytest.skip("this processor has no bfloat16 instructions")
    run(product, a=a, b=b, out=out)
    expected = a.astype(np.float32) @ b.astype(np.float32)
    close(out.astype(np.float32), expected, 1e-4 if out_dtype == "float32" else 1e-2)


def test_a_chosen_layout_of_b_is_reordered():
    a, b, out = random(64, 48), random(48, 96), np.empty((64, 96), np.float32)
    product = onednn.matmul((64, 48), (48, 96), b_layout="any")
    plain = onednn.strided((48, 96), (96, 1), "float32")
    run(product, a=a, b=moved(b, plain, product.required["b"]), out=out)
    close(out, a @ b)


# ----------------------------------------------------------------------------------- convolution

GEOMETRIES = {
    "1x1": Geometry((2, 5, 6, 8), 16, (1, 1)),
    "same": Geometry((2, 9, 8, 3), 5, (3, 3), padding=((1, 1), (1, 1))),
    "first": Geometry((3, 16, 16, 3), 16, (3, 3), padding=((1, 1), (1, 1))),
    "wide": Geometry((2, 8, 8, 16), 32, (3, 3), padding=((1, 1), (1, 1))),
    "odd": Geometry((1, 11, 7, 13), 19, (5, 2)),
    "strided": Geometry((2, 9, 10, 8), 16, (3, 3), (2, 2), padding=((0, 1), (1, 1))),
    "strided 1x1": Geometry((2, 8, 8, 16), 8, (1, 1), (2, 2)),
    "dilated": Geometry((2, 12, 12, 8), 8, (3, 3), dilations=(2, 3), padding=((2, 2), (3, 3))),
    "uneven": Geometry((2, 7, 9, 4), 6, (4, 3), padding=((3, 0), (1, 2))),
    "groups": Geometry((2, 8, 8, 16), 32, (3, 3), padding=((1, 1), (1, 1)), groups=4),
    "odd groups": Geometry((2, 6, 6, 6), 9, (3, 3), groups=3),
    "depthwise": Geometry((2, 9, 9, 24), 24, (3, 3), padding=((1, 1), (1, 1)), groups=24),
    "depthwise twice": Geometry((2, 8, 8, 5), 10, (3, 3), (2, 2), groups=5),
    "1-D": Geometry((3, 20, 6), 8, (5,), (2,), padding=((2, 1),)),
    "causal": Geometry((2, 15, 4), 4, (3,), dilations=(2,), padding=((4, 0),)),
    "3-D": Geometry((1, 5, 6, 7, 4), 8, (2, 3, 2), padding=((1, 0), (1, 1), (0, 1))),
    "one pixel": Geometry((4, 1, 1, 3), 2, (1, 1)),
}
each_geometry = pytest.mark.parametrize("g", GEOMETRIES.values(), ids=GEOMETRIES)


@pytest.mark.parametrize("threads", [1, 2])
@each_geometry
def test_convolution_is_the_references(g, threads):
    x, w, bias = random(*g.x_shape), random(*g.weights_shape), random(g.filters)
    y = np.full(g.y_shape, np.nan, np.float32)
    conv = onednn.convolution(g, bias="float32", threads=threads)
    weights = moved(w, onednn.plain_weights(g), conv.arguments["weights"])
    run(conv, x=x, weights=weights, bias=bias, y=y)
    close(y, reference.forward(g, x, w) + bias)


@each_geometry
def test_data_gradient_is_the_references(g):
    dy, w = random(*g.y_shape), random(*g.weights_shape)
    dx = np.full(g.x_shape, np.nan, np.float32)
    conv = onednn.convolution_data_gradient(g)
    weights = moved(w, onednn.plain_weights(g), conv.arguments["weights"])
    run(conv, dy=dy, weights=weights, dx=dx)
    close(dx, reference.data_gradient(g, dy, w))


@pytest.mark.parametrize("threads", [1, 2])
@each_geometry
def test_weights_gradient_is_the_references(g, threads):
    x, dy = random(*g.x_shape), random(*g.y_shape)
    conv = onednn.convolution_weights_gradient(g, threads=threads)
    chosen, plain = conv.arguments["dweights"], onednn.plain_weights(g)
    blocked = np.zeros(chosen.nbytes, np.uint8)
    run(conv, x=x, dy=dy, dweights=blocked)
    dw = np.empty(g.weights_shape, np.float32)
    if chosen == plain:
        dw = blocked.view(np.float32).reshape(g.weights_shape)
    else:
        run(onednn.reorder(chosen, plain), source=blocked, destination=dw)
    close(dw, reference.weights_gradient(g, x, dy))


def test_residual_and_relu_after_a_convolution():
    g = GEOMETRIES["wide"]
    x, w, residual = random(*g.x_shape), random(*g.weights_shape), random(*g.y_shape)
    conv = onednn.convolution(g, post=[("add", g.y_shape), ("relu",)])
    weights = moved(w, onednn.plain_weights(g), conv.arguments["weights"])
    y = np.zeros(g.y_shape, np.float32)
    run(conv, x=x, weights=weights, post0=residual, y=y)
    close(y, np.maximum(reference.forward(g, x, w) + residual, 0))


def test_sum_after_a_convolution():
    g = GEOMETRIES["wide"]
    x, w, before = random(*g.x_shape), random(*g.weights_shape), random(*g.y_shape)
    conv = onednn.convolution(g, post=[("sum", 1.0)])
    y = before.copy()
    weights = moved(w, onednn.plain_weights(g), conv.arguments["weights"])
    run(conv, x=x, weights=weights, y=y)
    close(y, reference.forward(g, x, w) + before)


def test_transposed_convolution_is_the_data_gradient():
    n, height, inputs, outputs = 2, 5, 6, 4
    g = Geometry(
        (n, 2 * height, 2 * height, outputs), inputs, (3, 3), (2, 2), padding=((0, 1),) * 2
    )
    x, kernel = random(n, height, height, inputs), random(3, 3, outputs, inputs)
    y = np.empty(g.x_shape, np.float32)
    conv = onednn.convolution_data_gradient(g)
    weights = moved(kernel, onednn.plain_weights(g), conv.arguments["weights"])
    run(conv, dy=x, weights=weights, dx=y)
    # y[2 i + a - 0, 2 j + b] += x[i, j] @ kernel[a, b].T, cropped to the output.
    full = np.zeros((n, 2 * height + 1, 2 * height + 1, outputs))
    for a in range(3):
        for b in range(3):
            part = x.astype(np.float64) @ kernel[a, b].T
            full[:, a : a + 2 * height : 2, b : b + 2 * height : 2] += part
    close(y, full[:, :-1, :-1])


# --------------------------------------------------------------------------------------- pooling

POOLS = {
    "2x2": onednn.pooling_geometry((2, 8, 8, 16), (2, 2)),
    "overlap": onednn.pooling_geometry((2, 9, 7, 5), (3, 3), (2, 2), ((1, 1), (0, 1))),
    "1-D": onednn.pooling_geometry((3, 11, 4), (3,), (2,)),
    "3-D": onednn.pooling_geometry((2, 4, 6, 5, 8), (2, 3, 2), (1, 2, 2), ((0, 1), (1, 1), (0, 0))),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["max", "average"])
@pytest.mark.parametrize("g", POOLS.values(), ids=POOLS)
def test_pooling_and_its_gradient(kind, g, threads):
    x, dy = random(*g.x_shape), random(*g.y_shape)
    y, dx = np.empty(g.y_shape, np.float32), np.full(g.x_shape, np.nan, np.float32)
    forward = onednn.pool_forward(kind, g, training=True, threads=threads)
    assert (forward.workspace is not None) == (kind == "max")
    kept = {}
    if forward.workspace:
        kept["workspace"] = np.zeros(forward.workspace.nbytes, np.uint8)
    run(forward, x=x, y=y, **kept)
    close(y, reference.pool(kind, g, x))
    run(onednn.pool_backward(kind, g, threads=threads), dy=dy, dx=dx, **kept)
    close(dx, reference.pool_gradient(kind, g, x, dy))


def test_inference_needs_no_workspace():
    g = POOLS["2x2"]
    x, y = random(*g.x_shape), np.empty(g.y_shape, np.float32)
    forward = onednn.pool_forward("max", g)
    assert forward.workspace is None
    run(forward, x=x, y=y)
    close(y, reference.pool("max", g, x))


# --------------------------------------------------------------------------------------- reorder


def test_reorder_transposes_and_converts():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = random(6, 7)
    source = onednn.strided((6, 7), (7, 1), "float32")
    turned = np.zeros((7, 6), np.float32)
    run(
        onednn.reorder(source, onednn.strided((6, 7), (1, 6), "float32")),
        source=x,
        destination=turned,
    )
    np.testing.assert_array_equal(turned, x.T)
    narrow = np.zeros((6, 7), ml_dtypes.bfloat16)
    wide = onednn.strided((6, 7), (7, 1), "bfloat16")
    run(onednn.reorder(source, wide), source=x, destination=narrow)
    np.testing.assert_array_equal(narrow, x.astype(ml_dtypes.bfloat16))


# ------------------------------------------------------------------------- what must be refused


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: onednn.matmul((2, 3), (4, 5)), "a's last size 3"),
        (lambda: onednn.matmul((3,), (3, 5)), "expected 2 to 12 axes"),
        (lambda: onednn.matmul((0, 3), (3, 5)), "integers of 1 or more"),
        (lambda: onednn.matmul((2, 2.5), (3, 5)), "integers of 1 or more"),
        (lambda: onednn.matmul((2, 4, 3), (3, 3, 5)), "do not broadcast"),
        (lambda: onednn.matmul((2, 3), (3, 5), dtype="complex64"), "expected a dtype"),
        (lambda: onednn.matmul((2, 3), (3, 5), a_strides=(3,)), "got strides"),
        (lambda: onednn.matmul((2, 3), (3, 5), a_strides=(0, 1)), "stride of 0"),
        (lambda: onednn.matmul((2, 3), (3, 5), a_strides=(3, -1)), "integers of 0 or more"),
        (lambda: onednn.matmul((2, 3), (3, 5), a_strides=(1, 2), transpose_a=True), "not both"),
        (lambda: onednn.matmul((2, 3), (3, 5), post=[("rleu",)]), "unknown post-op"),
        (lambda: onednn.matmul((2, 3), (3, 5), post=[("add", (3, 5))]), "does not broadcast"),
        (lambda: onednn.matmul((2, 3), (3, 5), post=[("add",)]), "needs the shape"),
        (lambda: onednn.matmul((2, 3), (3, 5), b_layout="best"), "'plain' or 'any'"),
        (lambda: onednn.matmul((2, 3), (3, 5), threads=0), "1 or more"),
        (lambda: Geometry((1, 2, 2, 3), 4, (3, 3)), "larger than the padded input"),
        (lambda: Geometry((1, 5, 5, 3), 4, (3, 3), groups=2), "do not split"),
        (lambda: Geometry((1, 5, 5, 3), 4, (3,)), "need 2 entries"),
        (lambda: Geometry((1, 5, 5, 3), 4, (3, 3), (0, 1)), "integers of 1 or more"),
        (lambda: onednn.convolution(GEOMETRIES["same"], dtype="float99"), "expected a dtype"),
        (lambda: onednn.matmul((2, 3), (3, 5), b_layout="x"), "'plain' or 'any'"),
        (lambda: onednn.pool_forward("min", POOLS["2x2"]), "kind must be"),
        (lambda: onednn.pool_forward("max", GEOMETRIES["same"]), "pooling_geometry"),
        (
            lambda: onednn.pool_forward(
                "max", onednn.pooling_geometry((1, 4, 4, 1), (2, 2), (), ((2, 0), (0, 0)))
            ),
            "smaller than the window",
        ),
        (
            lambda: onednn.reorder(
                onednn.strided((2, 3), (3, 1), "float32"), onednn.strided((3, 2), (2, 1), "float32")
            ),
            "equal dims",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_right_is_refused_with_the_reason(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_an_unsupported_dtype_names_primitive_and_shapes():
    with pytest.raises(onednn.OneDnnError, match=r"matmul \(2, 3\) @ \(3, 5\) int32"):
        onednn.matmul((2, 3), (3, 5), dtype="int32")


def test_buffers_are_checked_before_anything_runs(scratch):
    product = onednn.matmul((4, 5), (5, 6))
    a, b, out = random(4, 5), random(5, 6), np.empty((4, 6), np.float32)
    right = {"a": a, "b": b, "out": out, **product.scratch()}
    assert set(right) == set(product.arguments)
    for name in right:
        with pytest.raises(ValueError, match=rf"missing \['{name}'\]"):
            product.bind({k: v for k, v in right.items() if k != name})
    with pytest.raises(ValueError, match=r"unknown \['c'\]"):
        product.bind({**right, "c": out})
    with pytest.raises(ValueError, match="needs 96 bytes"):
        product.bind({**right, "out": out[:3]})
    with pytest.raises(ValueError, match="no address"):
        product.bind({**right, "a": Buffer(0, 80)})
    with pytest.raises(ValueError, match="must be a Buffer"):
        product.bind({**right, "a": [1.0] * 20})
    binding = product.bind(right)
    with pytest.raises(ValueError, match="needs 80 bytes"):
        binding.rebind("a", a[:2])
    with pytest.raises(ValueError, match="no argument 'x'"):
        binding.rebind("x", a)
    binding.execute()
    close(out, a @ b)


# -------------------------------------------------------------- binding, cache, memory, threads


def test_rebinding_takes_other_memory(scratch):
    product = onednn.matmul((4, 5), (5, 6))
    a, b, out = random(4, 5), random(5, 6), np.empty((4, 6), np.float32)
    binding = run(product, a=a, b=b, out=out)
    other, second = random(4, 5), np.empty((4, 6), np.float32)
    binding.rebind("a", other)
    binding.rebind("out", Buffer(second.ctypes.data, second.nbytes))
    binding.execute()
    close(out, a @ b)
    close(second, other @ b)


def test_the_same_is_made_once():
    first = onednn.matmul((4, 5), (5, 7), post=[("relu",)])
    assert onednn.matmul((4, 5), (5, 7), post=["relu"]) is first
    assert onednn.matmul((4, 5), (5, 7), a_strides=(5, 1), post=[("relu", 0.0)]) is first
    assert onednn.matmul((4, 5), (5, 7)) is not first
    g = Geometry((2, 5, 5, 3), 4, (3, 3))
    assert onednn.convolution(g) is onednn.convolution(Geometry((2, 5, 5, 3), 4, (3, 3), (1, 1)))


def test_many_threads_make_and_run_at_once():
    failures = []

    def work(seed):
        try:
            for n in range(20):
                size = 8 + (seed + n) % 5
                a, b = random(size, 40), random(40, 50)
                out = np.empty((size, 50), np.float32)
                run(onednn.matmul((size, 40), (40, 50)), a=a, b=b, out=out)
                close(out, a @ b)
        except Exception as error:  # noqa: BLE001  (handed to the main thread)
            failures.append(error)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


def _resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
def test_memory_does_not_grow(scratch):
    a, b, out = random(8, 8), random(8, 8), np.empty((8, 8), np.float32)

    def work(count):
        for n in range(count):
            product = onednn.matmul((8, 8), (8, 8), post=[("linear", 1.0, float(n % 7))])
            run(product, a=a, b=b, out=out)
            if n % 50 == 0:
                onednn.clear_cache()
        gc.collect()

    work(1000)
    before = _resident()
    work(4000)
    assert _resident() - before < 4 << 20


def test_a_block_runs_on_the_driver(scratch):
    driver = pytest.importorskip("kerasish.backends.static.codegen.driver")
    pytest.importorskip("llvmlite")
    runtime = driver.load_runtime()
    a, b, out = random(33, 20), random(20, 32), np.empty((33, 32), np.float32)
    product = onednn.matmul((33, 20), (20, 32), threads=1)
    binding = product.bind({"a": a, "b": b, "out": out, **product.scratch()})
    one, back = onednn.threads_block(1), onednn.threads_block(native.openmp_threads())
    records = [
        driver.Record(runtime.call_threads, one, "threads"),
        driver.Record(runtime.call_dnnl, binding.block, product.name),
        driver.Record(runtime.call_threads, back, "threads"),
    ]
    before = native.openmp_threads()
    driver.Program(records).run()
    close(out, a @ b)
    assert native.openmp_threads() == before


# ----------------------------------------------------------------- the library itself, threads


def _python(code, **environment):
    clean = {
        k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_", "KERASISH_"))
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**clean, **environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.slow
def test_omp_num_threads_and_set_threads_and_limits_are_obeyed():
    code = "from kerasish.backends.onednn import native as n; print(n.get_threads())"
    assert _python(code, OMP_NUM_THREADS="1") == ["1"]
    assert _python(code, OMP_NUM_THREADS="3") == ["3"]
    code = """
from kerasish import config
from kerasish.backends.onednn import native as n
n.available(); config.set_threads(5); print(n.get_threads())
from threadpoolctl import threadpool_limits
with threadpool_limits(1): print(n.get_threads(), n.threads_for(1e9, 1))
print(n.get_threads(), n.threads_for(10, 100), n.threads_for(250, 100))
"""
    assert _python(code, OMP_NUM_THREADS="4") == ["5", "1", "1", "5", "1", "2"]


def test_switched_off_or_absent_it_says_why():
    code = "from kerasish.backends.onednn import native as n; print(n.available())"
    assert "switched" in _python(code, KERASISH_ONEDNN="off")
    text = " ".join(_python(code, KERASISH_ONEDNN="/nowhere/libdnnl.so.3"))
    assert "/nowhere/libdnnl.so.3" in text
    assert "pip install onednn-cpu-gomp" in text


def test_the_environment_is_left_as_it_was():
    code = """
import os
from kerasish.backends.onednn import native as n
n.available(); print("GOMP_SPINCOUNT" in os.environ)
"""
    assert _python(code) == ["False"]


@each_level
def test_without_a_system_openmp_scikit_learns_copy_serves(level):
    assert native._bundled_openmp(), "scikit-learn's wheel has no libgomp here"
    code = """
from kerasish.backends.onednn import native as n
n._State.openmp = n.load_renamed(n._bundled_openmp()[0], "libgomp.so.1")
n._State.openmp_reason = ""
print(bool(n.available()), bool(n.symbol("GOMP_parallel")))
maps = open("/proc/self/maps").read().splitlines()
print(all("memfd" in line for line in maps if "libgomp" in line))
import numpy as np
from kerasish.backends import onednn
a = np.ones((64, 300), "float32"); out = np.zeros((64, 64), "float32")
product = onednn.matmul((64, 300), (300, 64), transpose_b=True, threads=2)
product.bind({"a": a, "b": a, "out": out, **product.scratch()}).execute()
print(out.min(), out.max())
"""
    got = _python(code, OMP_NUM_THREADS="2", **level)
    assert got == ["False", "True", "True", "300.0", "300.0"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"text\0libx-12345678.so\0",
        b"\x7fELF" + bytes(100),
        b"\x7fELF\0libx-12345678.so.1\0",
        b"\x7fELF" + 2 * b"\0libx-12345678.so\0",
    ],
)
def test_only_a_library_of_its_own_name_is_renamed(tmp_path, content):
    path = tmp_path / "libx-12345678.so"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="contains its file's name once"):
        load_renamed(str(path), "libx.so")


def test_a_library_gets_no_longer_name(tmp_path):
    path = tmp_path / "libx.so"
    path.write_bytes(b"\x7fELF\0libx.so\0")
    with pytest.raises(ValueError, match="'libx.so.1' is longer"):
        load_renamed(str(path), "libx.so.1")
    with pytest.raises(OSError, match="."):
        load_renamed(str(path), "liby.so")


@each_level
def test_a_forked_child_gets_an_error_or_one_thread_never_a_hang(level):
    code = """
import os, signal
import numpy as np
from kerasish.backends import onednn
from kerasish.backends.onednn import native
from kerasish.backends.onednn import library as onednn_library, primitive as onednn_primitive
a = np.ones((256, 256), "float32"); out = np.zeros((256, 256), "float32")
product = onednn.matmul((256, 256), (256, 256), threads=2)
def bind(product):
    return product.bind({"a": a, "b": a, "out": out, **product.scratch()})
binding = bind(product); binding.execute()
single = bind(onednn.matmul((256, 256), (256, 256), threads=1))
pid = os.fork()
if not pid:
    signal.alarm(20)
    assert native.forked() and native.get_threads() == 1
    try:
        binding.execute()
    except onednn.OneDnnError as error:
        assert "before a fork" in str(error)
    else:
        os._exit(3)
    single.execute()
    again = onednn.matmul((256, 256), (256, 256), threads=2)
    assert again.threads == 1
    out[:] = 0
    bind(again).execute()
    os._exit(0 if (out == 256).all() else 4)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
binding.execute()
print(out.min())
"""
    assert _python(code, OMP_NUM_THREADS="2", **level) == ["0", "256.0"]
