"""Sound as pictures: STFTSpectrogram, MelSpectrogram."""

from __future__ import annotations

import math
import warnings

import numpy as np

from kerasish import config, ops
from kerasish.engine.layer.layer import Layer
from kerasish.errors import UnknownNameError, levels_to_user
from kerasish.layers.options import LayerOptions
from kerasish.signatures import Unpack
from kerasish.tensor import Tensor
from kerasish.typing import AnyTensor, Array, Shape

_MODES = ("log", "magnitude", "psd", "real", "imag", "angle", "stft")


class STFTSpectrogram(Layer):
    """Short-time Fourier transforms of windowed frames, by convolutions that may be trained.

    Args:
        mode: "log" or "magnitude" of |X|, "psd" |X| ** 2 of
            the frequency and its negative one, "real", "imag", "angle" of X, or "stft":
            real parts, then imaginary ones.
        frame_length: samples a frame.
        frame_step: samples from one frame to the next, <= frame_length; None: half a frame.
        fft_length: samples of each transform, >= frame_length; None: the next power of two.
        window: a name for `scipy.signal.get_window`, frame_length numbers, or None.
        periodic: whether the window is periodic rather than symmetric.
        scaling: of the window: "density" (its squares sum to 1), "spectrum" (it sums to 1), None.
        padding: "valid" or "same".
        expand_dims: whether frequencies and channels keep separate axes.
        data_format: the place of the channels; None: the process's.

    Shape: (batch, samples, channels) -> (batch, frames, channels * bins), with expand_dims
        (batch, frames, bins, channels); bins = fft_length // 2 + 1, twice that for "stft".
        Channels first: (batch, channels, samples) -> (batch, channels * bins, frames) or
        (batch, channels, frames, bins).

    Example:
        >>> STFTSpectrogram(frame_length=8)(np.ones((1, 40, 1))).shape
        (1, 9, 5)
    """

    example = {"args": {"frame_length": 4}, "shape": (2, 12, 2)}

    def __init__(
        self, mode: str = "log", frame_length: int = 256, frame_step: int | None = None,
        fft_length: int | None = None, window: str = "hann", periodic: bool = False,
        scaling: str | None = "density", padding: str = "valid", expand_dims: bool = False,
        data_format: str | None = None, **kwargs: Unpack[LayerOptions],
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        who = self.display_name()
        for what, value, known in (
            ("mode", mode, _MODES), ("padding", padding, ("valid", "same")),
            ("scaling", scaling, ("density", "spectrum", None)),
        ):  # fmt: skip
            if value not in known:
                raise UnknownNameError.of(f"{who}: {what}", value, [str(k) for k in known])
        if not isinstance(frame_length, int) or frame_length < 1:
            raise ValueError(f"{who}: frame_length is a number >= 1, got {frame_length!r}.")
        if frame_step is not None and not 1 <= frame_step <= frame_length:
            raise ValueError(
                f"{who}: frame_step is a number from 1 to frame_length={frame_length}, got "
                f"{frame_step!r}."
            )
        if fft_length is not None and fft_length < frame_length:
            raise ValueError(
                f"{who}: fft_length must be at least frame_length={frame_length}, got {fft_length}."
            )
        if fft_length is not None and fft_length & (fft_length - 1):
            warnings.warn(
                f"{who}: fft_length={fft_length} is no power of two.", stacklevel=levels_to_user()
            )
        self.mode, self.frame_length = mode, frame_length
        self._step = frame_step or max(frame_length // 2, 1)
        self._size = fft_length or 1 << (frame_length - 1).bit_length()
        self.frame_step, self.fft_length = frame_step, fft_length
        self.periodic, self.scaling, self.padding = bool(periodic), scaling, padding
        self.expand_dims = bool(expand_dims)
        self.data_format = config.standardize_data_format(data_format)
        self.window = window
        self._taper = self._tapered()

    def _tapered(self) -> Array:
        if self.window is None:
            return np.ones(self.frame_length, "float32")
        if isinstance(self.window, str):
            from scipy.signal import get_window

            taper = get_window(self.window, self.frame_length, self.periodic)
        else:
            taper = np.asarray(self.window, "float64")
            self.window = taper.tolist()
        if taper.shape != (self.frame_length,):
            raise ValueError(
                f"{self.display_name()}: window= has {self.frame_length} numbers, as frame_length "
                f"says, got shape {taper.shape}."
            )
        if self.scaling == "density":
            taper = taper / math.sqrt((taper**2).sum())
        elif self.scaling == "spectrum":
            taper = taper / abs(taper.sum())
        return taper

    def build(self, input_shape: Shape) -> None:
        """Make the kernels: windowed cosines and sines, one frequency a filter."""
        if len(input_shape) != 3:
            raise ValueError(
                f"{self.display_name()}: expected (batch, samples, channels), or with "
                f"data_format='channels_first' (batch, channels, samples), got {input_shape}."
            )
        bins = self._size // 2 + 1
        turns = np.outer(np.arange(self.frame_length), np.arange(bins)) / self._size
        waves = self._taper[:, None] * np.exp(-2j * np.pi * turns)
        if self.mode != "imag":
            self.real_kernel = self._kernel("real_kernel", waves.real)
        if self.mode != "real":
            self.imag_kernel = self._kernel("imag_kernel", waves.imag)

    def _kernel(self, name: str, wave: Array) -> AnyTensor:
        numbers = wave[:, None, :].astype("float32")
        return self.add_weight(
            name=name, shape=numbers.shape, initializer=lambda shape, dtype=None: numbers
        )

    def call(self, inputs: Tensor) -> Tensor:
        """Transform."""
        x = ops.cast(inputs, self.compute_dtype)
        if self.data_format == "channels_last":
            x = ops.transpose(x, (0, 2, 1))
        _, channels, samples = x.shape
        x = ops.reshape(x, (-1, samples, 1))
        y = self._transformed(x)  # (batch * channels, frames, bins)
        frames, bins = y.shape[1:]
        y = ops.reshape(y, (-1, channels, frames, bins))
        last = self.data_format == "channels_last"
        if self.expand_dims:
            return ops.transpose(y, (0, 2, 3, 1)) if last else y
        if last:
            return ops.reshape(ops.transpose(y, (0, 2, 1, 3)), (-1, frames, channels * bins))
        return ops.reshape(ops.transpose(y, (0, 1, 3, 2)), (-1, channels * bins, frames))

    def _transformed(self, x: Tensor) -> Tensor:
        def part(kernel: AnyTensor) -> Tensor:
            return ops.conv(x, kernel, self._step, self.padding, data_format="channels_last")

        if self.mode == "real":
            return part(self.real_kernel)
        if self.mode == "imag":
            return part(self.imag_kernel)
        real, imag = part(self.real_kernel), part(self.imag_kernel)
        if self.mode == "stft":
            return ops.concatenate([real, imag], axis=-1)
        if self.mode == "angle":
            return ops.arctan2(imag, real)
        power = ops.add(ops.square(real), ops.square(imag))
        if self.mode == "psd":
            return ops.multiply(power, self._sides())
        # The root has no slope at 0.
        magnitude = ops.sqrt(ops.maximum(power, config.epsilon()))
        return (
            ops.log(ops.maximum(magnitude, config.epsilon())) if self.mode == "log" else magnitude
        )

    def _sides(self) -> Tensor:
        """Return how many frequencies each bin represents: itself and its negative one."""
        sides = np.full(self._size // 2 + 1, 2.0, "float32")
        sides[0] = 1.0
        if self._size % 2 == 0:
            sides[-1] = 1.0
        return ops.cast(sides, self.compute_dtype)


class MelSpectrogram(Layer):
    """The energy of a sound in bands as wide as the ear hears them, over time.

    Args:
        fft_length: samples of each Fourier transform.
        sequence_stride: samples from one frame to the next.
        sequence_length: samples a frame, <= fft_length; None: fft_length.
        window: "hann", "hamming", sequence_length numbers, or None.
        sampling_rate: samples per second.
        num_mel_bins: number of bands.
        min_freq, max_freq: lowest and highest frequency in Hz; None: half the sampling rate.
        power_to_db: whether to give decibels, 10 log10(x / ref_power).
        top_db: decibels below the loudest at which the rest is cut off.
        mag_exp: exponent of the magnitude: 1 magnitude, 2 power.
        min_power: the least power, also of ref_power.
        ref_power: the power of 0 dB.

    Shape: (..., samples) -> (..., num_mel_bins, frames).

    Source: Stevens, Volkmann and Newman, A scale for the measurement of the psychological magnitude
        pitch (1937); mel(f) = 1127 ln(1 + f / 700).

    Example:
        >>> MelSpectrogram(fft_length=64, sequence_stride=32, num_mel_bins=8)(np.ones(256)).shape
        (8, 9)
    """

    example = {
        "args": {"fft_length": 16, "sequence_stride": 8, "num_mel_bins": 3, "power_to_db": False},
        "shape": (2, 40),
    }  # fmt: skip

    def __init__(
        self, fft_length: int = 2048, sequence_stride: int = 512,
        sequence_length: int | None = None, window: str = "hann", sampling_rate: int = 16000,
        num_mel_bins: int = 128, min_freq: float = 20.0, max_freq: float | None = None,
        power_to_db: bool = True, top_db: float = 80.0, mag_exp: float = 2.0,
        min_power: float = 1e-10, ref_power: float = 1.0, **kwargs: Unpack[LayerOptions],
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        length = fft_length if sequence_length is None else sequence_length
        if fft_length < length:
            raise ValueError(
                f"{self.display_name()}: fft_length must be at least sequence_length={length}, got "
                f"{fft_length}."
            )
        if isinstance(window, str) and window not in ("hann", "hamming"):
            raise UnknownNameError.of(f"{self.display_name()}: window", window, ("hann", "hamming"))
        self.fft_length, self.sequence_stride, self.sequence_length = (
            fft_length, sequence_stride, length
        )  # fmt: skip
        self.window = window
        self.sampling_rate, self.num_mel_bins = sampling_rate, num_mel_bins
        self.min_freq = min_freq
        self.max_freq = sampling_rate // 2 if max_freq is None else max_freq
        self.power_to_db, self.top_db, self.mag_exp = power_to_db, top_db, mag_exp
        self.min_power, self.ref_power = min_power, ref_power

    def call(self, inputs: Tensor) -> Tensor:
        """Transform."""
        x = ops.cast(inputs, self.compute_dtype)
        real, imag = ops.stft(
            x, self.sequence_length, self.sequence_stride, self.fft_length, self.window
        )
        power = ops.add(ops.square(real), ops.square(imag))
        if self.mag_exp != 2.0:
            power = ops.power(ops.sqrt(power), self.mag_exp)
        bands = self.linear_to_mel_weight_matrix(
            self.num_mel_bins, self.fft_length // 2 + 1, self.sampling_rate, self.min_freq,
            self.max_freq, self.compute_dtype,
        )  # fmt: skip
        mel = ops.matmul(power, bands)
        if self.power_to_db:
            mel = self._decibels(mel)
        return ops.swapaxes(mel, -1, -2)

    def _decibels(self, x: Tensor) -> Tensor:
        reference = 10.0 * math.log10(max(abs(self.ref_power), self.min_power))
        level = ops.subtract(
            ops.multiply(ops.log10(ops.maximum(x, self.min_power)), 10.0), reference
        )
        return ops.maximum(level, ops.subtract(ops.max(level), self.top_db))

    def linear_to_mel_weight_matrix(
        self, num_mel_bins: int = 20, num_spectrogram_bins: int = 129, sampling_rate: int = 8000,
        lower_edge_hertz: float = 125.0, upper_edge_hertz: float = 3800.0, dtype: str = "float32",
    ) -> Tensor:  # fmt: skip
        """Return the weight of each frequency in each band: triangles on the mel scale.

        Args:
            num_mel_bins: number of bands.
            num_spectrogram_bins: frequencies from 0 to half the sampling rate.
            sampling_rate: samples per second.
            lower_edge_hertz, upper_edge_hertz: where the first band begins, the last one ends.
            dtype: the matrix's.

        Shape: (num_spectrogram_bins, num_mel_bins)
        """
        hertz = np.linspace(0.0, sampling_rate / 2.0, num_spectrogram_bins)[1:, None]
        ends = _mel(np.array([lower_edge_hertz, upper_edge_hertz], "float64"))
        edges = np.linspace(ends[0], ends[1], num_mel_bins + 2)
        left, top, right = edges[:-2], edges[1:-1], edges[2:]
        mel = _mel(hertz)
        sides = np.minimum((mel - left) / (top - left), (right - mel) / (right - top))
        # The constant part is heard in no band.
        weights = np.pad(np.maximum(sides, 0.0), ((1, 0), (0, 0)))
        return ops.convert_to_tensor(weights.astype("float32"), dtype=dtype)


def _mel(hertz: Array) -> Array:
    return 1127.0 * np.log1p(hertz / 700.0)
