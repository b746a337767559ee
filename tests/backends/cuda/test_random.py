"""Philox and dropout as CUDA kernels, run on the CPU: bit for bit the ops'."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_on_cpu import DTYPES, numbers, put

from kerasish import ops
from kerasish.backends.eager.cuda import random as kernels
from kerasish.ops.op import REGISTRY
from kerasish.ops.random import dropout

STATE = np.array([1234567, 42], "uint32")
SHAPES = [(), (0,), (1,), (5,), (4, 8), (3, 7, 11), (3000,)]


@pytest.mark.parametrize("shape", SHAPES)
def test_random_bits_are_the_reference_s(cuda, shape):
    expected = REGISTRY["random_bits"].kernel(np, STATE, shape=shape)
    found = kernels.random_bits(put(STATE), shape=shape)
    assert found.dtype == np.uint32
    np.testing.assert_array_equal(found, expected)


def test_random_bits_of_known_answers(cuda):
    # The first vector of Random123's kat_vectors, philox 4x32 10.
    words = kernels.random_bits(put(np.zeros(2, "uint32")), shape=(4,))
    assert [hex(w) for w in words] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.999])
@pytest.mark.parametrize("shape", SHAPES)
def test_dropout_is_the_op_s_bit_for_bit(cuda, shape, rate, dtype):
    for offset in (0, 1):
        x = numbers(shape, dtype, offset)
        expected = ops.convert_to_numpy(dropout(STATE, np.array(x), rate))
        found = kernels.dropout(put(STATE), x, rate)
        assert found.dtype == x.dtype
        assert np.array(found).tobytes() == expected.tobytes()


def test_a_rate_of_one_is_refused(cuda):
    with pytest.raises(ValueError, match="0 <= rate < 1 expected, got 1"):
        kernels.dropout(put(STATE), numbers((3,), "float32"), 1)
