"""Updates of all variables in one launch, run on the CPU, against the optimizers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cuda_on_cpu import DTYPES, assert_close, numbers, put, wide

from kerasish import optimizers
from kerasish.backends.eager.cuda import update as kernels
from kerasish.optimizers.clipping import clip_by_global_norm
from kerasish.tensor import Variable

SHAPES = [(3,), (), (8200,), (0, 4), (5, 7), (64, 300), (1,)]


def _lists(dtype, count=1, offset=0, shapes=SHAPES):
    return [[numbers(s, dtype, offset, seed=9 * k + i) for i, s in enumerate(shapes)]
            for k in range(count)]  # fmt: skip


def _rate(value=0.1):
    return put(np.float32(value))


def _expected(optimizer, values, gradients, steps):
    """Return the values and slots (float64) after `steps` steps of an optimizer."""
    variables = [Variable(wide(v), dtype="float64") for v in values]
    for _ in range(steps):
        optimizer.apply([wide(g) for g in gradients], variables)
    slots = [[s.numpy() for s in each] for each in optimizer._slots]
    return [v.numpy() for v in variables], slots


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
@pytest.mark.parametrize("decay", [None, 0.01])
def test_sgd(cuda, momentum, nesterov, decay, dtype):
    for offset in (0, 1):
        values, gradients = _lists(dtype, 2, offset)
        slots = [put(np.zeros(v.shape, v.dtype)) for v in values] if momentum else None
        decays = None if decay is None else [decay] * len(values)
        sgd = optimizers.SGD(0.1, momentum, nesterov, weight_decay=decay)
        expected, expected_slots = _expected(sgd, values, gradients, 3)
        for _ in range(3):
            values, slots = kernels.sgd_update(
                values, gradients, slots or None, _rate(), momentum, nesterov, None, decays
            )
        for i, value in enumerate(values):
            assert_close(value, expected[i], dtype, 3)
            if momentum:
                assert_close(slots[i], expected_slots[i][0], dtype, 3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("decay", [None, 0.02])
def test_adam(cuda, decay, dtype):
    for offset in (0, 1):
        values, gradients = _lists(dtype, 2, offset)
        first, second = ([put(np.zeros(v.shape, v.dtype)) for v in values] for _ in range(2))
        decays = None if decay is None else [decay] * len(values)
        given = (0.1, 0.9, 0.999, 1e-7)
        adam = optimizers.AdamW(0.1, decay) if decay else optimizers.Adam(*given)
        expected, expected_slots = _expected(adam, values, gradients, 3)
        for step in range(3):
            values, first, second = kernels.adam_update(
                values, gradients, first, second, _rate(), put(np.int32(step)), *given[1:],
                decays=decays,
            )  # fmt: skip
        for i, value in enumerate(values):
            assert_close(value, expected[i], dtype, 40 if dtype == "float32" else 4)
            assert_close(first[i], expected_slots[i][0], dtype, 3)
            assert_close(second[i], expected_slots[i][1], dtype, 3)


def test_only_some_values_decay(cuda):
    values = [put(np.ones(3, "float32")), put(np.ones(3, "float32"))]
    zeros = [put(np.zeros(3, "float32")) for _ in values]
    made, _ = kernels.sgd_update(values, zeros, None, _rate(0.5), decays=[0.2, 0.0])
    np.testing.assert_allclose(made, [[0.9] * 3, [1.0] * 3])
    made, _, _ = kernels.adam_update(
        values, zeros, zeros, zeros, _rate(0.5), put(np.int32(0)), decays=[0.2, 0.0]
    )
    np.testing.assert_allclose(made, [[0.9] * 3, [1.0] * 3])


def test_old_values_stay_as_they_are(cuda):
    values, gradients = _lists("float32", 2)
    before = [np.array(v) for v in values]
    kernels.sgd_update(values, gradients, None, _rate())
    for a, b in zip(values, before):
        np.testing.assert_array_equal(a, b)


def test_more_tensors_than_a_launch_takes_and_several_dtypes(cuda):
    shapes = [(k % 5 + 1,) for k in range(2 * kernels.MOST + 3)]
    values, gradients = _lists("float32", 2, 0, shapes)
    more, more_gradients = _lists("bfloat16", 2)
    made, _ = kernels.sgd_update(
        values + more, gradients + more_gradients, None, _rate(), factor=put(np.float32(0.5))
    )
    assert cuda.launches["sgd_update"] == 4
    for v, g, new in zip(values + more, gradients + more_gradients, made):
        assert_close(new, wide(v) - 0.1 * 0.5 * wide(g), v.dtype.name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("limit", [math.inf, 1.0, 1e6])
def test_global_norm(cuda, limit, dtype):
    (gradients,) = _lists(dtype)
    norm, factor = kernels.global_norm(gradients, limit)
    whole = np.concatenate([wide(g).ravel() for g in gradients])
    expected = np.sqrt((whole**2).sum())
    np.testing.assert_allclose(norm, expected, rtol=2e-6)
    np.testing.assert_allclose(factor, min(1.0, limit / expected), rtol=2e-6)


def test_global_norm_clips_as_the_optimizers_do(cuda):
    (gradients,) = _lists("float32")
    _, factor = kernels.global_norm(gradients, 2.5)
    values = [put(np.zeros(g.shape, "float32")) for g in gradients]
    made, _ = kernels.sgd_update(values, gradients, None, _rate(1.0), factor=factor)
    for new, clipped in zip(made, clip_by_global_norm([wide(g) for g in gradients], 2.5)):
        assert_close(new, -clipped.numpy(), "float32")


def test_the_norm_of_nothing_and_of_nan(cuda):
    norm, factor = kernels.global_norm([], 1.0)
    assert (norm.item(), factor.item()) == (0, 1)
    norm, factor = kernels.global_norm([put([np.nan, 1.0], "float32")], 1.0)
    assert np.isnan(norm)
    assert np.isnan(factor)


def test_gradients_of_another_dtype_are_refused(cuda):
    with pytest.raises(TypeError, match="got float32, float16"):
        kernels.sgd_update([numbers((2,), "float32")], [numbers((2,), "float16")], None, _rate())
