"""Pooling layers: settings, errors, masks (numbers: see test_as_keras)."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish import layers
from kerasish.errors import ShapeError


def test_strides_are_the_window_by_default():
    layer = layers.MaxPooling2D((2, 3))
    assert layer.strides == (2, 3)
    assert layers.MaxPooling2D.from_config(layer.get_config()).strides == (2, 3)


def test_both_names_are_one_class():
    assert layers.MaxPool2D is layers.MaxPooling2D
    assert layers.GlobalAvgPool1D is layers.GlobalAveragePooling1D


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: layers.MaxPooling1D(0), "pool_size"),
        (lambda: layers.AveragePooling2D(2, padding="causal"), "padding"),
        (lambda: layers.MaxPooling1D(4)(np.ones((1, 3, 2))), "window of 4"),
        (lambda: layers.GlobalMaxPooling2D()(np.ones((1, 3, 2))), "4 axes"),
        (lambda: layers.AdaptiveMaxPooling2D((2, 2, 2)), "output_size"),
    ],
)
def test_errors_say_what_was_expected(make, words):
    with pytest.raises((ValueError, ShapeError), match=words):
        make()


def test_the_mask_of_an_embedding_reaches_the_mean():
    table = layers.Embedding(5, 3, mask_zero=True)
    words = np.array([[1, 2, 0, 0], [3, 4, 1, 0]])
    result = np.asarray(layers.GlobalAveragePooling1D()(table(words)))
    rows = np.asarray(table.embeddings)
    np.testing.assert_allclose(result[0], rows[[1, 2]].mean(0), rtol=1e-5)
    np.testing.assert_allclose(result[1], rows[[3, 4, 1]].mean(0), rtol=1e-5)
