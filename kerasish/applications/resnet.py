"""ResNet: bottleneck blocks with a shortcut of the unchanged input (He et al., 2015)."""

from __future__ import annotations

import functools
from typing import Any

from kerasish.applications.blocks import activate, conv, norm
from kerasish.applications.imagenet_utils import decode_predictions as decode_predictions
from kerasish.applications.imagenet_utils import scaling
from kerasish.applications.network import NetworkRequest, layered
from kerasish.layers import Add, MaxPooling2D, ZeroPadding2D

_SOURCE = "He et al. (2015), https://arxiv.org/abs/1512.03385"
EPSILON = 1.001e-5

preprocess_input = scaling("caffe")


def stem(image: Any) -> Any:
    """Return the 7x7 convolution of an image, with a stride of 2."""
    x = ZeroPadding2D((3, 3), name="conv1_pad")(image)
    return conv(x, 64, 7, 2, "conv1_conv", "valid", bias=True)


def pool(x: Any) -> Any:
    """Return the maxima of 3x3 windows, with a stride of 2."""
    x = ZeroPadding2D((1, 1), name="pool1_pad")(x)
    return MaxPooling2D(3, strides=2, name="pool1_pool")(x)


def _resnet(image: Any, request: NetworkRequest, depths: tuple[int, ...]) -> Any:
    x = activate(norm(stem(image), "conv1_bn", epsilon=EPSILON), "relu", "conv1_relu")
    x = pool(x)
    for stage, (filters, depth) in enumerate(zip((64, 128, 256, 512), depths), start=2):
        for i in range(1, depth + 1):
            stride = 2 if i == 1 and stage > 2 else 1
            x = _block(x, f"conv{stage}_block{i}", filters, stride, project=i == 1)
    return request.head(x, average="avg_pool", pooled="avg_pool", maximum="max_pool")


def _block(x: Any, name: str, filters: int, stride: int, project: bool) -> Any:
    """1x1, 3x3, 1x1 convolutions, added to the input, which a 1x1 convolution may project."""
    shortcut = x
    if project:
        shortcut = conv(x, 4 * filters, 1, stride, f"{name}_0_conv", "valid", bias=True)
        shortcut = norm(shortcut, f"{name}_0_bn", epsilon=EPSILON)
    for number, kernel, strides, padding in ((1, 1, stride, "valid"), (2, 3, 1, "same")):
        x = conv(x, filters, kernel, strides, f"{name}_{number}_conv", padding, bias=True)
        x = activate(
            norm(x, f"{name}_{number}_bn", epsilon=EPSILON), "relu", f"{name}_{number}_relu"
        )
    x = conv(x, 4 * filters, 1, 1, f"{name}_3_conv", "valid", bias=True)
    x = norm(x, f"{name}_3_bn", epsilon=EPSILON)
    return activate(Add(name=f"{name}_add")([shortcut, x]), "relu", f"{name}_out")


_variant = functools.partial(layered, "ResNet", _SOURCE, _resnet)
# Table 1: blocks per stage.
ResNet50 = _variant(
    50, (3, 4, 6, 3), "2cb95161c43110f7111970584f804107", "4d473c1dd8becc155b73f8504c6f6626"
)
ResNet101 = _variant(
    101, (3, 4, 23, 3), "f1aeb4b969a6efcfb50fad2f0c20cfc5", "88cf7a10940856eca736dc7b7e228a21"
)
ResNet152 = _variant(
    152, (3, 8, 36, 3), "100835be76be38e30d865e96f2aaae62", "ee4c566cf9a93f14d82f913c2dc6dd0c"
)
