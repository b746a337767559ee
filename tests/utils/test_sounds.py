"""Data sets of WAV files: samples of every width, lengths, rates, labels, mistakes."""

from __future__ import annotations

import wave

import numpy as np
import pytest

from kerasish.utils import audio_dataset_from_directory
from kerasish.utils.sounds import read_wave


def write(path, samples, width=2, rate=8000):
    path.parent.mkdir(exist_ok=True, parents=True)
    wide = np.round(np.asarray(samples) * (2 ** (8 * width - 1) - 1)).astype("<i4")
    if width == 1:
        raw = (wide + 128).astype(np.uint8)
    else:
        raw = np.ascontiguousarray(wide).view(np.uint8).reshape(-1, 4)[:, :width]
    with wave.open(str(path), "wb") as file:
        file.setnchannels(wide.shape[1])
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(raw.tobytes())


def tone(length, channels=1, pitch=0.05):
    return 0.8 * np.sin(pitch * np.arange(length))[:, None] * np.linspace(1, 0.5, channels)


@pytest.fixture
def folder(tmp_path):
    for name, length in (("cats/a", 30), ("cats/b", 20), ("dogs/c", 10), ("dogs/d", 25)):
        write(tmp_path / f"{name}.wav", tone(length))
    return tmp_path


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2])
def test_samples_of_every_width(tmp_path, width, channels):
    write(tmp_path / "a.wav", tone(50, channels), width)
    samples, rate = read_wave(tmp_path / "a.wav")
    assert rate == 8000 and samples.dtype == "float32" and samples.shape == (50, channels)
    np.testing.assert_allclose(samples, tone(50, channels), atol=2.0 ** (2 - 8 * width))


def test_batches_are_padded_to_the_longest(folder):
    result = list(audio_dataset_from_directory(folder, shuffle=False, batch_size=3, verbose=False))
    assert [x.shape for x, _ in result] == [(3, 30, 1), (1, 25, 1)]
    assert np.concatenate([y for _, y in result]).tolist() == [0, 0, 1, 1]
    assert not result[0][0][1, 20:].any() and result[0][0][1, :20].any()


def test_one_length_for_all(folder):
    data = audio_dataset_from_directory(
        folder, output_sequence_length=22, label_mode=None, shuffle=False, verbose=False
    )
    (x,) = list(data)
    assert x.shape == (4, 22, 1)
    np.testing.assert_allclose(x[0], tone(22), atol=1e-4)
    assert not x[2, 10:].any()


def test_another_rate(tmp_path):
    write(tmp_path / "a.wav", tone(800), rate=16000)
    data = audio_dataset_from_directory(tmp_path, labels=None, sampling_rate=8000, verbose=False)
    (x,) = list(data)
    assert x.shape == (1, 400, 1)
    np.testing.assert_allclose(x[0, 50:-50], tone(800)[::2][50:-50], atol=2e-3)


def test_splits(folder):
    both = audio_dataset_from_directory(
        folder, validation_split=0.25, subset="both", seed=1, verbose=False
    )
    assert [len(part.file_paths) for part in both] == [3, 1]
    assert both[0].class_names == ["cats", "dogs"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ragged": True}, "ragged=True is not supported"),
        ({"sampling_rate": 0}, "sampling_rate: expected an integer > 0"),
        ({"output_sequence_length": 1.5}, "output_sequence_length"),
        ({"labels": "guessed"}, "inferred"),
    ],
)
def test_mistakes_are_named(folder, options, words):
    with pytest.raises(ValueError, match=words):
        audio_dataset_from_directory(folder, verbose=False, **options)


def test_files_that_hold_no_sound(tmp_path):
    (tmp_path / "a.wav").write_bytes(b"RIFF nothing")
    with pytest.raises(ValueError, match="no WAV file of plain samples"):
        read_wave(tmp_path / "a.wav")
    write(tmp_path / "b.wav", tone(5, 2))
    write(tmp_path / "a.wav", tone(5, 1))
    data = audio_dataset_from_directory(tmp_path, labels=None, verbose=False)
    with pytest.raises(ValueError, match="equally many channels"):
        list(data)
