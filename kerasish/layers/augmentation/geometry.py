"""Pictures flipped, turned, moved, zoomed and sheared, with the masks and boxes that belong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kerasish import ops
from kerasish.layers.augmentation.picture import PictureLayer, one_of, read_interval
from kerasish.layers.options import LayerOptions
from kerasish.ops.images import boxes as box_ops
from kerasish.signatures import Unpack, with_options
from kerasish.tensor import Tensor
from kerasish.typing import AnyTensor, FloatOrTuple, SeedLike, Structure

_FLIPS = ("horizontal", "vertical", "horizontal_and_vertical")
_FILLS = ("reflect", "wrap", "constant", "nearest")
_METHODS = ("nearest", "bilinear")


class RandomFlip(PictureLayer):
    """In training: half of the pictures flipped.

    Args:
        mode: "horizontal" (left and right), "vertical" or "horizontal_and_vertical".
        seed: of the choice; None: drawn.
        data_format: "channels_last" or "channels_first"; None: the default.

    Example:
        >>> RandomFlip("horizontal")(ops.ones((1, 4, 4, 3)), training=True).shape
        (1, 4, 4, 3)
    """

    mask_rule, moves = "pictures", True

    def __init__(
        self,
        mode: str = "horizontal_and_vertical",
        seed: int | None = None,
        data_format: str | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(seed=seed, data_format=data_format, **kwargs)
        self.mode = one_of(mode, _FLIPS, self.display_name(), "mode")

    def draw(self, images: Tensor, seed: SeedLike) -> dict[str, Any]:
        """Return whether each picture is flipped, (n, 1, 1, 1)."""
        flips = self._uniform((images.shape[0], 1, 1, 1), (0.0, 1.0), seed) <= 0.5
        return {"flips": flips, "input_shape": tuple(images.shape)}

    def alter(self, images: Tensor, transformation: Structure, interpolation: str) -> Tensor:
        """Flip where that was drawn."""
        axes = (-1, -2) if self._first else (-2, -3)
        flipped = images
        for axis, name in zip(axes, ("horizontal", "vertical")):
            flipped = ops.flip(flipped, axis) if name in self.mode else flipped
        return ops.where(transformation["flips"], flipped, images)

    def move_boxes(
        self, corners: Tensor, transformation: Structure, size: Sequence[int]
    ) -> tuple[Any, Any]:
        """Flip where that was drawn."""
        x1, y1, x2, y2 = ops.split(corners, 4, axis=-1)
        if "horizontal" in self.mode:
            x1, x2 = size[1] - x2, size[1] - x1
        if "vertical" in self.mode:
            y1, y2 = size[0] - y2, size[0] - y1
        flips = ops.reshape(transformation["flips"], (-1, 1, 1))
        return ops.where(flips, ops.concatenate([x1, y1, x2, y2], axis=-1), corners), size


class AffineOptions(LayerOptions, total=False):
    """How pictures are read, what is outside of them, and the seed."""

    fill_mode: str
    interpolation: str
    seed: int | None
    fill_value: float
    data_format: str | None


_AFFINE: dict[str, Any] = {
    "fill_mode": "reflect", "interpolation": "bilinear", "seed": None, "fill_value": 0.0,
    "data_format": None,
}  # fmt: skip
# As in Keras, RandomShear takes them in another order by position.
_ORDER = ("interpolation", "fill_mode", "fill_value", "data_format", "seed")
_SHEAR = {name: _AFFINE[name] for name in _ORDER}


class _Affine(PictureLayer):
    """Pictures read through the affine map that `matrix` makes of what was drawn."""

    mask_rule, moves = "nearest", True

    def __init__(
        self,
        *,
        fill_mode: str,
        interpolation: str,
        fill_value: float,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.fill_mode = one_of(fill_mode, _FILLS, self.display_name(), "fill_mode")
        self.interpolation = one_of(interpolation, _METHODS, self.display_name(), "interpolation")
        self.fill_value = fill_value

    def matrix(self, transformation: Structure, size: Any) -> Any:
        """Return a0, a1, a2, b0, b1, b2, 0, 0 for each picture, shape (n, 8)."""
        return transformation["matrix"]

    def alter(self, images: Tensor, transformation: Structure, interpolation: str) -> Tensor:
        """Read the pixels through the map."""
        return ops.image.affine_transform(
            images, self.matrix(transformation, self._size(images.shape)), interpolation,
            self.fill_mode, self.fill_value, self.data_format,
        )  # fmt: skip


def _stacked(*parts: Any) -> Tensor:
    """Return (n, 8) of numbers and tensors (n,)."""
    rows = next(p for p in parts if hasattr(p, "shape"))
    return ops.stack([p if hasattr(p, "shape") else ops.full_like(rows, p) for p in parts], -1)


class RandomRotation(_Affine):
    """In training: turned about the middle.

    Args:
        factor: the interval of the angle, in units of the full circle, within [-1, 1]; one number
            f: [-f, f]. Positive is counter-clockwise.
        fill_mode: outside: "reflect", "wrap", "constant" or "nearest".
        interpolation: "bilinear" or "nearest".
        seed: of the angles; None: drawn.
        fill_value: what is outside with "constant".
        data_format: "channels_last" or "channels_first"; None: the default.

    Example:
        >>> RandomRotation(factor=(0.1, 0.1)).compute_output_shape((None, 3, 4, 3))
        (None, 3, 4, 3)
    """

    example: Any = {"args": {"factor": (0.1, 0.1)}, "shape": (2, 3, 4, 3)}

    @with_options(AffineOptions, _AFFINE)
    def __init__(
        self,
        factor: FloatOrTuple,
        **options: Unpack[AffineOptions],
    ) -> None:
        super().__init__(**options)
        self.factor = read_interval(factor, (-1.0, 1.0), self.display_name())

    def draw(self, images: Tensor, seed: SeedLike) -> dict[str, Any]:
        """Return each picture's angle in degrees, and the map."""
        low, high = self.factor
        angle = self._uniform((images.shape[0],), (low * 360.0, high * 360.0), seed)
        height, width = self._size(images.shape)
        turn = angle * (math.pi / 180)
        cos, sin, x, y = ops.cos(turn), ops.sin(turn), (width - 1) / 2, (height - 1) / 2
        moves = x - x * cos + y * sin, y - x * sin - y * cos
        return {
            "angle": angle,
            "rotation_matrix": _stacked(cos, -sin, moves[0], sin, cos, moves[1], 0.0, 0.0),
            "image_height": height, "image_width": width, "batch_size": images.shape[0],
            "input_shape": tuple(images.shape),
        }  # fmt: skip

    def matrix(self, transformation: Structure, size: Sequence[int]) -> Tensor:
        """Return the map drawn."""
        return transformation["rotation_matrix"]

    def move_boxes(
        self, corners: AnyTensor, transformation: Structure, size: Sequence[Any]
    ) -> tuple[Any, Any]:
        """Return boxes around the turned ones."""
        angle = ops.convert_to_tensor(transformation["angle"])
        none, one = ops.zeros_like(angle), ops.ones_like(angle)
        moved = box_ops.affine_transform(corners, angle, none, none, one, none, none, *size)
        return moved, size


class RandomTranslation(_Affine):
    """In training: moved down and to the right.

    Args:
        height_factor: the interval of the way down, in units of the height, within [-1, 1]; one
            number f: [-f, f].
        width_factor: likewise to the right, in units of the width.
        fill_mode: outside: "reflect", "wrap", "constant" or "nearest".
        interpolation: "bilinear" or "nearest".
        seed: of the ways; None: drawn.
        fill_value: what is outside with "constant".
        data_format: "channels_last" or "channels_first"; None: the default.

    Example:
        >>> layer = RandomTranslation(height_factor=(0.2, 0.2), width_factor=(0.1, 0.1))
        >>> layer.compute_output_shape((None, 3, 4, 3))
        (None, 3, 4, 3)
    """

    example: Any = {
        "args": {"height_factor": (0.2, 0.2), "width_factor": (0.1, 0.1)}, "shape": (2, 3, 4, 3),
    }  # fmt: skip

    @with_options(AffineOptions, _AFFINE)
    def __init__(
        self,
        height_factor: FloatOrTuple,
        width_factor: FloatOrTuple,
        **options: Unpack[AffineOptions],
    ) -> None:
        super().__init__(**options)
        self.height_factor, self.width_factor = height_factor, width_factor
        unit, who = (-1.0, 1.0), self.display_name()
        height = read_interval(height_factor, unit, who, "height_factor")
        width = read_interval(width_factor, unit, who, "width_factor")
        self.height_lower, self.height_upper = height
        self.width_lower, self.width_upper = width

    def draw(self, images: Tensor, seed: SeedLike) -> dict[str, Any]:
        """Return each picture's way (to the right, down) in pixels, (n, 2)."""
        height, width = self._size(images.shape)
        shape = (images.shape[0], 1)
        down = self._uniform(shape, (self.height_lower, self.height_upper), seed) * height
        right = self._uniform(shape, (self.width_lower, self.width_upper), seed) * width
        ways = ops.concatenate([right, down], axis=1)
        return {"translations": ways, "input_shape": tuple(images.shape)}

    def matrix(self, transformation: Structure, size: Sequence[int]) -> Tensor:
        """Return the map."""
        ways = ops.cast(transformation["translations"], "float32")
        return _stacked(1.0, 0.0, -ways[:, 0], 0.0, 1.0, -ways[:, 1], 0.0, 0.0)

    def move_boxes(
        self, corners: Tensor, transformation: Structure, size: Sequence[int]
    ) -> tuple[Any, Any]:
        """Move."""
        ways = ops.cast(transformation["translations"], corners.dtype)
        return corners + ops.expand_dims(ops.tile(ways, (1, 2)), 1), size


class RandomZoom(_Affine):
    """In training: seen from nearer or farther; a factor below 0 zooms in.

    Args:
        height_factor: the interval of the change of height, within (-1, 1]; one number f: [-f, f].
        width_factor: likewise of the width; None: as the height.
        fill_mode: outside: "reflect", "wrap", "constant" or "nearest".
        interpolation: "bilinear" or "nearest".
        seed: of the changes; None: drawn.
        fill_value: what is outside with "constant".
        data_format: "channels_last" or "channels_first"; None: the default.

    Example:
        >>> layer = RandomZoom(height_factor=(0.2, 0.2), width_factor=(-0.1, -0.1))
        >>> layer.compute_output_shape((None, 3, 4, 3))
        (None, 3, 4, 3)
    """

    example: Any = {
        "args": {"height_factor": (0.2, 0.2), "width_factor": (-0.1, -0.1)},
        "shape": (2, 3, 4, 3),
    }

    @with_options(AffineOptions, _AFFINE)
    def __init__(
        self,
        height_factor: FloatOrTuple,
        width_factor: FloatOrTuple | None = None,
        **options: Unpack[AffineOptions],
    ) -> None:
        super().__init__(**options)
        self.height_factor, self.width_factor = height_factor, width_factor
        self._height = self._interval(height_factor, "height_factor")
        self._width = None
        if width_factor is not None:
            self._width = self._interval(width_factor, "width_factor")

    def _interval(self, value: float | Sequence[float], name: str) -> tuple[Any, Any]:
        low, high = read_interval(value, (-1.0, 1.0), self.display_name(), name)
        if low <= -1:
            raise ValueError(f"{self.display_name()}: {name} must be in (-1, 1], got {value!r}.")
        return 1.0 + low, 1.0 + high

    def draw(self, images: AnyTensor, seed: SeedLike) -> dict[str, Any]:
        """Return what each picture's coordinates are multiplied by, (n, 1) each."""
        shape = (images.shape[0], 1)
        down = self._uniform(shape, self._height, seed)
        across = down if self._width is None else self._uniform(shape, self._width, seed)
        shape = tuple(images.shape)
        return {"height_zoom": down, "width_zoom": across, "input_shape": shape}

    def _map(self, transformation: Structure, size: Any) -> tuple[Any, Any, Any, Any]:
        down, across = (
            ops.reshape(ops.cast(transformation[k], "float32"), (-1,))
            for k in ("height_zoom", "width_zoom")
        )
        return down, (size[0] - 1) / 2 * (1 - down), across, (size[1] - 1) / 2 * (1 - across)

    def matrix(self, transformation: Structure, size: Sequence[int]) -> Tensor:
        """Return the map."""
        down, top, across, left = self._map(transformation, size)
        return _stacked(across, 0.0, left, 0.0, down, top, 0.0, 0.0)

    def move_boxes(
        self, corners: Tensor, transformation: Structure, size: Sequence[Any]
    ) -> tuple[Any, Any]:
        """Zoom."""
        down, top, across, left = self._map(transformation, size)
        start = ops.expand_dims(ops.stack([left, top, left, top], -1), 1)
        factor = ops.expand_dims(ops.stack([across, down, across, down], -1), 1)
        return (corners - start) / factor, size


class RandomShear(_Affine):
    """In training: rows pushed along in proportion to their number, and columns likewise.

    Args:
        x_factor: the interval of the push of a row by one pixel down, within [0, 1]; one number f:
            [0, f]. Its sign is drawn.
        y_factor: likewise of a column.
        interpolation: "bilinear" or "nearest".
        fill_mode: outside: "reflect", "wrap", "constant" or "nearest".
        fill_value: what is outside with "constant".
        data_format: "channels_last" or "channels_first"; None: the default.
        seed: of all numbers; None: drawn.

    Example:
        >>> RandomShear(0.1, 0.1)(ops.ones((1, 4, 4, 3)), training=True).shape
        (1, 4, 4, 3)
    """

    @with_options(AffineOptions, _SHEAR)
    def __init__(
        self,
        x_factor: FloatOrTuple = 0.0,
        y_factor: FloatOrTuple = 0.0,
        **options: Unpack[AffineOptions],
    ) -> None:
        super().__init__(**options)
        self.x_factor = self._interval(x_factor, "x_factor")
        self.y_factor = self._interval(y_factor, "y_factor")

    def _interval(self, value: float | Sequence[float], name: str) -> tuple[Any, Any]:
        low, high = read_interval(value, (0.0, 1.0), self.display_name(), name)
        # One number means both signs, as in Keras; the drawn sign then changes nothing.
        return (low, high) if isinstance(value, (list, tuple)) else (-high, high)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> RandomShear:
        """Return the layer; an interval about 0 was given as one number."""
        for name in ("x_factor", "y_factor"):
            value = config.get(name)
            if isinstance(value, (list, tuple)) and value[0] < 0:
                config = {**config, name: value[1]}
        return super().from_config(config)

    def draw(self, images: Tensor, seed: SeedLike) -> dict[str, Any]:
        """Return each picture's pushes (along x, along y), (n, 2)."""
        shape = (images.shape[0], 1)
        sign = ops.where(self._uniform(shape, (0.0, 1.0), seed) > 0.5, -1.0, 1.0)
        down = self._uniform(shape, self.y_factor, seed)
        across = self._uniform(shape, self.x_factor, seed)
        pushes = ops.concatenate([across, down], axis=1) * sign
        return {"shear_factor": pushes, "input_shape": tuple(images.shape)}

    def matrix(self, transformation: Structure, size: Sequence[int]) -> Tensor:
        """Return the map."""
        pushes = ops.cast(transformation["shear_factor"], "float32")
        return _stacked(1.0, pushes[:, 0], 0.0, pushes[:, 1], 1.0, 0.0, 0.0, 0.0)

    def move_boxes(
        self, corners: Tensor, transformation: Structure, size: Sequence[int]
    ) -> tuple[Any, Any]:
        """Return boxes around the sheared ones, measured as Keras does: in shares of the sides."""
        unit = ops.cast(ops.convert_to_tensor([size[1], size[0]] * 2), corners.dtype)
        x1, y1, x2, y2 = ops.split(corners / unit, 4, axis=-1)
        pushes = ops.cast(transformation["shear_factor"], corners.dtype)
        a, b = (ops.reshape(pushes[:, i], (-1, 1, 1)) for i in (0, 1))
        x1, x2 = (
            x1 - ops.maximum(a * y1, a * y2),
            x2 - ops.minimum(a * y1, a * y2),
        )
        y1, y2 = (
            y1 - ops.maximum(b * x1, b * x2),
            y2 - ops.minimum(b * x1, b * x2),
        )
        return ops.concatenate([x1, y1, x2, y2], axis=-1) * unit, size
