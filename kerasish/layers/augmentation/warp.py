"""Pictures seen aslant, and as in moving water."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish import ops, random
from kerasish.layers.augmentation.picture import PictureLayer, one_of, read_interval
from kerasish.layers.options import LayerOptions
from kerasish.ops.images import boxes as box_ops
from kerasish.ops.images import warping
from kerasish.signatures import Unpack
from kerasish.tensor import Tensor
from kerasish.typing import FloatOrTuple, SeedLike, Structure

_METHODS = ("nearest", "bilinear")


class RandomPerspective(PictureLayer):
    """In training: some of the pictures seen aslant: their corners move.

    Args:
        factor: the interval of the probability, within [0, 1]; one number f: [0, f].
        scale: how far corners go at most, 0 <= scale <= 1, in units of twice their distance
            from the first one.
        interpolation: "bilinear" or "nearest".
        fill_value: what is outside the picture.
        seed: of all numbers; None: drawn.
        data_format: "channels_last" or "channels_first"; None: the default.

    Example:
        >>> RandomPerspective()(ops.ones((1, 4, 4, 3)), training=True).shape
        (1, 4, 4, 3)
    """

    mask_rule, moves = "nearest", True

    def __init__(
        self,
        factor: FloatOrTuple = 1.0,
        scale: float = 1.0,
        interpolation: str = "bilinear",
        fill_value: float = 0.0,
        seed: int | None = None,
        data_format: str | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(seed=seed, data_format=data_format, **kwargs)
        self.factor = read_interval(factor, (0.0, 1.0), self.display_name())
        if not 0 <= scale <= 1:
            raise ValueError(f"{self.display_name()}: scale must be in [0, 1], got {scale}.")
        self.scale, self.fill_value = scale, fill_value
        self.interpolation = one_of(interpolation, _METHODS, self.display_name(), "interpolation")

    def draw(self, images: Tensor, seed: SeedLike) -> Structure:
        """Return whether each picture changes, and where its corners were and go, (n, 4, 2)."""
        rows, (height, width) = images.shape[0], self._size(images.shape)
        chosen = self._happens(rows, self.factor, seed)
        half = 0.5 * self.scale
        moves = self._uniform((rows, 4, 2), (-half, half), seed)
        right, low = width - 1.0, height - 1.0
        corners = np.array([[0, 0], [right, 0], [0, low], [right, low]], "float32")
        start = ops.zeros_like(moves) + corners
        return {
            "apply_perspective": chosen, "start_points": start, "end_points": start * (1 + moves),
            "input_shape": tuple(images.shape),
        }  # fmt: skip

    def alter(self, images: Tensor, transformation: Structure, interpolation: str) -> Tensor:
        """Look from elsewhere where that was drawn."""
        seen = ops.image.perspective_transform(
            images, transformation["start_points"], transformation["end_points"], interpolation,
            self.fill_value, self.data_format,
        )  # fmt: skip
        return ops.where(self._rows(transformation["apply_perspective"]), seen, images)

    def move_boxes(
        self, corners: Tensor, transformation: Structure, size: Sequence[int]
    ) -> tuple[Any, Any]:
        """Return boxes around what becomes of the corners."""
        m = warping.perspective_matrix(transformation["start_points"], transformation["end_points"])
        m = [[ops.reshape(entry, (-1, 1)) for entry in row] for row in m]
        xs, ys = [], []
        for x, y in zip(*box_ops.corners_of(corners)):
            across, down, depth = (a * x + b * y + c for a, b, c in m)
            xs.append(across / depth)
            ys.append(down / depth)
        chosen = ops.reshape(transformation["apply_perspective"], (-1, 1, 1))
        return ops.where(chosen, box_ops.around_points(xs, ys), corners), size


class RandomElasticTransform(PictureLayer):
    """In training: the pixels of some of the pictures moved by smooth random distances.

    Args:
        factor: the interval of the probability, within [0, 1]; one number f: [0, f].
        scale: the interval of the strength, within [0, 1].
        interpolation: "bilinear" or "nearest".
        fill_mode: outside: "constant", "nearest", "wrap", "mirror" or "reflect".
        fill_value: what is outside with "constant".
        value_range: the least and the largest value of a pixel.
        seed: of all numbers; None: drawn.
        data_format: "channels_last" or "channels_first"; None: the default.

    Source: Simard, Steinkraus & Platt, ICDAR 2003.

    Example:
        >>> RandomElasticTransform(value_range=(0, 1))(ops.ones((1, 4, 4, 3)), training=True).shape
        (1, 4, 4, 3)
    """

    mask_rule = "nearest"

    def __init__(
        self,
        factor: FloatOrTuple = 1.0,
        scale: float | Sequence[float] = 1.0,
        interpolation: str = "bilinear",
        fill_mode: str = "reflect",
        fill_value: float = 0.0,
        value_range: Sequence[float] = (0, 255),
        seed: int | None = None,
        data_format: str | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(seed=seed, data_format=data_format, **kwargs)
        who = self.display_name()
        self.factor = read_interval(factor, (0.0, 1.0), who)
        self.scale = read_interval(scale, (0.0, 1.0), who, "scale")
        self.interpolation = one_of(interpolation, _METHODS, who, "interpolation")
        self.fill_mode = one_of(fill_mode, warping.FILL_MODES, who, "fill_mode")
        self.fill_value, self.value_range = fill_value, value_range

    def draw(self, images: Tensor, seed: SeedLike) -> Structure:
        """Return whether each picture changes, and each pixel's way, (n, h, w, 2)."""
        if self.scale[1] == 0 or self.factor[1] == 0:
            return None
        chosen = self._happens(images.shape[0], self.factor, seed)
        strength = self._uniform((), self.scale, seed)
        results = {"apply_transform": chosen, "distortion_factor": strength, "seed": seed}
        return {**results, "moves": self._ways(images, results)}

    def _ways(self, images: Tensor, drawn: dict[str, Any]) -> Tensor:
        height, width = self._size(images.shape)
        strength = ops.convert_to_tensor(drawn["distortion_factor"], "float32")
        reach, smooth = 0.1 * max(height, width), 0.05 * min(height, width)
        # The filter has the size that the largest strength needs, for any strength drawn.
        size = int(6 * smooth * self.scale[1]) | 1
        return warping.smooth_moves(
            random.draw_seed(drawn["seed"]), (images.shape[0], height, width), strength * reach,
            ops.maximum(strength * smooth, 1e-6), size,
        )  # fmt: skip

    def alter(self, images: Tensor, transformation: Structure, interpolation: str) -> Tensor:
        """Move the pixels where that was drawn."""
        ways = transformation.get("moves")
        moved = warping.displace(
            images, self._ways(images, transformation) if ways is None else ways, interpolation,
            self.fill_mode, self.fill_value, self.data_format,
        )  # fmt: skip
        y = ops.where(self._rows(transformation["apply_transform"]), moved, images)
        return y if interpolation == "nearest" else ops.clip(y, *self.value_range)
