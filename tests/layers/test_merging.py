"""What masks leave out does not count where inputs are merged."""

from __future__ import annotations

import numpy as np
import pytest

import kerasish
from kerasish import layers

X = np.array([[[2.0, 3.0], [5.0, 7.0], [4.0, 6.0], [8.0, 1.0]]], "float32")
Y = np.array([[[3.0, 1.0], [9.0, 2.0], [6.0, 5.0], [1.0, 4.0]]], "float32")
ONE, TWO = np.array([[1, 0, 1, 0]], bool), np.array([[1, 1, 0, 0]], bool)
EXPECTED = {  # both, the second, the first, neither
    "Multiply": [[6, 3], [9, 2], [4, 6], [0, 0]],
    "Maximum": [[3, 3], [9, 2], [4, 6], [8, 4]],
    "Minimum": [[2, 1], [9, 2], [4, 6], [1, 1]],
}


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("eagerly", [True, False])
def test_two_masks(name, eagerly):
    merge = getattr(layers, name)()
    expected = np.array([EXPECTED[name]], "float32")
    kept = expected[0, :3] if name != "Multiply" else expected[0]
    result = merge([X, Y], mask=[ONE, TWO])
    np.testing.assert_array_equal(result.numpy()[0, : len(kept)], kept)
    np.testing.assert_array_equal(result._keras_mask.numpy(), ONE | TWO)
    one, two = layers.Input((4, 2)), layers.Input((4, 2))
    first, second = layers.Masking(0.0)(one), layers.Masking(0.0)(two)
    model = kerasish.Model([one, two], getattr(layers, name)()([first, second]))
    model.compile(run_eagerly=eagerly)
    x, y = X * ONE[..., None], Y * TWO[..., None]
    result = model.predict([x, y], verbose=0)
    np.testing.assert_array_equal(result[0, :3], expected[0, :3])


def test_one_mask_leaves_the_other_input_as_it_is():
    product = layers.Multiply()([X, Y], mask=[ONE, None])
    np.testing.assert_array_equal(product.numpy(), np.where(ONE[..., None], X * Y, Y))
    largest = layers.Maximum()([X, Y], mask=[None, TWO])
    np.testing.assert_array_equal(largest.numpy(), np.where(TWO[..., None], np.maximum(X, Y), X))
    assert getattr(product, "_keras_mask", None) is None


def test_masks_come_one_for_each_input():
    for merge in (layers.Add(), layers.Concatenate()):
        for inputs, mask in (([X, Y], ONE), ([X, Y], [ONE]), (X, [ONE])):
            with pytest.raises(ValueError, match="a list of as many masks"):
                merge.compute_mask(inputs, mask)
