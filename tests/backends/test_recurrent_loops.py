"""The loops of recurrent cells against NumPy, forward and by finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish.backends.static.codegen import recurrent
from kerasish.backends.static.codegen.arguments import Operand

ROWS, UNITS = 5, 13


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(z, c):
    i, f, g, o = np.split(z, 4, axis=1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return c, sigmoid(o) * np.tanh(c)


def gru(x, y, h):
    (xz, xr, xh), (hz, hr, hh) = np.split(x, 3, axis=1), np.split(y, 3, axis=1)
    z, r = sigmoid(xz + hz), sigmoid(xr + hr)
    n = np.tanh(xh + r * hh)
    return z * h + (1 - z) * n


def gates(matrix, count):
    width = matrix.shape[1]
    return [Operand(matrix.ctypes.data + 8 * UNITS * k, (width,)) for k in range(count)]


def slope(function, x, weight, step=1e-6):
    """d sum(weight * function(x)) / dx by central differences."""
    result = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        for sign in (1, -1):
            moved = x.copy()
            moved[at] += sign * step
            result[at] += sign * (weight * function(moved)).sum() / (2 * step)
    return result


@pytest.mark.parametrize("masked", [False, True])
def test_lstm(run_kernel, masked):
    z, c, h = numbers(ROWS, 4 * UNITS), numbers(ROWS, UNITS, seed=1), numbers(ROWS, UNITS, seed=2)
    mask = np.array([True, False, True, True, False]) if masked else np.ones(ROWS, bool)
    more = [h, mask] if masked else []
    saved, new_c, new_h = z.copy(), np.zeros_like(c), np.zeros_like(h)
    places = gates(saved, 4)
    kernel = recurrent.lstm_forward("float64", masked)
    run_kernel(kernel, [*places, c, *more, *places, new_c, new_h], rows=ROWS, columns=UNITS)
    expected_c, expected_h = lstm(z, c)
    m = mask[:, None]
    np.testing.assert_allclose(new_c, np.where(m, expected_c, c), rtol=1e-12)
    np.testing.assert_allclose(new_h, np.where(m, expected_h, h), rtol=1e-12)

    dh, dc, past = numbers(ROWS, UNITS, seed=3), numbers(ROWS, UNITS, seed=4), np.zeros_like(h)
    old_dc = np.zeros_like(c)
    kernel = recurrent.lstm_backward("float64", masked)
    ends = [past] if masked else []
    more = [mask] if masked else []
    run_kernel(
        kernel, [*places, c, expected_c, dh, dc, *more, *places, old_dc, *ends],
        rows=ROWS, columns=UNITS,
    )  # fmt: skip

    def both(z, c):
        return np.concatenate(lstm(z, c), axis=1)

    weight = np.concatenate([dc, dh], axis=1)
    dz = slope(lambda v: both(v, c), z, weight)
    np.testing.assert_allclose(saved, np.where(m, dz, 0), atol=1e-8)
    through = slope(lambda v: both(z, v), c, weight)
    np.testing.assert_allclose(old_dc, np.where(m, through, dc), atol=1e-8)
    np.testing.assert_allclose(past, np.where(m, 0, dh))


@pytest.mark.parametrize("masked", [False, True])
def test_gru(run_kernel, masked):
    x, y = numbers(ROWS, 3 * UNITS), numbers(ROWS, 3 * UNITS, seed=1)
    h, dh = numbers(ROWS, UNITS, seed=2), numbers(ROWS, UNITS, seed=3)
    mask = np.array([True, False, True, True, False]) if masked else np.ones(ROWS, bool)
    more, m = [mask] if masked else [], mask[:, None]
    saved, new = np.zeros_like(x), np.zeros_like(h)
    kernel = recurrent.gru_forward("float64", masked)
    operands = [*gates(x, 3), *gates(y, 3), h, *more, *gates(saved, 3), new]
    run_kernel(kernel, operands, rows=ROWS, columns=UNITS)
    np.testing.assert_allclose(new, np.where(m, gru(x, y, h), h), rtol=1e-12)
    dx, dhh, past = np.zeros_like(x), np.zeros_like(h), np.zeros_like(h)
    kernel = recurrent.gru_backward("float64", masked)
    operands = [*gates(saved, 3), gates(y, 3)[2], h, dh, *more, *gates(dx, 3), dhh, past]
    run_kernel(kernel, operands, rows=ROWS, columns=UNITS)
    np.testing.assert_allclose(
        dx, np.where(m, slope(lambda v: gru(v, y, h), x, dh), 0), atol=1e-8
    )  # fmt: skip
    dy = slope(lambda v: gru(x, v, h), y, dh)
    np.testing.assert_allclose(dhh, np.where(m, dy[:, 2 * UNITS :], 0), atol=1e-8)
    direct = slope(lambda v: gru(x, y, v), h, dh)
    np.testing.assert_allclose(past, np.where(m, direct, dh), atol=1e-8)


def test_simple(run_kernel):
    z, dh = numbers(ROWS, UNITS), numbers(ROWS, UNITS, seed=1)
    h, dz = np.zeros_like(z), np.zeros_like(z)
    run_kernel(recurrent.simple_forward("float64"), [z, h], rows=ROWS, columns=UNITS)
    np.testing.assert_allclose(h, np.tanh(z), rtol=1e-12)
    run_kernel(recurrent.simple_backward("float64"), [h, dh, dz], rows=ROWS, columns=UNITS)
    np.testing.assert_allclose(dz, dh * (1 - np.tanh(z) ** 2), rtol=1e-10)
