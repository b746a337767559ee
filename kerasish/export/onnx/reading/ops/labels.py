"""Tables of labels: `LabelEncoder` between numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish import ops
from kerasish.export.onnx.reading.record import decode
from kerasish.export.onnx.reading.registry import OnnxNode, reads, tensor
from kerasish.typing import Array

_DTYPES = {"int64s": "int64", "floats": "float32"}


def _listed(n: OnnxNode, name: str) -> Array:
    """Return the keys or values of a node."""
    for kind, dtype in _DTYPES.items():
        if f"{name}_{kind}" in n.attrs:
            return np.array(n.attrs[f"{name}_{kind}"], dtype)
    stored = n.attr(f"{name}_tensor")
    if stored is None:
        raise ValueError(f"its {name} are no numbers")
    return np.asarray(decode(stored["tensor"])).reshape(-1)


@reads("LabelEncoder", domain="ai.onnx.ml")
def _label_encoder(n: OnnxNode) -> Any:
    keys, values = _listed(n, "keys"), _listed(n, "values")
    if len(keys) != len(values) or not len(keys):
        raise ValueError(f"it has {len(keys)} keys and {len(values)} values")
    whole = values.dtype.kind == "i"
    default = n.attr("default_int64", -1) if whole else n.attr("default_float", -0.0)
    if n.attr("default_tensor") is not None:
        default = np.asarray(decode(n.attr("default_tensor")["tensor"])).reshape(-1)[0].item()
    # Of equal keys the first holds; NaN is equal to NaN.
    _, first = np.unique(keys, return_index=True)
    keys, values = keys[first], values[first]
    x = ops.cast(tensor(n.x), str(keys.dtype))
    places = ops.minimum(ops.searchsorted(keys, ops.reshape(x, (-1,))), len(keys) - 1)
    places = ops.reshape(places, ops.shape(x))
    same = ops.equal(ops.take(keys, places, axis=0), x)
    if keys.dtype.kind == "f" and np.isnan(keys[-1]):
        same = ops.logical_or(same, ops.isnan(x))
        places = ops.where(ops.isnan(x), len(keys) - 1, places)
    return ops.where(same, ops.take(values, places, axis=0), np.array(default, values.dtype))
