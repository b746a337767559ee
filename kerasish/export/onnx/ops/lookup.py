"""Lookups of integers in a vocabulary: `LabelEncoder`, then what the layer's output mode says."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish import config, ops
from kerasish.export.onnx.registry import Call, ComposedOp, computes, translates
from kerasish.export.onnx.writer import Item, Writer
from kerasish.layers.preprocessing.encoding import encode
from kerasish.layers.preprocessing.lookups import IntegerLookup
from kerasish.ops.op import current_engine
from kerasish.ops.shapes import Spec

_ABSENT = -2  # counts nowhere
_UNKNOWN = -1


def _kernel(xp: Any, *inputs: Any, **attrs: Any) -> Any:
    raise NotImplementedError("a lookup in a graph for export is not run")


FIND = ComposedOp("find", _kernel, lambda x, **_: Spec(x.shape, "int64"))


@translates(FIND)
def _find(w: Writer, call: Call) -> Item:
    keys, values = call.attrs["keys"], call.attrs["values"]
    return w.op(
        "LabelEncoder", [w.cast(call.x, "int64")], "int64", call.out.shape, "ai.onnx.ml",
        keys_int64s=keys, values_int64s=values, default_int64=_UNKNOWN,
    )  # fmt: skip


@computes(IntegerLookup)
def integer_lookup(layer: IntegerLookup, inputs: Any) -> Any:
    """Return what the layer gives, computed by ops.

    Raises:
        ValueError: unknown integers are hashed.
    """
    tokens = layer.get_vocabulary(include_special_tokens=False)
    every = layer.get_vocabulary()
    first = len(every) - len(tokens)
    x = ops.cast(inputs, "int64")
    if layer.invert:
        table = np.array([*every, layer.oov_token], "int64")
        inside = ops.logical_and(ops.greater_equal(x, 0), ops.less(x, len(every)))
        return ops.take(table, ops.where(inside, x, len(every)), axis=0)
    mask, mode, count = layer.mask_token, layer.output_mode, layer.num_oov_indices
    numbers = dict(zip(tokens, range(first, len(every))))
    if mask is not None:
        numbers[mask] = 0 if mode == "int" else _ABSENT
    engine: Any = current_engine()
    attrs = {"keys": tuple(numbers), "values": tuple(numbers.values())}
    found = engine.apply(FIND, [x], attrs)
    unknown = ops.equal(found, _UNKNOWN)
    if count == 0:
        # An unknown integer is an error: a place that the table does not have.
        places = np.arange(_ABSENT, len(every), dtype="int64")
        found = ops.take(places, ops.where(unknown, 2**31 - 1, found - _ABSENT), axis=0)
    elif count == 1:
        found = ops.where(unknown, first - 1, found)
    elif layer.oov_method == "floormod":
        found = ops.where(unknown, ops.mod(x, count) + (first - count), found)
    else:
        raise ValueError(
            f"layer {layer.name!r}: unknown integers are hashed (oov_method={layer.oov_method!r}), "
            "which ONNX has no operator for; 'floormod' is written"
        )
    if mode != "tf_idf":
        return encode(found, layer.depth(), mode, "int64")
    counts = encode(found, layer.depth(), "count", config.floatx())
    return ops.multiply(counts, ops.cast(layer.idf_weights, counts.dtype))
