"""EfficientNet: width, depth and resolution grow together (Tan and Le, 2019)."""

from __future__ import annotations

import math
from typing import Any

from kerasish.applications.blocks import activate, conv, depthwise, norm, pad_for_stride
from kerasish.applications.imagenet_utils import decode_predictions as decode_predictions
from kerasish.applications.imagenet_utils import scaling
from kerasish.applications.network import (
    Application,
    NetworkRequest,
    application,
    channel_axis,
    divisible,
    weights_file,
)
from kerasish.initializers import VarianceScaling
from kerasish.layers import (
    Add,
    Dropout,
    GlobalAveragePooling2D,
    Multiply,
    Normalization,
    Rescaling,
    Reshape,
)

_SOURCE = "Tan and Le (2019), https://arxiv.org/abs/1905.11946"
_FOLDER = "https://storage.googleapis.com/keras-applications/"
# Table 1: kernel, blocks, input filters, filters, expansion, stride of the first block.
_STAGES = (
    (3, 1, 32, 16, 1, 1), (3, 2, 16, 24, 6, 2), (5, 2, 24, 40, 6, 2), (3, 3, 40, 80, 6, 2),
    (5, 3, 80, 112, 6, 1), (5, 4, 112, 192, 6, 2), (3, 1, 192, 320, 6, 1),
)  # fmt: skip
_DEVIATION = (0.229, 0.224, 0.225)  # of ImageNet's red, green and blue
_SURVIVAL = 0.2  # the rate at which the last block is dropped

preprocess_input = scaling("none")


def start_of_convolution() -> VarianceScaling:
    """Return the initializer of kernels: normal, with the variance 2 / outputs."""
    return VarianceScaling(2.0, "fan_out", "truncated_normal")


def start_of_classifier() -> VarianceScaling:
    """Return the initializer of the classifier: uniform, with the variance 1 / (3 outputs)."""
    return VarianceScaling(1.0 / 3.0, "fan_out", "uniform")


def started_conv(
    x: Any, filters: int, kernel: int, strides: int = 1, name: str | None = None,
    padding: str = "same", **options: Any,
) -> Any:  # fmt: skip
    """Return a convolution of `x` whose kernel starts as `start_of_convolution` says."""
    start = start_of_convolution()
    return conv(x, filters, kernel, strides, name, padding, kernel_initializer=start, **options)


def squeezed(x: Any, inputs: int, ratio: float, name: str) -> Any:
    """Scale each channel by a number from 0 to 1, computed from the means of all channels.

    Args:
        inputs: channels of the block's input.
        ratio: channels in between, relative to `inputs`.
        name: prefix of the layers' names.
    """
    channels = x.shape[channel_axis()]
    y = GlobalAveragePooling2D(name=f"{name}se_squeeze")(x)
    shape = (1, 1, channels) if channel_axis() == 3 else (channels, 1, 1)
    y = Reshape(shape, name=f"{name}se_reshape")(y)
    for filters, function, what in (
        (max(1, int(inputs * ratio)), "silu", "reduce"), (channels, "sigmoid", "expand"),
    ):  # fmt: skip
        y = started_conv(y, filters, 1, name=f"{name}se_{what}", bias=True, activation=function)
    return Multiply(name=f"{name}se_excite")([x, y])


def dropped(x: Any, shortcut: Any, rate: float, name: str) -> Any:
    """Add `x`, left out for some of the images at random, to the block's input."""
    if rate > 0:
        x = Dropout(rate, noise_shape=(None, 1, 1, 1), name=f"{name}drop")(x)
    return Add(name=f"{name}add")([x, shortcut])


def _efficientnet(
    image: Any, request: NetworkRequest, width: float, depth: float, dropout: float
) -> Any:
    def filters(number: int) -> int:
        return divisible(number * width)

    x = Normalization(axis=channel_axis())(Rescaling(1 / 255)(image))
    if request.imagenet:
        # The published weights were trained on images divided by the square root a second time.
        x = Rescaling([1 / math.sqrt(deviation) for deviation in _DEVIATION])(x)
    x = started_conv(pad_for_stride(x, 3, "stem_conv_pad"), filters(32), 3, 2, "stem_conv", "valid")
    x = activate(norm(x, "stem_bn"), "silu", "stem_activation")
    repeats = [math.ceil(depth * stage[1]) for stage in _STAGES]
    number = 0
    for stage, (count, row) in enumerate(zip(repeats, _STAGES), start=1):
        kernel, _, inputs, outputs, expansion, stride = row
        for i in range(count):
            x = _block(
                x, f"block{stage}{chr(ord('a') + i)}_", kernel, filters(outputs if i else inputs),
                filters(outputs), expansion, 1 if i else stride, _SURVIVAL * number / sum(repeats),
            )  # fmt: skip
            number += 1
    x = started_conv(x, filters(1280), 1, name="top_conv")
    x = activate(norm(x, "top_bn"), "silu", "top_activation")
    return request.head(
        x, "avg_pool", "max_pool", "avg_pool", (dropout, "top_dropout"),
        kernel_initializer=start_of_classifier(),
    )  # fmt: skip


def _block(
    x: Any, name: str, kernel: int, inputs: int, outputs: int, expansion: int, stride: int,
    rate: float,
) -> Any:  # fmt: skip
    y = x
    if expansion != 1:
        y = started_conv(y, inputs * expansion, 1, name=f"{name}expand_conv")
        y = activate(norm(y, f"{name}expand_bn"), "silu", f"{name}expand_activation")
    if stride == 2:
        y = pad_for_stride(y, kernel, f"{name}dwconv_pad")
    y = depthwise(
        y, kernel, stride, f"{name}dwconv", "same" if stride == 1 else "valid",
        depthwise_initializer=start_of_convolution(),
    )  # fmt: skip
    y = activate(norm(y, f"{name}bn"), "silu", f"{name}activation")
    y = squeezed(y, inputs, 0.25, name)
    y = started_conv(y, outputs, 1, name=f"{name}project_conv")
    y = norm(y, f"{name}project_bn")
    return dropped(y, x, rate, name) if stride == 1 and inputs == outputs else y


def _variant(
    number: int, width: float, depth: float, side: int, dropout: float, *hashes: str
) -> Application:
    return application(
        f"EfficientNetB{number}", f"efficientnetb{number}", f"EfficientNet B{number}", _SOURCE,
        (side, 32), _efficientnet, weights_file(f"{_FOLDER}efficientnetb{number}", hashes),
        width=width, depth=depth, dropout=dropout,
    )  # fmt: skip


# Width, depth, side of the images, dropout.
EfficientNetB0 = _variant(
    0, 1.0, 1.0, 224, 0.2, "902e53a9f72be733fc0bcb005b3ebbac", "50bc09e76180e00e4465e1a485ddc09d"
)
EfficientNetB1 = _variant(
    1, 1.0, 1.1, 240, 0.2, "1d254153d4ab51201f1646940f018540", "74c4e6b3e1f6a1eea24c589628592432"
)
EfficientNetB2 = _variant(
    2, 1.1, 1.2, 260, 0.3, "b15cce36ff4dcbd00b6dd88e7857a6ad", "111f8e2ac8aa800a7a99e3239f7bfb39"
)
EfficientNetB3 = _variant(
    3, 1.2, 1.4, 300, 0.3, "ffd1fdc53d0ce67064dc6a9c7960ede0", "af6d107764bb5b1abb91932881670226"
)
EfficientNetB4 = _variant(
    4, 1.4, 1.8, 380, 0.4, "18c95ad55216b8f92d7e70b3a046e2fc", "ebc24e6d6c33eaebbd558eafbeedf1ba"
)
EfficientNetB5 = _variant(
    5, 1.6, 2.2, 456, 0.4, "ace28f2a6363774853a83a0b21b9421a", "38879255a25d3c92d5e44e04ae6cec6f"
)
EfficientNetB6 = _variant(
    6, 1.8, 2.6, 528, 0.5, "165f6e37dce68623721b423839de8be5", "9ecce42647a20130c1f39a5d4cb75743"
)
EfficientNetB7 = _variant(
    7, 2.0, 3.1, 600, 0.5, "8c03f828fec3ef71311cd463b6759d99", "cbcfe4450ddf6f3ad90b1b398090fe4a"
)
