"""MobileNet: depth-wise convolutions and 1x1 convolutions in turn (Howard et al., 2017)."""

from __future__ import annotations

from typing import Any

from kerasish.applications.blocks import activate, conv, depthwise, norm
from kerasish.applications.imagenet_utils import decode_predictions as decode_predictions
from kerasish.applications.imagenet_utils import scaling
from kerasish.applications.network import (
    STORAGE,
    NetworkRequest,
    Published,
    documented,
    published_side,
    square_side,
)
from kerasish.engine import Model
from kerasish.layers import Dropout, GlobalAveragePooling2D, ReLU, Reshape, ZeroPadding2D
from kerasish.typing import ActivationLike, AnyTensor, PathLike

# Table 1: filters and stride of each pair of convolutions.
_PAIRS = (
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1), (512, 1), (512, 1),
    (512, 1), (512, 1), (1024, 2), (1024, 1),
)  # fmt: skip
_SIDES = (128, 160, 192, 224)
_ALPHAS = {0.25: "2_5", 0.5: "5_0", 0.75: "7_5", 1.0: "1_0"}  # -> their text in file names

preprocess_input = scaling("tf")


def _mobilenet(
    input_shape: tuple[int | None, ...] | None = None,
    alpha: float = 1.0,
    depth_multiplier: int = 1,
    dropout: float = 1e-3,
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
        name or "mobilenet",
    )  # fmt: skip
    if request.imagenet and (alpha not in _ALPHAS or depth_multiplier != 1):
        raise ValueError(
            f"MobileNet: ImageNet weights are published for alpha in {sorted(_ALPHAS)} and "
            f"depth_multiplier 1, got alpha={alpha} and depth_multiplier={depth_multiplier}."
        )
    given = square_side(input_shape, None)
    image = request.image(given if given in _SIDES else 224, 32)
    side = published_side(request, _SIDES, 224)
    x = conv(image, int(32 * alpha), 3, 2, "conv1")
    x = ReLU(6.0, name="conv1_relu")(norm(x, "conv1_bn"))
    for i, (filters, stride) in enumerate(_PAIRS, start=1):
        x = _pair(x, i, int(filters * alpha), stride, depth_multiplier)
    x = _classifier(x, request, dropout) if include_top else request.head(x)
    request.name = name or f"mobilenet_{alpha:0.2f}_{side}"
    file = f"{STORAGE}mobilenet/mobilenet_{_ALPHAS.get(alpha)}_{side}_tf"
    return request.model(image, x, Published(f"{file}.h5", f"{file}_no_top.h5"))


def _pair(x: Any, number: int, filters: int, stride: int, multiplier: int) -> Any:
    if stride == 2:
        x = ZeroPadding2D(((0, 1), (0, 1)), name=f"conv_pad_{number}")(x)
    padding = "same" if stride == 1 else "valid"
    name = f"conv_dw_{number}"
    x = depthwise(x, 3, stride, name, padding, depth_multiplier=multiplier)
    x = ReLU(6.0, name=f"{name}_relu")(norm(x, f"{name}_bn"))
    name = f"conv_pw_{number}"
    return ReLU(6.0, name=f"{name}_relu")(norm(conv(x, filters, 1, name=name), f"{name}_bn"))


def _classifier(x: Any, request: NetworkRequest, dropout: float) -> Any:
    x = GlobalAveragePooling2D(keepdims=True)(x)
    x = Dropout(dropout, name="dropout")(x)
    x = conv(x, request.classes, 1, name="conv_preds", bias=True)
    x = Reshape((request.classes,), name="reshape_2")(x)
    return activate(x, request.classifier_activation, "predictions")


MobileNet = documented(
    _mobilenet,
    "MobileNet",
    "MobileNet",
    224,
    "Howard et al. (2017), https://arxiv.org/abs/1704.04861",
)
