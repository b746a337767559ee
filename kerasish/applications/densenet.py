"""DenseNet: each block sees the results of all blocks before it (Huang et al., 2016)."""

from __future__ import annotations

import functools
from typing import Any

from kerasish.applications.blocks import activate, conv, join, norm
from kerasish.applications.imagenet_utils import decode_predictions as decode_predictions
from kerasish.applications.imagenet_utils import scaling
from kerasish.applications.network import NetworkRequest, channel_axis, layered
from kerasish.layers import AveragePooling2D, MaxPooling2D, ZeroPadding2D

_SOURCE = "Huang et al. (2016), https://arxiv.org/abs/1608.06993"
_GROWTH = 32  # channels that each block adds
_EPSILON = 1.001e-5

preprocess_input = scaling("torch")


def _rectified(x: Any, prefix: str) -> Any:
    return activate(norm(x, f"{prefix}bn", epsilon=_EPSILON), "relu", f"{prefix}relu")


def _densenet(image: Any, request: NetworkRequest, depths: tuple[int, ...]) -> Any:
    x = conv(ZeroPadding2D((3, 3))(image), 64, 7, 2, "conv1_conv", "valid")
    x = ZeroPadding2D((1, 1))(_rectified(x, "conv1_"))
    x = MaxPooling2D(3, strides=2, name="pool1")(x)
    for stage, depth in enumerate(depths, start=2):
        if stage > 2:
            x = _transition(x, f"pool{stage - 1}")
        for i in range(1, depth + 1):
            x = _block(x, f"conv{stage}_block{i}")
    x = _rectified(x, "")
    return request.head(x, average="avg_pool", pooled="avg_pool", maximum="max_pool")


def _block(x: Any, name: str) -> Any:
    """A 1x1 and a 3x3 convolution whose result is concatenated to the input."""
    y = conv(_rectified(x, f"{name}_0_"), 4 * _GROWTH, 1, 1, f"{name}_1_conv", "valid")
    y = conv(_rectified(y, f"{name}_1_"), _GROWTH, 3, 1, f"{name}_2_conv")
    return join([x, y], f"{name}_concat")


def _transition(x: Any, name: str) -> Any:
    """Half the channels, and half the sides of the image."""
    channels = x.shape[channel_axis()]
    x = conv(_rectified(x, f"{name}_"), channels // 2, 1, 1, f"{name}_conv", "valid")
    return AveragePooling2D(2, strides=2, name=f"{name}_pool")(x)


_variant = functools.partial(layered, "DenseNet", _SOURCE, _densenet)
# Table 1: blocks per stage.
DenseNet121 = _variant(
    121, (6, 12, 24, 16), "9d60b8095a5708f2dcce2bca79d332c7", "30ee3e1110167f948a6b9946edeeb738"
)
DenseNet169 = _variant(
    169, (6, 12, 32, 32), "d699b8f76981ab1b30698df4c175e90b", "b8c4d4c20dd625c148057b9ff1c1176b"
)
DenseNet201 = _variant(
    201, (6, 12, 48, 32), "1ceb130c1ea1b78c3bf6114dbdfd8807", "c13680b51ded0fb44dff2d8f86ac8bb1"
)
