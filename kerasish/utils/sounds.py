"""Data sets of WAV files in folders, with one sub-folder per class."""

from __future__ import annotations

import math
import os
import wave
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish.data import Dataset
from kerasish.typing import Array, PathLike
from kerasish.utils.folders import make_folders


def read_wave(path: str) -> tuple[Any, int]:
    """Return (samples as float32 from -1 to 1, samples per second) of an uncompressed WAV file.

    Shape: (samples, channels)

    Raises:
        ValueError: the file is compressed, damaged, or not a WAV file.
    """
    try:
        with wave.open(os.fspath(path), "rb") as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            raw = np.frombuffer(file.readframes(file.getnframes()), np.uint8)
    except (wave.Error, EOFError) as error:
        raise ValueError(f"{path}: no WAV file of plain samples ({error}).") from error
    whole = len(raw) // (width * channels) * width * channels
    return _samples(raw[:whole], width).reshape(-1, channels), rate


def _samples(raw: Array, width: int) -> Array:
    if width == 1:  # only these have no sign
        return ((raw.astype("float32") - 128) / 128).astype("float32")
    # The bytes of each sample become the upper bytes of a 32-bit integer.
    wide = np.zeros((len(raw) // width, 4), np.uint8)
    wide[:, 4 - width :] = raw.reshape(-1, width)
    return (wide.view("<i4")[:, 0] / 2**31).astype("float32")


def _resampled(samples: Array, rate: int, target: int) -> Array:
    from scipy.signal import resample_poly

    common = math.gcd(rate, target)
    return resample_poly(samples, target // common, rate // common, axis=0).astype("float32")


def _fitted(samples: Array, length: int) -> Array:
    samples = samples[:length]
    return np.pad(samples, ((0, length - len(samples)), (0, 0)))


def _stack(sounds: Sequence[Any]) -> Array:
    """Return sounds as one array, padded with silence to the longest."""
    channels = {s.shape[1] for s in sounds}
    if len(channels) > 1:
        raise ValueError(f"Sounds of one batch have equally many channels, got {sorted(channels)}.")
    longest = max(len(s) for s in sounds)
    return np.stack([_fitted(s, longest) for s in sounds])


def _batch(samples: list[Any]) -> Any:
    """Return samples, sounds or pairs of a sound and its label, as a batch."""
    if isinstance(samples[0], tuple):
        sounds, labels = zip(*samples)
        return _stack(sounds), np.stack(labels)
    return _stack(samples)


def audio_dataset_from_directory(
    directory: PathLike,
    labels: str | None = "inferred",
    label_mode: str | None = "int",
    class_names: Sequence[str] | None = None,
    batch_size: int | None = 32,
    sampling_rate: int | None = None,
    output_sequence_length: int | None = None,
    ragged: bool = False,
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    follow_links: bool = False,
    verbose: bool = True,
) -> Dataset | tuple[Dataset, ...]:
    """Return a Dataset of the sounds (WAV) in a folder with a sub-folder per class.

    Args:
        directory: the folder.
        labels, label_mode, class_names: as for `image_dataset_from_directory`.
        batch_size: sounds per batch; None: single sounds.
        sampling_rate: samples per second of the results; None: that of each file.
        output_sequence_length: the number of samples of each result, cut or padded with silence;
            None: the sounds of a batch are padded to the longest.
        ragged: must be False; for compatibility with Keras.
        shuffle: whether the sounds have a new order in each epoch.
        seed: the seed of the orders and the split; None: drawn.
        validation_split, subset, follow_links: as for `image_dataset_from_directory`.
        verbose: whether to print how many files were found.

    Shape: x (batch, samples, channels) floating, -1..1.

    Raises:
        ValueError: an argument is invalid, or there is no WAV file in the folder.

    Example:
        >>> data = audio_dataset_from_directory("sounds", batch_size=8)  # doctest: +SKIP
        >>> data.class_names  # doctest: +SKIP
        ['bird', 'rain']
    """
    if ragged:
        raise ValueError(
            "audio_dataset_from_directory: ragged=True is not supported; batches are padded, or "
            "give output_sequence_length."
        )
    for name, value in (
        ("sampling_rate", sampling_rate), ("output_sequence_length", output_sequence_length),
    ):  # fmt: skip
        if value is not None and (not isinstance(value, int) or value <= 0):
            raise ValueError(f"{name}: expected an integer > 0 or None, got {value!r}.")

    def load(path: str) -> Array:
        samples, rate = read_wave(path)
        if sampling_rate is not None and rate != sampling_rate:
            samples = _resampled(samples, rate, sampling_rate)
        if output_sequence_length is not None:
            samples = _fitted(samples, output_sequence_length)
        return samples

    return make_folders(
        load, directory, (".wav",), labels, label_mode, class_names, batch_size, shuffle, seed,
        validation_split, subset, follow_links, verbose, _batch,
    )  # fmt: skip
