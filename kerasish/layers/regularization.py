"""Layers that disturb training on purpose: dropout and noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish import config, ops, random, regularizers
from kerasish.engine.layer.input_spec import InputSpec
from kerasish.engine.layer.layer import Layer
from kerasish.layers.options import InputOptions, LayerOptions
from kerasish.random import SeedGenerator
from kerasish.signatures import Unpack
from kerasish.tensor import Tensor
from kerasish.typing import PolicyLike, ShapeLike

# selu(x) for x towards minus infinity: -scale * alpha.
_SELU_FLOOR = -1.0507009873554805 * 1.6732632423543772


def _share(rate: float, who: str) -> float:
    if not isinstance(rate, (int, float)) or isinstance(rate, bool) or not 0 <= rate <= 1:
        raise ValueError(f"{who}: rate must be a share, 0 <= rate <= 1, got {rate!r}.")
    return rate


class _RandomLayer(Layer):
    """A layer that draws numbers in training, and is the identity otherwise."""

    layer_role = "pass"
    weightless = True

    def _draw_from(self, seed: Any, strength: float) -> None:
        """Keep the seed, and a generator of it unless `strength` is 0 and nothing is drawn."""
        self.seed = seed
        self.supports_masking = True
        if strength > 0:
            self.seed_generator = SeedGenerator(seed)


class Dropout(_RandomLayer):
    """In training: each element 0 with probability `rate`, else divided by 1 - rate.

    Args:
        rate: share of elements dropped, 0 <= rate <= 1.
        noise_shape: shape of the mask, which broadcasts to the input's; None sizes are the
            input's.
        seed: of the masks; None: drawn.

    Source: Srivastava et al., JMLR 15 (2014).

    Example:
        >>> Dropout(rate=0.5).compute_output_shape((None, 3))
        (None, 3)
    """

    example = {"args": {"rate": 0.5}, "shape": (2, 3)}

    def __init__(
        self,
        rate: float,
        noise_shape: str | Sequence[Any] | None = None,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.rate = _share(rate, self.display_name())
        self.noise_shape = _as_noise_shape(noise_shape, self.display_name())
        self._draw_from(seed, rate)

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        """Drop elements in training."""
        if not training or self.rate == 0:
            return inputs
        return random.dropout(
            inputs, self.rate, noise_shape=self._noise_shape(inputs), seed=self.seed_generator
        )

    def _noise_shape(self, inputs: Tensor) -> Any:
        return self.noise_shape


def _as_noise_shape(shape: ShapeLike | None, who: str) -> tuple[int | None, ...] | None:
    """Return the shape of Dropout's masks, checked."""
    if shape is None:
        return None
    if not isinstance(shape, (list, tuple)) or any(
        s is not None and (not isinstance(s, (int, np.integer)) or isinstance(s, bool) or s < 1)
        for s in shape
    ):
        raise ValueError(
            f"{who}: noise_shape is a tuple of sizes >= 1, or None for that of the inputs; "
            f"got {shape!r}."
        )
    return tuple(shape)


class _SpatialDropout(Dropout):
    rank = 0

    def __init__(
        self, rate: float, seed: int | None = None, name: str | None = None,
        dtype: PolicyLike | None = None,
        **kwargs: Unpack[InputOptions],
    ) -> None:  # fmt: skip
        super().__init__(rate, seed=seed, name=name, dtype=dtype, **kwargs)
        self.input_spec = InputSpec(ndim=self.rank + 2)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        config = super().get_config()
        for name in ("noise_shape", "trainable"):  # Keras takes neither
            config.pop(name, None)
        return {**config, "dtype": self.dtype}  # a name, as in Keras

    def _noise_shape(self, inputs: Tensor) -> tuple[int, ...]:
        shape = inputs.shape
        if getattr(self, "data_format", "channels_last") == "channels_first":
            return (shape[0], shape[1], *(1,) * self.rank)
        return (shape[0], *(1,) * self.rank, shape[-1])


class SpatialDropout1D(_SpatialDropout):
    """Dropout of whole channels. Shape: (n, steps, channels) -> the same.

    Args:
        rate: share of the channels that is dropped in training, 0 <= rate < 1.
        seed: an integer or a `SeedGenerator`; None: a new seed.
        name: name of the layer; None: made from the class.
        dtype: dtype or dtype policy; None: `config.dtype_policy()`.

    Source: Tompson et al., CVPR 2015.

    Example:
        >>> SpatialDropout1D(rate=0.5).compute_output_shape((None, 3, 4))
        (None, 3, 4)
    """

    example = {"args": {"rate": 0.5}, "shape": (2, 3, 4)}
    rank = 1


class SpatialDropout2D(_SpatialDropout):
    """Dropout of whole channels of pictures. Shape: (n, h, w, channels) -> the same.

    Args:
        rate: share of the channels that is dropped in training, 0 <= rate < 1.
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        seed: an integer or a `SeedGenerator`; None: a new seed.
        name: name of the layer; None: made from the class.
        dtype: dtype or dtype policy; None: `config.dtype_policy()`.

    Example:
        >>> SpatialDropout2D(rate=0.5).compute_output_shape((None, 3, 2, 4))
        (None, 3, 2, 4)
    """

    example = {"args": {"rate": 0.5}, "shape": (2, 3, 2, 4)}
    rank = 2

    def __init__(
        self, rate: float, data_format: str | None = None, seed: int | None = None,
        name: str | None = None, dtype: PolicyLike | None = None, **kwargs: Unpack[InputOptions],
    ) -> None:  # fmt: skip
        super().__init__(rate, seed=seed, name=name, dtype=dtype, **kwargs)
        self.data_format = config.standardize_data_format(data_format)


class SpatialDropout3D(SpatialDropout2D):
    """Dropout of whole channels of volumes. Shape: (n, d, h, w, channels) -> the same.

    Args:
        rate: share of the channels that is dropped in training, 0 <= rate < 1.
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.
        seed: an integer or a `SeedGenerator`; None: a new seed.
        name: name of the layer; None: made from the class.
        dtype: dtype or dtype policy; None: `config.dtype_policy()`.

    Example:
        >>> SpatialDropout3D(rate=0.5).compute_output_shape((None, 3, 2, 2, 4))
        (None, 3, 2, 2, 4)
    """

    example = {"args": {"rate": 0.5}, "shape": (2, 3, 2, 2, 4)}
    rank = 3


class GaussianNoise(_RandomLayer):
    """In training: x plus normal numbers of mean 0.

    Args:
        stddev: their standard deviation, >= 0.
        seed: of the noise; None: drawn.

    Example:
        >>> GaussianNoise(stddev=0.1).compute_output_shape((None, 3))
        (None, 3)
    """

    example = {"args": {"stddev": 0.1}, "shape": (2, 3)}

    def __init__(
        self, stddev: float, seed: int | None = None, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        if stddev < 0:
            raise ValueError(f"{self.display_name()}: stddev must be >= 0, got {stddev}.")
        self.stddev = stddev
        self._draw_from(seed, stddev)

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        """Add noise in training."""
        if not training or self.stddev == 0:
            return inputs
        noise = random.normal(
            inputs.shape, 0.0, self.stddev, dtype=inputs.dtype, seed=self.seed_generator
        )
        return ops.add(inputs, noise)


class GaussianDropout(_RandomLayer):
    """In training: x times normal numbers of mean 1 and variance rate / (1 - rate).

    Args:
        rate: as for Dropout, 0 <= rate < 1.
        seed: of the noise; None: drawn.

    Example:
        >>> GaussianDropout(rate=0.3).compute_output_shape((None, 3))
        (None, 3)
    """

    example = {"args": {"rate": 0.3}, "shape": (2, 3)}

    def __init__(
        self, rate: float, seed: int | None = None, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.rate = _share(rate, self.display_name())
        self._draw_from(seed, rate)

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        """Multiply by noise in training."""
        if not training or self.rate == 0:
            return inputs
        deviation = math.sqrt(self.rate / (1 - self.rate))
        noise = random.normal(
            inputs.shape, 1.0, deviation, dtype=inputs.dtype, seed=self.seed_generator
        )
        return ops.multiply(inputs, noise)


class AlphaDropout(_RandomLayer):
    """In training: elements become selu's lower limit, the rest such that mean and variance stay.

    Args:
        rate: share of elements dropped, 0 <= rate <= 1.
        noise_shape: shape of the mask, which broadcasts to the input's; None sizes are the
            input's.
        seed: of the masks; None: drawn.

    Source: Klambauer et al., NeurIPS 2017.

    Example:
        >>> AlphaDropout(rate=0.3).compute_output_shape((None, 3))
        (None, 3)
    """

    example = {"args": {"rate": 0.3}, "shape": (2, 3)}

    def __init__(
        self,
        rate: float,
        noise_shape: Sequence[int | None] | None = None,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.rate, self.noise_shape = _share(rate, self.display_name()), noise_shape
        self._draw_from(seed, rate)

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        """Drop elements in training."""
        if not training or self.rate == 0:
            return inputs
        given = self.noise_shape or (None,) * len(inputs.shape)
        shape = tuple(s if n is None else n for n, s in zip(given, inputs.shape))
        kept = ops.greater_equal(random.uniform(shape, seed=self.seed_generator), self.rate)
        keep = 1 - self.rate
        if keep == 0:
            return ops.zeros_like(inputs)
        factor = (keep * (1 + self.rate * _SELU_FLOOR**2)) ** -0.5
        shift = -factor * _SELU_FLOOR * self.rate
        return ops.add(ops.multiply(ops.where(kept, inputs, _SELU_FLOOR), factor), shift)


class ActivityRegularization(Layer):
    """The input as it is; training pays l1 * sum|x| + l2 * sum x^2, divided by the rows.

    Args:
        l1: factor of the sum of magnitudes, >= 0.
        l2: factor of the sum of squares, >= 0.

    Example:
        >>> ActivityRegularization(l1=0.1, l2=0.2).compute_output_shape((None, 3))
        (None, 3)
    """

    weightless = True
    example = {"args": {"l1": 0.1, "l2": 0.2}, "shape": (2, 3)}

    def __init__(self, l1: float = 0.0, l2: float = 0.0, **kwargs: Unpack[LayerOptions]) -> None:
        options: dict[str, Any] = dict(kwargs)
        super().__init__(activity_regularizer=regularizers.L1L2(l1=l1, l2=l2), **options)
        self.l1, self.l2 = l1, l2
        self.supports_masking = True

    def call(self, inputs: Tensor) -> Tensor:
        """Return the input."""
        return inputs

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        config = super().get_config()
        config.pop("activity_regularizer", None)
        return config
