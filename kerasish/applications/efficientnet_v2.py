"""EfficientNet v2: fused blocks first, smaller expansions (Tan and Le, 2021)."""

from __future__ import annotations

import math
from typing import Any, Protocol

from kerasish.applications.blocks import activate, depthwise, norm
from kerasish.applications.efficientnet import (
    dropped,
    squeezed,
    start_of_classifier,
    start_of_convolution,
    started_conv,
)
from kerasish.applications.imagenet_utils import decode_predictions as decode_predictions
from kerasish.applications.imagenet_utils import scaling
from kerasish.applications.network import (
    STORAGE,
    NetworkRequest,
    channel_axis,
    network,
    weights_file,
)
from kerasish.engine import Model
from kerasish.layers import Normalization, Rescaling
from kerasish.typing import ActivationLike, PathLike

_SOURCE = "Tan and Le (2021), https://arxiv.org/abs/2104.00298"
_NORM = {"momentum": 0.9}
_SURVIVAL = 0.2  # the rate at which the last block is dropped
_DROPOUT = 0.2
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's channels
_Stage = tuple[int, int, int, int, int, bool]
# Table 4 and the authors' code: blocks, input filters, filters, expansion, stride of the first
# block, fused. Fused blocks have no squeeze and excitation.
_STAGES: dict[str, tuple[_Stage, ...]] = {
    "s": (
        (2, 24, 24, 1, 1, True), (4, 24, 48, 4, 2, True), (4, 48, 64, 4, 2, True),
        (6, 64, 128, 4, 2, False), (9, 128, 160, 6, 1, False), (15, 160, 256, 6, 2, False),
    ),
    "m": (
        (3, 24, 24, 1, 1, True), (5, 24, 48, 4, 2, True), (5, 48, 80, 4, 2, True),
        (7, 80, 160, 4, 2, False), (14, 160, 176, 6, 1, False), (18, 176, 304, 6, 2, False),
        (5, 304, 512, 6, 1, False),
    ),
    "l": (
        (4, 32, 32, 1, 1, True), (7, 32, 64, 4, 2, True), (7, 64, 96, 4, 2, True),
        (10, 96, 192, 4, 2, False), (19, 192, 224, 6, 1, False), (25, 224, 384, 6, 2, False),
        (7, 384, 640, 6, 1, False),
    ),
    "b": (
        (1, 32, 16, 1, 1, True), (2, 16, 32, 4, 2, True), (2, 32, 48, 4, 2, True),
        (3, 48, 96, 4, 2, False), (5, 96, 112, 6, 1, False), (8, 112, 192, 6, 2, False),
    ),
}  # fmt: skip

preprocess_input = scaling("none")


class _EfficientNetV2(Protocol):
    def __call__(
        self,
        include_top: bool = True,
        weights: PathLike | None = "imagenet",
        input_tensor: Any = None,
        input_shape: tuple[int | None, ...] | None = None,
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: ActivationLike | None = "softmax",
        include_preprocessing: bool = True,
        name: str = ...,
    ) -> Model:
        """Return the model."""


def _variant(size: str, width: float, depth: float, side: int, *hashes: str) -> _EfficientNetV2:
    """Return the function that builds a network; `width` and `depth` are factors of B0's."""
    private = f"efficientnetv2-{size.lower()}"
    published = weights_file(f"{STORAGE}efficientnet_v2/{private}", hashes)

    def build(request: NetworkRequest, include_preprocessing: bool) -> Model:
        image = request.image(side, 32)
        x = _scaled(image, size) if include_preprocessing else image
        x = _features(x, _STAGES[size[0].lower()], width, depth)
        x = request.head(
            x, "avg_pool", "max_pool", "avg_pool", (_DROPOUT, "top_dropout"),
            kernel_initializer=start_of_classifier(),
        )  # fmt: skip
        return request.model(image, x, published)

    public, what = f"EfficientNetV2{size}", f"EfficientNet v2 {size}"
    return network(_EfficientNetV2, build, public, private, what, side, _SOURCE)


def _scaled(image: Any, size: str) -> Any:
    if not size.startswith("B") or image.shape[channel_axis()] != 3:
        return Rescaling(1 / 128, -1)(image)
    variance = [deviation**2 for deviation in _DEVIATION]
    return Normalization(mean=list(_MEAN), variance=variance, axis=channel_axis())(
        Rescaling(1 / 255)(image)
    )


def _features(x: Any, stages: tuple[_Stage, ...], width: float, depth: float) -> Any:
    def filters(number: int) -> int:
        return max(8, int(number * width + 4) // 8 * 8)

    x = started_conv(x, filters(stages[0][1]), 3, 2, "stem_conv")
    x = activate(norm(x, "stem_bn", **_NORM), "silu", "stem_activation")
    number, total = 0, sum(stage[0] for stage in stages)
    for stage, (blocks, inputs, outputs, expansion, stride, fused) in enumerate(stages, start=1):
        for i in range(math.ceil(depth * blocks)):
            x = (_fused_block if fused else _block)(
                x, f"block{stage}{chr(ord('a') + i)}_", filters(outputs if i else inputs),
                filters(outputs), expansion, 1 if i else stride, _SURVIVAL * number / total,
            )  # fmt: skip
            number += 1
    x = started_conv(x, filters(1280), 1, 1, "top_conv")
    return activate(norm(x, "top_bn", **_NORM), "silu", "top_activation")


def _block(
    x: Any, name: str, inputs: int, outputs: int, expansion: int, stride: int, rate: float
) -> Any:
    """Expand, filter each channel, squeeze and excite, project."""
    y = started_conv(x, inputs * expansion, 1, 1, f"{name}expand_conv")
    y = activate(norm(y, f"{name}expand_bn", **_NORM), "silu", f"{name}expand_activation")
    y = depthwise(y, 3, stride, f"{name}dwconv2", depthwise_initializer=start_of_convolution())
    y = activate(norm(y, f"{name}bn", **_NORM), "silu", f"{name}activation")
    y = squeezed(y, inputs, 0.25, name)
    y = norm(started_conv(y, outputs, 1, 1, f"{name}project_conv"), f"{name}project_bn", **_NORM)
    return dropped(y, x, rate, name) if stride == 1 and inputs == outputs else y


def _fused_block(
    x: Any, name: str, inputs: int, outputs: int, expansion: int, stride: int, rate: float
) -> Any:
    """Expand by a 3x3 convolution and project; without an expansion, only the 3x3 convolution."""
    y, kernel = x, 3
    if expansion != 1:
        y = started_conv(y, inputs * expansion, 3, stride, f"{name}expand_conv")
        y = activate(norm(y, f"{name}expand_bn", **_NORM), "silu", f"{name}expand_activation")
        kernel = 1
    last_stride = stride if expansion == 1 else 1
    y = started_conv(y, outputs, kernel, last_stride, f"{name}project_conv")
    y = norm(y, f"{name}project_bn", **_NORM)
    if expansion == 1:
        y = activate(y, "silu", f"{name}project_activation")
    return dropped(y, x, rate, name) if stride == 1 and inputs == outputs else y


EfficientNetV2B0 = _variant(
    "B0", 1.0, 1.0, 224, "21ecbf6da12460d5c40bb2f29ceb2188", "893217f2bb855e2983157299931e43ff"
)
EfficientNetV2B1 = _variant(
    "B1", 1.0, 1.1, 240, "069f0534ff22adf035c89e2d9547a9dc", "0e80663031ca32d657f9caa404b6ec37"
)
EfficientNetV2B2 = _variant(
    "B2", 1.1, 1.2, 260, "424e49f28180edbde1e94797771950a7", "1dfe2e7a5d45b6632553a8961ea609eb"
)
EfficientNetV2B3 = _variant(
    "B3", 1.2, 1.4, 300, "1f1fc43bd98a6e4fd8fdfd551e02c7a0", "f6abf7b5849ac99a89b50dd3fd532856"
)
EfficientNetV2S = _variant(
    "S", 1.0, 1.0, 384, "e1d88a8495beba45748fedd0cecbe016", "af0682fb74e8c54910f2d4393339c070"
)
EfficientNetV2M = _variant(
    "M", 1.0, 1.0, 480, "a3bf6aa3276309f4fc6a34aa114c95cd", "1b8dc055df72dde80d614482840fe342"
)
EfficientNetV2L = _variant(
    "L", 1.0, 1.0, 480, "27e6d408b53c7ebc868fefa357689935", "b0b66b5c863aef5b46e8608fe1711615"
)
