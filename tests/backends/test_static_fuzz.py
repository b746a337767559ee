"""Random computations: the static engine gives what the eager one gives."""

from __future__ import annotations

import os

import numpy as np
import pytest

from kerasish import backends, ops

COUNT = int(os.environ.get("KERASISH_FUZZ", "60"))


def computation(seed):
    """Return (function, arguments): a random chain of ops on arrays of related shapes."""
    rng = np.random.default_rng(seed)
    frame = tuple(int(s) for s in rng.integers(1, 7, size=rng.integers(1, 5)))

    def shape():
        kept = rng.random(len(frame)) < 0.7
        sizes = [s if k else 1 for s, k in zip(frame, kept, strict=True)]
        return tuple(sizes[int(rng.integers(0, len(frame))) :]) if rng.random() < 0.3 else (
            tuple(sizes)
        )  # fmt: skip

    arrays = [rng.normal(size=frame).astype("float32")]
    arrays += [rng.normal(size=shape()).astype("float32") for _ in range(rng.integers(1, 4))]
    plan = [tuple(rng.integers(0, 1000, size=6)) for _ in range(rng.integers(3, 14))]

    def function(*inputs):
        values = list(inputs)
        for kind, a, b, axis, keep, more in plan:
            x, y = values[a % len(values)], values[b % len(values)]
            values.append(apply(kind % 14, x, y, axis, keep % 2, more))
        return tuple(values[len(inputs) :][::2]) + (values[-1],)

    def apply(kind, x, y, axis, keep, more):
        rank = len(x.shape)
        if kind < 5:
            try:
                np.broadcast_shapes(x.shape, y.shape)
            except ValueError:
                return ops.tanh(x)
            f = (ops.add, ops.multiply, ops.subtract, ops.maximum, choose)[kind]
            return ops.clip(f(x, y), -9.0, 9.0)
        if kind == 5:
            return ops.exp(ops.minimum(x, 1.0))
        if kind in (6, 7, 8) and rank:
            axes = tuple(sorted({axis % rank, more % rank})) if more % 3 else (axis % rank,)
            f = (ops.sum, ops.max, ops.mean)[kind - 6]
            return ops.tanh(f(x, axes, keepdims=bool(keep)))
        if kind == 9 and rank:
            return ops.softmax(x, axis % rank)
        if kind == 10 and rank > 1:
            return ops.transpose(x, np.random.default_rng(more).permutation(rank).tolist())
        if kind == 11:
            return ops.reshape(x, (-1,)) if more % 2 else ops.reshape(x, (1, *x.shape, 1))
        if kind == 12 and rank:
            return ops.concatenate([x, x * 0.5], axis % rank)
        if kind == 13 and rank:
            return ops.sum(ops.square(x)) + x
        return ops.sigmoid(x)

    return function, arrays


def choose(x, y):
    """The larger distance from zero, by a comparison and a choice."""
    return ops.where(ops.greater(ops.absolute(x), ops.absolute(y)), x, y)


@pytest.mark.parametrize("seed", range(COUNT))
def test_random_computation(seed):
    function, arrays = computation(seed)
    expected = function(*arrays)
    got = backends.get("static").compile(function)(*arrays)
    for a, b in zip(got, expected, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-4, atol=2e-5)
