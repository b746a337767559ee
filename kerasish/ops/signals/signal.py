"""Fourier transforms and sequences cut from signals; complex numbers as (real, imaginary) pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish.errors import ShapeError
from kerasish.ops import rows
from kerasish.ops.basic.activation import as_float
from kerasish.ops.basic.arithmetic import add, divide, multiply, square
from kerasish.ops.basic.comparison import greater, select
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.creation import arange, ones, zeros_like
from kerasish.ops.basic.indexing import add_rows, take_rows
from kerasish.ops.basic.movement import broadcast_to, strided_slice
from kerasish.ops.basic.reshaping import expand_dims, pad
from kerasish.ops.op import function, op
from kerasish.ops.shapes import Shape, Spec, agree
from kerasish.ops.signals.tapers import hamming, hanning
from kerasish.typing import Array, ArrayModule, Axis, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["extract_sequences", "fft", "fft2", "ifft2", "irfft", "istft", "rfft", "stft"]


def _axes(shapes: list[Shape], attrs: dict[str, Any]) -> dict[str, Any]:
    if len(shapes[0]) != len(shapes[1]):
        raise ShapeError(f"fft: the parts have the shapes {shapes[0]} and {shapes[1]}.")
    axes = tuple(a % len(shapes[0]) for a in attrs["axes"])
    return {"axes": axes, "inverse": bool(attrs["inverse"])}


@op(
    "signal",
    lambda a, b, axes, inverse: (Spec(a.shape, a.dtype), Spec(a.shape, a.dtype)),
    lambda g, y, a, b, axes, inverse: fourier(g[0], g[1], axes, not inverse),
    "float",
    canonical=_axes,
    examples=[
        (((2, 4), (2, 4)), {}),
        (((3, 5), (3, 5)), {"axes": (0, 1)}),
        (((5,), (5,)), {"inverse": True}),
    ],
    outputs=2,
    rows=rows.along,
)
def fourier(
    xp: ArrayModule, a: Array, b: Array, *, axes: Axis = (-1,), inverse: bool = False
) -> Array:
    """The sums of (a + ib) * exp(∓2 pi i k n / N) over `axes`, + for the inverse, unscaled."""
    wide = a.dtype if a.dtype.itemsize >= 4 else np.dtype("float32")
    z = a.astype(wide) + xp.asarray(1j, "complex128" if wide.itemsize > 4 else "complex64") * b
    if inverse:
        z = xp.fft.ifftn(z, axes=axes, norm="forward")
    else:
        z = xp.fft.fftn(z, axes=axes)
    return z.real.astype(a.dtype), z.imag.astype(a.dtype)


def _pair(x: TensorLike, what: str) -> tuple[Any, Any]:
    if not isinstance(x, (tuple, list)) or len(x) != 2:
        raise ValueError(f"{what}: expected a pair (real, imaginary), got {type(x).__name__}.")
    a, b = as_float(x[0]), as_float(x[1])
    if len(a.shape) != len(b.shape) or not all(map(agree, a.shape, b.shape)):
        raise ShapeError(f"{what}: the parts have the shapes {a.shape} and {b.shape}.")
    return a, b


@function
def fft(x: TensorLike) -> tuple[Tensor, ...]:
    """Return the discrete Fourier transform of the pair x along the last axis, as a pair.

    Args:
        x: tensor or array.

    Example:
        >>> a, b = fft(([1.0, 0.0], [0.0, 0.0]))
        >>> a.tolist(), b.tolist()
        ([1.0, 1.0], [0.0, 0.0])
    """
    return fourier(*_pair(x, "fft"))


@function
def fft2(x: Sequence[Array]) -> tuple[Tensor, ...]:
    """Return the discrete Fourier transform of the pair x along the last two axes, as a pair.

    Args:
        x: tensor or array; complex numbers are a pair (real, imaginary).

    Example:
        >>> [part.tolist() for part in fft2(([[1.0]], [[0.0]]))]
        [[[1.0]], [[0.0]]]
    """
    return fourier(*_pair(x, "fft2"), axes=(-2, -1))


@function
def ifft2(x: Sequence[Array]) -> tuple[Tensor, ...]:
    """Return the pair whose `fft2` is x.

    Args:
        x: tensor or array; complex numbers are a pair (real, imaginary).

    Example:
        >>> [part.tolist() for part in ifft2(([[1.0]], [[0.0]]))]
        [[[1.0]], [[0.0]]]
    """
    a, b = fourier(*_pair(x, "ifft2"), axes=(-2, -1), inverse=True)
    count = float(math.prod(a.shape[-2:]))
    return divide(a, count), divide(b, count)


def _sized(x: Tensor, size: int) -> Tensor:
    """Return x with its last axis cut or filled with zeros to `size`."""
    lead = len(x.shape) - 1
    if x.shape[-1] > size:
        return strided_slice(x, [slice(None)] * lead + [slice(0, size)])
    if x.shape[-1] < size:
        return pad(x, ((0, 0),) * lead + ((0, size - x.shape[-1]),))
    return x


@function
def rfft(x: TensorLike, fft_length: int | None = None) -> tuple[Tensor, ...]:
    """Return the first half of the transform of real x along the last axis, as a pair.

    Args:
        x: real, shape (..., n).
        fft_length: n is cut or filled with zeros to it; None: n.

    Shape: (..., n) -> two of (..., n // 2 + 1)

    Example:
        >>> [part.tolist() for part in rfft([1.0, 1.0])]
        [[2.0, 0.0], [0.0, 0.0]]
    """
    x = as_float(x)
    if not x.shape:
        raise ShapeError("rfft: an axis to transform was expected, got shape ().")
    size = x.shape[-1] if fft_length is None else int(fft_length)
    x = _sized(x, size)
    a, b = fourier(x, zeros_like(x))
    return _sized(a, size // 2 + 1), _sized(b, size // 2 + 1)


@function
def irfft(x: Sequence[Any], fft_length: int | None = None) -> Tensor:
    """Return the real numbers whose `rfft` is the pair x.

    Args:
        x: (real, imaginary), each of shape (..., k).
        fft_length: how many numbers; None: 2 * (k - 1).

    Example:
        >>> irfft(([2.0, 0.0], [0.0, 0.0])).tolist()
        [1.0, 1.0]
    """
    a, b = _pair(x, "irfft")
    size = 2 * (a.shape[-1] - 1) if fft_length is None else int(fft_length)
    half = size // 2 + 1
    # What the second half would add is the conjugate of the first: each place but the ends
    # counts twice, and the imaginary parts cancel.
    weights = np.full(half, 2.0 / size, dtype="float64")
    weights[0] = 1.0 / size
    if size % 2 == 0:
        weights[-1] = 1.0 / size
    weights = cast(as_tensor(weights), a.dtype)
    a, b = (_sized(multiply(_sized(part, half), weights), size) for part in (a, b))
    return fourier(a, b, inverse=True)[0]


# --- sequences ------------------------------------------------------------------------------


@function
def extract_sequences(x: TensorLike, sequence_length: int, sequence_stride: int) -> Tensor:
    """Return the stretches of `sequence_length` along the last axis, `sequence_stride` apart.

    Args:
        x: tensor or array.
        sequence_length: elements of a stretch, >= 1.
        sequence_stride: distance between the starts of stretches, >= 1.

    Shape: (..., n) -> (..., 1 + (n - sequence_length) // sequence_stride, sequence_length)

    Example:
        >>> extract_sequences([1, 2, 3, 4], 2, 1).tolist()
        [[1, 2], [2, 3], [3, 4]]
    """
    x = as_tensor(x)
    if not x.shape:
        raise ShapeError("extract_sequences: an axis to cut was expected, got shape ().")
    _check_stride(sequence_stride, "extract_sequences")
    if x.shape[-1] < sequence_length:
        raise ShapeError(
            f"extract_sequences: the last axis of {x.shape} is shorter than {sequence_length}."
        )
    count = 1 + (x.shape[-1] - sequence_length) // sequence_stride
    return take_rows(x, _places(count, sequence_length, sequence_stride), len(x.shape) - 1)


def _check_stride(stride: int, what: str) -> None:
    if not isinstance(stride, (int, np.integer)) or stride < 1:
        raise ValueError(f"{what}: sequence_stride is an integer >= 1, got {stride!r}.")


def _places(count: int, length: int, stride: int) -> Tensor:
    starts = multiply(expand_dims(arange(count), -1), stride)
    return add(starts, arange(length))


def _overlapped(x: Tensor, stride: int) -> Tensor:
    """Return the sum of sequences laid `stride` apart: the transpose of `extract_sequences`."""
    count, length = x.shape[-2:]
    size = stride * (count - 1) + length
    return add_rows(x, _places(count, length, stride), size, len(x.shape) - 2)


def _window(window: str | None, length: int, fft_length: int, dtype: str) -> Tensor:
    if fft_length < length:
        raise ValueError(
            f"stft: fft_length must be at least sequence_length={length}, got {fft_length}."
        )
    if window is None:
        return ones((fft_length,), dtype)
    if isinstance(window, str):
        shapes = {"hann": hanning, "hamming": hamming}
        if window not in shapes:
            raise ValueError(f"stft: window must be 'hann', 'hamming' or numbers, got {window!r}.")
        # Periodic: the last sample would be the first one of the next period.
        taper = strided_slice(shapes[window](length + 1), [slice(0, length)])
    else:
        taper = as_float(window)
        if len(taper.shape) != 1 or not agree(taper.shape[0], length):
            raise ShapeError(f"stft: the window must have the shape ({length},).")
    before = (fft_length - length) // 2
    return cast(pad(taper, ((before, fft_length - length - before),)), dtype)


@function
def stft(
    x: TensorLike,
    sequence_length: int,
    sequence_stride: int,
    fft_length: int,
    window: str | None = "hann",
    center: bool = True,
) -> tuple[Tensor, ...]:
    """Return the Fourier transforms of windowed stretches of x, as a pair.

    Args:
        x: real, shape (..., n).
        sequence_length: samples a stretch.
        sequence_stride: samples from one stretch to the next.
        fft_length: samples of each transform, at least sequence_length.
        window: "hann", "hamming", sequence_length numbers, or None.
        center: whether x is reflected at its ends, so that stretch t is centered at t * stride.

    Shape: (..., n) -> two of (..., stretches, fft_length // 2 + 1)

    Example:
        >>> from kerasish import ops
        >>> [part.shape for part in stft(ops.ones((16,)), 8, 4, 8)]
        [(5, 5), (5, 5)]
    """
    x = as_float(x)
    _check_stride(sequence_stride, "stft")
    taper = _window(window, sequence_length, fft_length, x.dtype)
    if center:
        half = fft_length // 2
        x = pad(x, ((0, 0),) * (len(x.shape) - 1) + ((half, half),), mode="reflect")
    return rfft(multiply(extract_sequences(x, fft_length, sequence_stride), taper))


@function
def istft(
    x: Sequence[Any],
    sequence_length: int,
    sequence_stride: int,
    fft_length: int,
    length: int | None = None,
    window: str | None = "hann",
    center: bool = True,
) -> Tensor:
    """Return the signal whose `stft` is nearest to the pair x.

    Args:
        x: (real, imaginary), each of shape (..., stretches, fft_length // 2 + 1).
        sequence_length: samples a stretch.
        sequence_stride: samples from one stretch to the next.
        fft_length: samples of each transform.
        length: samples of the result; None: all there are.
        window: as given to `stft`.
        center: as given to `stft`.

    Source: Griffin & Lim, 1984.

    Example:
        >>> from kerasish import ops
        >>> istft(stft(ops.ones((16,)), 8, 4, 8), 8, 4, 8).shape
        (16,)
    """
    _check_stride(sequence_stride, "istft")
    pieces = irfft(x, fft_length)
    taper = _window(window, sequence_length, fft_length, pieces.dtype)
    total = _overlapped(multiply(pieces, taper), sequence_stride)
    count = pieces.shape[-2]
    weight = _overlapped(broadcast_to(square(taper), (count, fft_length)), sequence_stride)
    known = greater(weight, 1e-10)
    signal = multiply(total, divide(1.0, select(known, weight, 1.0)))
    start = fft_length // 2 if center else 0
    full = signal.shape[-1]
    stop = full - (fft_length // 2 if center else 0) if length is None else start + length
    lead = [slice(None)] * (len(signal.shape) - 1)
    return strided_slice(signal, [*lead, slice(start, min(stop, full))])
