"""MobileNet v2: inverted residuals with linear bottlenecks (Sandler et al., 2018)."""

from __future__ import annotations

from typing import Any

from kerasish.applications.blocks import conv, depthwise, norm, pad_for_stride
from kerasish.applications.imagenet_utils import decode_predictions as decode_predictions
from kerasish.applications.imagenet_utils import scaling
from kerasish.applications.network import (
    STORAGE,
    NetworkRequest,
    Published,
    channel_axis,
    divisible,
    documented,
    published_side,
    square_side,
)
from kerasish.engine import Model
from kerasish.layers import Add, ReLU
from kerasish.typing import ActivationLike, AnyTensor, PathLike

# Table 2: expansion, filters, blocks, stride of the first block.
_STAGES = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
    (6, 320, 1, 1),
)  # fmt: skip
_SIDES = (96, 128, 160, 192, 224)
_ALPHAS = (0.35, 0.5, 0.75, 1.0, 1.3, 1.4)
_FILE = STORAGE + "mobilenet_v2/mobilenet_v2_weights_tf_dim_ordering_tf_kernels_"
_NORM = {"epsilon": 1e-3, "momentum": 0.999}

preprocess_input = scaling("tf")


def _mobilenet_v2(
    input_shape: tuple[int | None, ...] | None = None,
    alpha: float = 1.0,
    include_top: bool = True,
    weights: PathLike | None = "imagenet",
    input_tensor: AnyTensor | None = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: ActivationLike | None = "softmax",
    name: str | None = None,
) -> Model:
    request = NetworkRequest(
        include_top, weights, input_tensor, input_shape, pooling, classes, classifier_activation,
        name or "mobilenetv2",
    )  # fmt: skip
    if request.imagenet and alpha not in _ALPHAS:
        raise ValueError(
            f"MobileNetV2: ImageNet weights are published for alpha in {_ALPHAS}, got {alpha}."
        )
    given = square_side(input_shape, input_tensor)
    image = request.image(given if given in _SIDES else 224, 32)
    side = published_side(request, _SIDES, 224)

    x = conv(image, divisible(32 * alpha), 3, 2, "Conv1")
    x = ReLU(6.0, name="Conv1_relu")(norm(x, "bn_Conv1", **_NORM))
    number = 0
    for expansion, filters, blocks, stride in _STAGES:
        for i in range(blocks):
            x = _block(x, number, expansion, divisible(int(filters * alpha)), 1 if i else stride)
            number += 1
    x = conv(x, divisible(1280 * alpha) if alpha > 1 else 1280, 1, name="Conv_1", padding="valid")
    x = ReLU(6.0, name="out_relu")(norm(x, "Conv_1_bn", **_NORM))
    x = request.head(x)
    request.name = name or f"mobilenetv2_{alpha:0.2f}_{side}"
    file = f"{_FILE}{float(alpha)}_{side}"
    return request.model(image, x, Published(f"{file}.h5", f"{file}_no_top.h5"))


def _block(x: Any, number: int, expansion: int, filters: int, stride: int) -> Any:
    """Expand the channels, filter each, project linearly; add the input where shapes agree."""
    start, channels = x, x.shape[channel_axis()]
    prefix = f"block_{number}_" if number else "expanded_conv_"
    if number:
        x = conv(x, expansion * channels, 1, name=f"{prefix}expand")
        x = ReLU(6.0, name=f"{prefix}expand_relu")(norm(x, f"{prefix}expand_BN", **_NORM))
    if stride == 2:
        x = pad_for_stride(x, 3, f"{prefix}pad")
    x = depthwise(x, 3, stride, f"{prefix}depthwise", "same" if stride == 1 else "valid")
    x = ReLU(6.0, name=f"{prefix}depthwise_relu")(norm(x, f"{prefix}depthwise_BN", **_NORM))
    x = norm(conv(x, filters, 1, name=f"{prefix}project"), f"{prefix}project_BN", **_NORM)
    if stride == 1 and channels == filters:
        x = Add(name=f"{prefix}add")([start, x])
    return x


MobileNetV2 = documented(
    _mobilenet_v2, "MobileNetV2", "MobileNet v2", 224,
    "Sandler et al. (2018), https://arxiv.org/abs/1801.04381",
)  # fmt: skip
