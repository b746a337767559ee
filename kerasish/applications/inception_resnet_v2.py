"""Inception-ResNet v2: inception branches as residuals (Szegedy et al., 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish import ops, registry
from kerasish.applications.blocks import activate, conv, join, norm
from kerasish.applications.imagenet_utils import decode_predictions as decode_predictions
from kerasish.applications.imagenet_utils import scaling
from kerasish.applications.inception_v3 import chain, first_layers, pooled, unit
from kerasish.applications.network import NetworkRequest, application, channel_axis, kernels_file
from kerasish.engine import Layer
from kerasish.layers import MaxPooling2D
from kerasish.typing import AnyTensor

preprocess_input = scaling("tf")


class CustomScaleLayer(Layer):
    """x + scale * y.

    Args:
        scale: factor of the residual.
    """

    weightless = True

    def __init__(self, scale: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scale = scale

    def call(self, inputs: Sequence[AnyTensor]) -> Any:
        """Add the scaled residual `inputs[1]` to `inputs[0]`."""
        return ops.add(inputs[0], ops.multiply(inputs[1], self.scale))


registry.add_builtins(
    "keras.src.applications.inception_resnet_v2", {"CustomScaleLayer": CustomScaleLayer}
)


def _inception_resnet(image: Any, request: NetworkRequest) -> Any:
    x = first_layers(image)
    branches = [
        unit(x, 96, 1), chain(x, (48, 1), (64, 5)), chain(x, (64, 1), (96, 3), (96, 3)),
        pooled(x, 64),
    ]  # fmt: skip
    x = join(branches, "mixed_5b")
    for i in range(1, 11):
        branches = [
            unit(x, 32, 1), chain(x, (32, 1), (32, 3)), chain(x, (32, 1), (48, 3), (64, 3))
        ]  # fmt: skip
        x = _residual(x, branches, f"block35_{i}", 0.17)
    wide = unit(x, 384, 3, 2, "valid")
    deep = unit(chain(x, (256, 1), (256, 3)), 384, 3, 2, "valid")
    x = join([wide, deep, MaxPooling2D(3, strides=2)(x)], "mixed_6a")
    for i in range(1, 21):
        branches = [unit(x, 192, 1), chain(x, (128, 1), (160, (1, 7)), (192, (7, 1)))]
        x = _residual(x, branches, f"block17_{i}", 0.1)
    branches = [
        unit(unit(x, 256, 1), 384, 3, 2, "valid"), unit(unit(x, 256, 1), 288, 3, 2, "valid"),
        unit(chain(x, (256, 1), (288, 3)), 320, 3, 2, "valid"), MaxPooling2D(3, strides=2)(x),
    ]  # fmt: skip
    x = join(branches, "mixed_7a")
    for i in range(1, 11):
        branches = [unit(x, 192, 1), chain(x, (192, 1), (224, (1, 3)), (256, (3, 1)))]
        x = _residual(x, branches, f"block8_{i}", 0.2 if i < 10 else 1.0, rectify=i < 10)
    x = norm(conv(x, 1536, 1, name="conv_7b"), "conv_7b_bn", scale=False)
    return request.head(activate(x, "relu", "conv_7b_ac"), average="avg_pool")


def _residual(x: Any, branches: list[Any], name: str, scale: float, rectify: bool = True) -> Any:
    """Add the branches, projected to the input's channels and scaled, to the input."""
    y = join(branches, f"{name}_mixed")
    y = conv(y, x.shape[channel_axis()], 1, name=f"{name}_conv", bias=True)
    x = CustomScaleLayer(scale)([x, y])
    return activate(x, "relu", f"{name}_ac") if rectify else x


InceptionResNetV2 = application(
    "InceptionResNetV2", "inception_resnet_v2", "Inception-ResNet v2",
    "Szegedy et al. (2016), https://arxiv.org/abs/1602.07261", (299, 75), _inception_resnet,
    kernels_file(
        "inception_resnet_v2", "inception_resnet_v2",
        "e693bd0210a403b3192acc6073ad2e96", "d19885ff4a710c122648d3b5c3b684e4",
    ),
)  # fmt: skip
