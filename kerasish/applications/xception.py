"""Xception: separable convolutions with residuals around each block (Chollet, 2016)."""

from __future__ import annotations

from typing import Any

from kerasish.applications.blocks import activate, conv, norm
from kerasish.applications.imagenet_utils import decode_predictions as decode_predictions
from kerasish.applications.imagenet_utils import scaling
from kerasish.applications.network import NetworkRequest, application, kernels_file
from kerasish.layers import Add, MaxPooling2D, SeparableConv2D

preprocess_input = scaling("tf")


def _xception(image: Any, request: NetworkRequest) -> Any:
    x = image
    for i, (filters, stride) in enumerate(((32, 2), (64, 1)), start=1):
        name = f"block1_conv{i}"
        x = conv(x, filters, 3, stride, name, "valid")
        x = activate(norm(x, f"{name}_bn"), "relu", f"{name}_act")
    # Figure 5: the entry flow, the middle flow, and the exit flow.
    for block, filters in ((2, 128), (3, 256), (4, 728)):
        x = _shrink(x, f"block{block}", (filters, filters), rectify_first=block > 2)
    for block in range(5, 13):
        y = x
        for i in (1, 2, 3):
            y = _separable(activate(y, "relu", f"block{block}_sepconv{i}_act"), block, i, 728)
        x = Add()([y, x])
    x = _shrink(x, "block13", (728, 1024), rectify_first=True)
    for i, filters in ((1, 1536), (2, 2048)):
        x = activate(_separable(x, 14, i, filters), "relu", f"block14_sepconv{i}_act")
    return request.head(x, average="avg_pool")


def _separable(x: Any, block: int, number: int, filters: int) -> Any:
    name = f"block{block}_sepconv{number}"
    x = SeparableConv2D(filters, 3, padding="same", use_bias=False, name=name)(x)
    return norm(x, f"{name}_bn")


def _shrink(x: Any, name: str, filters: tuple[int, int], rectify_first: bool) -> Any:
    """Two separable convolutions and a pooling, added to a 1x1 convolution with a stride of 2."""
    residual = norm(conv(x, filters[1], 1, 2))
    for i in (1, 2):
        if rectify_first or i == 2:
            x = activate(x, "relu", f"{name}_sepconv{i}_act")
        x = _separable(x, int(name.removeprefix("block")), i, filters[i - 1])
    x = MaxPooling2D(3, strides=2, padding="same", name=f"{name}_pool")(x)
    return Add()([x, residual])


Xception = application(
    "Xception", "xception", "Xception", "Chollet (2016), https://arxiv.org/abs/1610.02357",
    (299, 71), _xception,
    kernels_file(
        "xception", "xception",
        "0a58e3b7378bc2990ea3b43d5981f1f6", "b0042744bf5b25fce3cb969f33bebb97",
    ),
)  # fmt: skip
