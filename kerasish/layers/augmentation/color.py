"""Brightness, contrast and colors changed: each pixel by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish import config, ops, random
from kerasish.layers.augmentation.picture import (
    FactorLayer,
    PictureLayer,
    read_interval,
    read_range,
    rescale,
)
from kerasish.layers.options import LayerOptions
from kerasish.signatures import Unpack
from kerasish.tensor import Tensor
from kerasish.typing import FloatOrTuple, SeedLike, Structure


class _SeededFactorLayer(FactorLayer):
    """A `FactorLayer` whose third argument by position is the seed."""

    def __init__(
        self,
        factor: FloatOrTuple,
        value_range: Sequence[float] = (0, 255),
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(factor, value_range, seed=seed, **kwargs)


class RandomBrightness(_SeededFactorLayer):
    """In training: x + delta * (most - least), held in the value range.

    Args:
        factor: the interval of delta, within [-1, 1]; one number f: [-f, f].
        value_range: the least and the largest value of a pixel.
        seed: of the deltas; None: drawn.

    Example:
        >>> layer = RandomBrightness(factor=(0.3, 0.3), value_range=(-2.0, 2.0))
        >>> layer.compute_output_shape((None, 3, 4, 3))
        (None, 3, 4, 3)
    """

    example: Any = {
        "args": {"factor": (0.3, 0.3), "value_range": (-2.0, 2.0)}, "shape": (2, 3, 4, 3),
    }  # fmt: skip

    bounds = (-1.0, 1.0)

    def draw(self, images: Tensor, seed: SeedLike) -> dict[str, Any]:
        """Return one delta a picture."""
        delta = self._uniform((images.shape[0], 1, 1, 1), self.factor, seed)
        return {"rgb_delta": delta * (self.value_range[1] - self.value_range[0])}

    def alter(self, images: Tensor, transformation: Structure, interpolation: str) -> Tensor:
        """Add."""
        return ops.clip(images + self._cast(transformation["rgb_delta"]), *self.value_range)


class RandomContrast(_SeededFactorLayer):
    """In training: (x - mean) * factor + mean, the mean of each channel, held in the value range.

    Args:
        factor: (a, b) with a, b in [0, 1]: the factor is in [1 - a, 1 + b]; one number f means
            (0, f), as in Keras.
        value_range: the least and the largest value of a pixel.
        seed: of the factors; None: drawn.

    Example:
        >>> layer = RandomContrast(factor=(0.0, 0.0), value_range=(-2.0, 2.0))
        >>> layer.compute_output_shape((None, 3, 4, 3))
        (None, 3, 4, 3)
    """

    example: Any = {
        "args": {"factor": (0.0, 0.0), "value_range": (-2.0, 2.0)}, "shape": (2, 3, 4, 3),
    }  # fmt: skip

    bounds, any_range = (0.0, 1.0), True

    def draw(self, images: Tensor, seed: SeedLike) -> dict[str, Any]:
        """Return one factor a picture."""
        interval = (1.0 - self.factor[0], 1.0 + self.factor[1])
        return {"contrast_factor": self._uniform((images.shape[0], 1, 1, 1), interval, seed)}

    def alter(self, images: Tensor, transformation: Structure, interpolation: str) -> Tensor:
        """Stretch."""
        mean = ops.mean(images, (-2, -1) if self._first else (-3, -2), keepdims=True)
        factor = self._cast(transformation["contrast_factor"])
        return ops.clip((images - mean) * factor + mean, *self.value_range)


class RandomColorDegeneration(FactorLayer):
    """In training: x + factor * (gray - x), held in the value range.

    Args:
        factor: the interval of the factor, within [-1, 1]; 1 leaves no color.
        value_range: the least and the largest value of a pixel.
        data_format: "channels_last" or "channels_first"; None: the default.
        seed: of the factors; None: drawn.

    Example:
        >>> layer = RandomColorDegeneration(factor=(0.3, 0.3), value_range=(-2.0, 2.0))
        >>> layer.compute_output_shape((None, 3, 4, 3))
        (None, 3, 4, 3)
    """

    example: Any = {
        "args": {"factor": (0.3, 0.3), "value_range": (-2.0, 2.0)}, "shape": (2, 3, 4, 3),
    }  # fmt: skip
    bounds = (-1.0, 1.0)

    def draw(self, images: Tensor, seed: SeedLike) -> dict[str, Any]:
        """Return one factor a picture."""
        return {"factor": self._uniform((images.shape[0], 1, 1, 1), self.factor, seed)}

    def alter(self, images: Tensor, transformation: Structure, interpolation: str) -> Tensor:
        """Go towards gray."""
        gray = ops.image.rgb_to_grayscale(images, data_format=self.data_format)
        factor = self._cast(transformation["factor"])
        return ops.clip(images + factor * (gray - images), *self.value_range)


class RandomGrayscale(PictureLayer):
    """In training: a share `factor` of the pictures in gray, still in three channels.

    Args:
        factor: the probability, 0 <= factor <= 1.
        data_format: "channels_last" or "channels_first"; None: the default.
        seed: of the choice; None: drawn.

    Example:
        >>> RandomGrayscale(factor=1.0).compute_output_shape((None, 3, 4, 3))
        (None, 3, 4, 3)
    """

    example: Any = {"args": {"factor": 1.0}, "shape": (2, 3, 4, 3)}

    def __init__(
        self,
        factor: float = 0.5,
        data_format: str | None = None,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(seed=seed, data_format=data_format, **kwargs)
        if not 0 <= factor <= 1:
            raise ValueError(f"{self.display_name()}: factor must be in [0, 1], got {factor}.")
        self.factor = factor

    def draw(self, images: Tensor, seed: SeedLike) -> Tensor:
        """Return whether each picture loses its colors, (n, 1, 1, 1)."""
        return self._uniform((images.shape[0], 1, 1, 1), (0.0, 1.0), seed) < self.factor

    def alter(self, images: Tensor, transformation: Structure, interpolation: str) -> Tensor:
        """Take the colors away where that was drawn."""
        gray = ops.image.rgb_to_grayscale(images, data_format=self.data_format)
        return ops.where(transformation, gray, images)


class RandomInvert(PictureLayer):
    """In training: most - x, for some of the pictures.

    Args:
        factor: the interval of the probability, within [0, 1]; one number f: [0, f].
        value_range: the least and the largest value of a pixel.
        seed: of the choice; None: drawn.
        data_format: "channels_last" or "channels_first"; None: the default.

    Example:
        >>> layer = RandomInvert(factor=(1.0, 1.0), value_range=(0, 1))
        >>> layer.compute_output_shape((None, 3, 4, 3))
        (None, 3, 4, 3)
    """

    example: Any = {"args": {"factor": (1.0, 1.0), "value_range": (0, 1)}, "shape": (2, 3, 4, 3)}

    def __init__(
        self,
        factor: FloatOrTuple = 1.0,
        value_range: Sequence[float] = (0, 255),
        seed: int | None = None,
        data_format: str | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(seed=seed, data_format=data_format, **kwargs)
        self.factor = read_interval(factor, (0.0, 1.0), self.display_name())
        self.value_range = value_range

    def draw(self, images: Tensor, seed: SeedLike) -> dict[str, Any]:
        """Return whether each picture is inverted, (n,)."""
        return {"apply_inversion": self._happens(images.shape[0], self.factor, seed)}

    def alter(self, images: Tensor, transformation: Structure, interpolation: str) -> Tensor:
        """Invert where that was drawn."""
        chosen = self._rows(transformation["apply_inversion"])
        return ops.where(chosen, self.value_range[1] - images, images)


class RandomPosterization(FactorLayer):
    """In training: only the highest bits of each pixel's 8.

    Args:
        factor: the interval of the number of bits, 1 to 8, its end left out; equal ends: that
            number.
        value_range: the least and the largest value of a pixel.
        data_format: "channels_last" or "channels_first"; None: the default.
        seed: of the numbers; None: drawn.

    Example:
        >>> RandomPosterization(4, value_range=(0, 1))(ops.ones((1, 4, 4, 3)), training=True).shape
        (1, 4, 4, 3)
    """

    bounds = (1, 8)

    def draw(self, images: Tensor, seed: SeedLike) -> dict[str, Any]:
        """Return how many low bits each picture loses, (n,)."""
        low, high = (int(f) for f in self.factor)
        rows = (images.shape[0],)
        bits = ops.full(rows, low, dtype="int32") if low == high else random.randint(
            rows, low, high, seed=seed
        )  # fmt: skip
        return {"shift_factor": 8 - bits}

    def alter(self, images: Tensor, transformation: Structure, interpolation: str) -> Tensor:
        """Drop the low bits."""
        step = ops.power(2.0, self._rows(transformation["shift_factor"]))
        x = ops.floor(rescale(images, self.value_range, (0, 255)))
        return rescale(ops.floor(x / step) * step, (0, 255), self.value_range)


class Solarization(PictureLayer):
    """In training: x + addition, and what reaches the threshold turned over: 255 - x.

    Args:
        addition_factor: the interval of the addition, in units of the range; one number f: [0, f].
        threshold_factor: likewise of the threshold.
        value_range: the least and the largest value of a pixel.
        seed: of both; None: drawn.

    Example:
        >>> Solarization(value_range=(0, 255))(ops.zeros((1, 4, 4, 3))).shape
        (1, 4, 4, 3)
    """

    def __init__(
        self,
        addition_factor: FloatOrTuple = 0.0,
        threshold_factor: FloatOrTuple = 0.0,
        value_range: Sequence[float] = (0, 255),
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(seed=seed, **kwargs)
        unit, who = (0.0, 1.0), self.display_name()
        self.addition_factor = read_interval(addition_factor, unit, who, "addition_factor")
        self.threshold_factor = read_interval(threshold_factor, unit, who, "threshold_factor")
        self.value_range = read_range(value_range, who)

    def draw(self, images: Tensor, seed: SeedLike) -> dict[str, Any]:
        """Return an addition and a threshold for each picture, of 255."""
        shape = (images.shape[0], 1, 1, 1)
        pairs = (("additions", self.addition_factor), ("thresholds", self.threshold_factor))
        # Keras multiplies only the upper end by 255, and its documentation does, too.
        return {k: self._uniform(shape, (low, high * 255), seed) for k, (low, high) in pairs}

    def alter(self, images: Tensor, transformation: Structure, interpolation: str) -> Tensor:
        """Add, and turn the bright ones over."""
        x = rescale(images, self.value_range, (0, 255))
        x = ops.clip(x + self._cast(transformation["additions"]), 0, 255)
        x = ops.where(x < self._cast(transformation["thresholds"]), x, 255 - x)
        return rescale(x, (0, 255), self.value_range)


class RandomSaturation(FactorLayer):
    """In training: the saturation times f / (1 - f).

    Args:
        factor: the interval of f: 0 takes all color away, 0.5 leaves it, near 1 it is garish.
        value_range: the least and the largest value of a pixel.
        data_format: "channels_last" or "channels_first"; None: the default.
        seed: of f; None: drawn.

    Example:
        >>> RandomSaturation(0.1, value_range=(0, 1))(ops.ones((1, 4, 4, 3)), training=True).shape
        (1, 4, 4, 3)
    """

    bounds = (-1.0, 1.0)

    def draw(self, images: Tensor, seed: SeedLike) -> dict[str, Any]:
        """Return what each picture's saturation is multiplied by, (n,)."""
        factor = self._uniform((images.shape[0],), self.factor, seed)
        return {"factor": factor / (1 - factor + config.epsilon())}

    def alter(self, images: Tensor, transformation: Structure, interpolation: str) -> Tensor:
        """Multiply."""
        hue, saturation, value = _hsv(images, self)
        saturation = saturation * self._rows(transformation["factor"])
        return _rgb(hue, ops.clip(saturation, *self.value_range), value, self)


class RandomHue(FactorLayer):
    """In training: the hue turned by up to factor / 2 of the circle, either way.

    Args:
        factor: the interval of the factor, within [0, 1].
        value_range: the least and the largest value of a pixel.
        data_format: "channels_last" or "channels_first"; None: the default.
        seed: of the turns; None: drawn.

    Example:
        >>> RandomHue(0.1, value_range=(0, 1))(ops.ones((1, 4, 4, 3)), training=True).shape
        (1, 4, 4, 3)
    """

    bounds, any_range = (0.0, 1.0), True

    def draw(self, images: Tensor, seed: SeedLike) -> dict[str, Any]:
        """Return each picture's turn, (n,), as a share of the circle."""
        rows = (images.shape[0],)
        sign = ops.where(self._uniform(rows, (0.0, 1.0), seed) > 0.5, -1.0, 1.0)
        return {"factor": sign * self._uniform(rows, self.factor, seed) * 0.5}

    def alter(self, images: Tensor, transformation: Structure, interpolation: str) -> Tensor:
        """Turn."""
        x = rescale(images, self.value_range, (0, 1))
        hue, saturation, value = _hsv(x, self)
        hue = hue + self._rows(transformation["factor"])
        hue = ops.where(hue > 1, hue - 1, hue)
        hue = ops.where(hue < 0, hue + 1, hue)
        x = ops.clip(_rgb(hue, saturation, value, self), 0, 1)
        return rescale(x, (0, 1), self.value_range)


def _hsv(images: Tensor, layer: PictureLayer) -> list[Tensor]:
    x = ops.image.rgb_to_hsv(images, data_format=layer.data_format)
    return ops.split(x, 3, axis=layer._channel_axis)


def _rgb(hue: Tensor, saturation: Tensor, value: Tensor, layer: PictureLayer) -> Tensor:
    x = ops.concatenate([hue, saturation, value], axis=layer._channel_axis)
    return ops.image.hsv_to_rgb(x, data_format=layer.data_format)


class RandomColorJitter(PictureLayer):
    """In training: brightness, contrast, saturation and hue changed, in this order.

    Args:
        value_range: the least and the largest value of a pixel.
        brightness_factor: as for RandomBrightness; None: unchanged. Likewise contrast_factor,
            saturation_factor and hue_factor.
        contrast_factor: as `factor` of `RandomContrast`; None: no change.
        saturation_factor: as `factor` of `RandomSaturation`; None: no change.
        hue_factor: as `factor` of `RandomHue`; None: no change.
        seed: of all numbers; None: drawn.
        data_format: "channels_last" or "channels_first"; None: the default.

    Example:
        >>> layer = RandomColorJitter(value_range=(0, 1), brightness_factor=0.1)
        >>> layer(ops.ones((1, 4, 4, 3)), training=True).shape
        (1, 4, 4, 3)
    """

    def __init__(
        self,
        value_range: Sequence[float] = (0, 255),
        brightness_factor: FloatOrTuple | None = None,
        contrast_factor: FloatOrTuple | None = None,
        saturation_factor: FloatOrTuple | None = None,
        hue_factor: FloatOrTuple | None = None,
        seed: int | None = None,
        data_format: str | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(seed=seed, data_format=data_format, **kwargs)
        self.value_range = value_range
        self.brightness_factor, self.contrast_factor = brightness_factor, contrast_factor
        self.saturation_factor, self.hue_factor = saturation_factor, hue_factor
        given = {
            "random_brightness": (RandomBrightness, brightness_factor),
            "random_contrast": (RandomContrast, contrast_factor),
            "random_saturation": (RandomSaturation, saturation_factor),
            "random_hue": (RandomHue, hue_factor),
        }
        options: dict[str, Any] = {
            "value_range": value_range,
            "seed": seed,
            "data_format": self.data_format,
        }
        options["dtype"] = self.dtype_policy
        self._steps = {
            name: cls(factor=factor, **options)
            for name, (cls, factor) in given.items()
            if factor is not None
        }

    def draw(self, images: Tensor, seed: SeedLike) -> dict[str, Any]:
        """Return what each of the steps draws, by its name."""
        return {name: layer.draw(images, seed) for name, layer in self._steps.items()}

    def alter(self, images: Tensor, transformation: Structure, interpolation: str) -> Tensor:
        """Take the steps."""
        for name, layer in self._steps.items():
            images = layer.transform_images(images, transformation[name])
        return images
