"""Attention, rotary embeddings, causal convolution with a state."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kerasish import ops
from kerasish.export.onnx.reading.ops.arithmetic import dtype_named
from kerasish.export.onnx.reading.registry import (
    OnnxNode,
    check_size,
    rank_of,
    read_by,
    reads,
    tensor,
)
from kerasish.ops import dtypes
from kerasish.typing import Structure


def _heads(x: Any, count: int | None) -> Any:
    """Return (batch, length, heads * size) as (batch, heads, length, size)."""
    if rank_of(x) == 4:
        return x
    if not count:
        raise ValueError("inputs of 3 axes need q_num_heads and kv_num_heads")
    batch, length, width = x.shape
    return ops.transpose(ops.reshape(x, (batch, length, count, width // count)), (0, 2, 1, 3))


@reads("Attention")
def _attention(n: OnnxNode) -> Structure:
    query, key, value = (tensor(n.need(i)) for i in range(3))
    rank, dtype = rank_of(query), query.dtype
    q = _heads(query, n.attr("q_num_heads"))
    k, v = (_heads(x, n.attr("kv_num_heads")) for x in (key, value))
    past = 0
    if n.get(4) is not None:
        past = int(n.get(4).shape[2])
        k = ops.concatenate([tensor(n.get(4)), k], axis=2)
        v = ops.concatenate([tensor(n.get(5)), v], axis=2)
    present = (k, v)
    heads, key_heads = int(q.shape[1]), int(k.shape[1])
    if heads % key_heads:
        raise ValueError(f"{heads} heads are no multiple of the {key_heads} of the keys")
    if heads != key_heads:
        k, v = (ops.repeat(x, heads // key_heads, axis=1) for x in (k, v))
    scale = math.sqrt(n.attr("scale") or 1 / math.sqrt(int(q.shape[3])))
    logits = ops.matmul(
        ops.cast(ops.multiply(q, scale), dtype),
        ops.transpose(ops.cast(ops.multiply(k, scale), dtype), (0, 1, 3, 2)),
    )
    steps = [logits]
    cap = n.attr("softcap", 0.0)
    if cap:
        logits = ops.multiply(ops.tanh(ops.divide(logits, cap)), cap)
    steps.append(logits)
    allowed, added = _masks(n, q, k, past)
    if added is not None:
        logits = ops.add(logits, ops.cast(added, logits.dtype))
    if allowed is not None:
        logits = ops.where(allowed, logits, ops.cast(-np.inf, logits.dtype))
    steps.append(logits)
    weights = _weights(n, logits, dtype)
    steps.append(weights)
    y = ops.matmul(weights, v)
    if rank == 3:
        batch, _, length, size = y.shape
        y = ops.reshape(ops.transpose(y, (0, 2, 1, 3)), (batch, length, heads * size))
    shown = ops.cast(steps[n.attr("qk_matmul_output_mode", 0)], dtype) if n.count > 3 else None
    return [y, *present, shown][: max(n.count, 1)]


def _weights(n: OnnxNode, logits: Any, dtype: str) -> Any:
    """Return the softmax of logits; rows that attend to nothing are 0."""
    precision = n.attr("softmax_precision")
    wide = ops.cast(logits, dtype_named(precision)) if precision else logits
    if precision is None and dtype in ("float16", "bfloat16"):
        wide = ops.cast(logits, "float32")
    top = ops.max(wide, -1, keepdims=True)
    nothing = ops.equal(top, -np.inf)
    shifted = ops.subtract(wide, ops.where(nothing, ops.zeros_like(top), top))
    powers = ops.exp(shifted)
    total = ops.sum(powers, -1, keepdims=True)
    weights = ops.divide(powers, ops.where(nothing, ops.ones_like(total), total))
    return ops.cast(weights, dtype)


def _masks(n: OnnxNode, q: Any, k: Any, past: int) -> tuple[Any, Any]:
    """Return (truth values, numbers to add) that say which keys a query attends to."""
    targets, sources = int(q.shape[2]), int(k.shape[2])
    allowed = added = None
    mask = n.get(3)
    if mask is not None:
        mask = tensor(mask)
        short = sources - int(mask.shape[-1])
        if short > 0 and int(mask.shape[-1]) > 1:
            pairs = [(0, 0)] * (rank_of(mask) - 1) + [(0, short)]
            fill = False if mask.dtype == "bool" else -np.inf
            mask = ops.pad(mask, pairs, constant_values=fill)
        if mask.dtype == "bool":
            allowed = mask
        else:
            added = mask
    rows = np.arange(targets, dtype="int32")[:, None]
    columns = np.arange(sources, dtype="int32")[None, :]
    lengths = n.get(6)
    offset: Any = past
    if lengths is not None:
        lengths = ops.reshape(ops.cast(tensor(lengths), "int32"), (-1, 1, 1, 1))
        offset = ops.subtract(lengths, targets)
        allowed = _both(allowed, ops.less(columns, lengths))
    place = ops.add(rows, offset)
    left, right = n.attr("left_window_size", -1), n.attr("right_window_size", -1)
    if n.attr("is_causal", 0):
        allowed = _both(allowed, ops.less_equal(columns, place))
    if left >= 0:
        allowed = _both(allowed, ops.greater_equal(columns, ops.subtract(place, left)))
    if right >= 0:
        allowed = _both(allowed, ops.less_equal(columns, ops.add(place, right)))
    return allowed, added


def _both(a: Any, b: Any) -> Any:
    return b if a is None else ops.logical_and(a, b)


@reads("RotaryEmbedding")
def _rotary_embedding(n: OnnxNode) -> Structure:
    x, cosines, sines = tensor(n.x), tensor(n.need(1)), tensor(n.need(2))
    flat = rank_of(x) == 3
    if flat:
        heads = int(n.attr("num_heads"))
        batch, length, width = x.shape
        x = ops.reshape(x, (batch, length, heads, width // heads))
    else:
        x = ops.transpose(x, (0, 2, 1, 3))
    size = int(x.shape[3])
    turned = n.attr("rotary_embedding_dim", 0) or size
    half = turned // 2
    if n.get(3) is not None:
        places = ops.cast(tensor(n.get(3)), "int32")
        cosines, sines = (ops.take(t, places, axis=0) for t in (cosines, sines))
    cosines, sines = (ops.expand_dims(t[..., :half], 2) for t in (cosines, sines))
    part, rest = x[..., :turned], x[..., turned:]
    if n.attr("interleaved", 0):
        a, b = part[..., 0::2], part[..., 1::2]
    else:
        a, b = part[..., :half], part[..., half:]
    real = ops.subtract(ops.multiply(cosines, a), ops.multiply(sines, b))
    imaginary = ops.add(ops.multiply(sines, a), ops.multiply(cosines, b))
    if n.attr("interleaved", 0):
        part = ops.reshape(ops.stack([real, imaginary], axis=-1), part.shape)
    else:
        part = ops.concatenate([real, imaginary], axis=-1)
    y = ops.concatenate([part, rest], axis=-1)
    return ops.reshape(y, (batch, length, width)) if flat else ops.transpose(y, (0, 2, 1, 3))


@reads("CausalConvWithState")
def _causal_convolution(n: OnnxNode) -> Structure:
    x, kernel, bias, past = tensor(n.x), tensor(n.need(1)), n.get(2), n.get(3)
    length, width = int(x.shape[2]), int(kernel.shape[2])
    if past is None:
        past = ops.zeros((x.shape[0], x.shape[1], width - 1), x.dtype)
    data = ops.concatenate([tensor(past), x], axis=2)
    total = None
    for i in range(width):
        part = ops.multiply(data[..., i : i + length], kernel[:, 0, i : i + 1])
        total = part if total is None else ops.add(total, part)
    if bias is not None:
        total = ops.add(total, ops.expand_dims(tensor(bias), -1))
    if n.attr("activation", "none") in ("silu", "swish"):
        total = ops.silu(total)
    return [total, data[..., length:]][: max(n.count, 1)]


# --- losses ---------------------------------------------------------------------------------------


def _loss(n: OnnxNode, logs: Any, targets: Any, weight: Any) -> Any:
    """Return the negative logarithms of the targets' probabilities, reduced."""
    ignored = n.attr("ignore_index")
    classes = int(logs.shape[1])
    index = ops.cast(tensor(targets), "int32")
    counts = None if ignored is None else ops.not_equal(index, ignored)
    safe = index if counts is None else ops.where(counts, index, ops.zeros_like(index))
    picked = ops.take_along_axis(logs, ops.expand_dims(safe, 1), axis=1)
    loss = ops.negative(ops.squeeze(picked, 1))
    weights = None
    if weight is not None:
        weights = ops.take(tensor(weight), ops.clip(safe, 0, classes - 1), axis=0)
    if counts is not None:
        own = ops.cast(counts, loss.dtype)
        weights = own if weights is None else ops.multiply(weights, own)
    if weights is not None:
        loss = ops.multiply(loss, weights)
    reduction = n.attr("reduction", "mean")
    if reduction == "none":
        return loss
    if reduction == "sum":
        return ops.sum(loss)
    return ops.mean(loss) if weights is None else ops.divide(ops.sum(loss), ops.sum(weights))


read_by(lambda n: _loss(n, tensor(n.x), n.need(1), n.get(2)), "NegativeLogLikelihoodLoss")


@reads("SoftmaxCrossEntropyLoss")
def _softmax_cross_entropy(n: OnnxNode) -> Structure:
    logs = ops.log_softmax(tensor(n.x), axis=1)
    return [_loss(n, logs, n.need(1), n.get(2)), logs][: max(n.count, 1)]


read_by(lambda n: np.array(n.get(0) is not None), "OptionalHasElement")


@reads("MelWeightMatrix", constants=(0, 1, 2, 3, 4))
def _mel_weight_matrix(n: OnnxNode) -> Structure:
    count, length, rate = (int(n.number(i)) for i in range(3))
    low, high = (float(n.number(i)) for i in (3, 4))
    dtype = dtypes.array_dtype(dtype_named(n.attr("output_datatype", 1)))

    check_size([count, length])

    def mel(hertz: float) -> float:
        return 2595 * math.log10(1 + hertz / 700)

    points = np.arange(count + 2) * ((mel(high) - mel(low)) / (count + 2)) + mel(low)
    bins = np.floor((length + 1) * (700 * (10 ** (points / 2595) - 1)) / rate).astype(int)
    weights = np.zeros((length // 2 + 1, count))
    for i in range(count):
        start, middle, end = bins[i : i + 3]
        if middle == start:
            weights[middle, i] = 1
        else:
            for j in range(start, middle + 1):
                weights[j, i] = (j - start) / (middle - start)
        for j in range(middle, end):
            weights[j, i] = (end - j) / (end - middle)
    return weights.astype(dtype)
