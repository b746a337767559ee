"""What metrics count and sum, by kernels, against the ops."""

from __future__ import annotations

import fake_cupy
import numpy as np
import pytest
from cuda_on_cpu import DTYPES, numbers, put, wide

import kerasish
from kerasish import ops
from kerasish.backends.eager.cuda import fused_metrics as kernels
from kerasish.ops.basic.statistics import running_sums
from kerasish.ops.networks.crossentropy import class_hits
from kerasish.ops.op import using_engine


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (2, 3, 40), (5, 1300), (2, 9001)])
def test_the_first_largest_number_decides(cuda, shape, dtype):
    x = numbers(shape, dtype)
    x[..., -1] = x[..., 0]  # equal ones
    classes = np.argmax(wide(x), -1).astype("int32")
    classes[0] = 0 if shape[-1] > 1 else 1
    hits = kernels.class_hits(put(classes), x)
    assert hits.dtype == "float32"
    np.testing.assert_array_equal(hits, classes == np.argmax(wide(x), -1))


def test_a_nan_is_the_largest_number(cuda):
    x = put(
        [[1, np.nan, 3, np.nan], [np.nan, 1, 2, 3], [-np.inf] * 4, [1, 2, np.inf, 9]], "float32"
    )
    expected = np.argmax(np.array(x), -1).astype("int32")
    assert np.array(kernels.class_hits(put(expected), x)).tolist() == [1, 1, 1, 1]
    wrong = (expected + 1).astype("int32")
    assert np.array(kernels.class_hits(put(wrong), x)).tolist() == [0, 0, 0, 0]
    assert np.array(kernels.class_hits(put(-wrong), x)).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("shape", [(), (1,), (5, 7), (3000,)])
def test_running_sums(cuda, shape):
    values, given = numbers(shape, "float32"), [put(np.float32(v)) for v in (10.0, 4.0)]
    total, count = kernels.running_sums(*given, values, 0.5, 3.0)
    np.testing.assert_allclose(total, 10 + 0.5 * wide(values).sum(), rtol=1e-5)
    assert count == 7


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_engine_takes_them_where_they_fit(gpu, dtype):
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((6, 4)).astype("float32")
    found = []
    for device in ("cpu", "gpu"):
        with kerasish.device(device):
            step = gpu if device == "gpu" else kerasish.backends.get("eager")
            with using_engine(step):
                x = ops.cast(kerasish.Tensor(scores), dtype)
                hits = class_hits(kerasish.Tensor(np.array([0, 1, 2, 3, 0, 1], "int32")), x)
                fake_cupy.work.clear()
                sums = running_sums(ops.sum(x[0]), ops.sum(x[1]), x, 2.0, 6.0)
                found.append([hits.numpy(), *(s.numpy() for s in sums)])
    for a, b in zip(*found):
        np.testing.assert_allclose(a, b, rtol=1e-5 if dtype == "float32" else 1e-2)
    assert fake_cupy.work.launches["running_sums"] == (dtype == "float32")


def test_a_mean_of_a_batch_is_one_launch(gpu):
    with kerasish.device("gpu"), using_engine(gpu):
        metric = kerasish.metrics.SparseCategoricalAccuracy()
        classes = kerasish.Tensor(np.array([0, 1], "int32"))
        scores = kerasish.Tensor(np.array([[2.0, 1.0], [3.0, 1.0]], "float32"))
        for _ in range(2):
            fake_cupy.work.clear()
            with gpu.step_scope():
                metric.update_state(classes, scores)
        assert dict(fake_cupy.work.launches) == {"class_hits": 1, "running_sums": 1}
        assert float(metric.result()) == 0.5
