"""Layers that map numbers into a better range: Rescaling, Normalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish import config, ops
from kerasish.engine.layer.layer import Layer
from kerasish.layers.options import LayerOptions
from kerasish.layers.preprocessing.reading import batches_of
from kerasish.signatures import Unpack
from kerasish.tensor import Tensor, to_numpy
from kerasish.typing import Array, Axis, Shape


class Rescaling(Layer):
    """x * scale + offset.

    Args:
        scale: a number, or one for each feature (for each channel where the image data format is
            "channels_first").
        offset: likewise.

    Example:
        >>> Rescaling(scale=0.5, offset=1.0).compute_output_shape((None, 3))
        (None, 3)
    """

    example = {"args": {"scale": 0.5, "offset": 1.0}, "shape": (2, 3)}

    def __init__(
        self,
        scale: float | Sequence[float],
        offset: float | Sequence[float] = 0.0,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.scale, self.offset = scale, offset
        self.supports_masking = True

    def call(self, inputs: Tensor) -> Tensor:
        """Scale."""
        x = ops.cast(inputs, self.compute_dtype)
        return ops.add(ops.multiply(x, _along(self.scale, x)), _along(self.offset, x))


def _along(value: float | Sequence[float], x: Tensor) -> Tensor:
    """Return a number, or one for each feature or channel, so that it broadcasts to x."""
    result = ops.cast(ops.convert_to_tensor(value), x.dtype)
    before = config.image_data_format() == "channels_first" and len(x.shape) > 2
    if before and len(result.shape) == 1 and result.shape[0] == x.shape[-3]:
        return ops.reshape(result, (-1, 1, 1))
    return result


class Normalization(Layer):
    """(x - mean) / sqrt(variance), the moments given or learnt by `adapt`.

    Args:
        axis: the axis or axes with separate moments; None: one mean for all.
        mean, variance: the moments; None: `adapt` finds them.
        invert: whether to go the other way: x * sqrt(variance) + mean.

    Example:
        >>> Normalization(mean=1.0, variance=4.0).compute_output_shape((None, 3))
        (None, 3)
    """

    example = {"args": {"mean": 1.0, "variance": 4.0}, "shape": (2, 3)}

    def __init__(
        self, axis: Axis | None = -1, mean: float | Sequence[float] | None = None,
        variance: float | Sequence[float] | None = None, invert: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.axis = () if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
        if (mean is None) != (variance is None):
            raise ValueError(f"{self.display_name()}: give mean and variance both, or neither.")
        self.input_mean, self.input_variance, self.invert = mean, variance, invert
        self.supports_masking = True
        self._given: tuple[Any, Any] | None = None  # the moments given, in the inputs' rank

    def build(self, input_shape: Shape) -> None:
        """Make the moments' variables, or take those given."""
        rank = len(input_shape)
        self._kept = tuple(sorted(a % rank for a in self.axis))
        unknown = [a for a in self._kept if input_shape[a] is None]
        if unknown:
            raise ValueError(f"{self.display_name()}: the sizes of axes {unknown} must be known.")
        self._shape = tuple(input_shape[a] if a in self._kept else 1 for a in range(rank))
        size = tuple(input_shape[a] for a in self._kept)
        if self.input_mean is None:
            self.adapt_mean = self.add_weight(
                name="mean", shape=size, initializer="zeros", trainable=False
            )
            self.adapt_variance = self.add_weight(
                name="variance", shape=size, initializer="ones", trainable=False
            )
            self.count = self.add_weight(
                name="count", shape=(), dtype="int32", initializer="zeros", trainable=False
            )
            return
        given = (np.asarray(m, "float32") for m in (self.input_mean, self.input_variance))
        mean, variance = (np.broadcast_to(m, size or ()).reshape(self._shape) for m in given)
        self._given = mean, variance

    @property
    def mean(self) -> Tensor | None:
        """The mean, as a tensor that broadcasts with the inputs; None before `build`."""
        return ops.convert_to_tensor(self._moments()[0]) if self.built else None

    @property
    def variance(self) -> Tensor | None:
        """The variance, as a tensor that broadcasts with the inputs; None before `build`."""
        return ops.convert_to_tensor(self._moments()[1]) if self.built else None

    def finalize_state(self) -> None:
        """Do nothing, as nothing is kept of the moments but their variables."""

    def adapt(self, data: Array) -> None:
        """Learn the moments from an array, or from an iterable of batches.

        Source: Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm for computing
            sample variances (1979).
        """
        if self.input_mean is not None:
            raise ValueError(
                f"{self.display_name()}: the moments were given; there is nothing to adapt."
            )
        mean: Any = 0.0
        spread: Any = 0.0  # the sum of squared distances from the mean
        count = 0
        for batch in batches_of(data, None, self.display_name()):
            x = np.asarray(to_numpy(batch), "float64")
            if not self.built:
                self.build(x.shape)
            axes = tuple(i for i in range(x.ndim) if i not in self._kept)
            rows = x.size // max(int(np.prod([x.shape[a] for a in self._kept])), 1)
            if not rows:
                continue
            own = x.mean(axis=axes, keepdims=True)
            step = own.reshape(np.shape(mean) or tuple(x.shape[a] for a in self._kept)) - mean
            spread = spread + np.square(x - own).sum(axis=axes)
            spread = spread + np.square(step) * (count * rows / (count + rows))
            mean = mean + step * (rows / (count + rows))
            count += rows
        if not count:
            raise ValueError(f"{self.display_name()}: adapt() got no data.")
        self.adapt_mean.assign(mean)
        self.adapt_variance.assign(spread / count)
        self.count.assign(count)

    def call(self, inputs: Tensor) -> Tensor:
        """Normalize."""
        x = ops.cast(inputs, self.compute_dtype)
        mean, variance = self._moments()
        spread = ops.maximum(ops.sqrt(variance), 1e-7)
        if self.invert:
            return ops.cast(ops.add(ops.multiply(x, spread), mean), self.compute_dtype)
        return ops.cast(ops.divide(ops.subtract(x, mean), spread), self.compute_dtype)

    def _moments(self) -> tuple[Any, Any]:
        """Return mean and variance; learnt ones as they are when a compiled step runs."""
        if self._given is not None:
            return self._given
        learnt = (ops.cast(v, "float32") for v in (self.adapt_mean, self.adapt_variance))
        mean, variance = (ops.reshape(v, self._shape) for v in learnt)
        return mean, variance

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        config = super().get_config()
        config.update(axis=self.axis, mean=self.input_mean, variance=self.input_variance)
        return config
