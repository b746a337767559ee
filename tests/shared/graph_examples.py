"""Functions whose graphs the tests of tracing and of the passes share."""

from __future__ import annotations

import numpy as np

from kerasish import ops
from kerasish.autodiff import gradients_of
from kerasish.tensor import Variable


def array(*shape, seed=0):
    """Return fixed numbers of a shape."""
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def mlp_step():
    """Return (step, arguments) of a small network's training step."""
    rng = np.random.default_rng(1)
    first = Variable(rng.normal(size=(4, 8)).astype("float32"))
    bias = Variable(np.zeros(8, "float32"))
    second = Variable(rng.normal(size=(8, 3)).astype("float32"))
    variables = [first, bias, second]

    def step(x, y):
        hidden = ops.relu(ops.add(ops.matmul(x, first), bias))
        loss = ops.mean(
            ops.sparse_categorical_crossentropy(y, ops.matmul(hidden, second), from_logits=True)
        )
        for v, g in zip(variables, gradients_of(loss, variables), strict=True):
            v.assign(ops.subtract(v, ops.multiply(g, 0.1)))
        return loss

    return step, (array(5, 4), np.array([0, 1, 2, 1, 0], "int32"))


def normalize(x):
    """Layer normalization."""
    centered = ops.subtract(x, ops.mean(x, -1, keepdims=True))
    variance = ops.mean(ops.square(centered), -1, keepdims=True)
    return ops.multiply(centered, ops.rsqrt(ops.add(variance, 1e-3)))


def batch_moments(x):
    """Mean and variance of the columns, and the normalized columns."""
    mean = ops.mean(x, 0)
    variance = ops.mean(ops.square(ops.subtract(x, mean)), 0)
    return mean, variance, ops.divide(ops.subtract(x, mean), ops.sqrt(ops.add(variance, 1e-3)))


EXAMPLES = {
    "softmax": (lambda x: ops.softmax(x), (array(3, 5),)),
    "normalize": (normalize, (array(4, 6),)),
    "moments": (batch_moments, (array(6, 3),)),
    "groups": (lambda x: ops.mean(x, (1, 2)), (array(2, 3, 4, 5),)),
    "chain": (lambda x: ops.tanh(ops.multiply(ops.exp(x), 2.0)) + 1.0, (array(2, 3),)),
    "broadcast": (lambda x, y: ops.sum(x * y, 0), (array(3, 1, 4), array(2, 1, seed=1))),
    "moves": (
        lambda x: ops.concatenate([ops.transpose(x)[1:], ops.pad(x, ((0, 1), (1, 0)))[:3, :3]], 0),
        (array(3, 3),),
    ),
    "whole": (lambda x: ops.sum(ops.square(x)) / ops.max(x), (array(3, 4),)),
    "nothing": (lambda x: ops.sum(x, 0), (array(0, 3),)),
    "argmax": (lambda x: ops.argmax(x, -1), (array(4, 5),)),
    "rows then groups": (lambda x: ops.mean(ops.softmax(x), 1), (array(4, 7, 8),)),
    "rows then columns": (lambda x: ops.sum(ops.softmax(x), (0, 1)), (array(4, 7, 8),)),
    "one row": (lambda x: ops.softmax(x), (array(1, 6),)),
    "twice": (lambda x: ops.softmax(ops.softmax(x), axis=0), (array(4, 5),)),
}
