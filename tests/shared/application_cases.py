"""Applications whose facts are recorded from Keras: small images, and weights made by a formula."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

NETWORKS = [
    "ConvNeXtBase", "ConvNeXtLarge", "ConvNeXtSmall", "ConvNeXtTiny", "ConvNeXtXLarge",
    "DenseNet121", "DenseNet169", "DenseNet201", *(f"EfficientNetB{i}" for i in range(8)),
    *(f"EfficientNetV2{size}" for size in ("B0", "B1", "B2", "B3", "L", "M", "S")),
    "InceptionResNetV2", "InceptionV3", "MobileNet", "MobileNetV2", "MobileNetV3Large",
    "MobileNetV3Small", "NASNetLarge", "NASNetMobile", "ResNet101", "ResNet101V2", "ResNet152",
    "ResNet152V2", "ResNet50", "ResNet50V2", "VGG16", "VGG19", "Xception",
]  # fmt: skip
CLASSES = 7
# Image sides that no network would confuse; the Inceptions and Xception need larger ones.
SIDES = {"InceptionResNetV2": (75, 91), "InceptionV3": (75, 91), "Xception": (71, 83)}
# In addition to the plain network: options of the families.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "MobileNet alpha=0.5": ("MobileNet", {"alpha": 0.5, "depth_multiplier": 2, "dropout": 0.1}),
    "MobileNetV2 alpha=1.4": ("MobileNetV2", {"alpha": 1.4}),
    "MobileNetV2 alpha=0.35, no top, max": (
        "MobileNetV2", {"alpha": 0.35, "include_top": False, "pooling": "max"},
    ),
    "MobileNetV3Small minimalistic": ("MobileNetV3Small", {"minimalistic": True, "alpha": 1.25}),
    "MobileNetV3Large no top": (
        "MobileNetV3Large", {"include_top": False, "include_preprocessing": False},
    ),
    "ConvNeXtTiny no top, avg": ("ConvNeXtTiny", {"include_top": False, "pooling": "avg"}),
    "ResNet50 no top, avg": ("ResNet50", {"include_top": False, "pooling": "avg"}),
    "ResNet50V2 no top": ("ResNet50V2", {"include_top": False}),
    "DenseNet121 no top, max": ("DenseNet121", {"include_top": False, "pooling": "max"}),
    "EfficientNetV2S gray": ("EfficientNetV2B1", {"input_shape": (48, 64, 1)}),
    "VGG16 no top, avg": ("VGG16", {"include_top": False, "pooling": "avg"}),
    "NASNetMobile no top, avg": ("NASNetMobile", {"include_top": False, "pooling": "avg"}),
}  # fmt: skip
CASES = {**{name: (name, {}) for name in NETWORKS}, **VARIANTS}
# Whose published files are recorded: network, options.
PUBLISHED = [
    *((name, {}) for name in NETWORKS),
    ("MobileNet", {"alpha": 0.25, "input_shape": (128, 128, 3)}),
    ("MobileNetV2", {"alpha": 0.35, "input_shape": (96, 96, 3)}),
    ("MobileNetV3Small", {"minimalistic": True}),
    ("MobileNetV3Small", {"alpha": 0.75}),
    ("MobileNetV3Large", {"minimalistic": True}),
    ("MobileNetV3Large", {"alpha": 0.75}),
]


def arguments(name: str, **options: Any) -> dict[str, Any]:
    """Return the arguments of a network without published weights, for small images."""
    shape = (*SIDES.get(name, (64, 48)), 3)
    return {
        "weights": None, "input_shape": shape, "classes": CLASSES,
        "classifier_activation": None, **options,
    }  # fmt: skip


def build(module: Any, case: str) -> Any:
    """Return the model of a case from `module`, Keras's `applications` or ours."""
    name, options = CASES[case]
    return getattr(module, name)(**arguments(name, **options))


def noise(seed: str, count: int) -> np.ndarray:
    """Return numbers from -1 to 1 that depend only on a text and on their position."""
    start = np.uint32(zlib.crc32(seed.encode()))
    bits = np.arange(count, dtype=np.uint32) * np.uint32(2654435761) + start
    bits ^= bits >> np.uint32(15)
    bits *= np.uint32(2246822519)
    return (bits.astype("float32") * np.float32(2.0**-31)) - np.float32(1.0)


def place(path: str) -> str:
    """Return the names of a variable and of its layer; Keras numbers variables without a name."""
    layer, name = path.split("/")[-2:]
    return f"{layer}/{'variable' if name.startswith('variable') else name}"


def weight(path: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return the numbers of a variable, made from its path and the positions in it."""
    name = path.rpartition("/")[2]
    numbers = noise(path, int(np.prod(shape))).reshape(shape)
    if "kernel" in name:
        depthwise = len(shape) == 4 and ("depthwise" in name or shape[-1] == 1)
        inputs = shape[0] * shape[1] if depthwise else int(np.prod(shape[:-1]))
        return numbers * np.float32(np.sqrt(3.0 / inputs))
    if name in ("gamma", "moving_variance", "variance"):
        return 1 + np.float32(0.3) * numbers
    if name == "count":
        return np.zeros(shape, "int32")
    return np.float32(0.2) * numbers


def set_weights(model: Any) -> None:
    """Give each variable of a model its numbers."""
    for variable in model.variables:
        if "seed" not in variable.path:
            variable.assign(weight(place(variable.path), tuple(variable.shape)))


def images(shape: tuple[int | None, ...]) -> np.ndarray:
    """Return two images of 0 to 255."""
    count = int(np.prod(shape[1:])) * 2
    return (noise("images", count).reshape(2, *shape[1:]) + 1) * np.float32(127.5)


def structure(model: Any) -> dict[str, Any]:
    """Return what must be as in Keras: layers in their order with shapes, weights in theirs."""
    layers = [f"{type(n).__name__} {n.name} {_shape(n.output.shape)}" for n in model.layers]
    weights = [f"{place(v.path)} {_shape(v.shape)}" for v in model.weights]
    return {
        "name": model.name, "layers": "\n".join(layers), "weights": zlib.crc32(
            "\n".join(weights).encode()
        ), "parameters": model.count_params(),
    }  # fmt: skip


def _shape(shape: Any) -> str:
    return "x".join("?" if size is None else str(int(size)) for size in shape)


def sample(outputs: Any) -> np.ndarray:
    """Return at most 32 of a model's output numbers, spread over all."""
    numbers = np.asarray(outputs, "float32").ravel()
    return numbers[:: max(1, len(numbers) // 32)][:32]
