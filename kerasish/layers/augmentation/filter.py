"""Pictures sharpened and blurred."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish import ops
from kerasish.layers.augmentation.picture import FactorLayer, PictureLayer, read_interval
from kerasish.layers.options import LayerOptions
from kerasish.signatures import Unpack
from kerasish.tensor import Tensor
from kerasish.typing import FloatOrTuple, IntOrTuple, SeedLike, Structure

_SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], "float32") / 13


class RandomSharpness(FactorLayer):
    """In training: x + (1 - 2 f) * (smoothed x - x), held in the value range.

    Args:
        factor: the interval of f, within [0, 1]: 0 smooths, 0.5 leaves all as it is, 1 sharpens.
        value_range: the least and the largest value of a pixel.
        data_format: "channels_last" or "channels_first"; None: the default.
        seed: of f; None: drawn.

    Example:
        >>> layer = RandomSharpness(factor=(0.3, 0.3), value_range=(-2.0, 2.0))
        >>> layer.compute_output_shape((None, 3, 4, 3))
        (None, 3, 4, 3)
    """

    example: Any = {
        "args": {"factor": (0.3, 0.3), "value_range": (-2.0, 2.0)}, "shape": (2, 3, 4, 3),
    }  # fmt: skip
    bounds = (0.0, 1.0)

    def draw(self, images: Tensor, seed: SeedLike) -> dict[str, Any]:
        """Return one number per picture, (n,)."""
        return {"factor": self._uniform((images.shape[0],), self.factor, seed)}

    def alter(self, images: Tensor, transformation: Structure, interpolation: str) -> Tensor:
        """Filter each channel."""
        x = ops.moveaxis(images, 1, -1) if self._first else images
        kernel = np.repeat(_SMOOTH[:, :, None, None], x.shape[-1], 2)
        smooth = ops.depthwise_conv(x, self._cast(kernel), 1, "same", data_format="channels_last")
        away = 1 - 2 * self._rows(transformation["factor"])
        y = ops.clip(x + away * (smooth - x), *self.value_range)
        return ops.moveaxis(y, -1, 1) if self._first else y


class RandomGaussianBlur(PictureLayer):
    """In training: some of the pictures blurred with a bell curve, held in the value range.

    Args:
        factor: the interval of the probability, within [0, 1]; one number f: [0, f].
        kernel_size: size of the filter, an odd number, or (across, down).
        sigma: the interval of the bell's width, within [0, 1] pixels.
        value_range: the least and the largest value of a pixel.
        data_format: "channels_last" or "channels_first"; None: the default.
        seed: of all numbers; None: drawn.

    Example:
        >>> RandomGaussianBlur(value_range=(0, 1))(ops.ones((1, 4, 4, 3)), training=True).shape
        (1, 4, 4, 3)
    """

    example: Any = {
        "args": {"factor": (1.0, 1.0), "sigma": (0.7, 0.7), "value_range": (-2.0, 2.0)},
        "shape": (2, 3, 4, 3),
    }

    def __init__(
        self,
        factor: FloatOrTuple = 1.0,
        kernel_size: IntOrTuple = 3,
        sigma: float | Sequence[float] = 1.0,
        value_range: Sequence[float] = (0, 255),
        data_format: str | None = None,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(seed=seed, data_format=data_format, **kwargs)
        who = self.display_name()
        self.factor = read_interval(factor, (0.0, 1.0), who)
        sizes = (kernel_size,) * 2 if isinstance(kernel_size, int) else tuple(kernel_size)
        if len(sizes) != 2 or any(size % 2 == 0 for size in sizes):
            raise ValueError(f"{who}: kernel_size must be odd numbers, got {kernel_size!r}.")
        self.kernel_size = sizes
        self.sigma = read_interval(sigma, (0.0, 1.0), who, "sigma")
        self.value_range = value_range

    def draw(self, images: Tensor, seed: SeedLike) -> dict[str, Any]:
        """Return whether each picture is blurred, (n,), and the bell's widths, (2,)."""
        chosen = self._happens(images.shape[0], self.factor, seed)
        widths = self._uniform((2,), self.sigma, seed) + 1e-6
        return {"should_apply_blur": chosen, "blur_factor": widths}

    def alter(self, images: Tensor, transformation: Structure, interpolation: str) -> Tensor:
        """Blur where that was drawn."""
        blurred = ops.image.gaussian_blur(
            images, self.kernel_size, transformation["blur_factor"], self.data_format
        )
        chosen = self._rows(transformation["should_apply_blur"])
        return ops.clip(ops.where(chosen, blurred, images), *self.value_range)
