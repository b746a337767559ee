"""Functions that the engine of a GPU computes as a whole: values, gradients, gradients of those."""

from __future__ import annotations

import fake_cupy
import numpy as np
import pytest

import kerasish
from kerasish import layers, ops
from kerasish.backends.eager import Eager
from kerasish.backends.eager.cuda.fused_functions import FUSED_FUNCTIONS
from kerasish.ops.arrays.contraction import affine
from kerasish.ops.arrays.core import derivatives
from kerasish.ops.arrays.einsum import einsum_affine
from kerasish.ops.basic import statistics
from kerasish.ops.basic.conv import biased_conv
from kerasish.ops.basic.nonlinearity import relu_gradient
from kerasish.ops.networks import crossentropy
from kerasish.ops.networks.attention import attend
from kerasish.ops.networks.normalization import (
    group_normalization,
    standardize,
    standardize_batch,
)
from kerasish.ops.op import using_engine
from kerasish.ops.random import dropout
from kerasish.optimizers.clipping import norm_factor

STATE, CLASSES = np.array([3, 4], "uint32"), np.array([0, 4, 2], "int32")
RECTIFIED = np.maximum(np.arange(-7.0, 8.0, dtype="float32"), 0).reshape(3, 5)
MOVING = np.arange(1.0, 6.0, dtype="float32")

# name -> (function of floating inputs, their shapes, the kernel it must come to)
CASES = {
    "softmax": (ops.softmax, [(3, 5)], "softmax"),
    "log_softmax": (lambda x: ops.log_softmax(x, axis=2), [(2, 3, 5)], "softmax"),
    "gelu": (ops.gelu, [(3, 5)], "bias_activation"),
    "gelu by erf": (lambda x: ops.gelu(x, False), [(3, 5)], "bias_activation"),
    "silu": (ops.silu, [(3, 5)], "bias_activation"),
    "class loss": (
        lambda x: ops.sparse_categorical_crossentropy(CLASSES, x, from_logits=True),
        [(3, 5)], "class_loss",
    ),
    "target loss": (
        lambda t, x: ops.categorical_crossentropy(t, x, from_logits=True),
        [(3, 5), (3, 5)], "target_loss",
    ),
    "layer norm": (
        lambda x, a, b: ops.layer_normalization(x, a, b, epsilon=0.1),
        [(2, 3, 5), (5,), (5,)], "normalize",
    ),
    "group norm": (
        lambda x, a, b: group_normalization(x, 2, a, b, epsilon=0.1),
        [(2, 3, 6), (6,), (6,)], "normalize",
    ),
    "rms norm": (
        lambda x, a: ops.rms_normalization(x, a, epsilon=0.1), [(4, 5), (5,)], "normalize",
    ),
    "affine": (affine, [(3, 5), (5, 4), (4,)], "bias_activation"),
    "affine of pictures, relu": (
        lambda x, k, b: affine(x, k, b, True), [(2, 3, 5), (5, 4), (4,)],
        "bias_activation_gradient",
    ),
    "affine without a bias, relu": (
        lambda x, k: affine(x, k, None, True), [(3, 5), (5, 4)], "bias_activation_gradient",
    ),
    "einsum of heads": (
        lambda x, k, b: einsum_affine("abc,cde->abde", x, k, b),
        [(2, 3, 5), (5, 2, 4), (2, 4)], "bias_activation",
    ),
    "einsum of heads, relu": (
        lambda x, k, b: einsum_affine("...cd,cde->...e", x, k, b, True),
        [(2, 3, 2, 5), (2, 5, 4), (4,)], "bias_activation_gradient",
    ),
    "attention": (
        lambda q, k, v: attend(q, k, v, None, lambda x, _: ops.softmax(x), scale=0.5),
        [(2, 3, 2, 4), (2, 5, 2, 4), (2, 5, 2, 6)], "steps_first",
    ),
    "mean of rows": (lambda x: ops.mean(x, 1), [(3, 5, 4)], "divide"),
    "norm factor": (
        lambda a, b: norm_factor([a, b], 1.5), [(3, 5), (2, 3, 5)], "norm_of_parts",
    ),
    "batch norm": (
        lambda x, a, b: standardize(x, *ops.moments(x, (0, 1)), a, b, epsilon=0.1),
        [(2, 3, 5), (5,), (5,)], "batch_gradient",
    ),
    "relu gradient": (
        lambda g: relu_gradient(g, RECTIFIED), [(3, 5)], "bias_activation_gradient",
    ),
    "batch norm, training": (
        lambda x, a, b: standardize_batch(x, a, b, MOVING, MOVING, epsilon=0.1)[0],
        [(2, 3, 5), (5,), (5,)], "batch_totals",
    ),
    "batch norm by other moments": (
        lambda x, m, v, a, b: standardize(x, m, ops.exp(v), a, b),
        [(2, 3, 5)] + [(5,)] * 4, "scale_shift",
    ),
    "mean": (lambda x: ops.mean(x, (0, 2), True), [(3, 5, 4)], "mean"),
    "moments": (lambda x: ops.moments(x, (0, 1)), [(2, 3, 5)], "moment_parts"),
    "dropout": (lambda x: dropout(STATE, x, 0.4), [(3, 5)], "dropout"),
}  # fmt: skip


def test_each_whole_has_a_case():
    named = {
        "gelu by erf": "gelu",
        "mean of rows": "mean",
        "batch norm by other moments": "batch norm",
    }
    affine_too = {n: n[:6] for n in CASES if n.startswith(("affine", "einsum"))}
    # cuDNN does these: test_attention.py, test_cudnn.py
    elsewhere = {ops.dot_product_attention, biased_conv}
    elsewhere |= {crossentropy.class_hits, statistics.running_sums}  # test_metrics.py
    cases = {(named | affine_too).get(n, n) for n in CASES}
    assert len(cases) == len(FUSED_FUNCTIONS.keys() - elsewhere)


def _derived(f, inputs, arriving):
    """Return [results], [gradients], [gradients of these], given what arrives at each."""
    rng = np.random.default_rng(8)

    def first(*inputs):
        return derivatives["vjp"](f, list(inputs), arriving)

    results = f(*inputs)
    results = list(results) if isinstance(results, tuple) else [results]
    gradients = first(*inputs)
    again = [rng.standard_normal(g.shape).astype("float32") for g in gradients]
    again = [kerasish.Tensor(a) for a in again]
    second = derivatives["vjp"](lambda *xs: first(*xs), list(inputs), again)
    kept = [g for g in second if g is not None]
    return [[ops.convert_to_numpy(r) for r in some] for some in (results, gradients, kept)]


@pytest.mark.parametrize("name", sorted(CASES))
def test_fused_functions_and_their_derivatives(gpu, name):
    f, shapes, kernel = CASES[name]
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(s).astype("float32") for s in shapes]

    def derive():
        inputs = [kerasish.Tensor(a) for a in arrays]
        with kerasish.device("cpu"), using_engine(Eager()):
            made = f(*arrays)
        made = made if isinstance(made, tuple) else (made,)
        shapes = [m.shape for m in made]
        arriving = np.random.default_rng(5)
        g = [kerasish.Tensor(arriving.standard_normal(s).astype("float32")) for s in shapes]
        return _derived(f, inputs, g)

    with using_engine(Eager()):
        expected = derive()
    fake_cupy.work.clear()
    with kerasish.device("gpu"), using_engine(gpu):
        found = derive()
    assert fake_cupy.work.launches[kernel]
    for some, others in zip(found, expected):
        assert len(some) == len(others)
        for a, b in zip(some, others):
            size = max(1.0, np.abs(b).max(initial=0))
            np.testing.assert_allclose(a, b, rtol=0, atol=3e-5 * size)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: ops.softmax(x, axis=0),
        lambda x: ops.softmax(x, axis=None),
        lambda x: ops.softmax(ops.cast(x, "float64")),
        lambda x: ops.layer_normalization(x),
        lambda x: ops.silu(x[:0]),
        lambda x: ops.rms_normalization(x),
        lambda x: group_normalization(ops.reshape(x, (3, 5, 1)), 5, axis=1),
        lambda x: ops.moments(x, (1,))[0],
        lambda x: ops.moments(x, (0,), keepdims=True)[1],
        lambda x: dropout(STATE, x, 0.5, (3, 1)),
        lambda x: ops.sparse_categorical_crossentropy(CLASSES, ops.softmax(x, axis=0)),
        lambda x: ops.categorical_crossentropy(x, ops.exp(x)),
    ],
)
def test_what_no_kernel_computes_whole_is_composed(gpu, f):
    x = np.random.default_rng(1).standard_normal((3, 5)).astype("float32")
    with using_engine(Eager()):
        expected = ops.convert_to_numpy(f(kerasish.Tensor(x)))
    fake_cupy.launches.clear()
    with kerasish.device("gpu"), using_engine(gpu):
        found = ops.convert_to_numpy(f(kerasish.Tensor(x)))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    fused = {"softmax", "normalize", "moment_parts", "dropout", "class_loss", "bias_activation"}
    assert not fused & set(fake_cupy.launches)


def test_half_numbers_keep_their_dtype(gpu):
    x = np.random.default_rng(1).standard_normal((3, 8)).astype("float16")
    with kerasish.device("gpu"), using_engine(gpu):
        for f in (ops.softmax, ops.gelu, lambda x: ops.moments(x, (0,))[1]):
            assert f(kerasish.Tensor(x)).dtype == "float16"


@pytest.mark.parametrize(
    ("layer", "kernel"),
    [
        (lambda: layers.LayerNormalization(), "normalize_gradient"),
        (lambda: layers.RMSNormalization(), "normalize_gradient"),
        (lambda: layers.GroupNormalization(2), "normalize_gradient"),
        (lambda: layers.BatchNormalization(), "batch_gradient"),
        (lambda: layers.Softmax(), "softmax_gradient"),
        (lambda: layers.Dropout(0.5, seed=3), "dropout"),
    ],
)
def test_layers_come_to_these(gpu, layer, kernel):
    x = np.random.default_rng(2).standard_normal((6, 4, 8)).astype("float32")

    def derive():
        kerasish.utils.set_random_seed(1)
        made = layer()
        found = derivatives["vjp"](lambda x: made(x, training=True), [kerasish.Tensor(x)], [x])
        return ops.convert_to_numpy(found[0])

    with using_engine(Eager()):
        expected = derive()
    fake_cupy.launches.clear()
    with kerasish.device("gpu"), using_engine(gpu):
        found = derive()
    np.testing.assert_allclose(found, expected, rtol=0, atol=3e-5)
    assert fake_cupy.launches[kernel]
