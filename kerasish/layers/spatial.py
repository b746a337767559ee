"""What layers over spatial axes share: the layout of the channels, sizes for each axis."""

from __future__ import annotations

import inspect
from typing import Any

from kerasish import config
from kerasish.engine.layer.input_spec import InputSpec
from kerasish.engine.layer.layer import Layer
from kerasish.errors import ShapeError
from kerasish.layers.options import LayerOptions
from kerasish.ops.basic.window import resolve_padding, window_counts
from kerasish.signatures import Unpack, with_defaults
from kerasish.typing import Shape

_PER_AXIS = ("pool_size", "strides", "dilation_rate")


def as_sizes(value: Any, rank: int, name: str, who: str, least: int = 1) -> tuple[int, ...]:
    """Return `value`, a number or one for each of `rank` axes, as a tuple of numbers >= least."""
    many = tuple(value) if isinstance(value, (tuple, list)) else (value,) * rank
    if len(many) != rank or any(not hasattr(v, "__index__") or v < least for v in many):
        raise ValueError(
            f"{who}: {name} is an integer >= {least}, or {rank} of them, got {value!r}."
        )
    return tuple(int(v) for v in many)


class SpatialLayer(Layer):
    """A layer over `rank` spatial axes.

    Its constructor's defaults of `pool_size`, `strides` and `dilation_rate` are a number in the
    family's class; in the class of each rank above 1 they are, as in Keras, a number per axis.

    Args:
        data_format: "channels_last" or "channels_first"; None: the process's.
    """

    rank: int

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if vars(cls).get("rank", 1) > 1:
            shown = inspect.signature(cls.__init__).parameters
            numbers = {n: shown[n].default for n in _PER_AXIS if n in shown}
            sizes = {n: (d,) * cls.rank for n, d in numbers.items() if isinstance(d, int)}
            if sizes:
                cls.__init__ = with_defaults(cls.__init__, sizes)  # type: ignore[method-assign]

    def __init__(self, data_format: str | None, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.data_format = config.standardize_data_format(data_format)
        self.input_spec = InputSpec(ndim=self.rank + 2)

    @property
    def _first(self) -> int:
        """The first spatial axis."""
        return 2 if self.data_format == "channels_first" else 1

    def _split_shape(self, input_shape: Shape) -> tuple[Any, tuple[Any, ...], Any]:
        """Return (batch size, spatial sizes, channels) of an input's shape."""
        shape = tuple(input_shape)
        if len(shape) != self.rank + 2:
            raise ShapeError(
                f"{self.display_name()}: expected an input with {self.rank + 2} axes, got shape "
                f"{shape}. For data without an axis of channels use x[..., None]."
            )
        if self.data_format == "channels_first":
            return shape[0], shape[2:], shape[1]
        return shape[0], shape[1:-1], shape[-1]

    def _join_shape(self, n: Any, sizes: tuple[Any, ...], channels: Any) -> tuple[Any, ...]:
        """Return the shape with these sizes: the reverse of `_split_shape`."""
        first = self.data_format == "channels_first"
        return (n, channels, *sizes) if first else (n, *sizes, channels)


class WindowLayer(SpatialLayer):
    """A spatial layer whose results are those of windows: convolutions and pooling.

    Args:
        padding: one of the class's `paddings`.
        data_format: see `SpatialLayer`.
    """

    paddings: tuple[str, ...] = ("valid", "same")
    strides: tuple[int, ...]

    def __init__(self, padding: str, data_format: str | None, **kwargs: Any) -> None:
        super().__init__(data_format, **kwargs)
        self.padding = padding.lower() if isinstance(padding, str) else padding
        known = [p for p in self.paddings if p != "causal" or self.rank == 1]
        if self.padding not in known:
            raise ValueError(f"{self.display_name()}: padding is one of {known}, got {padding!r}.")

    def _count_windows(
        self, sizes: tuple[Any, ...], window: tuple[int, ...], dilation: tuple[int, ...]
    ) -> tuple[Any, ...]:
        """Return the number of windows along each axis."""
        who = self.display_name()
        padding = resolve_padding(self.padding, sizes, window, self.strides, dilation, who)
        return window_counts(sizes, window, self.strides, padding, dilation, who)
