"""ResNet v2: normalization and activation before each convolution (He et al., 2016)."""

from __future__ import annotations

import functools
from typing import Any

from kerasish.applications.blocks import activate, conv, norm
from kerasish.applications.imagenet_utils import decode_predictions as decode_predictions
from kerasish.applications.imagenet_utils import scaling
from kerasish.applications.network import NetworkRequest, layered
from kerasish.applications.resnet import EPSILON, pool, stem
from kerasish.layers import Add, MaxPooling2D, ZeroPadding2D

_SOURCE = "He et al. (2016), https://arxiv.org/abs/1603.05027"

preprocess_input = scaling("tf")


def _resnet(image: Any, request: NetworkRequest, depths: tuple[int, ...]) -> Any:
    x = pool(stem(image))
    for stage, (filters, depth) in enumerate(zip((64, 128, 256, 512), depths), start=2):
        for i in range(1, depth + 1):
            stride = 2 if i == depth and stage < 5 else 1
            x = _block(x, f"conv{stage}_block{i}", filters, stride, project=i == 1)
    x = activate(norm(x, "post_bn", epsilon=EPSILON), "relu", "post_relu")
    return request.head(x, average="avg_pool", pooled="avg_pool", maximum="max_pool")


def _block(x: Any, name: str, filters: int, stride: int, project: bool) -> Any:
    """1x1, 3x3, 1x1 convolutions of the activated input, added to the input."""
    first = activate(norm(x, f"{name}_preact_bn", epsilon=EPSILON), "relu", f"{name}_preact_relu")
    shortcut = x
    if project:
        shortcut = conv(first, 4 * filters, 1, stride, f"{name}_0_conv", "valid", bias=True)
    elif stride > 1:
        shortcut = MaxPooling2D(1, strides=stride)(x)
    y = conv(first, filters, 1, 1, f"{name}_1_conv", "valid")
    y = activate(norm(y, f"{name}_1_bn", epsilon=EPSILON), "relu", f"{name}_1_relu")
    y = ZeroPadding2D((1, 1), name=f"{name}_2_pad")(y)
    y = conv(y, filters, 3, stride, f"{name}_2_conv", "valid")
    y = activate(norm(y, f"{name}_2_bn", epsilon=EPSILON), "relu", f"{name}_2_relu")
    y = conv(y, 4 * filters, 1, 1, f"{name}_3_conv", "valid", bias=True)
    return Add(name=f"{name}_out")([shortcut, y])


_variant = functools.partial(layered, "ResNet", _SOURCE, _resnet, version="V2")
# Blocks per stage, as in ResNet.
ResNet50V2 = _variant(
    50, (3, 4, 6, 3), "3ef43a0b657b3be2300d5770ece849e0", "fac2f116257151a9d068a22e544a4917"
)
ResNet101V2 = _variant(
    101, (3, 4, 23, 3), "6343647c601c52e1368623803854d971", "c0ed64b8031c3730f411d2eb4eea35b5"
)
ResNet152V2 = _variant(
    152, (3, 8, 36, 3), "a49b44d1979771252814e80f8ec446f9", "ed17cf2e0169df9d443503ef94b23b33"
)
