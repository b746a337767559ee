"""VGG with 16 layers: stacks of 3x3 convolutions (Simonyan and Zisserman, 2014)."""

from __future__ import annotations

from typing import Any

from kerasish.applications.blocks import conv
from kerasish.applications.imagenet_utils import decode_predictions as decode_predictions
from kerasish.applications.imagenet_utils import scaling
from kerasish.applications.network import NetworkRequest, layered
from kerasish.layers import Dense, Flatten, MaxPooling2D

SOURCE = "Simonyan and Zisserman (2014), https://arxiv.org/abs/1409.1556"
_FILTERS = (64, 128, 256, 512, 512)

preprocess_input = scaling("caffe")


def vgg(image: Any, request: NetworkRequest, depths: tuple[int, ...]) -> Any:
    """Return a VGG's output.

    Args:
        depths: convolutions per block (columns D and E of Table 1).
    """
    x = image
    for block, (filters, depth) in enumerate(zip(_FILTERS, depths), start=1):
        for i in range(1, depth + 1):
            x = conv(x, filters, 3, name=f"block{block}_conv{i}", bias=True, activation="relu")
        x = MaxPooling2D(2, strides=2, name=f"block{block}_pool")(x)
    if request.include_top:
        x = Flatten(name="flatten")(x)
        for name in ("fc1", "fc2"):
            x = Dense(4096, activation="relu", name=name)(x)
    return request.head(x, pool_top=False)


VGG16 = layered(
    "VGG", SOURCE, vgg, 16, (2, 2, 3, 3, 3),
    "64373286793e3c8b2b4e3219cbf3544b", "6d6bbae143d832006294945121d1f1fc", folder="vgg16",
)  # fmt: skip
