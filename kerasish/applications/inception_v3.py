"""Inception v3: branches of factorized convolutions side by side (Szegedy et al., 2015)."""

from __future__ import annotations

from typing import Any

from kerasish.applications.blocks import activate, conv, join, norm
from kerasish.applications.imagenet_utils import decode_predictions as decode_predictions
from kerasish.applications.imagenet_utils import scaling
from kerasish.applications.network import NetworkRequest, application, kernels_file
from kerasish.layers import AveragePooling2D, MaxPooling2D
from kerasish.typing import IntOrTuple

preprocess_input = scaling("tf")


def unit(x: Any, filters: int, kernel: IntOrTuple, strides: int = 1, padding: str = "same") -> Any:
    """Return relu(norm(conv(x))), all three under automatic names."""
    return activate(norm(conv(x, filters, kernel, strides, None, padding), scale=False), "relu")


def chain(x: Any, *units: tuple[int, IntOrTuple]) -> Any:
    """Return units of (filters, kernel), one after the other."""
    for filters, kernel in units:
        x = unit(x, filters, kernel)
    return x


def pooled(x: Any, filters: int) -> Any:
    """Return a 1x1 unit of the means of 3x3 windows."""
    return unit(AveragePooling2D(3, strides=1, padding="same")(x), filters, 1)


def first_layers(image: Any) -> Any:
    """Return the layers before the first branches, which Inception-ResNet shares."""
    x = unit(image, 32, 3, 2, "valid")
    x = unit(unit(x, 32, 3, padding="valid"), 64, 3)
    x = MaxPooling2D(3, strides=2)(x)
    x = unit(unit(x, 80, 1, padding="valid"), 192, 3, padding="valid")
    return MaxPooling2D(3, strides=2)(x)


def _inception(image: Any, request: NetworkRequest) -> Any:
    x = first_layers(image)
    for i, filters in enumerate((32, 64, 64)):
        branches = [
            unit(x, 64, 1), chain(x, (48, 1), (64, 5)), chain(x, (64, 1), (96, 3), (96, 3)),
            pooled(x, filters),
        ]  # fmt: skip
        x = join(branches, f"mixed{i}")
    wide = unit(x, 384, 3, 2, "valid")
    deep = unit(chain(x, (64, 1), (96, 3)), 96, 3, 2, "valid")
    x = join([wide, deep, MaxPooling2D(3, strides=2)(x)], "mixed3")
    for i, n in enumerate((128, 160, 160, 192), start=4):
        branches = [
            unit(x, 192, 1), chain(x, (n, 1), (n, (1, 7)), (192, (7, 1))),
            chain(x, (n, 1), (n, (7, 1)), (n, (1, 7)), (n, (7, 1)), (192, (1, 7))),
            pooled(x, 192),
        ]  # fmt: skip
        x = join(branches, f"mixed{i}")
    wide = unit(unit(x, 192, 1), 320, 3, 2, "valid")
    deep = unit(chain(x, (192, 1), (192, (1, 7)), (192, (7, 1))), 192, 3, 2, "valid")
    x = join([wide, deep, MaxPooling2D(3, strides=2)(x)], "mixed8")
    for i in range(2):
        one = unit(x, 320, 1)
        three = _both_ways(unit(x, 384, 1), f"mixed9_{i}")
        double = _both_ways(chain(x, (448, 1), (384, 3)), None)
        x = join([one, three, double, pooled(x, 192)], f"mixed{9 + i}")
    return request.head(x, average="avg_pool")


def _both_ways(x: Any, name: str | None) -> Any:
    return join([unit(x, 384, (1, 3)), unit(x, 384, (3, 1))], name)


InceptionV3 = application(
    "InceptionV3", "inception_v3", "Inception v3",
    "Szegedy et al. (2015), https://arxiv.org/abs/1512.00567", (299, 75), _inception,
    kernels_file(
        "inception_v3", "inception_v3",
        "9a0d58056eeedaa3f26cb7ebd46da564", "bcbd6486424b2319ff4ef7d526e38f63",
    ),
)  # fmt: skip
