"""Recurrent sequences by CUDA kernels, run on the CPU, against the reference kernels."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_on_cpu import DTYPES, assert_close, dtype_of, numbers, put, wide

from kerasish.backends.eager.cuda import KERNELS, recurrent
from kerasish.ops.op import REGISTRY

SIZES = [(3, 2, 4), (4, 3, 1), (1, 1, 5), (5, 40, 33)]


def _numbers(shape, dtype, seed):
    return numbers(shape, dtype, scale=0.5, seed=seed)


def _compare(name, inputs, dtype):
    expected = REGISTRY[name].kernel(np, *map(wide, inputs))
    found = KERNELS[name](*inputs)
    many = found if isinstance(found, tuple) else (found,)
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert len(many) == len(expected)
    for a, b in zip(many, expected):
        assert a.dtype == inputs[0].dtype
        assert_close(a, b, dtype, 4)
    return many


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("steps", "n", "units"), SIZES)
def test_sequences_and_their_gradients(cuda, monkeypatch, steps, n, units, masked, dtype):
    random = np.random.default_rng(5).random((steps, n)) < 0.6
    mask = [put(random.astype(dtype_of(dtype)))] if masked else []
    state = (n, units)
    h, c = _numbers(state, dtype, 3), _numbers(state, dtype, 4)
    g, g_c = (_numbers((steps, *state), dtype, k) for k in (6, 7))

    x, r = _numbers((steps, *state), dtype, 1), _numbers((units, units), dtype, 2)
    (states,) = _compare("simple_rnn", [x, r, h, *mask], dtype)
    _compare("simple_rnn_gradient", [g, r, h, states, *mask], dtype)

    x, r = _numbers((steps, n, 4 * units), dtype, 1), _numbers((units, 4 * units), dtype, 2)
    made = _compare("lstm", [x, r, h, c, *mask], dtype)
    _compare("lstm_gradient", [g, g_c, r, h, c, *made, *mask], dtype)
    assert cuda.launches["lstm_sequence"] == 1
    with monkeypatch.context() as patch:
        patch.setattr(recurrent, "UNITS", 0)  # as for many units
        _compare("lstm", [x, r, h, c, *mask], dtype)
    assert cuda.launches["lstm_step"] == steps

    x, r = _numbers((steps, n, 3 * units), dtype, 1), _numbers((units, 3 * units), dtype, 2)
    bias = _numbers(3 * units, dtype, 8)
    made = _compare("gru", [x, r, bias, h, *mask], dtype)
    _compare("gru_gradient", [g, r, h, *made, *mask], dtype)


def test_nothing_and_float64_are_the_reference_s(cuda):
    x, r, h = (numbers(s, "float64") for s in ((3, 2, 4), (4, 4), (2, 4)))
    expected = REGISTRY["simple_rnn"].kernel(np, wide(x), wide(r), wide(h))
    np.testing.assert_array_equal(KERNELS["simple_rnn"](x, r, h), expected)
    empty = numbers((3, 0, 4), "float32")
    found = KERNELS["simple_rnn"](empty, numbers((4, 4), "float32"), numbers((0, 4), "float32"))
    assert found.shape == (3, 0, 4)
    assert not cuda.launches
