"""Pictures cut out and resized, and a fixed number of boxes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish import ops
from kerasish.layers.augmentation.picture import PictureLayer
from kerasish.layers.options import LayerOptions, UnnamedOptions
from kerasish.signatures import Unpack
from kerasish.tensor import Tensor
from kerasish.typing import SeedLike, Structure, TensorLike


def _span(full: int, start: TensorLike, length: int) -> tuple[Any, int]:
    """Return (start, length) of the part of an axis, not longer than there is."""
    return (start, min(length, full - start)) if isinstance(start, int) else (start, length)


def _largest(size: Any, target: tuple[int, ...]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return (start, size) of the middle part with the target's ratio, along both axes."""
    height, width = size
    high = max(min(height, int(width * target[0] / target[1])), 1)
    wide = max(min(width, int(height * target[1] / target[0])), 1)
    return (int((height - high) / 2), int((width - wide) / 2)), (high, wide)


class _Framed(PictureLayer):
    """Pictures of a given height and width."""

    mask_rule, moves = "pictures", True

    def __init__(self, height: int, width: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.height, self.width = height, width

    @property
    def _target(self) -> tuple[int, int]:
        return self.height, self.width

    def _cut(self, images: Tensor, starts: Sequence[Any], lengths: tuple[int, ...]) -> Tensor:
        axes = (-2, -1) if self._first else (-3, -2)
        begin: list[Any] = [0] * len(images.shape)
        shape = list(images.shape)
        for axis, start, length in zip(axes, starts, lengths):
            begin[axis], shape[axis] = _span(images.shape[axis], start, length)
        return ops.slice(images, begin, shape)

    def _resized(self, images: Tensor) -> Tensor:
        if self._size(images.shape) == self._target:
            return images
        return ops.image.resize(images, self._target, data_format=self.data_format)


class CenterCrop(_Framed):
    """The middle of the picture, if it is large enough; else the largest part, resized.

    Args:
        height: of the result, in pixels.
        width: likewise.
        data_format: "channels_last" or "channels_first"; None: the default.

    Example:
        >>> CenterCrop(height=2, width=3).compute_output_shape((None, 3, 4, 3))
        (None, 2, 3, 3)
    """

    draws, always = False, True
    example: Any = {"args": {"height": 2, "width": 3}, "shape": (2, 3, 4, 3)}

    def __init__(
        self,
        height: int,
        width: int,
        data_format: str | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(height, width, data_format=data_format, **kwargs)

    def alter(self, images: Tensor, transformation: Structure, interpolation: str) -> Tensor:
        """Cut, or resize."""
        size, target = self._size(images.shape), self._target
        if size[0] >= target[0] and size[1] >= target[1]:
            starts = [(full - part) // 2 for full, part in zip(size, target)]
            return self._cut(images, starts, target)
        return ops.image.resize(
            images, target, data_format=self.data_format, crop_to_aspect_ratio=True
        )

    def move_boxes(
        self, corners: Tensor, transformation: Structure, size: Sequence[int]
    ) -> tuple[Any, Any]:
        """Cut, and scale if the picture is."""
        target = self._target
        if size[0] >= target[0] and size[1] >= target[1]:
            starts = tuple((full - part) // 2 for full, part in zip(size, target))
            lengths = target
        else:
            starts, lengths = _largest(size, target)
        moved = corners - ops.cast(ops.convert_to_tensor([starts[1], starts[0]] * 2), corners.dtype)
        return moved * _ratio(target, lengths, corners.dtype), target


def _ratio(target: tuple[int, ...], size: tuple[int, ...], dtype: str) -> Tensor:
    down, across = target[0] / size[0], target[1] / size[1]
    return ops.cast(ops.convert_to_tensor([across, down, across, down]), dtype)


class RandomCrop(_Framed):
    """In training: a part cut out somewhere; of a smaller picture the middle, resized.

    Args:
        height: of the result, in pixels.
        width: likewise.
        seed: of the place; None: drawn.
        data_format: "channels_last" or "channels_first"; None: the default.
        name: name of the layer; None: made from the class.

    Example:
        >>> RandomCrop(2, 3)(ops.ones((1, 4, 4, 3))).shape
        (1, 2, 3, 3)
    """

    def __init__(
        self,
        height: int,
        width: int,
        seed: int | None = None,
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Unpack[UnnamedOptions],
    ) -> None:
        super().__init__(height, width, seed=seed, data_format=data_format, name=name, **kwargs)

    def get_random_transformation(
        self, data: dict[str, Any] | Tensor, training: bool = True, seed: SeedLike | None = None
    ) -> tuple[Any, ...]:
        """Return (top, left) of the part, in pixels."""
        images = data["images"] if isinstance(data, dict) else data
        size = self._size(ops.convert_to_tensor(images).shape)
        if training and size[0] > self.height and size[1] > self.width:
            return tuple(
                ops.cast(self._uniform((), (0.0, full - part + 1.0), self._seed(seed)), "int32")
                for full, part in zip(size, self._target)
            )
        return _largest(size, self._target)[0]

    def alter(self, images: Tensor, transformation: Structure, interpolation: str) -> Tensor:
        """Cut, and resize what is too small."""
        return self._resized(self._cut(images, transformation, self._target))

    def transform_bounding_boxes(
        self,
        bounding_boxes: dict[str, Any],
        transformation: Structure = None,
        training: bool = True,
    ) -> dict[str, Any]:
        """Return the boxes as seen in the part."""
        if not training:
            return bounding_boxes
        whole = {"place": transformation, "input_shape": (0, *self._target, 0)}
        if self._first:
            whole["input_shape"] = (0, 0, *self._target)
        return super().transform_bounding_boxes(bounding_boxes, whole, training)

    def move_boxes(
        self, corners: Tensor, transformation: Structure, size: Sequence[int]
    ) -> tuple[Any, Any]:
        """Move."""
        top, left = (ops.cast(v, corners.dtype) for v in transformation["place"])
        return corners - ops.stack([left, top, left, top], -1), size


class Resizing(_Framed):
    """Pictures in another size.

    Args:
        height: of the result, in pixels.
        width: likewise.
        interpolation: "nearest", "bilinear", "bicubic", "lanczos3" or "lanczos5".
        crop_to_aspect_ratio: whether to cut the middle out instead of distorting.
        pad_to_aspect_ratio: whether to pad instead of distorting.
        fill_mode: "constant", the one way to pad.
        fill_value: what is padded with.
        antialias: whether the kernel widens where the result is smaller.
        data_format: "channels_last" or "channels_first"; None: the default.

    Example:
        >>> Resizing(height=2, width=5).compute_output_shape((None, 3, 4, 3))
        (None, 2, 5, 3)
    """

    draws, always = False, True
    example: Any = {"args": {"height": 2, "width": 5}, "shape": (2, 3, 4, 3)}

    def __init__(
        self,
        height: int,
        width: int,
        interpolation: str = "bilinear",
        crop_to_aspect_ratio: bool = False,
        pad_to_aspect_ratio: bool = False,
        fill_mode: str = "constant",
        fill_value: float = 0.0,
        antialias: bool = False,
        data_format: str | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(height, width, data_format=data_format, **kwargs)
        self.interpolation = interpolation
        self.crop_to_aspect_ratio, self.pad_to_aspect_ratio = (
            crop_to_aspect_ratio, pad_to_aspect_ratio,
        )  # fmt: skip
        self.fill_mode, self.fill_value, self.antialias = fill_mode, fill_value, bool(antialias)

    def _cast(self, x: Tensor) -> Tensor:
        return x  # pictures keep their dtype: integers are rounded

    def alter(self, images: Tensor, transformation: Structure, interpolation: str) -> Tensor:
        """Resize."""
        return ops.image.resize(
            images, self._target, interpolation, self.antialias, self.crop_to_aspect_ratio,
            self.pad_to_aspect_ratio, self.fill_mode, self.fill_value, self.data_format,
        )  # fmt: skip

    def move_boxes(
        self, corners: Tensor, transformation: Structure, size: Sequence[Any]
    ) -> tuple[Any, Any]:
        """Scale; empty boxes (all 0, or all -1) become 0."""
        target = self._target
        down, across = (new / old for new, old in zip(target, size))
        shift = (0, 0)
        if self.crop_to_aspect_ratio or self.pad_to_aspect_ratio:
            down = across = (min if self.pad_to_aspect_ratio else max)(down, across)
            shift = tuple((new - old * down) // 2 for new, old in zip(target, size))
            if self.crop_to_aspect_ratio:
                shift = tuple(-((old * down - new) // 2) for new, old in zip(target, size))
        factor, moves = [across, down] * 2, [shift[1], shift[0]] * 2
        moved = corners * ops.cast(ops.convert_to_tensor(factor), corners.dtype)
        moved = moved + ops.cast(ops.convert_to_tensor(moves), corners.dtype)
        empty = ops.all(ops.equal(corners, -1), -1, keepdims=True)
        empty = ops.logical_or(empty, ops.all(ops.equal(corners, 0), -1, keepdims=True))
        return ops.where(empty, 0.0, moved), target


class MaxNumBoundingBoxes(PictureLayer):
    """The first boxes of each picture, filled up to a fixed number.

    Args:
        max_number: number of boxes a picture.
        fill_value: what missing boxes and their labels consist of.

    Example:
        >>> MaxNumBoundingBoxes(max_number=5).max_number
        5
    """

    draws, always = False, True

    def __init__(
        self, max_number: int, fill_value: int = -1, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.max_number, self.fill_value = int(max_number), int(fill_value)

    def _cast(self, x: Tensor) -> Tensor:
        return x

    def transform_bounding_boxes(
        self,
        bounding_boxes: dict[str, Any],
        transformation: Structure = None,
        training: bool = True,
    ) -> dict[str, Any]:
        """Return {"boxes": (n, max_number, 4), "labels": (n, max_number)}."""
        result = self._checked(bounding_boxes)
        missing = max(self.max_number - result["boxes"].shape[1], 0)
        for key in ("boxes", "labels"):
            kept = result[key][:, : self.max_number]
            width = ((0, 0), (0, missing), *((0, 0),) * (len(kept.shape) - 2))
            result[key] = ops.pad(kept, width, constant_values=self.fill_value)
        return result
