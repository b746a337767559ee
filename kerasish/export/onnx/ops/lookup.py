"""Lookups of tokens in a vocabulary: `LabelEncoder`, then what the layer's output mode says."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish import config, ops
from kerasish.export.onnx.registry import Call, ComposedOp, computes, not_run, translates
from kerasish.export.onnx.writer import Item, OnnxWriter
from kerasish.layers.preprocessing.encoding import encode
from kerasish.layers.preprocessing.lookup import IndexLookup
from kerasish.layers.preprocessing.lookups import IntegerLookup, StringLookup
from kerasish.ops.op import current_engine
from kerasish.ops.shapes import Spec

_ABSENT = -2  # counts nowhere
_UNKNOWN = -1


FIND = ComposedOp("find", not_run, lambda x, **_: Spec(x.shape, "int64"))


@translates(FIND)
def _find(w: OnnxWriter, call: Call) -> Item:
    keys, values = call.attrs["keys"], call.attrs["values"]
    if call.x.dtype == "string":
        return _encoded(w, call.x, keys_strings=keys, values_int64s=values)
    return _encoded(w, w.cast(call.x, "int64"), keys_int64s=keys, values_int64s=values)


def _encoded(w: OnnxWriter, x: Item, **attrs: Any) -> Item:
    return w.op(
        "LabelEncoder", [x], "int64", x.shape, "ai.onnx.ml", default_int64=_UNKNOWN, **attrs
    )


@computes(IntegerLookup)
def integer_lookup(layer: IntegerLookup, inputs: Any) -> Any:
    """Return what the layer gives, computed by ops.

    Raises:
        ValueError: unknown integers are hashed.
    """
    x = ops.cast(inputs, "int64")
    if layer.invert:
        every = layer.get_vocabulary()
        table = np.array([*every, layer.oov_token], "int64")
        inside = ops.logical_and(ops.greater_equal(x, 0), ops.less(x, len(every)))
        return ops.take(table, ops.where(inside, x, len(every)), axis=0)
    if layer.num_oov_indices > 1 and layer.oov_method != "floormod":
        raise _hashed(layer, f" (oov_method={layer.oov_method!r})")
    return _looked_up(layer, x)


@computes(StringLookup)
def string_lookup(layer: StringLookup, inputs: Any) -> Any:
    """Return what the layer gives, computed by ops.

    Raises:
        ValueError: unknown strings are hashed, or strings are the results.
    """
    if layer.invert:
        raise ValueError(f"layer {layer.name!r}: its results are strings, which no op here gives")
    if layer.num_oov_indices > 1:
        raise _hashed(layer, "")
    return _looked_up(layer, inputs)


def _hashed(layer: IndexLookup, more: str) -> ValueError:
    return ValueError(
        f"layer {layer.name!r}: unknown tokens are hashed{more}, for which ONNX has no operator"
    )


def _looked_up(layer: IndexLookup, x: Any) -> Any:
    """Return the numbers of tokens, as the layer's output mode says."""
    tokens = layer.get_vocabulary(include_special_tokens=False)
    size = len(layer.get_vocabulary())
    mask, mode, count = layer.mask_token, layer.output_mode, layer.num_oov_indices
    first = size - len(tokens)
    numbers = dict(zip(tokens, range(first, size)))
    if mask is not None:
        numbers[mask] = 0 if mode == "int" else _ABSENT
    engine: Any = current_engine()
    number = engine.apply(FIND, [x], {"keys": tuple(numbers), "values": tuple(numbers.values())})
    unknown = ops.equal(number, _UNKNOWN)
    if count == 0:
        # An unknown token is an error: a place that the table does not have.
        places = np.arange(_ABSENT, size, dtype="int64")
        number = ops.take(places, ops.where(unknown, 2**31 - 1, number - _ABSENT), axis=0)
    elif count == 1:
        number = ops.where(unknown, first - 1, number)
    else:
        number = ops.where(unknown, ops.mod(x, count) + (first - count), number)
    if mode != "tf_idf":
        return encode(number, layer.depth(), mode, "int64")
    counts = encode(number, layer.depth(), "count", config.floatx())
    return ops.multiply(counts, ops.cast(layer.idf_weights, counts.dtype))
