"""Gray levels spread: by their range, or by how often each occurs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish import ops
from kerasish.layers.augmentation.picture import PictureLayer, read_range, rescale
from kerasish.layers.options import LayerOptions
from kerasish.signatures import Unpack
from kerasish.tensor import Tensor
from kerasish.typing import Structure


class AutoContrast(PictureLayer):
    """Each channel of each picture stretched to the whole value range.

    Args:
        value_range: the least and the largest value of a pixel.

    Example:
        >>> AutoContrast(value_range=(-1.0, 1.0)).compute_output_shape((None, 3, 4, 3))
        (None, 3, 4, 3)
    """

    draws, always = False, True
    example: Any = {"args": {"value_range": (-1.0, 1.0)}, "shape": (2, 3, 4, 3)}

    def __init__(
        self, value_range: Sequence[float] = (0, 255), **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.value_range = read_range(value_range, self.display_name())

    def alter(self, images: Tensor, transformation: Structure, interpolation: str) -> Tensor:
        """Stretch; a channel of one value stays as it is."""
        axes = (-2, -1) if self._first else (-3, -2)
        x = rescale(images, self.value_range, (0, 255))
        low, high = ops.min(x, axes, keepdims=True), ops.max(x, axes, keepdims=True)
        flat = ops.equal(high, low)
        scale = 255.0 / ops.where(flat, 1.0, high - low)
        y = rescale(ops.clip(x * scale - low * scale, 0, 255), (0, 255), self.value_range)
        return ops.where(flat, images, y)


class Equalization(PictureLayer):
    """In training: levels such that each is about as frequent; one histogram a channel.

    Like in Keras, all the pictures of a batch share a channel's histogram.

    Args:
        value_range: the least and the largest value of a pixel.
        bins: number of levels that are distinguished.
        data_format: "channels_last" or "channels_first"; None: the default.

    Example:
        >>> Equalization(value_range=(0, 255))(ops.zeros((1, 4, 4, 3))).shape
        (1, 4, 4, 3)
    """

    draws = False

    def __init__(
        self,
        value_range: Sequence[float] = (0, 255),
        bins: int = 256,
        data_format: str | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self.value_range, self.bins = read_range(value_range, self.display_name()), bins

    def alter(self, images: Tensor, transformation: Structure, interpolation: str) -> Tensor:
        """Look each pixel up in its channel's table."""
        x = ops.moveaxis(images, 1, -1) if self._first else images
        x = rescale(x, self.value_range, (0, 255))
        places = _bins(x, self.bins)
        channel = ops.arange(x.shape[-1]) * self.bins
        count = _count(places + channel, x.shape[-1] * self.bins)
        count = ops.reshape(count, (x.shape[-1], self.bins))
        table = _table(count)
        result = ops.take(ops.reshape(table, (-1,)), places + channel)
        several = ops.sum(ops.cast(count > 0, "int32"), -1) > 1
        y = ops.where(several, self._cast(result), x)
        y = rescale(y, (0, 255), self.value_range)
        return ops.moveaxis(y, -1, 1) if self._first else y


def _bins(x: Tensor, bins: int) -> Tensor:
    """Return the level, 0 to bins - 1, of numbers of 0 to 255."""
    x = ops.cast(x, "float32") if x.dtype != "float64" else x
    return ops.cast(ops.clip(x * ((bins - 1) / 255), 0, bins - 1), "int32")


def _count(places: Tensor, size: int) -> Tensor:
    """Return how often each integer below `size` occurs."""
    flat = ops.reshape(places, (-1,))
    return ops.segment_sum(ops.ones_like(flat), flat, num_segments=size)


def _table(count: Tensor) -> Tensor:
    """Return the new level, 0 to 255, of each old one, from (channels, bins) counts."""
    total = ops.cumsum(count, -1)
    # The first of the sums that is not 0: how many pixels have the lowest level there is.
    first = ops.min(ops.where(total > 0, total, ops.max(total, -1, keepdims=True)), -1, True)
    rest = total[:, -1:] - first
    table = ops.cast(total - first, "float32") * 255 / ops.cast(ops.maximum(rest, 1), "float32")
    return ops.clip(ops.round(table), 0, 255)


class ContrastLimitedAdaptiveHistogramEqualization(PictureLayer):
    """Levels spread per tile, interpolated between tiles, with limited contrast.

    Args:
        value_range: the least and the largest value of a pixel.
        clip_limit: how often a level may occur in a tile, in units of the mean; what is above is
            shared out. 0: no limit.
        tile_grid_size: number of tiles (down, across).
        data_format: "channels_last" or "channels_first"; None: the default.

    Source: Zuiderveld, Graphics Gems IV, 1994.

    Example:
        >>> layer = ContrastLimitedAdaptiveHistogramEqualization(value_range=(0, 1))
        >>> layer(ops.zeros((1, 8, 8, 3))).shape
        (1, 8, 8, 3)
    """

    draws, always = False, True

    def __init__(
        self,
        value_range: Sequence[float] = (0, 255),
        clip_limit: float = 4.0,
        tile_grid_size: Sequence[int] = (8, 8),
        data_format: str | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self.value_range, self.clip_limit = value_range, clip_limit
        self.tile_grid_size = tuple(tile_grid_size)

    def transform_images(
        self, images: Tensor, transformation: Structure = None, training: bool = True
    ) -> Tensor:
        """Return the pictures in their original dtype."""
        x = ops.convert_to_tensor(images)
        wide = x if x.dtype == "float64" else ops.cast(x, "float32")
        y = self._batched(lambda x: self.alter(x, transformation, ""), wide)
        return ops.cast(y, x.dtype)

    def alter(self, images: Tensor, transformation: Structure, interpolation: str) -> Tensor:
        """Look each pixel up in the tables of the four tiles around it."""
        x = ops.moveaxis(images, 1, -1) if self._first else images
        x = rescale(x, self.value_range, (0, 255))
        height, width = x.shape[1:3]
        sides = [-(-size // count) for size, count in zip((height, width), self.tile_grid_size)]
        margin = [s * c - n for s, c, n in zip(sides, self.tile_grid_size, (height, width))]
        x = ops.pad(x, ((0, 0), (0, margin[0]), (0, margin[1]), (0, 0)), mode="symmetric")
        levels = ops.cast(ops.clip(x, 0, 255), "int32")
        tables = self._tables(levels, sides)
        y = self._looked_up(levels, tables, sides)[:, :height, :width]
        y = rescale(ops.cast(y, images.dtype), (0, 255), self.value_range)
        return ops.moveaxis(y, -1, 1) if self._first else y

    def _tables(self, levels: Tensor, sides: list[int]) -> Tensor:
        """Return new levels, shape (n, tiles down, tiles across, channels, 256)."""
        down, across = self.tile_grid_size
        n, channels, area = levels.shape[0], levels.shape[-1], sides[0] * sides[1]
        x = ops.reshape(levels, (n, down, sides[0], across, sides[1], channels))
        x = ops.reshape(ops.transpose(x, (0, 1, 3, 5, 2, 4)), (-1, area))
        tiles = n * down * across * channels
        count = _count(x + 256 * ops.reshape(ops.arange(tiles), (-1, 1)), tiles * 256)
        count = ops.reshape(ops.cast(count, "float32"), (tiles, 256))
        if self.clip_limit > 0:
            held = ops.minimum(count, self.clip_limit * area / 256)
            count = held + ops.sum(count - held, -1, keepdims=True) / 256
        total = ops.cumsum(count, -1)
        first = ops.min(total, -1, keepdims=True)
        rest = area - first
        rest = ops.where(ops.equal(rest, 0), 1.0, rest)
        table = ops.clip((total - first) * 255 / rest, 0, 255)
        return ops.reshape(table, (n, down, across, channels, 256))

    def _looked_up(self, levels: Tensor, tables: Tensor, sides: list[int]) -> Tensor:
        """Return the levels' new values, the tables of neighboring tiles mixed by distance."""
        n, down, across, channels, _ = tables.shape
        rows, row_share = _neighbors(levels.shape[1], sides[0], down)
        columns, column_share = _neighbors(levels.shape[2], sides[1], across)
        number = ops.reshape(ops.arange(n), (-1, 1, 1, 1)) * down
        flat = ops.reshape(tables, (-1,))

        def read(row: Tensor, column: Tensor) -> Tensor:
            tile = (number + ops.reshape(row, (-1, 1, 1))) * across + ops.reshape(column, (-1, 1))
            place = (tile * channels + ops.arange(channels)) * 256 + levels
            return ops.take(flat, place)

        share = ops.reshape(column_share, (-1, 1))
        lines = [read(r, columns[0]) * (1 - share) + read(r, columns[1]) * share for r in rows]
        share = ops.reshape(row_share, (-1, 1, 1))
        return lines[0] * (1 - share) + lines[1] * share


def _neighbors(size: int, side: int, count: int) -> tuple[list[Any], Any]:
    """Return ([tile before, tile after], share of the one after) for each pixel of an axis."""
    at = (ops.arange(size, dtype="float32") - side / 2) / side
    before = ops.floor(at)
    tiles = [ops.cast(ops.clip(before + i, 0, count - 1), "int32") for i in (0, 1)]
    return tiles, at - before
