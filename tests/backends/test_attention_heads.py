"""Attention heads in a loop of our own, forward and backward, against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish import backends, config, layers, ops
from kerasish.autodiff import grad
from kerasish.backends.static.codegen import attention, kernels
from kerasish.backends.static.codegen.attention import Heads, HeadsOperand, Sizes
from kerasish.backends.static.engine import COMPILED_PLANS, Static
from kerasish.backends.static.lowering import attention as lowering
from kerasish.backends.static.lowering import build, program_threads
from kerasish.backends.static.lowering.attention import AttentionUnit
from kerasish.backends.static.machine import machine_code

HEADS, TURNED = (0, 2, 1, 3), (0, 2, 3, 1)
LOW = -1e9
MASKS = {
    "": None,
    "sources": lambda n, heads, targets, sources: (n, 1, 1, sources),
    "all": lambda *shape: shape,
    "places": lambda n, heads, targets, sources: (targets, sources),
}


def attend(q, k, v, mask=None, twice=True):
    logits = ops.matmul(ops.transpose(q, HEADS), ops.transpose(k, TURNED))
    logits = logits if mask is None else ops.where(mask, logits, LOW)
    weights = ops.softmax(logits)
    if mask is not None and twice:
        weights = ops.where(mask, weights, 0.0)
    return ops.transpose(ops.matmul(weights, ops.transpose(v, HEADS)), HEADS)


def step(factor, twice=True):
    """Return a function that gives the heads' result and the gradients of `factor` times it."""

    def loss(*arguments):
        return ops.sum(attend(*arguments, twice=twice) * factor)

    def both(*arguments):
        return (attend(*arguments, twice=twice), *grad(loss, argnums=(0, 1, 2))(*arguments))

    return both


def expected(factor, q, k, v, mask=None, twice=True):
    """Return the same by NumPy in float64."""
    q, k, v, g = (np.transpose(x.astype("float64"), HEADS) for x in (q, k, v, factor))
    with np.errstate(all="ignore"):
        x = q @ np.swapaxes(k, 2, 3)
        x = x if mask is None else np.where(mask, x, LOW)
        e = np.exp(x - x.max(-1, keepdims=True))
        plain = e / e.sum(-1, keepdims=True)
        weights = np.where(mask, plain, 0) if mask is not None and twice else plain
        dp = g @ np.swapaxes(v, 2, 3)
        dp = np.where(mask, dp, 0) if mask is not None and twice else dp
        dx = plain * (dp - (dp * plain).sum(-1, keepdims=True))
        dx = dx if mask is None else np.where(mask, dx, 0)
        results = weights @ v, dx @ k, np.swapaxes(dx, 2, 3) @ q, np.swapaxes(weights, 2, 3) @ g
    return [np.transpose(y, HEADS) for y in results]


def compute(function, *arguments):
    """Return the results of the static engine, and its units of heads."""
    COMPILED_PLANS.clear()
    compiled = Static().compile(function)
    results = compiled(*map(ops.convert_to_tensor, arguments))
    units = [u for e in compiled.executables() for u in e.units if isinstance(u, AttentionUnit)]
    return [np.asarray(r) for r in results], units


def draw(sizes, mask=""):
    """Return the arguments and the factor of the result.

    The sizes are those of n, heads, targets, sources, queries and values.
    """
    rng = np.random.default_rng(0)
    n, heads, targets, sources, size, values = sizes
    shapes = [(n, targets, heads, size), (n, sources, heads, size), (n, sources, heads, values)]
    arguments = [rng.normal(size=s).astype("float32") for s in shapes]
    if mask:
        allowed = rng.random(MASKS[mask](n, heads, targets, sources)) < 0.6
        allowed[..., :1, :] = False  # rows of which nothing counts
        arguments.append(allowed)
    return arguments, rng.normal(size=(n, targets, heads, values)).astype("float32")


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(
    "sizes", [(2, 3, 7, 5, 6, 4), (2, 2, 17, 40, 20, 33), (2, 2, 16, 32, 16, 16)], ids=str
)
@pytest.mark.parametrize("bytes_of_block", [1 << 17, 1])
def test_heads_and_their_gradients(sizes, mask, bytes_of_block, monkeypatch):
    """With one block of rows, and with several; equal bits with one thread and two."""
    monkeypatch.setattr(attention, "BLOCK_BYTES", bytes_of_block)
    monkeypatch.setattr(lowering, "GRAIN", 1)
    monkeypatch.setattr(program_threads, "SMALL_PROGRAM", 0)
    arguments, factor = draw(sizes, mask)
    results = []
    for threads in (1, 2):
        with config.using_threads(threads):
            got, units = compute(step(factor), *arguments)
        assert [(u.name, u.threads) for u in units] == [
            ("attention", threads), ("attention_gradient", threads)
        ]  # fmt: skip
        results.append(got)
    for x, y, want in zip(*results, expected(factor, *arguments), strict=True):
        np.testing.assert_array_equal(x, y)
        np.testing.assert_allclose(x, want, rtol=1e-4, atol=1e-5)


def test_a_mask_of_the_logits_alone():
    arguments, factor = draw((2, 2, 7, 5, 6, 4), "all")
    got, units = compute(step(factor, twice=False), *arguments)
    assert [u.kernel.twice for u in units] == [False, False]
    for x, want in zip(got, expected(factor, *arguments, twice=False), strict=True):
        np.testing.assert_allclose(x, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 1e30])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_special_numbers(number, which):
    """They come out where NumPy has them, and nowhere else."""
    arguments, factor = draw((2, 2, 5, 6, 4, 3))
    arguments[which][1, 2, 1, 0] = number
    got, units = compute(step(factor), *arguments)
    assert len(units) == 2
    with np.errstate(all="ignore"):
        wanted = [x.astype("float32") for x in expected(factor, *arguments)]
    for x, want in zip(got, wanted, strict=True):
        fine = np.isfinite(want)
        np.testing.assert_allclose(x[fine], want[fine], rtol=1e-4, atol=1e-5)
        assert not np.isfinite(x[~fine]).any()


@pytest.mark.parametrize("axes", [(1, 2, 0, 3), (2, 0, 1, 3), (0, 1, 2, 3), (0, 1, 3, 2)])
def test_the_result_is_written_in_the_order_of_its_reader(axes):
    arguments, factor = draw((2, 3, 5, 6, 4, 3))

    def turned(*arguments):
        return (ops.transpose(ops.transpose(attend(*arguments), HEADS), axes),)

    got, units = compute(turned, *arguments)
    want = np.transpose(expected(factor, *arguments)[0], HEADS)
    np.testing.assert_allclose(got[0], np.transpose(want, axes), rtol=1e-4, atol=1e-5)
    assert len(units) == 1


def test_without_the_unit_the_parts_are_lowered(monkeypatch):
    monkeypatch.setattr(build, "make_attention", lambda *arguments: None)
    for mask in ("", "all"):
        arguments, factor = draw((2, 2, 7, 5, 6, 4), mask)
        got, units = compute(step(factor), *arguments)
        assert not units
        for x, want in zip(got, expected(factor, *arguments), strict=True):
            np.testing.assert_allclose(x, want, rtol=1e-4, atol=1e-5)


def test_keys_whose_rows_lie_apart_are_lowered_in_parts():
    """Keys come as (n, heads, size, sources), as a product may give them."""
    arguments, factor = draw((2, 2, 7, 5, 6, 4))

    def heads(q, k, v):
        weights = ops.softmax(ops.matmul(ops.transpose(q, HEADS), k))
        return (ops.matmul(weights, ops.transpose(v, HEADS)),)

    q, k, v = arguments
    got, units = compute(heads, q, np.ascontiguousarray(np.transpose(k, TURNED)), v)
    assert not units
    np.testing.assert_allclose(
        np.transpose(got[0], HEADS), expected(factor, q, k, v)[0], rtol=1e-4, atol=1e-5
    )


def test_a_layer_trains_without_matrices_of_weights():
    """None of the values of its step has targets times sources elements."""
    layer = layers.MultiHeadAttention(2, 8)
    x = np.random.default_rng(0).normal(size=(3, 33, 12)).astype("float32")
    layer.build(x.shape, x.shape)

    def loss(x):
        return (grad(lambda x: ops.sum(layer(x, x, use_causal_mask=True) ** 2))(x),)

    got, units = compute(loss, x)
    assert [u.kernel for u in units] == [Heads(False, True, True), Heads(True, True, True)]
    want = backends.get("eager").compile(loss)(x)[0]
    np.testing.assert_allclose(got[0], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("level", ["sse", "avx2", "avx512"])
def test_code_for_each_level(level):
    for kernel in (Heads(masked=True), Heads(True, True, True)):
        assert kernels.compile_one(kernel, machine_code.host_target(level)) > 0


def test_wrong_arguments_are_errors():
    options = {"table": 0, "threads": 1, "scratch": 0, "low": 0.0}
    sizes = Sizes((1, 1), 2, 2, 2, 2)
    with pytest.raises(ValueError, match="expected 6 operands, got 1"):
        attention.pack(Heads(), **options, sizes=sizes, operands=[HeadsOperand(0, (1, 1, 1, 1))])
    with pytest.raises(ValueError, match="expected 4 strides"):
        attention.pack(Heads(), **options, sizes=sizes, operands=[HeadsOperand(0, (1, 1, 1))] * 6)


def test_blocks_of_rows_fit_into_the_cache():
    """At least 8 rows, whole tiles, at most all rows."""
    for targets, sources, rows in [(64, 64, 64), (512, 512, 64), (5, 4096, 5), (99, 1 << 20, 8)]:
        assert attention.block_rows(Sizes((1, 1), targets, sources, 8, 8)) == rows
