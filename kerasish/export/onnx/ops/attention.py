"""Attention as one operator, from operator set 23 on."""

from __future__ import annotations

import math
from typing import Any

from kerasish.export.onnx.registry import Call, Parts, composed, translates
from kerasish.export.onnx.writer import Item, OnnxWriter
from kerasish.ops.basic.activation import as_float
from kerasish.ops.basic.comparison import select
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.movement import reshape
from kerasish.ops.networks import attention, normalization
from kerasish.ops.shapes import Spec

_SINCE = 23
_HEADS_FIRST = (0, 2, 1, 3)  # its own inverse
_CLOSED = -1e30  # a target without any source gives the same weight to all, as in our op


def _shape(query: Spec, key: Spec, value: Spec, *_: Spec, **__: Any) -> Spec:
    return Spec((*query.shape[:3], value.shape[3]), query.dtype)


def _parts(query: Any, key: Any, value: Any, bias: Any, scale: float, causal: bool) -> Parts | None:
    """Return the inputs and attributes of `Attention`.

    Args:
        query, key, value: as the functions take them.
        bias: None, numbers that are added to the logits, or where a target may attend.
        scale: of the logits.
        causal: whether targets attend to earlier places only.
    """
    q, k, v = (as_float(x) for x in (query, key, value))
    if any(x.dtype != "float32" or len(x.shape) != 4 for x in (q, k, v)):
        return None
    if q.shape[2] != k.shape[2]:
        return None
    more = []
    if bias is not None:
        more = [reshape(bias, (*[1] * (4 - len(bias.shape)), *bias.shape))]
    return [q, k, v, *more], {"scale": scale, "causal": causal}


def _allowed(mask: Any) -> Any:
    mask = as_tensor(mask)
    return mask if mask.dtype == "bool" else cast(mask, "bool")


@composed(attention.attend, _shape, _SINCE)
def ATTEND(  # noqa: N802
    query: Any, key: Any, value: Any, mask: Any, weigh: Any, is_causal: bool = False,
    flash_attention: bool | None = None, scale: float = 1.0,
) -> Parts | None:  # fmt: skip
    """Return the inputs and attributes for the layers' attention; `weigh` is a softmax."""
    # A causal mask says nothing else. A target without any source gets zeros, as in ONNX.
    allowed = None if is_causal or mask is None else _allowed(mask)
    return _parts(query, key, value, allowed, scale, is_causal)


@composed(normalization.dot_product_attention, _shape, _SINCE)
def DOT_PRODUCT_ATTENTION(  # noqa: N802
    query: Any, key: Any, value: Any, bias: Any = None, mask: Any = None,
    scale: float | None = None, is_causal: bool = False, flash_attention: bool | None = None,
    attn_logits_soft_cap: float | None = None,
) -> Parts | None:  # fmt: skip
    """Return the inputs and attributes for the op."""
    size = as_tensor(query).shape[-1]
    if attn_logits_soft_cap is not None or type(size) is not int:
        return None
    if mask is not None and (is_causal or bias is not None):
        return None
    added = None if bias is None else cast(as_tensor(bias), "float32")
    if mask is not None:
        added = select(_allowed(mask), 0.0, _CLOSED)
    factor = 1 / math.sqrt(size) if scale is None else float(scale)
    return _parts(query, key, value, added, factor, is_causal)


@translates(ATTEND, DOT_PRODUCT_ATTENTION)
def _attention(w: OnnxWriter, call: Call) -> Item:
    inputs = [w.transpose(x, _HEADS_FIRST) for x in call.inputs[:3]]
    n, targets, heads, size = call.out.shape
    sources = call.inputs[1].shape[1]
    for bias in call.inputs[3:]:
        # onnxruntime does not broadcast the last two axes.
        full = (*bias.shape[:2], targets, sources)
        if full != tuple(bias.shape):
            ones = w.shape((1, 1, targets, sources))
            bias = w.op("Expand", [bias, ones], shape=full)
        inputs.append(bias)
    y = w.op(
        "Attention", inputs, shape=(n, heads, targets, size),
        scale=call.attrs["scale"], is_causal=int(call.attrs["causal"]),
    )  # fmt: skip
    return w.transpose(y, _HEADS_FIRST)
