"""Videos and sounds: written and read back."""

import sys

import numpy as np
import pytest

import kerasish as keras
from kerasish import media

# imageio-ffmpeg leaves the pipes of its programs to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def imageio():
    pytest.importorskip("imageio_ffmpeg", reason="imageio is not installed: extra media")


@pytest.fixture
def soundfile():
    return pytest.importorskip("soundfile", reason="soundfile is not installed: extra media")


def moving_square(count=12, size=32):
    frames = np.zeros((count, size, size, 3), "uint8")
    for i, frame in enumerate(frames):
        frame[4:20, i : i + 12, 0] = 240
    return frames


def test_a_video_comes_back(imageio, tmp_path):
    frames = moving_square()
    media.save_video(tmp_path / "a.mp4", frames, rate=12)
    video = media.load_video(tmp_path / "a.mp4")
    assert video.frames.shape == frames.shape and video.rate == 12
    assert np.abs(video.frames.astype(int) - frames).mean() < 8  # the format loses some
    part = media.load_video(tmp_path / "a.mp4", every=3, most=3)
    np.testing.assert_array_equal(part.frames, video.frames[[0, 3, 6]])
    assert part.rate == 4
    assert len(list(media.iterate_video(tmp_path / "a.mp4", every=5))) == 3


def test_tensors_of_floats_and_gray_frames_become_a_video(imageio, tmp_path):
    gray = keras.ops.convert_to_tensor(moving_square()[..., 0] / np.float32(255))
    media.save_video(tmp_path / "a.gif", gray, rate=10)
    video = media.load_video(tmp_path / "a.gif")
    assert video.frames.shape[1:] == (32, 32, 3) and video.rate == 10
    np.testing.assert_array_equal(video.frames[0, :, :, 0], video.frames[0, :, :, 2])
    media.save_video(tmp_path / "b.gif", list(moving_square(4)), rate=5)
    assert len(media.load_video(tmp_path / "b.gif").frames) == 4


@pytest.mark.parametrize(
    ("frames", "options", "message"),
    [
        (np.zeros((3, 8), "uint8"), {}, "got \\(3, 8\\)"),
        (np.zeros((3, 8, 8, 4), "uint8"), {}, "1 or 3"),
        (np.full((2, 8, 8, 3), 2.0), {}, "from 0 to 1, got 2 to 2"),
        (np.full((2, 8, 8, 3), np.nan), {}, "from 0 to 1"),
        (np.zeros((2, 8, 8, 3), "int64"), {}, "expected bytes"),
        (np.zeros((2, 8, 8, 3), "uint8"), {"rate": 0}, "rate is above 0"),
    ],
)
def test_frames_that_make_no_video(imageio, frames, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        media.save_video(tmp_path / "a.mp4", frames, **options)
    assert not list(tmp_path.iterdir())


def test_a_sound_comes_back(soundfile, tmp_path):
    time = np.arange(1600) / 8000
    stereo = np.stack([np.sin(440 * 2 * np.pi * time), np.zeros(1600)], axis=1).astype("float32")
    for name in ("a.wav", "a.flac"):
        media.save_sound(tmp_path / name, stereo, 8000)
        sound = media.load_sound(tmp_path / name)
        assert sound.rate == 8000 and sound.samples.dtype == np.float32
        np.testing.assert_allclose(sound.samples, stereo, atol=1e-4)
    mono = media.load_sound(tmp_path / "a.wav", rate=4000, mono=True)
    assert mono.samples.shape == (800, 1) and mono.rate == 4000
    np.testing.assert_allclose(mono.samples[100:-100, 0], stereo[200:-200:2, 0] / 2, atol=2e-3)


@pytest.mark.parametrize(
    ("samples", "rate", "message"),
    [
        (np.zeros((2, 2, 2), "float32"), 8000, "shape \\(2, 2, 2\\)"),
        (np.zeros(5, "int16"), 8000, "got int16"),
        (np.full(5, 1.5), 8000, "the largest is 1.5"),
        (np.full(5, np.nan), 8000, "from -1 to 1"),
        (np.zeros(5), 0, "rate is an integer"),
    ],
)
def test_samples_that_make_no_sound(soundfile, samples, rate, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        media.save_sound(tmp_path / "a.wav", samples, rate)


def test_files_that_cannot_be_read(imageio, soundfile, tmp_path):
    with pytest.raises(FileNotFoundError, match="no file"):
        media.load_video(tmp_path / "none.mp4")
    with pytest.raises(FileNotFoundError, match="no file"):
        media.load_sound(tmp_path / "none.wav")
    (tmp_path / "text.wav").write_text("no sound")
    with pytest.raises(ValueError, match="is no sound file"):
        media.load_sound(tmp_path / "text.wav")
    for call, wrong in ((media.load_video, {"most": 0}), (media.load_video, {"every": 0}),
                        (media.load_sound, {"rate": 0})):  # fmt: skip
        with pytest.raises(ValueError, match="1 or more"):
            call(tmp_path / "text.wav", **wrong)


def test_a_missing_package_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(ImportError, match=r"pip install kerasish\[media\]"):
        media.load_sound(tmp_path / "a.wav")
