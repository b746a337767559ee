"""Normalizations."""

from __future__ import annotations

import math
from typing import Any

from kerasish import ops
from kerasish.export.onnx.reading.registry import OnnxNode, axis_of, rank_of, reads, tensor
from kerasish.typing import Structure

MOST_ADDED = 1024  # channels


def _along(v: Any, x: Any) -> Any:
    """Return one number for each channel ready to broadcast against (n, c, ...)."""
    return ops.reshape(tensor(v), (-1, *[1] * (rank_of(x) - 2)))


@reads("BatchNormalization")
def _batch_normalization(n: OnnxNode) -> Structure:
    x = tensor(n.x)
    scale, bias, mean, variance = (_along(n.need(i), x) for i in range(1, 5))
    epsilon = n.attr("epsilon", 1e-5)
    training = n.attr("training_mode", 0)
    old_mean, old_variance = mean, variance
    if training:
        axes = (0, *range(2, rank_of(x)))
        mean = ops.mean(x, axes, keepdims=True)
        variance = ops.mean(ops.square(ops.subtract(x, mean)), axes, keepdims=True)
    factor = ops.divide(scale, ops.sqrt(ops.add(variance, epsilon)))
    y = ops.add(ops.multiply(ops.subtract(x, mean), factor), bias)
    if not training or n.count == 1:
        return ops.cast(y, x.dtype)
    share = n.attr("momentum", 0.9)
    news = [
        ops.reshape(ops.add(ops.multiply(old, share), ops.multiply(new, 1 - share)), (-1,))
        for old, new in ((old_mean, mean), (old_variance, variance))
    ]
    return [ops.cast(y, x.dtype), *news]


def standardized(x: Any, axes: tuple[int, ...], epsilon: float) -> tuple[Any, Any, Any]:
    """Return ((x - mean) * inverse, mean, inverse), inverse being 1 / sqrt(variance + epsilon)."""
    mean = ops.mean(x, axes, keepdims=True)
    centered = ops.subtract(x, mean)
    variance = ops.mean(ops.square(centered), axes, keepdims=True)
    inverse = ops.rsqrt(ops.add(variance, epsilon))
    return ops.multiply(centered, inverse), mean, inverse


@reads("InstanceNormalization")
def _instance_normalization(n: OnnxNode) -> Structure:
    x = tensor(n.x)
    y, _, _ = standardized(x, tuple(range(2, rank_of(x))), n.attr("epsilon", 1e-5))
    return ops.add(ops.multiply(y, _along(n.need(1), x)), _along(n.need(2), x))


def _last_axes(n: OnnxNode) -> tuple[Any, Any, tuple[int, ...]]:
    """Return (the input, it in at least 32 bits, its axes from the attribute `axis` on)."""
    x = tensor(n.x)
    wide = ops.cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x
    return x, wide, tuple(range(axis_of(n.attr("axis", -1), rank_of(x)), rank_of(x)))


@reads("LayerNormalization")
def _layer_normalization(n: OnnxNode) -> Structure:
    x, wide, axes = _last_axes(n)
    y, mean, inverse = standardized(wide, axes, n.attr("epsilon", 1e-5))
    y = ops.multiply(ops.cast(y, x.dtype), tensor(n.need(1)))
    if n.get(2) is not None:
        y = ops.add(y, tensor(n.get(2)))
    return [y, mean, inverse][: max(n.count, 1)]


@reads("RMSNormalization")
def _rms_normalization(n: OnnxNode) -> Structure:
    x, wide, axes = _last_axes(n)
    mean = ops.mean(ops.square(wide), axes, keepdims=True)
    y = ops.multiply(wide, ops.rsqrt(ops.add(mean, n.attr("epsilon", 1e-5))))
    return ops.multiply(ops.cast(y, x.dtype), tensor(n.need(1)))


@reads("GroupNormalization")
def _group_normalization(n: OnnxNode) -> Structure:
    x, groups = tensor(n.x), int(n.attr("num_groups"))
    shape = x.shape
    parts = ops.reshape(x, (shape[0], groups, -1))
    y, _, _ = standardized(parts, (2,), n.attr("epsilon", 1e-5))
    if n.opset < 21:  # one number for each group
        scale, bias = (ops.reshape(tensor(n.need(i)), (1, groups, 1)) for i in (1, 2))
        return ops.reshape(ops.add(ops.multiply(y, scale), bias), shape)
    y = ops.reshape(y, shape)
    return ops.add(ops.multiply(y, _along(n.need(1), x)), _along(n.need(2), x))


@reads("LRN")
def _lrn(n: OnnxNode) -> Structure:
    x, size = tensor(n.x), int(n.attr("size"))
    if not 1 <= size <= MOST_ADDED:
        raise ValueError(f"a size of {size} channels")
    before = (size - 1) // 2
    channels = int(x.shape[1])
    pairs = [(0, 0), (before, size - 1 - before), *[(0, 0)] * (rank_of(x) - 2)]
    squares = ops.pad(ops.square(x), pairs)
    total = squares[:, :channels]
    for i in range(1, size):
        total = ops.add(total, squares[:, i : i + channels])
    scaled = ops.multiply(total, n.attr("alpha", 1e-4) / size)
    return ops.divide(x, ops.power(ops.add(scaled, n.attr("bias", 1.0)), n.attr("beta", 0.75)))


@reads("LpNormalization")
def _lp_normalization(n: OnnxNode) -> Structure:
    x = tensor(n.x)
    axis = axis_of(n.attr("axis", -1), rank_of(x))
    if n.attr("p", 2) == 1:
        norm = ops.sum(ops.absolute(x), axis, keepdims=True)
    else:
        norm = ops.sqrt(ops.sum(ops.square(x), axis, keepdims=True))
    safe = ops.where(ops.equal(norm, 0), ops.ones_like(norm), norm)
    return ops.where(ops.equal(norm, 0), ops.zeros_like(x), ops.divide(x, safe))


@reads("DepthToSpace")
def _depth_to_space(n: OnnxNode) -> Structure:
    x, block = tensor(n.x), int(n.attr("blocksize"))
    batch, channels, height, width = x.shape
    depth = channels // block**2
    if n.attr("mode", "DCR") == "DCR":
        parts = ops.reshape(x, (batch, block, block, depth, height, width))
        order = (0, 3, 4, 1, 5, 2)
    else:
        parts = ops.reshape(x, (batch, depth, block, block, height, width))
        order = (0, 1, 4, 2, 5, 3)
    return ops.reshape(ops.transpose(parts, order), (batch, depth, height * block, width * block))


@reads("SpaceToDepth")
def _space_to_depth(n: OnnxNode) -> Structure:
    x, block = tensor(n.x), int(n.attr("blocksize"))
    batch, channels, height, width = x.shape
    tall, wide = height // block, width // block
    parts = ops.reshape(x, (batch, channels, tall, block, wide, block))
    order = (0, 3, 5, 1, 2, 4) if n.attr("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    turned = ops.transpose(parts, order)
    return ops.reshape(turned, (batch, math.prod((channels, block, block)), tall, wide))
