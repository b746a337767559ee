"""MobileNet v3: inverted residuals with squeeze and excitation (Howard et al., 2019)."""

from __future__ import annotations

from typing import Any, Protocol

from kerasish.applications.blocks import activate, conv, depthwise, norm, pad_for_stride
from kerasish.applications.imagenet_utils import decode_predictions as decode_predictions
from kerasish.applications.imagenet_utils import scaling
from kerasish.applications.network import (
    STORAGE,
    NetworkRequest,
    Published,
    channel_axis,
    divisible,
    network,
    published_side,
)
from kerasish.engine import Model, is_keras_tensor
from kerasish.layers import Add, Dropout, Flatten, GlobalAveragePooling2D, Multiply, ReLU, Rescaling
from kerasish.typing import ActivationLike, PathLike

_SOURCE = "Howard et al. (2019), https://arxiv.org/abs/1905.02244"
_NORM = {"epsilon": 1e-3, "momentum": 0.999}
_Block = tuple[float, int, int, int, bool, bool]
# Tables 1 and 2: expansion, filters, kernel, stride, squeeze and excitation, hard swish.
_LARGE: tuple[_Block, ...] = (
    (1, 16, 3, 1, False, False), (4, 24, 3, 2, False, False), (3, 24, 3, 1, False, False),
    (3, 40, 5, 2, True, False), (3, 40, 5, 1, True, False), (3, 40, 5, 1, True, False),
    (6, 80, 3, 2, False, True), (2.5, 80, 3, 1, False, True), (2.3, 80, 3, 1, False, True),
    (2.3, 80, 3, 1, False, True), (6, 112, 3, 1, True, True), (6, 112, 3, 1, True, True),
    (6, 160, 5, 2, True, True), (6, 160, 5, 1, True, True), (6, 160, 5, 1, True, True),
)  # fmt: skip
_SMALL: tuple[_Block, ...] = (
    (1, 16, 3, 2, True, False), (72 / 16, 24, 3, 2, False, False),
    (88 / 24, 24, 3, 1, False, False),
    (4, 40, 5, 2, True, True), (6, 40, 5, 1, True, True), (6, 40, 5, 1, True, True),
    (3, 48, 5, 1, True, True), (3, 48, 5, 1, True, True), (6, 96, 5, 2, True, True),
    (6, 96, 5, 1, True, True), (6, 96, 5, 1, True, True),
)  # fmt: skip
_HASHES = {
    "large_224_0.75": ("765b44a33ad4005b3ac83185abf1d0eb", "40af19a13ebea4e2ee0c676887f69a2e"),
    "large_224_1.0": ("59e551e166be033d707958cf9e29a6a7", "07fb09a5933dd0c8eaafa16978110389"),
    "large_minimalistic_224_1.0": (
        "675e7b876c45c57e9e63e6d90a36599c", "ec5221f64a2f6d1ef965a614bdae7973",
    ),
    "small_224_0.75": ("cb65d4e5be93758266aa0a7f2c6708b7", "ebdb5cc8e0b497cd13a7c275d475c819"),
    "small_224_1.0": ("8768d4c2e7dee89b9d02b2d03d65d862", "d3e8ec802a04aa4fc771ee12a9a9b836"),
    "small_minimalistic_224_1.0": (
        "99cd97fb2fcdad2bf028eb838de69e37", "cde8136e733e811080d9fcd8a252f7e4",
    ),
}  # fmt: skip

preprocess_input = scaling("none")


class _MobileNetV3(Protocol):
    def __call__(
        self,
        input_shape: tuple[int | None, ...] | None = None,
        alpha: float = 1.0,
        minimalistic: bool = False,
        include_top: bool = True,
        weights: PathLike | None = "imagenet",
        input_tensor: Any = None,
        classes: int = 1000,
        pooling: str | None = None,
        dropout_rate: float = 0.2,
        classifier_activation: ActivationLike | None = "softmax",
        include_preprocessing: bool = True,
        name: str = ...,
    ) -> Model:
        """Return the model."""


def _variant(size: str, blocks: tuple[_Block, ...], last: int) -> _MobileNetV3:
    def build(
        request: NetworkRequest, alpha: float, minimalistic: bool, dropout_rate: float,
        include_preprocessing: bool,
    ) -> Model:  # fmt: skip
        variant = f"{size.lower()}{'_minimalistic' if minimalistic else ''}_224_{float(alpha)}"
        published = _published(variant, request.name) if request.imagenet else None
        if request.input_shape is None and is_keras_tensor(request.input_tensor):
            request.input_shape = tuple(request.input_tensor.shape)[1:]
        image = request.image(224, 32, fixed=False)
        published_side(request, (224,), 224)
        x = Rescaling(1 / 127.5, -1.0)(image) if include_preprocessing else image
        features = _features(x, blocks, alpha, minimalistic)
        point = divisible(last * alpha) if alpha > 1 else last
        if request.include_top:
            x = _classifier(features, request, point, dropout_rate, not minimalistic)
        else:
            x = request.head(features, pooled="avg_pool", maximum="max_pool")
        return request.model(image, x, published)

    name, what = f"MobileNetV3{size}", f"MobileNet v3, {size.lower()}"
    return network(_MobileNetV3, build, name, name, what, 224, _SOURCE)


def _published(variant: str, who: str) -> Published:
    if variant not in _HASHES:
        raise ValueError(
            f"{who}: ImageNet weights are published for alpha 0.75 and 1.0, minimalistic for 1.0 "
            "only; pass weights=None for others."
        )
    file = f"{STORAGE}mobilenet_v3/weights_mobilenet_v3_{variant}_float"
    return Published(f"{file}.h5", f"{file}_no_top_v2.h5", _HASHES[variant])


def _activated(x: Any, hard_swish: bool) -> Any:
    return activate(x, "hard_swish") if hard_swish else ReLU()(x)


def _features(x: Any, blocks: tuple[_Block, ...], alpha: float, minimalistic: bool) -> Any:
    x = norm(conv(x, 16, 3, 2, "conv"), "conv_bn", **_NORM)
    x = _activated(x, not minimalistic)
    for i, (expansion, filters, kernel, stride, squeeze, swish) in enumerate(blocks):
        x = _block(
            x, i, expansion, divisible(filters * alpha), 3 if minimalistic else kernel, stride,
            squeeze and not minimalistic, swish and not minimalistic,
        )  # fmt: skip
    x = conv(x, divisible(x.shape[channel_axis()] * 6), 1, name="conv_1")
    return _activated(norm(x, "conv_1_bn", **_NORM), not minimalistic)


def _block(
    x: Any, number: int, expansion: float, filters: int, kernel: int, stride: int, squeeze: bool,
    swish: bool,
) -> Any:  # fmt: skip
    start, channels = x, x.shape[channel_axis()]
    width = divisible(channels * expansion)
    prefix = f"expanded_conv_{number}_" if number else "expanded_conv_"
    if number:
        x = norm(conv(x, width, 1, name=f"{prefix}expand"), f"{prefix}expand_bn", **_NORM)
        x = _activated(x, swish)
    if stride == 2:
        x = pad_for_stride(x, kernel, f"{prefix}depthwise_pad")
    x = depthwise(x, kernel, stride, f"{prefix}depthwise", "same" if stride == 1 else "valid")
    x = _activated(norm(x, f"{prefix}depthwise_bn", **_NORM), swish)
    if squeeze:
        x = _squeezed(x, width, f"{prefix}squeeze_excite_")
    x = norm(conv(x, filters, 1, name=f"{prefix}project"), f"{prefix}project_bn", **_NORM)
    if stride == 1 and channels == filters:
        x = Add(name=f"{prefix}add")([start, x])
    return x


def _squeezed(x: Any, width: int, prefix: str) -> Any:
    """Scale each channel by a number from 0 to 1, computed from the means of all channels."""
    y = GlobalAveragePooling2D(keepdims=True, name=f"{prefix}avg_pool")(x)
    y = conv(y, divisible(width * 0.25), 1, name=f"{prefix}conv", bias=True)
    y = ReLU(name=f"{prefix}relu")(y)
    y = conv(y, width, 1, name=f"{prefix}conv_1", bias=True)
    hard_sigmoid = ReLU(6.0)(y + 3.0) * (1.0 / 6.0)
    return Multiply(name=f"{prefix}mul")([x, hard_sigmoid])


def _classifier(x: Any, request: NetworkRequest, point: int, dropout: float, swish: bool) -> Any:
    x = GlobalAveragePooling2D(keepdims=True)(x)
    x = _activated(conv(x, point, 1, name="conv_2", bias=True), swish)
    if dropout > 0:
        x = Dropout(dropout)(x)
    x = Flatten()(conv(x, request.classes, 1, name="logits", bias=True))
    return activate(x, request.classifier_activation, "predictions")


MobileNetV3Large = _variant("Large", _LARGE, 1280)
MobileNetV3Small = _variant("Small", _SMALL, 1024)
