"""Attention heads of the eager engine in one call, against the ops one by one."""

from __future__ import annotations

import numpy as np
import pytest

import kerasish
from kerasish import config, layers, ops
from kerasish.autodiff import grad
from kerasish.backends.eager import loop_attention
from kerasish.backends.loops import compile_heads
from kerasish.ops.networks.attention import attend

pytestmark = pytest.mark.skipif(
    compile_heads(False, False) is None, reason="no loops can be compiled here"
)
MASKS = {
    "none": None,
    "sources": lambda n, heads, targets, sources: (n, 1, 1, sources),
    "targets": lambda n, heads, targets, sources: (n, 1, targets, 1),
    "all": lambda *shape: shape,
    "matrix": lambda n, heads, targets, sources: (targets, sources),
}
SCALE = 0.3
# n, heads, targets, sources, size of queries, size of values
SIZES = [(2, 3, 7, 5, 6, 4), (2, 2, 17, 40, 20, 33), (1, 4, 1, 3, 1, 1)]


@pytest.fixture(autouse=True)
def _engine():
    before = config.backend()
    config.set_backend("eager")
    yield
    config.set_backend(before)


@pytest.fixture
def calls(monkeypatch):
    """Return the list of the native calls, as (backward, masked)."""
    seen = []

    def compiled(backward, masked):
        run = compile_heads(backward, masked)

        def counted(*args):
            seen.append((backward, masked))
            return run(*args)

        return counted

    monkeypatch.setattr(loop_attention, "_compiled", {})
    monkeypatch.setattr(loop_attention, "compile_heads", compiled)
    return seen


def weigh(logits, mask):
    return layers.Softmax()(logits, mask=mask)


def draw(sizes, mask="none"):
    rng = np.random.default_rng(0)
    n, heads, targets, sources, size, values = sizes
    shapes = [(n, targets, heads, size), (n, sources, heads, size), (n, sources, heads, values)]
    given = [rng.normal(size=s).astype("float32") for s in shapes]
    allowed = None
    if MASKS[mask]:
        allowed = rng.random(MASKS[mask](n, heads, targets, sources)) < 0.6
        allowed[..., :1, :] = False  # rows of which nothing counts
    return given, allowed, rng.normal(size=(n, targets, heads, values)).astype("float32")


def both(given, mask, factor, **options):
    """Return the result, and the gradients of its product with a factor."""

    def run(*given):
        return attend(*given, mask, weigh, scale=SCALE, **options)

    gradients = grad(lambda *x: ops.sum(run(*x) * factor), argnums=(0, 1, 2))(*given)
    return [np.asarray(y) for y in (run(*map(ops.convert_to_tensor, given)), *gradients)]


def close(results, wanted, rtol=1e-4, atol=1e-5):
    for a, b in zip(results, wanted, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_heads_are_those_of_the_ops(sizes, mask, calls, monkeypatch):
    given, allowed, factor = draw(sizes, mask)
    results = []
    for threads in (1, 2):
        with config.using_threads(threads):
            results.append(both(given, allowed, factor))
    masked = allowed is not None
    assert calls == [(False, masked), (True, masked), (False, masked)] * 2
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)
    monkeypatch.setattr(loop_attention, "LEAST", 1 << 40)
    close(results[0], both(given, allowed, factor))
    assert len(calls) == 6


def test_arrays_in_other_orders(calls, monkeypatch):
    (q, k, v), _, factor = draw((2, 3, 7, 5, 6, 4))
    given = [np.asfortranarray(q), k[::-1], np.repeat(v, 2, axis=3)[..., ::2]]
    allowed = np.asfortranarray(np.random.default_rng(1).random((7, 5)) < 0.5)
    results = both(given, allowed, factor[:, :, ::-1])
    assert calls
    monkeypatch.setattr(loop_attention, "LEAST", 1 << 40)
    close(results, both(given, allowed, factor[:, :, ::-1]))


def test_second_gradients_are_those_of_the_ops(calls, monkeypatch):
    given, allowed, factor = draw((2, 3, 4, 5, 3, 2), "all")

    def slopes(*given):
        def run(*x):
            return ops.sum(attend(*x, allowed, weigh, scale=SCALE) * factor)

        return ops.sum(sum(ops.sum(g**2) for g in grad(run, argnums=(0, 1, 2))(*given)))

    results = [np.asarray(g) for g in grad(slopes, argnums=(0, 1, 2))(*given)]
    assert (True, True) in calls
    monkeypatch.setattr(loop_attention, "LEAST", 1 << 40)
    close(results, [np.asarray(g) for g in grad(slopes, argnums=(0, 1, 2))(*given)], 1e-3, 1e-4)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_special_numbers(number, which, calls, monkeypatch):
    given, _, factor = draw((2, 2, 5, 6, 4, 3))
    given[which][1, 2, 1, 0] = number
    results = both(given, None, factor)
    assert calls
    monkeypatch.setattr(loop_attention, "LEAST", 1 << 40)
    for x, want in zip(results, both(given, None, factor), strict=True):
        fine = np.isfinite(want)
        np.testing.assert_allclose(x[fine], want[fine], rtol=1e-4, atol=1e-5)
        assert not np.isfinite(x[~fine]).any()


def test_what_the_ops_compute(calls):
    given, _, factor = draw((2, 2, 5, 6, 4, 3))
    both(given, None, factor, flash_attention=False)
    both([x.astype("float64") for x in given], None, factor.astype("float64"))
    both([x.astype("float16") for x in given], None, factor.astype("float16"))
    both(given, np.ones((2, 2, 5, 6), "float32"), factor)  # numbers as a mask
    both([x[:, :, :1] for x in given], None, factor[:, :, :1])  # few heads
    assert not calls


@pytest.mark.parametrize("options", [{}, {"use_causal_mask": True}, {"query_mask": True}], ids=str)
@pytest.mark.parametrize("kind", ["MultiHeadAttention", "GroupQueryAttention"])
def test_layers_train_as_with_the_ops(kind, options, calls, monkeypatch):
    heads = {"num_heads": 4, "key_dim": 6}
    if kind == "GroupQueryAttention":
        heads = {"num_query_heads": 4, "num_key_value_heads": 2, "head_dim": 6}
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(3, 9, 8)).astype("float32"), rng.normal(size=(3, 9, 8))
    given = {**options}
    if "query_mask" in given:
        given["query_mask"] = np.arange(9) < np.array([[9], [4], [0]])

    def train():
        kerasish.utils.set_random_seed(2)
        layer, optimizer = getattr(layers, kind)(**heads), kerasish.optimizers.SGD(0.1)
        for _ in range(3):
            with kerasish.GradientTape() as tape:
                loss = ops.mean((layer(x, x, **given) - y.astype("float32")) ** 2)
            values = layer.trainable_variables
            optimizer.apply(tape.gradient(loss, values), values)
        return [np.asarray(loss), *map(np.asarray, layer.variables)]

    results = train()
    assert {call[0] for call in calls} == {False, True}
    monkeypatch.setattr(loop_attention, "LEAST", 1 << 40)
    close(results, train())
