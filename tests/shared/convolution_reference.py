"""Convolution and pooling by loops over kernel positions, in float64: the tests' yardstick."""

import itertools

import numpy as np


def _positions(g):
    """Yield (kernel position, slices of the padded x that it meets)."""
    space = g.y_shape[1:-1]
    for at in itertools.product(*(range(size) for size in g.kernel)):
        starts = [i * d for i, d in zip(at, g.dilations)]
        slices = [
            slice(start, start + (size - 1) * step + 1, step)
            for start, size, step in zip(starts, space, g.strides)
        ]
        yield at, (slice(None), *slices)


def _padded(g, x, value=0.0):
    pads = [(0, 0), *g.padding, (0, 0)]
    return np.pad(x.astype(np.float64), pads, constant_values=value)


def _cropped(g, padded):
    inner = [slice(before, before + size) for (before, _), size in zip(g.padding, g.x_shape[1:-1])]
    return padded[(slice(None), *inner)]


def _channels(g, group):
    inputs, outputs = g.x_shape[-1] // g.groups, g.filters // g.groups
    return (
        slice(group * inputs, (group + 1) * inputs),
        slice(group * outputs, (group + 1) * outputs),
    )


def forward(g, x, w):
    padded, y = _padded(g, x), np.zeros(g.y_shape)
    for at, where in _positions(g):
        for group in range(g.groups):
            i, o = _channels(g, group)
            y[..., o] += padded[where][..., i] @ w.astype(np.float64)[at][:, o]
    return y


def data_gradient(g, dy, w):
    padded = np.zeros_like(_padded(g, np.zeros(g.x_shape)))
    for at, where in _positions(g):
        for group in range(g.groups):
            i, o = _channels(g, group)
            part = dy.astype(np.float64)[..., o] @ w.astype(np.float64)[at][:, o].T
            padded[where][..., i] += part
    return _cropped(g, padded)


def weights_gradient(g, x, dy):
    padded, dw = _padded(g, x), np.zeros(g.weights_shape)
    for at, where in _positions(g):
        for group in range(g.groups):
            i, o = _channels(g, group)
            left = padded[where][..., i].reshape(-1, i.stop - i.start)
            right = dy.astype(np.float64)[..., o].reshape(-1, o.stop - o.start)
            dw[at][:, o] = left.T @ right
    return dw


def columns(g, x):
    """im2col: (n * y's space, groups, kernel elements * c / groups)."""
    padded = _padded(g, x)
    rows = int(np.prod(g.y_shape[:-1]))
    parts = [padded[where].reshape(rows, g.groups, -1) for _, where in _positions(g)]
    return np.ascontiguousarray(np.concatenate(parts, axis=-1))


def scattered(g, dcolumns):
    """The adjoint of `columns`."""
    padded = np.zeros_like(_padded(g, np.zeros(g.x_shape)))
    depth = g.x_shape[-1] // g.groups
    for n, (_, where) in enumerate(_positions(g)):
        part = dcolumns[:, :, n * depth : (n + 1) * depth]
        padded[where] += part.reshape(padded[where].shape)
    return _cropped(g, padded)


def pool(kind, g, x):
    if kind == "max":
        padded = _padded(g, x, -np.inf)
        return np.max([padded[where] for _, where in _positions(g)], axis=0)
    total = np.sum([_padded(g, x)[where] for _, where in _positions(g)], axis=0)
    return total / _counts(g)


def _counts(g):
    ones = _padded(g, np.ones(g.x_shape))
    return np.sum([ones[where] for _, where in _positions(g)], axis=0)


def pool_gradient(kind, g, x, dy):
    if kind == "max":
        padded = _padded(g, x, -np.inf)
        actual = np.argmax([padded[where] for _, where in _positions(g)], axis=0)
        parts = [np.where(actual == n, dy, 0.0) for n, _ in enumerate(_positions(g))]
    else:
        parts = [dy / _counts(g)] * len(list(_positions(g)))
    result = np.zeros_like(_padded(g, np.zeros(g.x_shape)))
    for (_, where), part in zip(_positions(g), parts):
        result[where] += part
    return _cropped(g, result)
