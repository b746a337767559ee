"""Launches in a capture: what our code hands out there, and what a capture refuses."""

from __future__ import annotations

import numpy as np
import pytest
from capturing import capture
from cuda_on_cpu import CudaError, numbers, put, wide

from kerasish import ops
from kerasish.backends.eager.cuda import blas, cudnn, kernels, random, softmax


def _softmax_into(x, y):
    rows, n = x.shape
    args = (x, y, np.int64(rows), np.int64(n), np.int32(0), kernels.packed(n, x, y))
    kernels.launch_rows("softmax", "softmax", x.dtype, rows, n, *args)


def test_a_replay_reads_what_lies_at_its_addresses_then(cuda, monkeypatch):
    x, y = numbers((5, 8), "float32"), numbers((5, 8), "float32", seed=1)
    state = put(np.array([3, 4], "uint32"))
    dropped = numbers((5, 8), "float32", seed=2)
    with capture(monkeypatch, cuda) as step:
        _softmax_into(x, y)
        args = (y, state, dropped, np.uint32(2**31), np.float32(2), np.int64(40), np.int32(0))
        kernels.launch_elements("random", "dropout", x.dtype, 10, *args)
    assert len(step.launches) == 2 and not cuda.launches  # nothing ran
    for draw in (4, 9):
        x[...] = np.random.default_rng(draw).standard_normal(x.shape)
        state[1] = draw
        step()
        expected = ops.softmax(wide(x)).numpy()
        np.testing.assert_allclose(y, expected, atol=1e-6)
        monkeypatch.setattr(random, "empty", lambda shape, dtype: numbers(shape, "float32"))
        np.testing.assert_array_equal(dropped, random.dropout(state, y, 0.5))


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda cuda, x: softmax.softmax(x), "an allocation"),
        (lambda cuda, x: cuda.zeros(3), "an allocation"),
        (lambda cuda, x: x.get(), "a copy to the host"),
        (lambda cuda, x: cuda.cuda.get_current_stream().synchronize(), "a wait for the stream"),
        (lambda cuda, x: cuda.cuda.runtime.deviceSynchronize(), "a wait for the device"),
    ],
)
def test_what_a_capture_refuses_raises(cuda, monkeypatch, work, message):
    x = numbers((2, 3), "float32")
    with capture(monkeypatch, cuda) as step, pytest.raises(CudaError, match=message):
        work(cuda, x)
    assert not step.launches


def test_work_on_the_legacy_stream_raises(cuda, monkeypatch):
    x, y = numbers((2, 4), "float32"), numbers((2, 4), "float32")
    with capture(monkeypatch, cuda, stream=0), pytest.raises(CudaError, match="legacy stream"):
        _softmax_into(x, y)


def test_planning_without_cublaslt_takes_no_memory(cuda, monkeypatch):
    """cuDNN's plan is asked for in a capture: without cuBLASLt there is none, and no handle."""
    monkeypatch.setattr(blas, "library", lambda version: None)
    monkeypatch.setattr(cudnn, "_handle", lambda *args: pytest.fail("a handle takes memory"))
    cudnn.library.cache_clear()
    monkeypatch.delenv("KERASISH_CUDNN", raising=False)
    with capture(monkeypatch, cuda):
        assert cudnn.planned(object(), 0) is None
    cudnn.library.cache_clear()
