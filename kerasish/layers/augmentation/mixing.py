"""Pictures mixed with others of their batch, and parts of them erased."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish import ops, random
from kerasish.layers.augmentation.picture import PictureLayer, read_interval
from kerasish.layers.options import LayerOptions
from kerasish.signatures import Unpack
from kerasish.tensor import Tensor
from kerasish.typing import FloatOrTuple, SeedLike, Shape, Structure


def _mixed(x: Tensor, other: Tensor, weight: Tensor) -> Tensor:
    """Return weight * x + (1 - weight) * other, one weight (n,) per row."""
    x, other = (v if v.dtype == weight.dtype else ops.cast(v, weight.dtype) for v in (x, other))
    weight = ops.reshape(weight, (-1, *(1,) * (len(x.shape) - 1)))
    return weight * x + (1.0 - weight) * other


class _Mixing(PictureLayer):
    """Pictures mixed with others, their labels by the shares of both."""

    mask_rule = "pictures"

    def transform_labels(
        self, labels: Tensor, transformation: Structure = None, training: bool = True
    ) -> Tensor:
        """Mix."""
        if self._idle(transformation, training):
            return labels
        labels = ops.convert_to_tensor(labels)
        other = ops.take(labels, transformation["permutation_order"], axis=0)
        weight = ops.reshape(ops.convert_to_tensor(transformation["mix_weight"]), (-1,))
        return _mixed(labels, other, weight)


class MixUp(_Mixing):
    """In training: weight * x + (1 - weight) * another picture, and its label likewise.

    Args:
        alpha: the weights are drawn from Beta(alpha, alpha), alpha > 0.
        data_format: "channels_last" or "channels_first"; None: the default.
        seed: of weights and order; None: drawn.

    Source: Zhang et al., ICLR 2018.

    Example:
        >>> MixUp(alpha=0.2)(ops.ones((2, 4, 4, 3))).shape
        (2, 4, 4, 3)
    """

    def __init__(
        self,
        alpha: float = 0.2,
        data_format: str | None = None,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(seed=seed, data_format=data_format, **kwargs)
        self.alpha = alpha

    def draw(self, images: Tensor, seed: SeedLike) -> dict[str, Any]:
        """Return the weights and which picture each one meets, (n,) both."""
        rows = images.shape[0]
        order = random.shuffle(ops.arange(rows, dtype="int32"), seed=seed)
        weight = random.beta((rows,), self.alpha, self.alpha, dtype="float32", seed=seed)
        return {"mix_weight": weight, "permutation_order": order}

    def alter(self, images: Tensor, transformation: Structure, interpolation: str) -> Tensor:
        """Mix."""
        other = ops.take(images, transformation["permutation_order"], axis=0)
        return _mixed(images, other, self._cast(transformation["mix_weight"]))

    def transform_bounding_boxes(
        self,
        bounding_boxes: dict[str, Any],
        transformation: Structure = None,
        training: bool = True,
    ) -> Structure:
        """Return the boxes of both pictures."""
        if self._idle(transformation, training):
            return bounding_boxes
        order, result = transformation["permutation_order"], self._checked(bounding_boxes)
        for key in ("boxes", "labels"):
            both = [result[key], ops.take(result[key], order, axis=0)]
            result[key] = ops.concatenate(both, axis=1)
        return result


class _Patched(PictureLayer):
    """Pictures of which a random rectangle becomes something else."""

    def _rectangle(self, shape: Shape, ratios: tuple[Any, Any], seed: SeedLike) -> tuple[Any, Any]:
        """Return (its mask, shape that broadcasts to the pictures', its share of the picture).

        Args:
            ratios: its width and height, in units of the picture's, (n,) both.
        """
        height, width = self._size(shape)
        sides = [ratio * full for ratio, full in zip(ratios, (width, height))]
        inside: Any = None
        for axis, (side, full) in enumerate(zip(sides, (width, height))):
            start = self._uniform((shape[0],), (0.0, 1.0), seed) * (full - side)
            at = ops.arange(full, dtype="float32")
            first = ops.expand_dims(start, -1)
            line = ops.logical_and(at >= first, at < first + ops.expand_dims(side, -1))
            line = ops.expand_dims(line, 1 if axis == 0 else 2)
            inside = line if inside is None else ops.logical_and(inside, line)
        share = sides[0] * sides[1] / (width * height)
        return ops.expand_dims(inside, self._channel_axis if self._channel_axis < -1 else -1), share


class CutMix(_Patched, _Mixing):
    """In training: a rectangle of each picture taken from another one, its label by area.

    Args:
        factor: the interval of alpha, of which the areas are drawn: Beta(alpha, alpha).
        seed: of all numbers; None: drawn.
        data_format: "channels_last" or "channels_first"; None: the default.

    Source: Yun et al., ICCV 2019.

    Example:
        >>> CutMix(factor=0.5)(ops.ones((2, 4, 4, 3))).shape
        (2, 4, 4, 3)
    """

    def __init__(
        self,
        factor: FloatOrTuple = 1.0,
        seed: int | None = None,
        data_format: str | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(seed=seed, data_format=data_format, **kwargs)
        self.factor = read_interval(factor, (0.0, 1.0), self.display_name())

    def draw(self, images: Tensor, seed: SeedLike) -> dict[str, Any]:
        """Return the rectangles, what remains of each picture, and which one each meets."""
        rows = images.shape[0]
        alpha = self._uniform((), self.factor, seed) + 1e-6
        kept = random.beta((rows,), alpha, alpha, dtype="float32", seed=seed)
        ratio = ops.sqrt(1.0 - kept)
        mask, share = self._rectangle(images.shape, (ratio, ratio), seed)
        order = random.shuffle(ops.arange(rows, dtype="int32"), seed=seed)
        return {"permutation_order": order, "batch_masks": mask, "mix_weight": 1.0 - share}

    def alter(self, images: Tensor, transformation: Structure, interpolation: str) -> Tensor:
        """Take the rectangles."""
        other = ops.take(images, transformation["permutation_order"], axis=0)
        return ops.where(transformation["batch_masks"], other, images)

    def transform_bounding_boxes(
        self,
        bounding_boxes: dict[str, Any],
        transformation: Structure = None,
        training: bool = True,
    ) -> Structure:
        """Raise: the visible part of a box under a rectangle is not known; Keras raises as well."""
        if self._idle(transformation, training):
            return bounding_boxes
        raise ValueError(f"{self.display_name()}: has no rule for bounding boxes; MixUp has.")


class RandomErasing(_Patched):
    """In training: a rectangle of some of the pictures filled with noise, or with one value.

    Args:
        factor: the interval of the probability, within [0, 1]; one number f: [0, f].
        scale: the interval of the squares of the sides' ratios, within [0, 1].
        fill_value: one number, or one for each of three channels; None: normal noise times the
            largest value.
        value_range: the least and the largest value of a pixel.
        seed: of all numbers; None: drawn.
        data_format: "channels_last" or "channels_first"; None: the default.

    Source: Zhong et al., AAAI 2020.

    Example:
        >>> RandomErasing(value_range=(0, 1))(ops.ones((1, 4, 4, 3)), training=True).shape
        (1, 4, 4, 3)
    """

    def __init__(
        self,
        factor: FloatOrTuple = 1.0,
        scale: Sequence[float] = (0.02, 0.33),
        fill_value: FloatOrTuple | None = None,
        value_range: Sequence[float] = (0, 255),
        seed: int | None = None,
        data_format: str | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(seed=seed, data_format=data_format, **kwargs)
        who = self.display_name()
        self.factor = read_interval(factor, (0.0, 1.0), who)
        self.scale = read_interval(scale, (0.0, 1.0), who, "scale")
        if (isinstance(fill_value, (list, tuple)) and len(fill_value) != 3) or isinstance(
            fill_value, str
        ):
            raise ValueError(f"{who}: fill_value must be 1 or 3 numbers, got {fill_value!r}.")
        self.fill_value, self.value_range = fill_value, value_range

    def draw(self, images: Tensor, seed: SeedLike) -> dict[str, Any]:
        """Return whether each picture changes, its rectangle, and what is put there."""
        rows = images.shape[0]
        ratios = ops.sqrt(self._uniform((rows, 2), self.scale, seed))
        mask, _ = self._rectangle(images.shape, (ratios[:, 0], ratios[:, 1]), seed)
        chosen = self._happens(rows, self.factor, seed)
        fill = self._fill(images, seed)
        return {"apply_erasing": chosen, "batch_masks": mask, "fill_value": fill}

    def _fill(self, images: Tensor, seed: SeedLike) -> Tensor:
        value: Any = self.fill_value
        if value is None:
            noise = random.normal(images.shape, dtype="float32", seed=seed)
            value = noise * self.value_range[1]
        elif isinstance(value, (list, tuple)):
            shape = (3, 1, 1) if self._first else (3,)
            value = ops.reshape(ops.convert_to_tensor(value, "float32"), shape)
        return ops.clip(ops.cast(value, "float32"), *self.value_range)

    def alter(self, images: Tensor, transformation: Structure, interpolation: str) -> Tensor:
        """Erase where that was drawn."""
        chosen = self._rows(transformation["apply_erasing"])
        where = ops.logical_and(chosen, transformation["batch_masks"])
        return ops.where(where, self._cast(transformation["fill_value"]), images)
