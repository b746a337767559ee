"""Pooling: the largest or the mean element of each window, bin, or whole picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish import config, ops
from kerasish.engine.layer.input_spec import InputSpec
from kerasish.engine.layer.layer import Layer
from kerasish.errors import ShapeError
from kerasish.layers.convolutional import as_sizes
from kerasish.ops.basic.window import resolve_padding, window_counts
from kerasish.typing import IntOrTuple, Shape

if TYPE_CHECKING:
    from kerasish.tensor import Tensor


class BasePooling(Layer):
    """What pooling by windows shares.

    Args:
        rank: the number of spatial axes, 1 to 3.
        pool_size: the window: a number >= 1, or one for each spatial axis.
        strides: from window to window; None: `pool_size`.
        padding: "valid" or "same"; padding never counts.
    """

    weightless = True

    def __init__(
        self,
        rank: int,
        pool_size: IntOrTuple,
        strides: IntOrTuple | None,
        padding: str,
        data_format: str | None,
        name: str | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.rank = rank
        self.pool_size = as_sizes(pool_size, rank, "pool_size", self.display_name())
        given = self.pool_size if strides is None else strides
        self.strides = as_sizes(given, rank, "strides", self.display_name())
        self.padding = padding.lower() if isinstance(padding, str) else padding
        if self.padding not in ("valid", "same"):
            raise ValueError(
                f"{self.display_name()}: padding is 'valid' or 'same', got {padding!r}."
            )
        self.data_format = config.standardize_data_format(data_format)
        self.input_spec = InputSpec(ndim=rank + 2)

    _pool: Any = None

    def call(self, inputs: Tensor) -> Tensor:
        """Pool."""
        return type(self)._pool(
            inputs, self.pool_size, self.strides, self.padding, self.data_format
        )

    def compute_output_shape(self, input_shape: Shape) -> tuple[Any, ...]:
        """Return the result's shape."""
        shape = tuple(input_shape)
        if len(shape) != self.rank + 2:
            raise ShapeError(
                f"{self.display_name()}: expected an input with {self.rank + 2} axes, got shape "
                f"{shape}. For data without an axis of channels use x[..., None]."
            )
        first = self.data_format == "channels_first"
        sizes = shape[2:] if first else shape[1:-1]
        ones = (1,) * self.rank
        padding = resolve_padding(
            self.padding, sizes, self.pool_size, self.strides, ones, self.display_name()
        )
        result = window_counts(
            sizes, self.pool_size, self.strides, padding, ones, self.display_name()
        )
        return (*shape[:2], *result) if first else (shape[0], *result, shape[-1])


class MaxPooling1D(BasePooling):
    """The largest element of each window of steps.

    Shape: (n, steps, channels) -> (n, windows, channels).

    Example:
        >>> MaxPooling1D(2).compute_output_shape((None, 9, 3))
        (None, 4, 3)
    """

    example = {"args": {"pool_size": 2, "strides": 1}, "shape": (2, 5, 3)}
    _pool = staticmethod(ops.max_pool)

    def __init__(
        self,
        pool_size: IntOrTuple = 2,
        strides: IntOrTuple | None = None,
        padding: str = "valid",
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(1, pool_size, strides, padding, data_format, name, **kwargs)


class MaxPooling2D(BasePooling):
    """The largest element of each window of two axes.

    Shape: (n, height, width, channels) -> (n, windows, windows, channels).

    Example:
        >>> MaxPooling2D(2, padding="same").compute_output_shape((None, 7, 7, 3))
        (None, 4, 4, 3)
    """

    example = {"args": {"pool_size": (2, 3), "padding": "same"}, "shape": (2, 5, 6, 3)}
    _pool = staticmethod(ops.max_pool)

    def __init__(
        self,
        pool_size: IntOrTuple = (2, 2),
        strides: IntOrTuple | None = None,
        padding: str = "valid",
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(2, pool_size, strides, padding, data_format, name, **kwargs)


class MaxPooling3D(BasePooling):
    """The largest element of each window of three axes.

    Shape: (n, depth, height, width, channels) -> (n, windows, windows, windows, channels).
    """

    example = {"args": {}, "shape": (1, 4, 4, 5, 2)}
    _pool = staticmethod(ops.max_pool)

    def __init__(
        self,
        pool_size: IntOrTuple = (2, 2, 2),
        strides: IntOrTuple | None = None,
        padding: str = "valid",
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(3, pool_size, strides, padding, data_format, name, **kwargs)


class AveragePooling1D(BasePooling):
    """The mean of each window of steps; padding does not count.

    Shape: (n, steps, channels) -> (n, windows, channels).
    """

    example = {"args": {"pool_size": 2}, "shape": (2, 5, 3)}
    _pool = staticmethod(ops.average_pool)

    def __init__(
        self,
        pool_size: IntOrTuple,
        strides: IntOrTuple | None = None,
        padding: str = "valid",
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(1, pool_size, strides, padding, data_format, name, **kwargs)


class AveragePooling2D(BasePooling):
    """The mean of each window of two axes; padding does not count.

    Shape: (n, height, width, channels) -> (n, windows, windows, channels).
    """

    example = {"args": {"pool_size": 2, "strides": 1, "padding": "same"}, "shape": (2, 5, 4, 3)}
    _pool = staticmethod(ops.average_pool)

    def __init__(
        self,
        pool_size: IntOrTuple,
        strides: IntOrTuple | None = None,
        padding: str = "valid",
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(2, pool_size, strides, padding, data_format, name, **kwargs)


class AveragePooling3D(BasePooling):
    """The mean of each window of three axes; padding does not count.

    Shape: (n, depth, height, width, channels) -> (n, windows, windows, windows, channels).
    """

    example = {"args": {"pool_size": 2}, "shape": (1, 4, 4, 5, 2)}
    _pool = staticmethod(ops.average_pool)

    def __init__(
        self,
        pool_size: IntOrTuple,
        strides: IntOrTuple | None = None,
        padding: str = "valid",
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(3, pool_size, strides, padding, data_format, name, **kwargs)
