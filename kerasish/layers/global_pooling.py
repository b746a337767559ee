"""Pooling over all places (Global...) or over a fixed number of bins (Adaptive...)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish import ops
from kerasish.layers.options import LayerOptions
from kerasish.layers.spatial import SpatialLayer, as_sizes
from kerasish.signatures import Unpack
from kerasish.tensor import Tensor
from kerasish.typing import AnyTensor


class BaseGlobalPooling(SpatialLayer):
    """What global pooling shares.

    Args:
        data_format: "channels_last" or "channels_first".
        keepdims: whether the spatial axes stay, with size 1.
    """

    _mixes_steps = True

    weightless = True

    def __init__(
        self, data_format: str | None = None, keepdims: bool = False, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(data_format, **kwargs)
        self.keepdims = keepdims

    @property
    def _axes(self) -> tuple[int, ...]:
        return tuple(range(self._first, self._first + self.rank))


class _GlobalAverage(BaseGlobalPooling):
    def call(self, inputs: Tensor) -> Tensor:
        """Average."""
        return ops.mean(inputs, axis=self._axes, keepdims=self.keepdims)


class _GlobalMax(BaseGlobalPooling):
    def call(self, inputs: Tensor) -> Tensor:
        """Pick the largest."""
        return ops.max(inputs, axis=self._axes, keepdims=self.keepdims)


class GlobalAveragePooling1D(BaseGlobalPooling):
    """The mean over all steps; steps that a mask leaves out do not count.

    Args:
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        keepdims: whether the spatial axes stay, with size 1.

    Shape: (n, steps, channels) -> (n, channels).

    Example:
        >>> GlobalAveragePooling1D().compute_output_shape((None, 4, 3))
        (None, 3)
    """

    example = {"args": {}, "shape": (2, 4, 3)}
    rank = 1
    reads_mask = True

    def __init__(
        self, data_format: str | None = None, keepdims: bool = False, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(data_format, keepdims, **kwargs)
        self.supports_masking = True

    def call(self, inputs: Tensor, mask: AnyTensor | None = None) -> Tensor:
        """Average."""
        if mask is None:
            return ops.mean(inputs, axis=self._axes, keepdims=self.keepdims)
        last = self.data_format == "channels_last"
        counted = ops.expand_dims(ops.cast(mask, inputs.dtype), 2 if last else 1)
        total = ops.sum(ops.multiply(inputs, counted), axis=self._axes, keepdims=self.keepdims)
        return ops.divide(total, ops.sum(counted, axis=self._axes, keepdims=self.keepdims))

    def compute_mask(self, inputs: Tensor, mask: AnyTensor | None = None) -> None:
        """Return None: no steps are left."""
        return


class GlobalAveragePooling2D(_GlobalAverage):
    """The mean of each channel's picture.

    Args:
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        keepdims: whether the spatial axes stay, with size 1.

    Shape: (n, height, width, channels) -> (n, channels).

    Example:
        >>> GlobalAveragePooling2D().compute_output_shape((None, 7, 7, 64))
        (None, 64)
    """

    example = {"args": {}, "shape": (2, 4, 3, 3)}
    rank = 2


class GlobalAveragePooling3D(_GlobalAverage):
    """The mean of each channel's volume.

    Args:
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        keepdims: whether the spatial axes stay, with size 1.

    Shape: (n, depth, height, width, channels) -> (n, channels).

    Example:
        >>> GlobalAveragePooling3D(keepdims=True).compute_output_shape((None, 2, 4, 3, 3))
        (None, 1, 1, 1, 3)
    """

    example = {"args": {"keepdims": True}, "shape": (2, 2, 4, 3, 3)}
    rank = 3


class GlobalMaxPooling1D(_GlobalMax):
    """The largest element over all steps.

    Args:
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        keepdims: whether the spatial axes stay, with size 1.

    Shape: (n, steps, channels) -> (n, channels).

    Example:
        >>> GlobalMaxPooling1D().compute_output_shape((None, 4, 3))
        (None, 3)
    """

    example = {"args": {}, "shape": (2, 4, 3)}
    rank = 1


class GlobalMaxPooling2D(_GlobalMax):
    """The largest element of each channel's picture.

    Args:
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        keepdims: whether the spatial axes stay, with size 1.

    Shape: (n, height, width, channels) -> (n, channels).

    Example:
        >>> GlobalMaxPooling2D().compute_output_shape((None, 4, 3, 3))
        (None, 3)
    """

    example = {"args": {}, "shape": (2, 4, 3, 3)}
    rank = 2


class GlobalMaxPooling3D(_GlobalMax):
    """The largest element of each channel's volume.

    Args:
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        keepdims: whether the spatial axes stay, with size 1.

    Shape: (n, depth, height, width, channels) -> (n, channels).

    Example:
        >>> GlobalMaxPooling3D().compute_output_shape((None, 2, 4, 3, 3))
        (None, 3)
    """

    example = {"args": {}, "shape": (2, 2, 4, 3, 3)}
    rank = 3


class BaseAdaptivePooling(SpatialLayer):
    """What pooling over a fixed number of bins shares.

    Args:
        output_size: the number of bins: a number >= 1, or one for each spatial axis.
    """

    _pool: Any = None

    def __init__(
        self,
        output_size: int | Sequence[int],
        data_format: str | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(data_format, **kwargs)
        self.output_size = as_sizes(output_size, self.rank, "output_size", self.display_name())

    def call(self, inputs: Tensor) -> Tensor:
        """Pool."""
        return type(self)._pool(inputs, self.output_size, self.data_format)


class AdaptiveAveragePooling1D(BaseAdaptivePooling):
    """The means of `output_size` bins of steps.

    Args:
        output_size: number of bins: a number, or one for each axis.
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.

    Shape: (n, steps, channels) -> (n, output_size, channels).

    Example:
        >>> AdaptiveAveragePooling1D(output_size=2).compute_output_shape((None, 5, 3))
        (None, 2, 3)
    """

    example = {"args": {"output_size": 2}, "shape": (2, 5, 3)}
    rank = 1
    _pool = staticmethod(ops.adaptive_average_pool)


class AdaptiveAveragePooling2D(BaseAdaptivePooling):
    """The means of `output_size` bins along two axes.

    Args:
        output_size: number of bins: a number, or one for each axis.
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.

    Shape: (n, height, width, channels) -> (n, *output_size, channels).

    Example:
        >>> AdaptiveAveragePooling2D(output_size=(2, 3)).compute_output_shape((None, 4, 5, 3))
        (None, 2, 3, 3)
    """

    example = {"args": {"output_size": (2, 3)}, "shape": (2, 4, 5, 3)}
    rank = 2
    _pool = staticmethod(ops.adaptive_average_pool)


class AdaptiveAveragePooling3D(BaseAdaptivePooling):
    """The means of `output_size` bins along three axes.

    Args:
        output_size: number of bins: a number, or one for each axis.
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.

    Shape: (n, depth, height, width, channels) -> (n, *output_size, channels).

    Example:
        >>> AdaptiveAveragePooling3D(output_size=2).compute_output_shape((None, 4, 4, 4, 2))
        (None, 2, 2, 2, 2)
    """

    example = {"args": {"output_size": 2}, "shape": (1, 4, 4, 4, 2)}
    rank = 3
    _pool = staticmethod(ops.adaptive_average_pool)


class AdaptiveMaxPooling1D(BaseAdaptivePooling):
    """The largest elements of `output_size` bins of steps.

    Args:
        output_size: number of bins: a number, or one for each axis.
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.

    Shape: (n, steps, channels) -> (n, output_size, channels).

    Example:
        >>> AdaptiveMaxPooling1D(output_size=2).compute_output_shape((None, 5, 3))
        (None, 2, 3)
    """

    example = {"args": {"output_size": 2}, "shape": (2, 5, 3)}
    rank = 1
    _pool = staticmethod(ops.adaptive_max_pool)


class AdaptiveMaxPooling2D(BaseAdaptivePooling):
    """The largest elements of `output_size` bins along two axes.

    Args:
        output_size: number of bins: a number, or one for each axis.
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.

    Shape: (n, height, width, channels) -> (n, *output_size, channels).

    Example:
        >>> AdaptiveMaxPooling2D(output_size=(2, 3)).compute_output_shape((None, 4, 5, 3))
        (None, 2, 3, 3)
    """

    example = {"args": {"output_size": (2, 3)}, "shape": (2, 4, 5, 3)}
    rank = 2
    _pool = staticmethod(ops.adaptive_max_pool)


class AdaptiveMaxPooling3D(BaseAdaptivePooling):
    """The largest elements of `output_size` bins along three axes.

    Args:
        output_size: number of bins: a number, or one for each axis.
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.

    Shape: (n, depth, height, width, channels) -> (n, *output_size, channels).

    Example:
        >>> AdaptiveMaxPooling3D(output_size=2).compute_output_shape((None, 4, 4, 4, 2))
        (None, 2, 2, 2, 2)
    """

    example = {"args": {"output_size": 2}, "shape": (1, 4, 4, 4, 2)}
    rank = 3
    _pool = staticmethod(ops.adaptive_max_pool)
