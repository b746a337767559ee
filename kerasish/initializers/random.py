"""Initializers that draw: uniform, normal, truncated normal, orthogonal.

A seed makes the values: the same initializer object gives the same values for the same shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish import config, ops
from kerasish.errors import ShapeError
from kerasish.initializers.initializer import Initializer
from kerasish.ops import random as draw
from kerasish.registry import deserialize_keras_object, serialize_keras_object
from kerasish.signatures import own_arguments
from kerasish.typing import AnyTensor, DTypeLike, SeedLike, ShapeLike

if TYPE_CHECKING:
    from kerasish.random import SeedGenerator
    from kerasish.tensor import Tensor


_SMALL = 1 << 13  # elements of a matrix that no BLAS divides among threads


class RandomInitializer(Initializer):
    """An initializer with a seed: an integer, a SeedGenerator, or None (drawn once)."""

    def __init__(self, seed: SeedGenerator | str | int | None = None) -> None:
        self._config_seed = seed
        if isinstance(seed, dict):
            seed = deserialize_keras_object(seed)
        if seed is None:
            seed = config.next_seed()
        elif not hasattr(seed, "next") and not isinstance(seed, (int, np.integer)):
            raise ValueError(
                f"{type(self).__name__}: the seed must be None, an integer or a "
                f"SeedGenerator, got {seed!r}."
            )
        self.seed = seed

    @property
    def repeats(self) -> bool:
        """Whether the seed is a number, and the class, which draws, is one of ours."""
        return not hasattr(self.seed, "next") and type(self).__module__.startswith("kerasish.")

    def state(self) -> AnyTensor:
        """Return the random state [seed, draw] of the next values."""
        if hasattr(self.seed, "next"):
            return self.seed.next()
        return np.array([int(self.seed) & 0xFFFFFFFF, 0], "uint32")

    def get_config(self) -> dict[str, Any]:
        seed = serialize_keras_object(self._config_seed)
        return {"seed": seed, **own_arguments(self, known=("seed",))}


class RandomNormal(RandomInitializer):
    """Normal numbers.

    Args:
        mean: their mean.
        stddev: their standard deviation, >= 0.
        seed: an integer, a SeedGenerator, or None.

    Example:
        >>> RandomNormal(seed=1)((2, 3)).shape
        (2, 3)
    """

    def __init__(
        self, mean: float = 0.0, stddev: float = 0.05, seed: SeedGenerator | str | int | None = None
    ) -> None:
        self.mean, self.stddev = mean, stddev
        super().__init__(seed)

    def __call__(self, shape: ShapeLike, dtype: DTypeLike | None = None) -> Tensor:
        return draw.normal(self.state(), shape, self.mean, self.stddev, dtype)


class TruncatedNormal(RandomNormal):
    """Normal numbers, those beyond two standard deviations left out.

    Args:
        mean: the mean.
        stddev: the standard deviation, before numbers beyond two of it are drawn again.
        seed: an integer or a `SeedGenerator`; None: a new seed.

    Example:
        >>> TruncatedNormal(seed=0)((3, 2)).shape
        (3, 2)
    """

    def __call__(self, shape: ShapeLike, dtype: DTypeLike | None = None) -> Tensor:
        return draw.truncated_normal(self.state(), shape, self.mean, self.stddev, dtype)


class RandomUniform(RandomInitializer):
    """Uniform numbers in [minval, maxval).

    Args:
        minval: the lower bound.
        maxval: the upper bound.
        seed: an integer or a `SeedGenerator`; None: a new seed.

    Example:
        >>> RandomUniform(seed=0)((3, 2)).shape
        (3, 2)
    """

    def __init__(
        self, minval: float = -0.05, maxval: float = 0.05, seed: SeedLike | None = None
    ) -> None:
        self.minval, self.maxval = minval, maxval
        super().__init__(seed)

    def __call__(self, shape: ShapeLike, dtype: DTypeLike | None = None) -> Tensor:
        return draw.uniform(self.state(), shape, self.minval, self.maxval, dtype)


def _factors(matrix: Any) -> tuple[Any, Any]:
    """Return the factors Q and R of a matrix, by one thread of the BLAS library.

    More threads gain little, lose much next to busy processes, and add up in another order: weights
    would depend on the number of threads.
    """
    if matrix.size <= _SMALL:
        return np.linalg.qr(matrix)
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, "blas"):
        return np.linalg.qr(matrix)


class Orthogonal(RandomInitializer):
    """gain * Q with orthonormal columns (rows, where there are more columns than rows).

    More than two axes count as a matrix of shape (all but the last, last).

    Args:
        gain: a factor.
        seed: an integer or a `SeedGenerator`; None: a new seed.

    Source: Saxe, McClelland & Ganguli, Exact solutions to the nonlinear dynamics of learning in
        deep linear neural networks, ICLR 2014.

    Example:
        >>> q = Orthogonal(seed=1)((3, 2)).numpy()
        >>> bool(abs(q.T @ q - [[1, 0], [0, 1]]).max() < 1e-6)
        True
    """

    def __init__(self, gain: float = 1.0, seed: SeedLike | None = None) -> None:
        self.gain = gain
        super().__init__(seed)

    def __call__(self, shape: Any, dtype: DTypeLike | None = None) -> Tensor:
        if len(shape) < 2:
            raise ShapeError(f"Orthogonal: the shape needs 2 axes or more, got {tuple(shape)}.")
        rows, columns = int(np.prod(shape[:-1])), int(shape[-1])
        tall = (max(rows, columns), min(rows, columns))
        normal = draw.normal(self.state(), tall, dtype="float32").numpy().astype("float64")
        q, r = _factors(normal)
        # The sign of r's diagonal makes q uniform among all orthogonal matrices.
        q = q * np.where(np.diagonal(r) < 0, -1.0, 1.0)
        q = q.T if rows < columns else q
        return ops.convert_to_tensor((self.gain * q).reshape(shape), dtype or config.floatx())
