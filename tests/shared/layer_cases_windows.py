"""The cases of convolutions, poolings and what moves places: see layer_cases.py."""

from __future__ import annotations

from typing import Any

L2 = {"class_name": "L2", "config": {"l2": 0.1}}
FIRST = {"data_format": "channels_first"}
SAME = {"padding": "same"}
PLACES = (("1D", [7]), ("2D", [5, 6]), ("3D", [3, 4, 3]))
M25 = [[1, 1, 0, 1, 0], [0, 1, 1, 0, 1]]


def _shapes(places: list[int], channels: int) -> tuple[list[int], list[int]]:
    return [2, *places, channels], [2, channels, *places]


def _convolutions() -> Any:
    conv = {"filters": 4, "kernel_size": 2}
    for n, places in PLACES:
        last, first = _shapes(places, 4)
        for args in (
            {}, {"strides": 2, **SAME}, {"dilation_rate": 2, **SAME}, {"strides": 2},
            {"groups": 2, "activation": "relu", "use_bias": False}, {"kernel_size": 1},
            {"kernel_size": 3, **SAME}, {"kernel_size": 3, "strides": 2, **SAME},
            {"strides": 3}, {"strides": 3, **SAME}, {"kernel_size": 1, "strides": 2, **SAME},
            {"dilation_rate": 2}, {"groups": 4, "filters": 8, **SAME},
            {"kernel_size": 3, "filters": 1, **SAME}, {"groups": 2, "strides": 2, **SAME},
            {"kernel_size": 3, "dilation_rate": 2, "groups": 2, **SAME},
            {"activation": "tanh", "kernel_regularizer": L2, "bias_regularizer": L2},
            {"activity_regularizer": L2},
        ):  # fmt: skip
            yield f"Conv{n}", {**conv, **args}, last, {}
        for args in (
            {}, {"strides": 2, **SAME}, {"groups": 2, **SAME}, {"dilation_rate": 2, **SAME},
        ):  # fmt: skip
            yield f"Conv{n}", {**conv, **FIRST, **args}, first, {}
    for args in (
        {}, {"dilation_rate": 2}, {"strides": 2}, {"groups": 3, "filters": 3}, {"kernel_size": 2},
    ):  # fmt: skip
        causal = {"filters": 2, "kernel_size": 3, "padding": "causal", **args}
        yield "Conv1D", causal, [2, 7, 3], {}
    for args in (
        {"kernel_size": [1, 3]}, {"kernel_size": [3, 1], "strides": [1, 2], **SAME},
        {"kernel_size": [2, 3], "dilation_rate": [1, 2]}, {"kernel_size": [5, 4], **SAME},
    ):  # fmt: skip
        yield "Conv2D", {"filters": 3, **args}, [2, 5, 6, 2], {}
    yield "Conv2D", {"filters": 3, "kernel_size": 3}, [1, 3, 3, 1], {}
    yield "Conv3D", {"filters": 2, "kernel_size": [1, 2, 3], "strides": [1, 2, 1], **SAME}, [
        1, 3, 4, 3, 2,
    ], {}  # fmt: skip


def _transposed() -> Any:
    for n, places in PLACES:
        last, first = _shapes(places if n != "3D" else [2, 3, 2], 3)
        conv = {"filters": 2, "kernel_size": 3}
        for args in (
            {}, {"strides": 2, **SAME}, {"strides": 2, "output_padding": 1}, SAME, {"strides": 2},
            {"kernel_size": 2, "strides": 2, **SAME}, {"kernel_size": 2, "strides": 3},
            {"kernel_size": 2, "strides": 3, **SAME}, {"kernel_size": 1, "strides": 2, **SAME},
            {"strides": 2, "output_padding": 0, **SAME}, {"dilation_rate": 2},
            {"strides": 2, "output_padding": 1, **SAME}, {"dilation_rate": 2, **SAME},
            {"use_bias": False, "activation": "tanh"}, {"kernel_size": 4, "strides": 3, **SAME},
        ):  # fmt: skip
            yield f"Conv{n}Transpose", {**conv, **args}, last, {}
        for args in ({}, {"strides": 2, **SAME}, {"strides": 2, "output_padding": 1}):
            yield f"Conv{n}Transpose", {**conv, **FIRST, **args}, first, {}
    for args in (
        {"kernel_size": [2, 3], "strides": [1, 2], **SAME},
        {"kernel_size": [3, 2], "strides": [3, 1], "output_padding": [1, 0]},
    ):
        yield "Conv2DTranspose", {"filters": 2, **args}, [2, 3, 4, 2], {}


def _depthwise() -> Any:
    for n, places in PLACES[:2]:
        last, first = _shapes(places, 3)
        for args in (
            {}, {"strides": 2, **SAME}, {"depth_multiplier": 2}, {"dilation_rate": 2},
            {"dilation_rate": 2, "kernel_size": 3, **SAME}, {"strides": 2, "kernel_size": 3},
            {"kernel_size": 3, "depth_multiplier": 2, "strides": 2, **SAME},
            {"use_bias": False, "activation": "relu"},
        ):  # fmt: skip
            yield f"DepthwiseConv{n}", {"kernel_size": 2, **args}, last, {}
            yield f"SeparableConv{n}", {"filters": 3, "kernel_size": 2, **args}, last, {}
        for args in ({}, {"strides": 2, **SAME}, {"depth_multiplier": 2}):
            yield f"DepthwiseConv{n}", {"kernel_size": 2, **FIRST, **args}, first, {}
            channels = {"filters": 2, "kernel_size": 2, **FIRST}
            yield f"SeparableConv{n}", {**channels, **args}, first, {}
    yield "DepthwiseConv2D", {"kernel_size": [2, 3], "strides": 2}, [2, 5, 6, 2], {}
    l2 = {"depthwise_regularizer": L2, "pointwise_regularizer": L2, "bias_regularizer": L2}
    yield "SeparableConv2D", {"filters": 2, "kernel_size": 2, **l2}, [2, 3, 4, 2], {}


def _poolings() -> Any:
    for n, places in PLACES:
        last, first = _shapes(places, 4)
        for kind in ("Max", "Average"):
            for args in (
                {"strides": 1}, {"pool_size": 3, "strides": 2, **SAME}, {}, {"strides": 3}, SAME,
                {"pool_size": 3, "strides": 1, **SAME}, {"pool_size": 1, "strides": 2},
            ):  # fmt: skip
                yield f"{kind}Pooling{n}", {"pool_size": 2, **args}, last, {}
            for args in ({}, {"strides": 1, **SAME}, {"pool_size": 3, "strides": 2, **SAME}):
                yield f"{kind}Pooling{n}", {"pool_size": 2, **FIRST, **args}, first, {}
            for args in ({"keepdims": True}, {}):
                yield f"Global{kind}Pooling{n}", args, last, {}
                yield f"Global{kind}Pooling{n}", {**FIRST, **args}, first, {}
            for size in (2, 3):
                yield f"Adaptive{kind}Pooling{n}", {"output_size": size}, last, {}
            yield f"Adaptive{kind}Pooling{n}", {"output_size": 2, **FIRST}, first, {}
    for kind in ("Max", "Average"):
        for args in ({}, {"strides": [1, 3]}, {"strides": [2, 1], **SAME}):
            yield f"{kind}Pooling2D", {"pool_size": [3, 2], **args}, [2, 5, 6, 2], {}
        yield f"Adaptive{kind}Pooling2D", {"output_size": [3, 4]}, [2, 5, 6, 2], {}
    for args in ({}, {"keepdims": True}):
        yield "GlobalAveragePooling1D", args, [2, 5, 3], {"mask": M25}
    yield "GlobalAveragePooling1D", FIRST, [2, 3, 5], {"mask": M25}


def _sizes() -> Any:
    for method in ("nearest", "bilinear", "bicubic", "lanczos3", "lanczos5"):
        for size in (2, [3, 2]):
            args = {"size": size, "interpolation": method}
            yield "UpSampling2D", args, [1, 3, 4, 2], {}
        yield "UpSampling2D", {"size": 2, "interpolation": method, **FIRST}, [1, 2, 3, 4], {}
        for height, width in ((2, 3), (7, 5)):
            args = {"height": height, "width": width, "interpolation": method}
            yield "Resizing", args, [1, 4, 5, 2], {}
    yield "UpSampling1D", {"size": 1}, [2, 3, 2], {}
    yield "UpSampling3D", {"size": [2, 1, 3], **FIRST}, [1, 2, 2, 1, 2], {}
    yield "ZeroPadding1D", {"padding": 2, **FIRST}, [2, 2, 3], {}
    yield "ZeroPadding2D", {"padding": [[0, 2], [1, 0]], **FIRST}, [1, 2, 2, 3], {}
    yield "ZeroPadding3D", {"padding": [[1, 0], [0, 2], [1, 1]], **FIRST}, [1, 2, 2, 1, 2], {}
    yield "Cropping2D", {"cropping": [[1, 0], [0, 2]], **FIRST}, [1, 2, 3, 4], {}
    yield "Cropping3D", {"cropping": [[0, 1], [1, 0], [1, 1]], **FIRST}, [1, 2, 2, 3, 4], {}
    yield "CenterCrop", {"height": 2, "width": 3}, [1, 5, 6, 2], {}


FAMILIES = (_convolutions, _transposed, _depthwise, _poolings, _sizes)
