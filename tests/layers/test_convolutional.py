"""Convolution layers: settings, errors, config (numbers: see test_as_keras)."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish import layers
from kerasish.errors import ShapeError


def test_sizes_are_tuples_in_the_config():
    config = layers.Conv2D(4, 3, strides=2).get_config()
    assert (config["kernel_size"], config["strides"], config["dilation_rate"]) == (
        (3, 3), (2, 2), (1, 1),
    )  # fmt: skip


@pytest.mark.parametrize("stride", [1, 3, 16])
def test_unknown_sizes_stay_unknown(stride):
    layer = layers.Conv2D(4, 3, strides=stride, padding="same")
    assert layer.compute_output_shape((None, None, None, 3)) == (None, None, None, 4)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: layers.Conv2D(0, 3), "filters"),
        (lambda: layers.Conv2D(4, (3, 3, 3)), "kernel_size"),
        (lambda: layers.Conv2D(4, 3, padding="causal"), "padding"),
        (lambda: layers.Conv2D(3, 3, groups=2), "multiple of groups"),
        (lambda: layers.Conv2DTranspose(3, 3, strides=2, output_padding=2), "less than strides"),
        (lambda: layers.Conv1D(3, 3).build((None, 2, 4)), "window of 3"),
        (lambda: layers.Conv1D(3, 3).build((None, 5, None)), "channels"),
        (lambda: layers.Conv1D(4, 3, groups=2).build((None, 5, 3)), "multiple of groups"),
        (lambda: layers.Conv2D(4, 3)(np.ones((2, 5, 5))), r"4 axes.*\(2, 5, 5\)"),
    ],
)
def test_errors_say_what_was_expected(make, words):
    with pytest.raises((ValueError, ShapeError), match=words):
        make()


def test_other_channels_later_are_an_error():
    layer = layers.Conv2D(4, 3)
    layer(np.ones((1, 5, 5, 2)))
    with pytest.raises(ShapeError, match="must be 2"):
        layer(np.ones((1, 5, 5, 3)))


def test_both_layouts_agree():
    x = np.random.default_rng(0).normal(size=(2, 5, 6, 4)).astype("float32")
    for kind in (layers.Conv2D, layers.Conv2DTranspose, layers.SeparableConv2D):
        last, first = kind(3, 2, strides=2), kind(3, 2, strides=2, data_format="channels_first")
        y = np.asarray(last(x))
        first(x.transpose(0, 3, 1, 2))
        first.set_weights(last.get_weights())
        z = np.asarray(first(x.transpose(0, 3, 1, 2))).transpose(0, 2, 3, 1)
        np.testing.assert_allclose(y, z, atol=1e-5)
