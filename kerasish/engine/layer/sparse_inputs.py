"""What layers do with a sparse input: those that cannot use it get it dense."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kerasish.engine.diagnostics import warn_once
from kerasish.ops import dtypes
from kerasish.tensor import SparseTensor, Tensor

if TYPE_CHECKING:
    from kerasish.engine.layer.layer import Layer


def take_sparse(layer: Layer, x: SparseTensor) -> SparseTensor | Tensor:
    """Return a sparse argument of a layer as the layer takes it: sparse, or dense with a warning.

    Args:
        layer: the layer that is called.
        x: the argument.
    """
    if layer.autocast and x.dtype != layer.compute_dtype and dtypes.is_float(x.dtype):
        x = x.astype(layer.compute_dtype)
    accepts = layer.accepts_sparse
    if accepts is None:
        accepts = not type(layer).__module__.startswith("kerasish.")
    if accepts:
        return x
    size = x.shape[0] * x.shape[1] * dtypes.array_dtype(x.dtype).itemsize / 2**20
    warn_once(
        layer,
        f"it makes its sparse input of shape {x.shape} dense, batch by batch: {size:.1f} MiB each. "
        "Put a Dense layer first, which multiplies sparse matrices, or leave sparse=True out.",
    )
    return x.todense()
