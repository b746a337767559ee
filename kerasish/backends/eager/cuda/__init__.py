"""The package's CUDA kernels, and the table in which the eager engine looks them up."""

from __future__ import annotations

from typing import Any

from kerasish.backends.eager.cuda import (
    activation,
    blas,
    conversion,
    convolution,
    embedding,
    pooling,
    random,
    recurrent,
)

# op name -> kernel(*arrays, **attrs), as in NumPy's table.
KERNELS: dict[str, Any] = {
    **activation.KERNELS,
    **blas.KERNELS,
    **conversion.KERNELS,
    **convolution.KERNELS,
    **embedding.KERNELS,
    **pooling.KERNELS,
    **random.KERNELS,
    **recurrent.KERNELS,
}
