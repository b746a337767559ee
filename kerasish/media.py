"""Videos and sounds in files as arrays, and back: by imageio and soundfile (extra `media`)."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import math
import os
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish.tensor import to_numpy
from kerasish.typing import Array, PathLike, TensorLike


class Video(NamedTuple):
    """The frames of a video.

    Attributes:
        frames: bytes of shape (frames, height, width, 3): red, green, blue.
        rate: frames per second.

    Example:
        >>> Video(np.zeros((10, 8, 8, 3), "uint8"), rate=5.0).frames.shape
        (10, 8, 8, 3)
    """

    frames: Array
    rate: float


class Sound(NamedTuple):
    """The samples of a sound.

    Attributes:
        samples: float32 from -1 to 1, of shape (samples, channels).
        rate: samples per second.

    Example:
        >>> sound = Sound(np.zeros((8000, 2), "float32"), rate=4000)
        >>> len(sound.samples) / sound.rate
        2.0
    """

    samples: Array
    rate: int


def _needed(package: str, what: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(
            f"{what} needs the package {package.partition('.')[0]}: pip install kerasish[media]"
        ) from error


def _existing(path: PathLike) -> str:
    text = os.fspath(path)
    if not os.path.isfile(text):
        raise FileNotFoundError(f"There is no file {text!r}.")
    return str(text)


def iterate_video(path: PathLike, every: int = 1) -> Generator[Array, None, None]:
    """Yield the frames of a video one by one, without holding all of them.

    Args:
        path: a file of any format that imageio reads (mp4, avi, gif ...).
        every: yield each frame whose number is a multiple of this, 1 or more.

    Yields:
        Bytes of shape (height, width, 3).

    Raises:
        ValueError: `every` is less than 1.
        FileNotFoundError: there is no such file.
        ImportError: imageio is not installed.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "video.gif")
        >>> save_video(path, [np.full((8, 8), 40 * i, "uint8") for i in range(4)])
        >>> [frame.shape for frame in iterate_video(path, every=2)]
        [(8, 8, 3), (8, 8, 3)]
    """
    if every < 1:
        raise ValueError(f"iterate_video: every is an integer of 1 or more, got {every!r}.")
    reader = _needed("imageio.v3", "Reading videos")
    with reader.imopen(_existing(path), "r") as file:
        for number, frame in enumerate(file.iter()):
            if number % every == 0:
                yield _colored(np.asarray(frame))


def _colored(frame: Array) -> Array:
    """Return a frame converted to three colors."""
    if frame.ndim == 2:
        frame = frame[..., None]
    if frame.shape[-1] == 1:
        frame = np.repeat(frame, 3, axis=-1)
    return frame[..., :3]


def load_video(path: PathLike, every: int = 1, most: int | None = None) -> Video:
    """Return the frames of a video and their rate.

    Args:
        path: a file of any format that imageio reads.
        every: keep each frame whose number is a multiple of this, 1 or more.
        most: the largest number of frames; None: all.

    Raises:
        ValueError: the file holds no frame, or an argument is out of its range.
        FileNotFoundError: there is no such file.
        ImportError: imageio is not installed.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "video.gif")
        >>> save_video(path, [np.full((16, 16), 40 * i, "uint8") for i in range(5)], rate=10)
        >>> load_video(path, every=2).frames.shape
        (3, 16, 16, 3)
    """
    if most is not None and most < 1:
        raise ValueError(f"load_video: most is None or an integer of 1 or more, got {most!r}.")
    with contextlib.closing(iterate_video(path, every)) as frames_of_file:
        frames = list(itertools.islice(frames_of_file, most))
    if not frames:
        raise ValueError(f"{os.fspath(path)!r} holds no frame.")
    known = _needed("imageio.v3", "Reading videos").immeta(_existing(path))
    duration = known.get("duration") or 0
    rate = known.get("fps") or (1000 / duration if duration else 0.0)
    return Video(np.stack(frames), float(rate) / every)


def save_video(path: PathLike, frames: TensorLike | Sequence[Any], rate: float = 25.0) -> None:
    """Write frames as a video.

    Args:
        path: the file; its ending says which format.
        frames: (frames, height, width), or with a last axis of 1 or 3 colors. Bytes; or floats
            from 0 to 1, which become bytes.
        rate: frames per second, above 0.

    Raises:
        ValueError: the frames have another shape, or numbers outside their range.
        ImportError: imageio is not installed.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "video.gif")
        >>> save_video(path, np.linspace(0, 1, 3 * 8 * 8).reshape(3, 8, 8), rate=10)
        >>> load_video(path).rate
        10.0
    """
    array = to_numpy(frames) if not isinstance(frames, (list, tuple)) else np.stack(
        [to_numpy(f) for f in frames]
    )  # fmt: skip
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim != 4 or array.shape[-1] not in (1, 3) or not array.size:
        raise ValueError(
            "save_video: expected frames of shape (frames, height, width, 1 or 3), got "
            f"{array.shape}."
        )
    if not rate > 0:
        raise ValueError(f"save_video: rate is above 0, got {rate!r}.")
    array = np.repeat(array, 3, axis=-1) if array.shape[-1] == 1 else array
    writer = _needed("imageio.v3", "Writing videos")
    options: dict[str, Any] = {"fps": rate}
    if os.fspath(path).lower().endswith(".gif"):
        options = {"duration": 1000 / rate, "loop": 0}
    writer.imwrite(os.fspath(path), _bytes(array), **options)


def _bytes(array: Array) -> Array:
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind != "f":
        raise ValueError(f"save_video: expected bytes or floats from 0 to 1, got {array.dtype}.")
    low, high = float(array.min()), float(array.max())
    if not (low >= 0 and high <= 1):
        raise ValueError(
            f"save_video: floats are from 0 to 1, got {low:g} to {high:g}. Divide by 255, or clip."
        )
    return np.round(array * 255).astype(np.uint8)


def load_sound(path: PathLike, rate: int | None = None, mono: bool = False) -> Sound:
    """Return the samples of a sound file and their rate.

    Args:
        path: a file of any format that soundfile reads (wav, flac, ogg, mp3 ...).
        rate: samples per second of the result, 1 or more; None: those of the file.
        mono: whether the channels become one, their mean.

    Raises:
        ValueError: the file holds no sound, or `rate` is out of its range.
        FileNotFoundError: there is no such file.
        ImportError: soundfile is not installed.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "tone.wav")
        >>> save_sound(path, np.sin(np.arange(800) / 8), rate=8000)
        >>> sound = load_sound(path, rate=4000)
        >>> sound.samples.shape, sound.rate
        ((400, 1), 4000)
    """
    soundfile = _needed("soundfile", "Reading sounds")
    if rate is not None and rate < 1:
        raise ValueError(f"load_sound: rate is None or an integer of 1 or more, got {rate!r}.")
    try:
        samples, own = soundfile.read(_existing(path), dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise ValueError(f"{os.fspath(path)!r} is no sound file: {error}") from error
    if mono:
        samples = samples.mean(axis=1, keepdims=True, dtype="float32")
    if rate is not None and rate != own and len(samples):
        from scipy.signal import resample_poly

        common = math.gcd(rate, own)
        samples = resample_poly(samples, rate // common, own // common, axis=0)
    return Sound(samples.astype("float32", copy=False), int(rate or own))


def save_sound(path: PathLike, samples: TensorLike, rate: int) -> None:
    """Write samples as a sound file.

    Args:
        path: the file; its ending says which format (wav, flac, ogg ...).
        samples: floats from -1 to 1 of shape (samples,) or (samples, channels).
        rate: samples per second, 1 or more.

    Raises:
        ValueError: the samples have another shape, or numbers outside their range.
        ImportError: soundfile is not installed.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "silence.flac")
        >>> save_sound(path, np.zeros((100, 2)), rate=8000)
        >>> load_sound(path).samples.shape
        (100, 2)
    """
    array = to_numpy(samples)
    if array.ndim not in (1, 2) or array.dtype.kind != "f":
        raise ValueError(
            "save_sound: expected floats of shape (samples,) or (samples, channels), got "
            f"{array.dtype} of shape {array.shape}."
        )
    most = float(np.abs(array).max(initial=0))
    if not most <= 1:
        raise ValueError(f"save_sound: samples are from -1 to 1, the largest is {most:g}.")
    if rate < 1:
        raise ValueError(f"save_sound: rate is an integer of 1 or more, got {rate!r}.")
    _needed("soundfile", "Writing sounds").write(os.fspath(path), array.astype("float32"), rate)
