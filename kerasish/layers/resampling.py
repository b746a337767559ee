"""Layers that pad, crop or enlarge along the spatial axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish import ops
from kerasish.engine.layer.input_spec import InputSpec
from kerasish.engine.layer.layer import Layer
from kerasish.errors import ShapeError
from kerasish.layers.options import LayerOptions
from kerasish.layers.spatial import SpatialLayer, as_sizes
from kerasish.signatures import Unpack, with_defaults
from kerasish.tensor import Tensor
from kerasish.typing import IntOrTuple


def pairs(value: object, count: int, who: str) -> tuple[tuple[int, int], ...]:
    """Return (before, after) for each of `count` axes from one number, or 1 or 2 per axis."""
    wrong = ValueError(f"{who}: expected {count} sizes or (before, after) pairs, got {value!r}.")
    if isinstance(value, int):
        value = (value,) * count
    elif not isinstance(value, (list, tuple)) or count == 1 and len(value) != 2:
        raise wrong
    elif count == 1:
        value = (value,)
    result = tuple((v, v) if isinstance(v, int) else v for v in value)
    if len(result) != count or not all(map(_is_pair, result)):
        raise wrong
    return tuple((before, after) for before, after in result)


def _is_pair(value: Sequence[int]) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) == 2
        and all(isinstance(v, int) and v >= 0 for v in value)
    )


class _Pad(SpatialLayer):
    layer_role = "pass"

    def __init__(
        self,
        padding: int | Sequence[Any] = 1,
        data_format: str | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(data_format, **kwargs)
        result = pairs(padding, self.rank, self.display_name())
        self.padding: Any = result[0] if self.rank == 1 else result

    def call(self, inputs: Tensor) -> Tensor:
        """Pad with zeros."""
        own = (self.padding,) if self.rank == 1 else self.padding
        width = [(0, 0)] * (self.rank + 2)
        width[self._first : self._first + self.rank] = own
        return ops.pad(inputs, tuple(width))


class ZeroPadding1D(_Pad):
    """Zeros before and after the time steps.

    Args:
        padding: "valid" (only windows inside the input) or "same" (as many windows as strides
            allow).
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.

    Example:
        >>> ZeroPadding1D(padding=(1, 2)).compute_output_shape((None, 3, 4))
        (None, 6, 4)
    """

    example = {"args": {"padding": (1, 2)}, "shape": (2, 3, 4)}
    rank = 1
    __init__ = with_defaults(_Pad.__init__, {"padding": 1})


class ZeroPadding2D(_Pad):
    """Zeros round pictures.

    Args:
        padding: "valid" (only windows inside the input) or "same" (as many windows as strides
            allow).
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.

    Example:
        >>> ZeroPadding2D(padding=((1, 0), (2, 1))).compute_output_shape((None, 3, 2, 4))
        (None, 4, 5, 4)
    """

    example = {"args": {"padding": ((1, 0), (2, 1))}, "shape": (2, 3, 2, 4)}
    rank = 2
    __init__ = with_defaults(_Pad.__init__, {"padding": (1, 1)})


class ZeroPadding3D(_Pad):
    """Zeros round volumes.

    Args:
        padding: "valid" (only windows inside the input) or "same" (as many windows as strides
            allow).
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.

    Example:
        >>> ZeroPadding3D(padding=1).compute_output_shape((None, 2, 2, 2, 1))
        (None, 4, 4, 4, 1)
    """

    example = {"args": {"padding": 1}, "shape": (1, 2, 2, 2, 1)}
    rank = 3
    __init__ = with_defaults(_Pad.__init__, {"padding": ((1, 1), (1, 1), (1, 1))})


class _Crop(SpatialLayer):
    layer_role = "pass"

    def __init__(
        self,
        cropping: str | int | Sequence[Any] = 1,
        data_format: str | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(data_format, **kwargs)
        result = pairs(cropping, self.rank, self.display_name())
        self.cropping: Any = result[0] if self.rank == 1 else result

    def call(self, inputs: Tensor) -> Tensor:
        """Cut off."""
        own = (self.cropping,) if self.rank == 1 else self.cropping
        key = [slice(None)] * (self.rank + 2)
        for i, (before, after) in enumerate(own, self._first):
            size = inputs.shape[i]
            if before + after >= size:
                raise ShapeError(
                    f"{self.display_name()}: cropping {own} leaves nothing of shape "
                    f"{tuple(inputs.shape)}."
                )
            key[i] = slice(before, size - after)
        return inputs[tuple(key)]


class Cropping1D(_Crop):
    """Time steps without their first and last.

    Args:
        cropping: steps removed at the start and the end: (start, end), or one number for both.

    Example:
        >>> Cropping1D(cropping=(1, 1)).compute_output_shape((None, 4, 3))
        (None, 2, 3)
    """

    example = {"args": {"cropping": (1, 1)}, "shape": (2, 4, 3)}
    rank = 1

    def __init__(
        self, cropping: str | Sequence[int] = (1, 1), **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(cropping, None, **kwargs)


class Cropping2D(_Crop):
    """Pictures without their rims.

    Args:
        cropping: elements removed: a number, one for each axis, or (before, after) for each axis.
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.

    Example:
        >>> Cropping2D(cropping=((1, 0), (1, 1))).compute_output_shape((None, 3, 4, 2))
        (None, 2, 2, 2)
    """

    example = {"args": {"cropping": ((1, 0), (1, 1))}, "shape": (2, 3, 4, 2)}
    rank = 2
    __init__ = with_defaults(_Crop.__init__, {"cropping": ((0, 0), (0, 0))})


class Cropping3D(_Crop):
    """Volumes without their rims.

    Args:
        cropping: elements removed: a number, one for each axis, or (before, after) for each axis.
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.

    Example:
        >>> Cropping3D(cropping=1).compute_output_shape((None, 3, 3, 3, 1))
        (None, 1, 1, 1, 1)
    """

    example = {"args": {"cropping": 1}, "shape": (1, 3, 3, 3, 1)}
    rank = 3
    __init__ = with_defaults(_Crop.__init__, {"cropping": ((1, 1), (1, 1), (1, 1))})


class UpSampling1D(Layer):
    """Each time step `size` times.

    Args:
        size: how often an element is repeated: a number, or one for each axis.

    Example:
        >>> UpSampling1D(size=2).compute_output_shape((None, 3, 4))
        (None, 6, 4)
    """

    layer_role = "pass"

    example = {"args": {"size": 2}, "shape": (2, 3, 4)}

    def __init__(self, size: int = 2, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        if not isinstance(size, int) or isinstance(size, bool):
            raise TypeError(f"{self.display_name()}: size is an integer, got {size!r}.")
        if size < 1:
            raise ValueError(f"{self.display_name()}: size is an integer >= 1, got {size}.")
        self.size = size
        self.input_spec = InputSpec(ndim=3)

    def call(self, inputs: Tensor) -> Tensor:
        """Repeat."""
        return ops.repeat(inputs, self.size, axis=1)


class UpSampling2D(SpatialLayer):
    """Pictures enlarged.

    Args:
        size: factor of the height and the width.
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        interpolation: "nearest" repeats; "bilinear", "bicubic", "lanczos3", "lanczos5".

    Example:
        >>> UpSampling2D(size=(2, 3)).compute_output_shape((None, 2, 2, 3))
        (None, 4, 6, 3)
    """

    layer_role = "pass"

    example = {"args": {"size": (2, 3)}, "shape": (2, 2, 2, 3)}
    rank = 2

    def __init__(
        self, size: IntOrTuple = (2, 2), data_format: str | None = None,
        interpolation: str = "nearest",
        **kwargs: Unpack[LayerOptions],
    ) -> None:  # fmt: skip
        super().__init__(data_format, **kwargs)
        self.size = as_sizes(size, 2, "size", self.display_name())
        self.interpolation = interpolation.lower()
        known = ("nearest", "bilinear", "bicubic", "lanczos3", "lanczos5")
        if self.interpolation not in known:
            raise ValueError(f"{self.display_name()}: interpolation is one of {known}, got "
                             f"{interpolation!r}.")  # fmt: skip

    def call(self, inputs: Tensor) -> Tensor:
        """Enlarge."""
        first = self._first
        if self.interpolation == "nearest":
            wide = ops.repeat(inputs, self.size[0], axis=first)
            return ops.repeat(wide, self.size[1], axis=first + 1)
        sizes = tuple(inputs.shape[first + i] * self.size[i] for i in range(2))
        return ops.image.resize(
            inputs, sizes, interpolation=self.interpolation, data_format=self.data_format
        )


class UpSampling3D(SpatialLayer):
    """Volumes with each element repeated along depth, height and width.

    Args:
        size: how often an element is repeated: a number, or one for each axis.
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.

    Example:
        >>> UpSampling3D(size=2).compute_output_shape((None, 2, 2, 2, 1))
        (None, 4, 4, 4, 1)
    """

    layer_role = "pass"

    example = {"args": {"size": 2}, "shape": (1, 2, 2, 2, 1)}
    rank = 3

    def __init__(
        self,
        size: IntOrTuple = (2, 2, 2),
        data_format: str | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(data_format, **kwargs)
        self.size = as_sizes(size, 3, "size", self.display_name())

    def call(self, inputs: Tensor) -> Tensor:
        """Repeat."""
        for i in range(3):
            inputs = ops.repeat(inputs, self.size[i], axis=self._first + i)
        return inputs
