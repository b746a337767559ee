"""Initializers without chance: zeros, ones, constants, the identity, Fourier bases."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish import ops
from kerasish.errors import ShapeError
from kerasish.initializers.initializer import Initializer
from kerasish.registry import deserialize_keras_object, serialize_keras_object
from kerasish.typing import Array, DTypeLike, ShapeLike, TensorLike

if TYPE_CHECKING:
    from typing_extensions import Self

    from kerasish.tensor import Tensor


class Constant(Initializer):
    """`value` everywhere.

    Args:
        value: a number, or an array that broadcasts to the shape.

    Example:
        >>> Constant(2.0)((2,)).tolist()
        [2.0, 2.0]
    """

    def __init__(self, value: TensorLike = 0.0) -> None:
        self.value = value

    def __call__(self, shape: ShapeLike, dtype: DTypeLike | None = None) -> Tensor:
        return ops.full(shape, self.value, dtype or _default(None))

    def get_config(self) -> dict[str, Any]:
        return {"value": serialize_keras_object(self.value)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(deserialize_keras_object(config.get("value", 0.0)))


class Zeros(Initializer):
    """0 everywhere.

    Example:
        >>> Zeros()((2,)).tolist()
        [0.0, 0.0]
    """

    @property
    def repeats(self) -> bool:
        """True of this class; subclasses may do anything."""
        return type(self) is Zeros

    @property
    def gives_zeros(self) -> bool:
        """True of this class: a variable needs no memory for what it gives."""
        return type(self) is Zeros

    def __call__(self, shape: ShapeLike, dtype: DTypeLike | None = None) -> Tensor:
        return ops.zeros(shape, dtype)


class Ones(Initializer):
    """1 everywhere.

    Example:
        >>> Ones()((2,)).tolist()
        [1.0, 1.0]
    """

    @property
    def repeats(self) -> bool:
        """True of this class; subclasses may do anything."""
        return type(self) is Ones

    def __call__(self, shape: ShapeLike, dtype: DTypeLike | None = None) -> Tensor:
        return ops.ones(shape, dtype)


class Identity(Initializer):
    """`gain` on the diagonal of a matrix, 0 elsewhere.

    Args:
        gain: a factor.

    Example:
        >>> Identity(gain=3.0)((2, 2)).tolist()
        [[3.0, 0.0], [0.0, 3.0]]
    """

    def __init__(self, gain: float = 1.0) -> None:
        self.gain = gain

    def __call__(self, shape: Any, dtype: Any = None) -> Tensor:
        if len(shape) != 2:
            raise ShapeError(f"Identity: the shape must have 2 axes, got {tuple(shape)}.")
        return ops.multiply(ops.eye(shape[0], shape[1], dtype=dtype or _default(None)), self.gain)


_SIDES, _SCALINGS = ("real", "imag"), ("density", "spectrum", None)


class STFT(Initializer):
    """Rows of a discrete Fourier transform under a window: the kernel of a 1-D convolution.

    Element (t, c, k) is window[t] * cos(2 pi t k / (2 (bins - 1))), or the same with -sin.

    Args:
        side: "real" (cosines) or "imag" (negative sines).
        window: a name for `scipy.signal.get_window`, an array, or None (all ones, not
            scaled).
        scaling: "density" (the window over the root of its sum of squares), "spectrum" (over its
            sum), or None.
        periodic: whether the named window is periodic instead of symmetric.

    Shape: (samples, channels, bins).

    Example:
        >>> STFT("real", "hann")((4, 1, 3)).shape
        (4, 1, 3)
    """

    def __init__(
        self,
        side: str = "real",
        window: str | Array = "hann",
        scaling: str | None = "density",
        periodic: bool = False,
    ) -> None:
        if side not in _SIDES:
            raise ValueError(f"STFT: side must be one of {_SIDES}, got {side!r}.")
        if scaling not in _SCALINGS:
            raise ValueError(f"STFT: scaling must be one of {_SCALINGS}, got {scaling!r}.")
        if isinstance(window, str):
            _named_window(window, 8, periodic)  # an unknown name shows now
        self.side, self.window, self.scaling = side, window, scaling
        self.periodic = periodic

    def __call__(self, shape: Any, dtype: DTypeLike | None = None) -> Array:
        if len(shape) != 3:
            raise ShapeError(
                f"STFT: the shape must be (samples, channels, bins), got {tuple(shape)}."
            )
        samples, channels, bins = shape
        step = math.pi / max(bins - 1, 1)
        angles = np.arange(samples)[:, None, None] * np.arange(bins) * step
        waves = np.cos(angles) if self.side == "real" else -np.sin(angles)
        weighted = waves * self._weights(samples)[:, None, None]
        return np.repeat(weighted, channels, axis=1).astype(_default(dtype))

    def _weights(self, samples: int) -> Array:
        if self.window is None:
            return np.ones(samples)
        if isinstance(self.window, str):
            window = _named_window(self.window, samples, self.periodic)
        else:
            window = np.asarray(self.window, "float64")
        if window.shape != (samples,):
            raise ShapeError(f"STFT: the window must have {samples} samples, got {window.shape}.")
        if self.scaling == "density":
            return window / np.sqrt((window**2).sum())
        return window / window.sum() if self.scaling == "spectrum" else window


def _named_window(name: str, samples: int, periodic: bool) -> Array:
    from scipy.signal import get_window

    return get_window(name, samples, fftbins=periodic)


def _default(dtype: DTypeLike | None) -> Any:
    return ops.dtypes.array_dtype(ops.dtypes.name_of(dtype))
