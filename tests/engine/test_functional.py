"""Functional models replay their graphs."""

from __future__ import annotations

import numpy as np

import kerasish as keras


def test_the_training_flag_of_a_call_overrides_that_of_a_node() -> None:
    # As in Keras, which writes "training": true beside its random layers.
    source = keras.Input((50,))
    model = keras.Model(source, keras.layers.Dropout(0.5)(source, training=True))
    x = np.ones((2, 50), "float32")
    np.testing.assert_array_equal(model.predict(x, verbose=0), x)
    np.testing.assert_array_equal(model(x, training=False).numpy(), x)
    assert (model(x).numpy() != x).any()
    assert (model(x, training=True).numpy() != x).any()
