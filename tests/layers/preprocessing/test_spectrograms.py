"""Spectrograms: layouts, training, the mel matrix, and what they refuse."""

from __future__ import annotations

import json

import numpy as np
import pytest

from kerasish import layers, ops, registry
from kerasish.layers import MelSpectrogram, STFTSpectrogram

WAVE = np.sin(0.3 * np.arange(2 * 60 * 2)).reshape(2, 60, 2).astype("float32")


@pytest.mark.parametrize("expand", [False, True])
@pytest.mark.parametrize("mode", ["magnitude", "stft"])
def test_channels_first_is_the_same_in_another_order(expand, mode):
    options = {"mode": mode, "frame_length": 8, "expand_dims": expand}
    last = STFTSpectrogram(**options)(WAVE).numpy()
    first = STFTSpectrogram(**options, data_format="channels_first")(WAVE.transpose(0, 2, 1))
    order = (0, 3, 1, 2) if expand else (0, 2, 1)
    np.testing.assert_allclose(first.numpy(), last.transpose(order), rtol=1e-5, atol=1e-6)


def test_parts_are_those_of_the_fourier_transform():
    layer = STFTSpectrogram(mode="stft", frame_length=8, frame_step=4, window=None)
    result = layer(WAVE[:, :, :1]).numpy()
    frames = np.stack([WAVE[:, i : i + 8, 0] for i in range(0, 53, 4)], axis=1)
    turned = np.fft.rfft(frames)
    expected = np.concatenate([turned.real, turned.imag], axis=-1)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("trainable", [True, False])
def test_kernels_are_trained_or_kept(trainable):
    layer = STFTSpectrogram(mode="psd", frame_length=4, trainable=trainable)
    layer(WAVE)
    assert [w.name for w in layer.weights] == ["real_kernel", "imag_kernel"]
    assert len(layer.trainable_weights) == (2 if trainable else 0)
    assert layer.real_kernel.shape == (4, 1, 3)


@pytest.mark.parametrize(
    "layer",
    [
        STFTSpectrogram(window=[0.5, 1.0, 1.0, 0.5], frame_length=4, mode="angle"),
        MelSpectrogram(fft_length=32, sequence_length=16, window="hamming", mag_exp=1.0),
    ],
)
def test_configs_make_an_equal_layer(layer):
    text = json.dumps(registry.serialize_keras_object(layer))
    other = registry.deserialize_keras_object(json.loads(text))
    config = registry.serialize_keras_object(other)["config"]
    assert config == registry.serialize_keras_object(layer)["config"]
    x = WAVE if isinstance(layer, STFTSpectrogram) else WAVE[:, :, 0]
    np.testing.assert_array_equal(other(x).numpy(), layer(x).numpy())


def test_the_mel_matrix_covers_each_frequency_between_its_ends():
    matrix = MelSpectrogram().linear_to_mel_weight_matrix(8, 129, 8000, 100.0, 3500.0).numpy()
    assert matrix.shape == (129, 8) and not matrix[0].any() and matrix.min() == 0
    inner = matrix[20:65].sum(axis=1)  # neighboring triangles add up to 1
    np.testing.assert_allclose(inner, 1.0, atol=1e-5)
    assert not matrix[:3].any() and not matrix[-10:].any()


def test_a_tone_is_in_its_band():
    tone = np.sin(2 * np.pi * 1000 * np.arange(4000) / 8000).astype("float32")
    layer = MelSpectrogram(
        fft_length=512, sequence_stride=128, sampling_rate=8000, num_mel_bins=20, power_to_db=False
    )
    result = layer(tone).numpy()[:, 10]
    edges = np.linspace(*(1127 * np.log1p(np.array([20.0, 4000.0]) / 700)), 22)
    place = np.searchsorted(edges, 1127 * np.log1p(1000 / 700))
    assert result.argmax() in (place - 2, place - 1)


def test_log_of_silence_has_a_slope():
    layer = STFTSpectrogram(frame_length=4)
    x = ops.convert_to_tensor(np.zeros((1, 12, 1), "float32"))
    assert np.isfinite(layer(x).numpy()).all()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: STFTSpectrogram(mode="logs"), "log"),
        (lambda: STFTSpectrogram(padding="full"), "valid"),
        (lambda: STFTSpectrogram(scaling="power"), "density"),
        (lambda: STFTSpectrogram(frame_length=0), "frame_length is a number >= 1"),
        (lambda: STFTSpectrogram(frame_length=4, frame_step=5), "frame_step is a number from 1"),
        (lambda: STFTSpectrogram(frame_length=4, fft_length=2), "at least frame_length=4"),
        (lambda: STFTSpectrogram(frame_length=4, window=[1.0]), "window= has 4 numbers"),
        (lambda: STFTSpectrogram(window="haan"), "haan"),
        (lambda: STFTSpectrogram(frame_length=4)(np.ones((2, 8))), "expected .batch, samples"),
        (lambda: MelSpectrogram(fft_length=8, sequence_length=9), "at least sequence_length=9"),
        (lambda: MelSpectrogram(window="haan"), "hann"),
    ],
)
def test_mistakes_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_sizes_that_are_slow_are_named():
    with pytest.warns(UserWarning, match="fft_length=12 is no power of two"):
        STFTSpectrogram(frame_length=8, fft_length=12)


def test_symbolic_shapes():
    result = STFTSpectrogram(frame_length=8)(layers.Input((40, 2)))
    assert result.shape == (None, 9, 10)
    assert MelSpectrogram(fft_length=64, sequence_stride=32, num_mel_bins=8)(
        layers.Input((256,))
    ).shape == (None, 8, 9)
