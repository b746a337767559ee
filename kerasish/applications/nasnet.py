"""NASNet-A: cells found by a search, stacked (Zoph et al., 2017)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kerasish.applications.blocks import activate, conv, join, norm, pad_for_stride
from kerasish.applications.imagenet_utils import decode_predictions as decode_predictions
from kerasish.applications.imagenet_utils import scaling
from kerasish.applications.network import (
    STORAGE,
    NetworkRequest,
    Published,
    channel_axis,
    image_sides,
    network,
)
from kerasish.engine import Model
from kerasish.layers import (
    Add,
    AveragePooling2D,
    Cropping2D,
    MaxPooling2D,
    SeparableConv2D,
    ZeroPadding2D,
)
from kerasish.typing import ActivationLike, PathLike

_SOURCE = "Zoph et al. (2017), https://arxiv.org/abs/1707.07012"
_NORM = {"epsilon": 1e-3, "momentum": 0.9997}
_HE: dict[str, Any] = {"kernel_initializer": "he_normal"}

preprocess_input = scaling("tf")


class _NASNet(Protocol):
    def __call__(
        self,
        input_shape: tuple[int | None, ...] | None = None,
        include_top: bool = True,
        weights: PathLike | None = "imagenet",
        input_tensor: Any = None,
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: ActivationLike | None = "softmax",
        name: str = ...,
    ) -> Model:
        """Return the model."""


def _variant(
    size: str, side: int, last: int, cells: int, stem: int, skip_reduction: bool,
    hashes: tuple[str, str],
) -> _NASNet:  # fmt: skip
    """Return the function that builds a NASNet.

    Args:
        last: channels of the last cell's result.
        cells: normal cells before, between and after the reductions.
        stem: filters of the first convolution.
        skip_reduction: whether a reduction's predecessor precedes the cell after it.
    """
    lower, folder = size.lower(), f"{STORAGE}nasnet/NASNet-"
    published = Published(
        f"{folder}{lower}.h5", f"{folder}{lower}-no-top.h5", hashes,
        (f"nasnet_{lower}.h5", f"nasnet_{lower}_no_top.h5"),
    )  # fmt: skip

    def build(request: NetworkRequest) -> Model:
        image = request.image(side, 32, fixed=True)
        x = norm(conv(image, stem, 3, 2, "stem_conv1", "valid", **_HE), "stem_bn1", **_NORM)
        x = _cells(x, last // 24, cells, skip_reduction)
        return request.model(image, request.head(activate(x, "relu")), published)

    public, private, what = f"NASNet{size}", f"nasnet_{lower}", f"NASNet-A, {lower}"
    return network(_NASNet, build, public, private, what, side, _SOURCE)


def _cells(x: Any, filters: int, cells: int, skip_reduction: bool) -> Any:
    """Return the cells of Figure 2: each sees the results of the two cells before it."""
    before = None
    for width, name in ((filters // 4, "stem_1"), (filters // 2, "stem_2")):
        x, before = _reduction_cell(x, before, width, name)
    for part in range(3):
        if part:
            y, last = _reduction_cell(x, before, filters * 2**part, f"reduce_{part * cells}")
            before = before if skip_reduction else last
            x = y
        for i in range(cells):
            number = part * cells + i + (1 if part else 0)
            x, before = _normal_cell(x, before, filters * 2**part, str(number))
    return x


def _separable(x: Any, filters: int, kernel: int, name: str, stride: int = 1) -> Any:
    """Two activated separable convolutions; the first one may have a stride."""
    x = activate(x, "relu")
    if stride == 2:
        x = pad_for_stride(x, kernel, f"separable_conv_1_pad_{name}")
    for number, strides in ((1, stride), (2, 1)):
        if number == 2:
            x = activate(x, "relu")
        x = SeparableConv2D(
            filters, kernel, strides=strides, padding="same" if strides == 1 else "valid",
            use_bias=False, name=f"separable_conv_{number}_{name}",
        )(x)  # fmt: skip
        x = norm(x, f"separable_conv_{number}_bn_{name}", **_NORM)
    return x


def _adjusted(before: Any, x: Any, filters: int, name: str) -> Any:
    """Return the output before `x`, with the sides of `x` and the channels of the cell."""
    if before is None:
        return x
    if image_sides(before.shape) != image_sides(x.shape):
        before = activate(before, "relu", f"adjust_relu_1_{name}")
        moved = Cropping2D(((1, 0), (1, 0)))(ZeroPadding2D(((0, 1), (0, 1)))(before))
        halves = []
        for number, path in ((1, before), (2, moved)):
            path = AveragePooling2D(1, strides=2, name=f"adjust_avg_pool_{number}_{name}")(path)
            halves.append(conv(path, filters // 2, 1, name=f"adjust_conv_{number}_{name}", **_HE))
        return norm(join(halves), f"adjust_bn_{name}", **_NORM)
    if before.shape[channel_axis()] != filters:
        before = activate(before, "relu")
        before = conv(before, filters, 1, name=f"adjust_conv_projection_{name}", **_HE)
        return norm(before, f"adjust_bn_{name}", **_NORM)
    return before


def _squeezed(x: Any, filters: int, kind: str, name: str) -> Any:
    x = conv(activate(x, "relu"), filters, 1, name=f"{kind}_conv_1_{name}", **_HE)
    return norm(x, f"{kind}_bn_1_{name}", **_NORM)


def _normal_cell(x: Any, before: Any, filters: int, name: str) -> tuple[Any, Any]:
    """Return the cell's result and its input."""
    p = _adjusted(before, x, filters, name)
    h = _squeezed(x, filters, "normal", name)

    def separable(y: Any, kernel: int, where: str) -> Any:
        return _separable(y, filters, kernel, f"normal_{where}_{name}")

    def mean(y: Any, where: str) -> Any:
        return AveragePooling2D(3, strides=1, padding="same", name=f"normal_{where}_{name}")(y)

    pairs: list[Callable[[], list[Any]]] = [
        lambda: [separable(h, 5, "left1"), separable(p, 3, "right1")],
        lambda: [separable(p, 5, "left2"), separable(p, 3, "right2")],
        lambda: [mean(h, "left3"), p],
        lambda: [mean(p, "left4"), mean(p, "right4")],
        lambda: [separable(h, 3, "left5"), h],
    ]
    sums = [Add(name=f"normal_add_{i}_{name}")(pair()) for i, pair in enumerate(pairs, start=1)]
    return join([p, *sums], f"normal_concat_{name}"), x


def _reduction_cell(x: Any, before: Any, filters: int, name: str) -> tuple[Any, Any]:
    """Return the cell's result, at half the sides of its input, and its input."""
    p = _adjusted(before, x, filters, name)
    h = _squeezed(x, filters, "reduction", name)
    padded = pad_for_stride(h, 3, f"reduction_pad_1_{name}")

    def separable(y: Any, kernel: int, where: str) -> Any:
        return _separable(y, filters, kernel, f"reduction_{where}_{name}", 2)

    def pool(kind: Any, where: str) -> Any:
        return kind(3, strides=2, padding="valid", name=f"reduction_{where}_{name}")(padded)

    first = Add(name=f"reduction_add_1_{name}")(
        [separable(h, 5, "left1"), separable(p, 7, "right1")]
    )
    second = Add(name=f"reduction_add_2_{name}")(
        [pool(MaxPooling2D, "left2"), separable(p, 7, "right2")]
    )
    third = Add(name=f"reduction_add3_{name}")(
        [pool(AveragePooling2D, "left3"), separable(p, 5, "right3")]
    )
    mean = AveragePooling2D(3, strides=1, padding="same", name=f"reduction_left4_{name}")(first)
    fourth = Add()([second, mean])
    fifth = Add(name=f"reduction_add4_{name}")(
        [
            _separable(first, filters, 3, f"reduction_left4_{name}"),
            pool(MaxPooling2D, "right5"),
        ]
    )
    return join([second, third, fourth, fifth], f"reduction_concat_{name}"), x


NASNetMobile = _variant(
    "Mobile", 224, 1056, 4, 32, False,
    ("020fb642bf7360b370c678b08e0adf61", "1ed92395b5b598bdda52abe5c0dbfd63"),
)  # fmt: skip
NASNetLarge = _variant(
    "Large", 331, 4032, 6, 96, True,
    ("11577c9a518f0070763c2b964a382f17", "d81d89dc07e6e56530c4e77faddd61b5"),
)  # fmt: skip
