"""Pooling: the largest or the mean element of each window, bin, or whole picture."""

from __future__ import annotations

from typing import Any

from kerasish import ops
from kerasish.layers.options import UnnamedOptions
from kerasish.layers.spatial import WindowLayer, as_sizes
from kerasish.signatures import Unpack
from kerasish.tensor import Tensor
from kerasish.typing import IntOrTuple, Shape


class BasePooling(WindowLayer):
    """What pooling by windows shares.

    Args:
        pool_size: the window: a number >= 1, or one for each spatial axis.
        strides: from window to window; None: `pool_size`.
        padding: "valid" or "same"; padding never counts.
    """

    weightless = True

    def __init__(
        self,
        pool_size: IntOrTuple,
        strides: IntOrTuple | None = None,
        padding: str = "valid",
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Unpack[UnnamedOptions],
    ) -> None:
        super().__init__(padding, data_format, name=name, **kwargs)
        who = self.display_name()
        self.pool_size = as_sizes(pool_size, self.rank, "pool_size", who)
        given = self.pool_size if strides is None else strides
        self.strides = as_sizes(given, self.rank, "strides", who)

    _pool: Any = None

    def call(self, inputs: Tensor) -> Tensor:
        """Pool."""
        return type(self)._pool(
            inputs, self.pool_size, self.strides, self.padding, self.data_format
        )

    def compute_output_shape(self, input_shape: Shape) -> tuple[Any, ...]:
        """Return the result's shape."""
        n, sizes, channels = self._split_shape(input_shape)
        windows = self._count_windows(sizes, self.pool_size, (1,) * self.rank)
        return self._join_shape(n, windows, channels)


class BaseMaxPooling(BasePooling):
    """Pooling by the largest element, of windows of 2 by default."""

    _pool = staticmethod(ops.max_pool)

    def __init__(
        self,
        pool_size: IntOrTuple = 2,
        strides: IntOrTuple | None = None,
        padding: str = "valid",
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Unpack[UnnamedOptions],
    ) -> None:
        super().__init__(pool_size, strides, padding, data_format, name, **kwargs)


class MaxPooling1D(BaseMaxPooling):
    """The largest element of each window of steps.

    Args:
        pool_size: size of the windows: a number, or one for each axis.
        strides: steps from window to window: a number, or one for each axis; None: `pool_size`.
        padding: "valid" (only windows inside the input) or "same" (as many windows as strides
            allow).
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        name: name of the layer; None: made from the class.

    Shape: (n, steps, channels) -> (n, windows, channels).

    Example:
        >>> MaxPooling1D(2).compute_output_shape((None, 9, 3))
        (None, 4, 3)
    """

    example = {"args": {"pool_size": 2, "strides": 1}, "shape": (2, 5, 3)}
    rank = 1


class MaxPooling2D(BaseMaxPooling):
    """The largest element of each window of two axes.

    Args:
        pool_size: size of the windows: a number, or one for each axis.
        strides: steps from window to window: a number, or one for each axis; None: `pool_size`.
        padding: "valid" (only windows inside the input) or "same" (as many windows as strides
            allow).
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        name: name of the layer; None: made from the class.

    Shape: (n, height, width, channels) -> (n, windows, windows, channels).

    Example:
        >>> MaxPooling2D(2, padding="same").compute_output_shape((None, 7, 7, 3))
        (None, 4, 4, 3)
    """

    example = {"args": {"pool_size": (2, 3), "padding": "same"}, "shape": (2, 5, 6, 3)}
    rank = 2


class MaxPooling3D(BaseMaxPooling):
    """The largest element of each window of three axes.

    Args:
        pool_size: size of the windows: a number, or one for each axis.
        strides: steps from window to window: a number, or one for each axis; None: `pool_size`.
        padding: "valid" (only windows inside the input) or "same" (as many windows as strides
            allow).
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        name: name of the layer; None: made from the class.

    Shape: (n, depth, height, width, channels) -> (n, windows, windows, windows, channels).

    Example:
        >>> MaxPooling3D().compute_output_shape((None, 4, 4, 5, 2))
        (None, 2, 2, 2, 2)
    """

    example = {"args": {}, "shape": (1, 4, 4, 5, 2)}
    rank = 3


class AveragePooling1D(BasePooling):
    """The mean of each window of steps; padding does not count.

    Args:
        pool_size: size of the windows: a number, or one for each axis.
        strides: steps from window to window: a number, or one for each axis; None: `pool_size`.
        padding: "valid" (only windows inside the input) or "same" (as many windows as strides
            allow).
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        name: name of the layer; None: made from the class.

    Shape: (n, steps, channels) -> (n, windows, channels).

    Example:
        >>> AveragePooling1D(pool_size=2).compute_output_shape((None, 5, 3))
        (None, 2, 3)
    """

    example = {"args": {"pool_size": 2}, "shape": (2, 5, 3)}
    _pool = staticmethod(ops.average_pool)
    rank = 1


class AveragePooling2D(BasePooling):
    """The mean of each window of two axes; padding does not count.

    Args:
        pool_size: size of the windows: a number, or one for each axis.
        strides: steps from window to window: a number, or one for each axis; None: `pool_size`.
        padding: "valid" (only windows inside the input) or "same" (as many windows as strides
            allow).
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        name: name of the layer; None: made from the class.

    Shape: (n, height, width, channels) -> (n, windows, windows, channels).

    Example:
        >>> layer = AveragePooling2D(pool_size=2, strides=1, padding='same')
        >>> layer.compute_output_shape((None, 5, 4, 3))
        (None, 5, 4, 3)
    """

    example = {"args": {"pool_size": 2, "strides": 1, "padding": "same"}, "shape": (2, 5, 4, 3)}
    _pool = staticmethod(ops.average_pool)
    rank = 2


class AveragePooling3D(BasePooling):
    """The mean of each window of three axes; padding does not count.

    Args:
        pool_size: size of the windows: a number, or one for each axis.
        strides: steps from window to window: a number, or one for each axis; None: `pool_size`.
        padding: "valid" (only windows inside the input) or "same" (as many windows as strides
            allow).
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        name: name of the layer; None: made from the class.

    Shape: (n, depth, height, width, channels) -> (n, windows, windows, windows, channels).

    Example:
        >>> AveragePooling3D(pool_size=2).compute_output_shape((None, 4, 4, 5, 2))
        (None, 2, 2, 2, 2)
    """

    example = {"args": {"pool_size": 2}, "shape": (1, 4, 4, 5, 2)}
    _pool = staticmethod(ops.average_pool)
    rank = 3
