"""Calls of `ImageDataGenerator` whose results are recorded from Keras 3.15, the same for both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

# Name -> (arguments of the generator, whether the pictures have their channels first).
GENERATORS: dict[str, dict[str, Any]] = {
    "plain": {},
    "all": {
        "rotation_range": 40, "width_shift_range": 0.3, "height_shift_range": 0.2,
        "shear_range": 15.0, "zoom_range": 0.3, "channel_shift_range": 20.0,
        "horizontal_flip": True, "vertical_flip": True, "rescale": 1 / 255,
    },
    "pixels": {"width_shift_range": 3, "height_shift_range": [-2, 0, 1], "zoom_range": [0.5, 2.0]},
    "floats above one": {"width_shift_range": 2.0, "height_shift_range": 1.5},
    "brightness": {"brightness_range": [0.4, 1.6], "fill_mode": "constant", "cval": 7.0},
    "samplewise": {"samplewise_center": True, "samplewise_std_normalization": True},
    "featurewise": {"featurewise_center": True, "featurewise_std_normalization": True},
    "whitened": {"featurewise_center": True, "zca_whitening": True},
    "cubic": {"rotation_range": 90, "interpolation_order": 3},
    "function": {"preprocessing_function": lambda x: 255 - x, "rescale": 2.0},
}  # fmt: skip
PARAMETERS = [
    {"theta": 30.0},
    {"tx": 2.5, "ty": -1.25},
    {"shear": 20.0},
    {"zx": 0.7, "zy": 1.4},
    {"theta": -75.0, "tx": 1.0, "ty": 3.0, "shear": 10.0, "zx": 1.2, "zy": 0.8},
    {"flip_horizontal": True, "channel_shift_intensity": 30.0},
    {"flip_vertical": True, "theta": 90.0},
]
FILL_MODES = ("constant", "nearest", "reflect", "wrap")
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "random_rotation": (30,), "random_shift": (0.3, 0.2), "random_shear": (25,),
    "random_zoom": ((0.5, 1.5),), "random_channel_shift": (40.0,),
}  # fmt: skip


def pictures(count: int = 7) -> np.ndarray:
    """Return pictures (count, 9, 6, 3) of values 0 to 255."""
    return np.random.RandomState(1).randint(0, 256, (count, 9, 6, 3)).astype("float32")


def results(image: Any, save: Callable[[str, np.ndarray], None]) -> None:
    """Compute all cases.

    Args:
        image: the module.
        save: is called with the name and the value of each result.
    """
    x, y = pictures(), np.arange(7)
    for mode in FILL_MODES:
        for first in (False, True):
            order = "channels_first" if first else "channels_last"
            one = x[0].transpose(2, 0, 1) if first else x[0]
            generator = image.ImageDataGenerator(fill_mode=mode, cval=9.0, data_format=order)
            for i, parameters in enumerate(PARAMETERS):
                save(f"{mode} {order} {i}", generator.apply_transform(one, parameters))
    for name, arguments in GENERATORS.items():
        generator = image.ImageDataGenerator(**arguments)
        generator.fit(x, seed=4)
        for shuffle in (False, True):
            batches = generator.flow(x, y, batch_size=3, shuffle=shuffle, seed=11)
            for i in range(4):
                some, targets = next(batches)
                save(f"{name} {shuffle} {i} x", some)
                save(f"{name} {shuffle} {i} y", targets)
            save(f"{name} {shuffle} by number", batches[1][0])
    generator = image.ImageDataGenerator(**GENERATORS["all"], featurewise_center=True)
    generator.fit(x, augment=True, rounds=2, seed=3)
    save("fitted to augmented", generator.mean)
    np.random.seed(8)
    batches = generator.flow(x, y, batch_size=4)
    for i in range(3):
        save(f"without a seed {i}", next(batches)[1])
    for name, arguments in FUNCTIONS.items():
        np.random.seed(2)
        save(name, getattr(image, name)(x[0].transpose(2, 0, 1), *arguments))
    np.random.seed(2)
    save("random_brightness", image.random_brightness(x[0] * 2 - 100, (0.5, 1.5), False))
    split = image.ImageDataGenerator(validation_split=0.3)
    for subset in ("training", "validation"):
        flow = split.flow(x, y, shuffle=False, subset=subset, ignore_class_split=True)
        save(f"split {subset}", next(flow)[1])
