"""Initializers whose variance follows from the number of inputs and outputs of a unit."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kerasish.errors import UnknownNameError
from kerasish.initializers.random import RandomInitializer
from kerasish.ops import random as draw
from kerasish.typing import DTypeLike, SeedLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

_MODES = ("fan_in", "fan_out", "fan_avg")
_DISTRIBUTIONS = ("truncated_normal", "untruncated_normal", "uniform")
# The standard deviation of a standard normal number truncated to [-2, 2].
_TRUNCATED_STDDEV = 0.87962566103423978


class VarianceScaling(RandomInitializer):
    """Numbers of mean 0 and variance scale / n, n the fan in, the fan out, or their mean.

    Args:
        scale: the factor of the variance, > 0.
        mode: "fan_in" (inputs of a unit), "fan_out" or "fan_avg".
        distribution: "truncated_normal", "untruncated_normal" ("normal" is the first) or "uniform".
        seed: an integer, a SeedGenerator, or None.
        input_axes, output_axes: the axes whose sizes multiply to the fans; None: the last axis is
            the output, the last but one the input, and the axes before are a window.

    Example:
        >>> x = VarianceScaling(scale=2.0, seed=1)((500, 20)).numpy()
        >>> bool(abs(x.var() - 2.0 / 500) < 2e-4)
        True
    """

    def __init__(
        self,
        scale: float = 1.0,
        mode: str = "fan_in",
        distribution: str = "truncated_normal",
        seed: SeedLike | None = None,
        input_axes: Sequence[int] | None = None,
        output_axes: Sequence[int] | None = None,
    ) -> None:
        name = type(self).__name__
        if not scale > 0:
            raise ValueError(f"{name}: the scale must be positive, got {scale!r}.")
        if mode not in _MODES:
            raise UnknownNameError.of(f"mode of {name}", mode, _MODES)
        distribution = "truncated_normal" if distribution == "normal" else distribution
        if distribution not in _DISTRIBUTIONS:
            raise UnknownNameError.of(f"distribution of {name}", distribution, _DISTRIBUTIONS)
        self.scale, self.mode, self.distribution = scale, mode, distribution
        self.input_axes, self.output_axes = input_axes, output_axes
        super().__init__(seed)

    def __call__(self, shape: Any, dtype: DTypeLike | None = None) -> Tensor:
        fan_in, fan_out = fans(shape, self.input_axes, self.output_axes)
        count = {"fan_in": fan_in, "fan_out": fan_out}.get(self.mode, (fan_in + fan_out) / 2)
        stddev = math.sqrt(self.scale / max(1.0, count))
        if self.distribution == "uniform":
            limit = math.sqrt(3.0) * stddev
            return draw.uniform(self.state(), shape, -limit, limit, dtype)
        if self.distribution == "untruncated_normal":
            return draw.normal(self.state(), shape, 0.0, stddev, dtype)
        wide = stddev / _TRUNCATED_STDDEV
        return draw.truncated_normal(self.state(), shape, 0.0, wide, dtype)

    def along(self, input_axes: Sequence[int], output_axes: Sequence[int]) -> VarianceScaling:
        """Return this initializer, with the same seed, for kernels with these axes."""
        result = copy.copy(self)
        result.input_axes, result.output_axes = input_axes, output_axes
        return result


def fans(
    shape: Sequence[int],
    input_axes: Sequence[int] | None = None,
    output_axes: Sequence[int] | None = None,
) -> tuple[int, int]:
    """Return how many inputs reach an output and how many outputs an input reaches.

    Example:
        >>> fans((3, 3, 16, 32)), fans((4, 5, 6), [0], [1, 2])
        ((144, 288), (4, 30))
    """
    if input_axes is not None and output_axes is not None:
        return (
            math.prod(int(shape[a]) for a in input_axes),
            math.prod(int(shape[a]) for a in output_axes),
        )
    if len(shape) < 2:
        size = int(shape[0]) if len(shape) else 1
        return size, size
    window = math.prod(int(s) for s in shape[:-2])
    return int(shape[-2]) * window, int(shape[-1]) * window


class _Fixed(VarianceScaling):
    """VarianceScaling with scale, mode and distribution chosen by the class."""

    SCALE, MODE, DISTRIBUTION = 1.0, "fan_in", "truncated_normal"

    def __init__(
        self,
        seed: SeedLike | None = None,
        input_axes: Sequence[int] | None = None,
        output_axes: Sequence[int] | None = None,
    ) -> None:
        super().__init__(self.SCALE, self.MODE, self.DISTRIBUTION, seed, input_axes, output_axes)


class GlorotUniform(_Fixed):
    """Uniform numbers of variance 2 / (fan_in + fan_out).

    Args:
        seed: an integer or a `SeedGenerator`; None: a new seed.
        input_axes: axes of the shape that count as inputs; None: by the kind of kernel.
        output_axes: axes of the shape that count as outputs; None: by the kind of kernel.

    Source: Glorot & Bengio, Understanding the difficulty of training deep feedforward neural
        networks, AISTATS 2010.

    Example:
        >>> bool(abs(GlorotUniform(seed=1)((3, 3)).numpy()).max() < 1)
        True
    """

    MODE, DISTRIBUTION = "fan_avg", "uniform"


class GlorotNormal(_Fixed):
    """Truncated normal numbers of variance 2 / (fan_in + fan_out).

    Args:
        seed: an integer or a `SeedGenerator`; None: a new seed.
        input_axes: axes of the shape that count as inputs; None: by the kind of kernel.
        output_axes: axes of the shape that count as outputs; None: by the kind of kernel.

    Source: Glorot & Bengio, AISTATS 2010.

    Example:
        >>> GlorotNormal(seed=0)((3, 2)).shape
        (3, 2)
    """

    MODE = "fan_avg"


class LecunNormal(_Fixed):
    """Truncated normal numbers of variance 1 / fan_in.

    Args:
        seed: an integer or a `SeedGenerator`; None: a new seed.
        input_axes: axes of the shape that count as inputs; None: by the kind of kernel.
        output_axes: axes of the shape that count as outputs; None: by the kind of kernel.

    Source: Klambauer et al., Self-normalizing neural networks, NIPS 2017.

    Example:
        >>> LecunNormal(seed=0)((3, 2)).shape
        (3, 2)
    """


class LecunUniform(_Fixed):
    """Uniform numbers of variance 1 / fan_in.

    Args:
        seed: an integer or a `SeedGenerator`; None: a new seed.
        input_axes: axes of the shape that count as inputs; None: by the kind of kernel.
        output_axes: axes of the shape that count as outputs; None: by the kind of kernel.

    Source: Klambauer et al., Self-normalizing neural networks, NIPS 2017.

    Example:
        >>> LecunUniform(seed=0)((3, 2)).shape
        (3, 2)
    """

    DISTRIBUTION = "uniform"


class HeNormal(_Fixed):
    """Truncated normal numbers of variance 2 / fan_in.

    Args:
        seed: an integer or a `SeedGenerator`; None: a new seed.
        input_axes: axes of the shape that count as inputs; None: by the kind of kernel.
        output_axes: axes of the shape that count as outputs; None: by the kind of kernel.

    Source: He, Zhang, Ren & Sun, Delving deep into rectifiers, ICCV 2015.

    Example:
        >>> HeNormal(seed=0)((3, 2)).shape
        (3, 2)
    """

    SCALE = 2.0


class HeUniform(_Fixed):
    """Uniform numbers of variance 2 / fan_in.

    Args:
        seed: an integer or a `SeedGenerator`; None: a new seed.
        input_axes: axes of the shape that count as inputs; None: by the kind of kernel.
        output_axes: axes of the shape that count as outputs; None: by the kind of kernel.

    Source: He, Zhang, Ren & Sun, Delving deep into rectifiers, ICCV 2015.

    Example:
        >>> HeUniform(seed=0)((3, 2)).shape
        (3, 2)
    """

    SCALE, DISTRIBUTION = 2.0, "uniform"
