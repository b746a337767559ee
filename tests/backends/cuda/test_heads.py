"""Attention by products on a GPU: heads are moved by one launch each way."""

from __future__ import annotations

import fake_cupy
import numpy as np
import pytest
from cuda_on_cpu import DTYPES, dtype_of, numbers, put, wide

import kerasish
from kerasish import layers, ops
from kerasish.backends.eager import Eager
from kerasish.backends.eager.cuda import blas, heads
from kerasish.ops.networks.attention import attend
from kerasish.ops.op import using_engine

# n, targets, sources, heads, size, size of values
SIZES = [(2, 5, 4, 3, 8, 16), (1, 3, 3, 2, 5, 8), (3, 1, 7, 1, 4, 6), (2, 4, 4, 2, 16, 16)]


def _three(sizes, dtype, offset=0):
    n, targets, sources, many, size, v_size = sizes
    shapes = [(n, targets, many, size), (n, sources, many, size), (n, sources, many, v_size)]
    return [numbers(s, dtype, offset, seed=i) for i, s in enumerate(shapes)]


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", SIZES)
def test_heads_and_steps_change_places(cuda, sizes, dtype, offset):
    given = _three(sizes, dtype, offset)
    factor = dtype_of(dtype).type(0.3)
    moved = heads.heads_first(given, 0.3)
    expected = [(np.array(given[0]) * factor), *map(np.array, given[1:])]
    for a, b in zip(moved, expected):
        assert a.dtype == dtype_of(dtype)
        np.testing.assert_array_equal(wide(a), wide(b.transpose(0, 2, 1, 3)))
    back = heads.steps_first(moved)
    for a, b in zip(back, expected):
        np.testing.assert_array_equal(wide(a), wide(b))
    (alone,) = heads.heads_first(given[2:])
    np.testing.assert_array_equal(wide(alone), wide(given[2]).transpose(0, 2, 1, 3))
    assert cuda.launches == {"heads_first": 2, "steps_first": 1}


def test_not_a_number_and_nothing_are_moved_too(cuda):
    x = put(np.array([[[[np.nan, np.inf]], [[1, 2]]]], "float32"))
    np.testing.assert_array_equal(heads.heads_first([x])[0], np.array(x).transpose(0, 2, 1, 3))
    empty = put(np.ones((0, 2, 3, 4), "float32"))
    assert heads.heads_first([empty] * 3)[0].shape == (0, 3, 2, 4)
    assert cuda.launches == {"heads_first": 1}


def _trained(engine, device):
    kerasish.utils.set_random_seed(1)
    x = np.random.default_rng(2).standard_normal((3, 6, 16)).astype("float32")
    mask = np.arange(6) < np.array([[4], [6], [1]])
    with kerasish.device(device), using_engine(engine):
        layer = layers.MultiHeadAttention(2, 8, value_dim=4)
        layer.build(x.shape, x.shape)
        x, mask = kerasish.Tensor(x), kerasish.Tensor(mask)
        layer(x, x)  # variables are where they are used
        step = kerasish.value_and_grad(
            lambda x: ops.sum(ops.square(layer(x, x, key_mask=mask, use_causal_mask=True))),
            variables=layer.trainable_variables, argnums=0,
        )  # fmt: skip
        fake_cupy.work.clear()
        value, slopes = step(x)
        return [t.numpy() for t in (value, *kerasish.tree.flatten(slopes))]


@pytest.mark.parametrize("there", [True, False])
def test_a_layer_trains_as_on_the_cpu(gpu, cublaslt_on_cpu, monkeypatch, there):
    """By products of cuBLASLt, and by CuPy's where it is not there."""
    monkeypatch.setattr(blas, "library", lambda version: cublaslt_on_cpu if there else None)
    cublaslt_on_cpu.stub_fail(0)
    expected, found = _trained(Eager(), "cpu"), _trained(gpu, "gpu")
    for a, b in zip(found, expected):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-6 * np.abs(b).max())
    launches = fake_cupy.work.launches
    moved = {name: launches[name] for name in ("heads_first", "steps_first")}
    # There and back for three arrays at once and for the result.
    assert moved == {"heads_first": 2, "steps_first": 2}
    assert launches["copy"] + launches["reshape"] == 0
    assert launches["multiply"] == 2  # of the square's gradient


def _weighed(q, k, v):
    y = attend(q, k, v, None, lambda logits, mask: ops.softmax(logits), False, None, 0.3)
    return ops.sum(ops.sin(y))


REFUSED = {
    "constants": (SIZES[0], {"argnums": 0}),
    "other heads": ((2, 5, 4, 1, 8, 16), {"argnums": (0, 1, 2)}),
}


@pytest.mark.parametrize("name", [*REFUSED, "all"])
def test_it_is_left_to_ops_where_it_would_compute_too_much(gpu, name):
    sizes, options = REFUSED.get(name, (SIZES[0], {"argnums": (0, 1, 2)}))
    arrays = [np.array(x) for x in _three(sizes, "float32")]
    if name == "other heads":  # keys and values that all heads share: the products broadcast
        arrays[0] = np.array(numbers((2, 5, 3, 8), "float32"))
    results = []
    for engine, device in ((Eager(), "cpu"), (gpu, "gpu")):
        fake_cupy.work.clear()
        with kerasish.device(device), using_engine(engine):
            given = [kerasish.Tensor(x) for x in arrays]
            found = kerasish.value_and_grad(_weighed, **options)(*given)
            results.append([t.numpy() for t in kerasish.tree.flatten(found)])
    for a, b in zip(*results):
        np.testing.assert_allclose(b, a, rtol=0, atol=2e-6 * np.abs(a).max())
    assert fake_cupy.work.launches["heads_first"] == (2 if name == "all" else 0)
