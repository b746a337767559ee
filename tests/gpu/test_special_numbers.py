"""NaN and infinity through the libraries' own relu, asked of a GPU.

While these tests have not passed on one, `blas.RELU_IN_PASSING` stays False.
"""

from __future__ import annotations

import numpy as np
import pytest

import kerasish
from kerasish.backends.eager.cuda import blas, cudnn
from kerasish.ops.arrays.contraction import affine
from kerasish.ops.basic.conv import biased_conv
from kerasish.ops.op import using_engine

X = np.array([[1.0, np.nan, 2.0, -3.0], [np.inf, 1.0, 1.0, 1.0], [1.0, 2.0, 3.0, 4.0]], "float32")
KERNEL, BIAS = np.ones((4, 8), "float32"), np.zeros(8, "float32")


@pytest.mark.gpu
@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_relu_of_a_product_keeps_nan(gpu, monkeypatch, dtype, within):
    monkeypatch.setattr(blas, "RELU_IN_PASSING", within)
    with using_engine(gpu):
        given = [kerasish.ops.cast(kerasish.Tensor(v), dtype) for v in (X, KERNEL, BIAS)]
        y = affine(*given, True).numpy().astype("float32")
    assert np.isnan(y[0]).all() and np.isinf(y[1]).all() and (y[2] == 10).all()


@pytest.mark.gpu
@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_relu_of_a_convolution_keeps_nan(gpu, monkeypatch, dtype, within):
    with gpu.xp.cuda.Device(gpu.device.index):
        if cudnn.usable() is None:
            pytest.skip("cuDNN is not installed, or the engine is the fake's")
    monkeypatch.setattr(blas, "RELU_IN_PASSING", within)
    images = np.repeat(np.repeat(X[:, None, None], 4, 1), 4, 2)
    with using_engine(gpu):
        given = [kerasish.ops.cast(kerasish.Tensor(v), dtype)
                 for v in (images, KERNEL[None, None], BIAS)]  # fmt: skip
        y = biased_conv(*given, rectified=True).numpy().astype("float32")
    assert np.isnan(y[0]).all() and np.isinf(y[1]).all() and (y[2] == 10).all()
