"""What programs written for Keras take for granted: arrays to write to, texts as tensors, speed."""

from __future__ import annotations

import time

import numpy as np
import pytest

import kerasish as keras
from kerasish import layers, ops


def test_predicted_arrays_may_be_written_to(engine):
    inputs = keras.Input((3,))
    model = keras.Model(inputs, [layers.Dense(2)(inputs), inputs])
    x = np.ones((5, 3), "float32")
    for results in (model.predict(x, verbose=0), model.predict_on_batch(x)):
        for array in results:
            assert type(array) is np.ndarray
            array[array > 0.5] = 0.0
            assert array.max() <= 0.5
    np.testing.assert_array_equal(x, 1.0)


@pytest.mark.parametrize(
    "layer",
    [
        layers.TextVectorization(vocabulary=["a", "b"], output_sequence_length=2),
        layers.StringLookup(vocabulary=["a", "b"]),
        layers.Hashing(num_bins=5),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_texts_pass_through_tensors(layer):
    texts = [["a"], ["b"], ["c"]]
    given = ops.convert_to_tensor(texts)
    np.testing.assert_array_equal(layer(given), layer(np.array(texts)))


def test_a_large_kernel_is_drawn_in_a_fraction_of_a_second():
    layers.Dense(8).build((None, 8))  # compiles what draws numbers
    start = time.process_time()
    layers.Dense(2048).build((None, 4096))
    assert time.process_time() - start < 2.0


class Lengths(layers.Layer):
    """Sizes as tensors of a dtype, which are sizes of other tensors, as losses of CTC make them."""

    def call(self, x):
        """Return x, and the number of steps of each row."""
        rows = ops.cast(ops.shape(x)[0], "int64")
        steps = ops.cast(ops.shape(x)[1], dtype="int64")
        return x, steps * ops.ones(shape=(rows, 1), dtype="int64")


def test_a_size_made_a_tensor_is_a_size(engine):
    inputs = keras.Input((None, 2))
    outputs = Lengths()(inputs)
    assert outputs[1].shape == (None, 1)
    assert outputs[1].dtype == "int64"
    model = keras.Model(inputs, outputs)
    for rows, steps in ((4, 3), (2, 5)):
        _, lengths = model.predict(np.zeros((rows, steps, 2), "float32"), verbose=0)
        np.testing.assert_array_equal(lengths, np.full((rows, 1), steps))
