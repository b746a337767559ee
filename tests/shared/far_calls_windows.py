"""Calls of kernels on more than 2^32 elements: windows, recurrent steps, optimizers.

See far_calls.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from cuda_on_cpu import Function, put
from far_arrays import MANY, far, last
from far_calls import HALF, check_close, launch_all
from kernel_calls import UPDATES

from kerasish.backends.eager.cuda import (
    KERNELS,
    convolution,
    kernels,
    recurrent,
    update,
)
from kerasish.backends.eager.cuda.window import divisor

SIDE = 64
PICTURES = MANY // SIDE**2


# --- windows --------------------------------------------------------------------------------------

CORNER = {"size": (3, 3), "strides": (1, 1), "padding": ((1, 1), (1, 1))}
WINDOWS = {"strides": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}


def _pictures(value, channels=1):
    return last(value, PICTURES // channels, SIDE, SIDE, channels)


def _pool_largest():
    y = KERNELS["pool_max"](_pictures(5), **CORNER)
    assert [y[-1, -1, -1, 0], y[-1, -2, -2, 0], y[-1, -3, -3, 0]] == [5, 5, 0]


def _pool_largest_gradient():
    dx = KERNELS["pool_max_gradient"](_pictures([2, 3]), _pictures(5), **CORNER)
    assert dx[-1, -1, -1, 0] == 5


def _pool_pick():
    assert KERNELS["pool_max_select"](_pictures(7), _pictures(5), **CORNER)[-1, -1, -1, 0] == 7


def _pool_mean():
    assert KERNELS["pool_average"](_pictures(8), **CORNER)[-1, -1, -1, 0] == 2


def _pool_mean_gradient():
    dx = KERNELS["pool_average_gradient"](_pictures(8), sizes=(SIDE, SIDE), **CORNER)
    assert dx[-1, -2, -1, 0] == 2


def _setting(channels=8):
    sizes = ((0, 0), (0, 0))
    return convolution._Setting((SIDE, SIDE), (1, 1), channels, (1, 1), sizes, (1, 1), 1)


def _windows_to_rows():
    assert _setting().rows(_pictures(range(1, 9), 8), 0)[-1].tolist() == list(range(1, 9))


def _rows_to_places():
    x = _pictures(0, 8)
    _setting().back(last(range(1, 9), MANY // 8, 8), x, 0)
    assert x[-1, -1, -1].tolist() == list(range(1, 9))


def _depthwise():
    kernel = put(np.array([2.0, 3.0]).reshape(1, 1, 1, 2), "float16")
    y = KERNELS["convolution"](_pictures([5, 7], 2), kernel, groups=2, **WINDOWS)
    assert y[-1, -1, -1].tolist() == [10, 21]


def _depthwise_data():
    kernel = put(np.array([2.0, 3.0]).reshape(1, 1, 1, 2), "float16")
    dx = KERNELS["convolution_data_gradient"](
        _pictures([5, 7], 2), kernel, size=(SIDE, SIDE), groups=2, **WINDOWS
    )
    assert dx[-1, -1, -1].tolist() == [10, 21]


def _depthwise_kernel_parts():
    windows, chunk = MANY // 2, 256
    parts = far(1, windows // chunk, 2, dtype="float32")
    sizes = tuple(np.int64(k) for k in (windows, 2, chunk, windows // chunk))
    given = (_pictures([5, 7], 2), _pictures([2, 3], 2), parts, _setting(2).record, divisor(1))
    kernels.launch("columns", "depthwise_kernel_parts", HALF, windows // chunk, (32, 8), *given,
                   *sizes)  # fmt: skip
    assert parts[0, -1].tolist() == [10, 21]


# --- steps of recurrent layers --------------------------------------------------------------------

UNITS = 64
MASKED = (np.int32(0),)
PAST = (np.int32(0), np.int32(1))


def _step(kernel, samples, *args, flags=MASKED):
    more = (np.int64(samples), divisor(UNITS), *flags)
    launch_all("recurrent", kernel, samples * UNITS, *args, *more)


def _simple_step():
    samples = MANY // UNITS
    x, s, h, out = (last(v, samples, UNITS) for v in (0.5, 0.25, 0.0, 0.0))
    _step("simple_step", samples, x, s, h, kernels.NOTHING, out)
    check_close(out[-1, -2:], [0, np.tanh(0.75)])


def _simple_step_gradient():
    samples = MANY // UNITS
    g, h, past, dz = (last(v, samples, UNITS) for v in (1.0, 0.5, 0.25, 0.0))
    carry, following = (last(v, samples, UNITS, dtype="float32") for v in (0.75, 9.0))
    _step("simple_step_gradient", samples, g, h, carry, past, kernels.NOTHING, dz, following,
          flags=PAST)  # fmt: skip
    assert [dz[-1, -1], following[-1, -1]] == [1.5, 0]


def _ends(gates, *values):
    """Return the last unit's gates, and zeros before; as many samples as make 2^32 numbers."""
    x = far(MANY // UNITS // 4, gates * UNITS)
    x[-1, UNITS - 1 :: UNITS] = values
    return x


def _logistic(x):
    return 1 / (1 + np.exp(-x))


def _lstm_step():
    samples = MANY // UNITS // 4
    cell, new = (last(v, samples, UNITS, dtype="float32") for v in (0.5, 0.0))
    h, c, gates = far(samples, UNITS), far(samples, UNITS), far(samples, 4 * UNITS)
    given = (_ends(4, 1, 2, 3, 4), far(samples, 4 * UNITS), far(samples, UNITS), cell)
    _step("lstm_step", samples, *given, kernels.NOTHING, h, c, new, gates)
    i, f, g, o = _logistic(1), _logistic(2), np.tanh(3), _logistic(4)
    check_close(gates[-1, UNITS - 1 :: UNITS], [i, f, g, o])
    check_close([c[-1, -1], new[-1, -1]], [f * 0.5 + i * g] * 2)
    check_close(h[-1, -1], o * np.tanh(f * 0.5 + i * g))


def _lstm_sequence():
    samples, units = 2**22 + 8, recurrent.UNITS
    x = far(1, samples, 4 * units)
    x[0, -1, units - 1 :: units] = 1, 2, 3, 4
    first = far(samples, units)
    zero = put(np.zeros((units, 4 * units)), "float16")
    h, c, _ = recurrent.lstm_at_once(x, zero, first, last(0.5, samples, units))
    cell = _logistic(2) * 0.5 + _logistic(1) * np.tanh(3)
    check_close([c[0, -1, -1], h[0, -1, -1]], [cell, _logistic(4) * np.tanh(cell)])


def _lstm_step_gradient():
    samples = MANY // UNITS // 4
    g_h, g_c, c, before, past = (last(v, samples, UNITS) for v in (1.0, 0.0, 0.0, 0.5, 1.0))
    carry = [last(v, samples, UNITS, dtype="float32") for v in (0.0, 0.0)]
    following = [far(samples, UNITS, dtype="float32") for _ in range(2)]
    dz = far(samples, 4 * UNITS)
    given = (g_h, g_c, _ends(4, 0.5, 0.25, 0.5, 0.5), c, before, *carry, past, kernels.NOTHING)
    _step("lstm_step_gradient", samples, *given, dz, *following, flags=PAST)
    through = 2 * 0.5
    expected = [through * 0.5 * 0.25, through * 0.5 * 0.25 * 0.75, through * 0.5 * 0.75, 0]
    check_close(dz[-1, UNITS - 1 :: UNITS], expected)
    assert [a[-1, -1] for a in following] == [0, through * 0.25]


def _gru_step():
    samples = MANY // UNITS // 4
    h, gates, old = far(samples, UNITS), far(samples, 4 * UNITS), last(0.5, samples, UNITS)
    bias = put(np.zeros(3 * UNITS), "float16")
    given = (_ends(3, 1, 2, 3), _ends(3, 0, 0, 1), bias, old, kernels.NOTHING)
    _step("gru_step", samples, *given, h, gates)
    z, r, n = _logistic(1), _logistic(2), np.tanh(3 + _logistic(2))
    check_close(gates[-1, UNITS - 1 :: UNITS], [z, r, n, 1])
    check_close(h[-1, -1], z * 0.5 + (1 - z) * n)


def _gru_step_gradient():
    samples = MANY // UNITS // 4
    g, old, past = (last(v, samples, UNITS) for v in (1.0, 0.25, 1.0))
    carry, following = (last(v, samples, UNITS, dtype="float32") for v in (0.0, 9.0))
    dx, ds = far(samples, 3 * UNITS), far(samples, 3 * UNITS)
    given = (g, _ends(4, 0.5, 0.25, 0.5, 2.0), old, carry, past, kernels.NOTHING, dx, ds)
    _step("gru_step_gradient", samples, *given, following, flags=PAST)
    dn, dz = 2 * 0.5 * 0.75, 2 * -0.25 * 0.25
    check_close(dx[-1, UNITS - 1 :: UNITS], [dz, dn * 2 * 0.25 * 0.75, dn])
    check_close(ds[-1, UNITS - 1 :: UNITS], [dz, dn * 2 * 0.25 * 0.75, dn * 0.25])
    assert following[-1, -1] == 1


# --- tensors of an optimizer ----------------------------------------------------------------------


def _square_parts():
    whole, factor = update.global_norm([last([3, 4], MANY)], 2.5)
    assert [whole[()], factor[()]] == [5, 0.5]


def _update(kernel):
    def call():
        source = UPDATES[kernel]()
        values = put(np.array([0.5, 0.25, 1.0]), "float16")
        lists = [[far(MANY)] for _ in source.program.elements]
        few = [[put(np.zeros(8), "float16")] for _ in lists]
        for (large,), (small,) in zip(lists, few):
            large[-3:] = small[-3:] = values
        given = [
            put(np.array(3 if v.dtype == "int32" else 0.1), v.dtype) for v in source.program.numbers
        ]
        found = update.update_tensors(source, lists, given, [0.1])
        Function.most = 0
        expected = update.update_tensors(source, few, given, [0.1])
        for (large,), (small,) in zip(found, expected):
            np.testing.assert_array_equal(large[-8:], small)
        assert not np.array_equal(found[0][0][-3:], values)

    return call


FAR_CALLS: dict[str, Callable[[], None]] = {
    "pool_largest": _pool_largest,
    "pool_largest_gradient": _pool_largest_gradient,
    "pool_pick": _pool_pick,
    "pool_mean": _pool_mean,
    "pool_mean_gradient": _pool_mean_gradient,
    "windows_to_rows": _windows_to_rows,
    "rows_to_places": _rows_to_places,
    "depthwise": _depthwise,
    "depthwise_data": _depthwise_data,
    "depthwise_kernel_parts": _depthwise_kernel_parts,
    "simple_step": _simple_step,
    "simple_step_gradient": _simple_step_gradient,
    "lstm_step": _lstm_step,
    "lstm_sequence": _lstm_sequence,
    "lstm_step_gradient": _lstm_step_gradient,
    "gru_step": _gru_step,
    "gru_step_gradient": _gru_step_gradient,
    "square_parts": _square_parts,
    **{kernel: _update(kernel) for kernel in UPDATES},
}
