"""The workloads that a GPU is measured on: the named ones, and larger ones that fill it."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.workloads import VOCABULARY, WORKLOADS, Workload, build_transformer


def build_resnet50(
    keras: Any, side: int = 224, classes: int = 1000, depths: tuple[int, ...] = (3, 4, 6, 3),
    width: int = 64,
) -> Any:  # fmt: skip
    """ResNet-50 (He et al. 2015, table 1), a stage's stride in its first 3x3 convolution."""
    layers = keras.layers

    def convolve(x: Any, filters: int, size: int, stride: int = 1) -> Any:
        x = layers.Conv2D(filters, size, strides=stride, padding="same", use_bias=False)(x)
        return layers.BatchNormalization()(x)

    def block(x: Any, narrow: int, stride: int) -> Any:
        y = layers.ReLU()(convolve(x, narrow, 1))
        y = layers.ReLU()(convolve(y, narrow, 3, stride))
        y = convolve(y, 4 * narrow, 1)
        if stride != 1 or x.shape[-1] != 4 * narrow:
            x = convolve(x, 4 * narrow, 1, stride)
        return layers.ReLU()(layers.Add()([x, y]))

    inputs = keras.Input(shape=(side, side, 3))
    x = layers.ReLU()(convolve(inputs, width, 7, 2))
    x = layers.MaxPooling2D(3, 2, padding="same")(x)
    for stage, count in enumerate(depths):
        for index in range(count):
            x = block(x, width << stage, 2 if stage and not index else 1)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(classes, dtype="float32")(x))


_LARGE = (
    Workload(
        "resnet50", 64, (224, 224, 3), 1000, 20, build_resnet50, "ResNet-50 on 224x224x3, float32",
        resident=True,
    ),
    Workload(
        "resnet50-bf16", 64, (224, 224, 3), 1000, 20, build_resnet50,
        "ResNet-50 on 224x224x3, mixed bfloat16", policy="mixed_bfloat16", resident=True,
    ),
    Workload(
        "transformer512-bf16", 32, (256,), 2, 50,
        partial(build_transformer, length=256, width=512, heads=8, hidden=2048, blocks=6),
        "6 blocks, d512, 256 tokens, mixed bfloat16", VOCABULARY, "mixed_bfloat16", True,
    ),
)  # fmt: skip

GPU_WORKLOADS = {**WORKLOADS, **{workload.name: workload for workload in _LARGE}}
