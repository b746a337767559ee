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


class Cached(layers.MultiHeadAttention):
    """Attention that keeps the projected keys and values, by the names of Keras's layer."""

    def build(self, query_shape, value_shape, key_shape=None):
        """Make the projections; that of the query by the options of all."""
        super().build(query_shape, value_shape, key_shape)
        self._query_dense = layers.EinsumDense(
            "abc,cde->abde", output_shape=(None, self._num_heads, self._key_dim),
            **self._get_common_kwargs_for_sublayer(),
        )  # fmt: skip
        self._query_dense.build(query_shape)
        self._build_attention(4)

    def call(self, query, value, attention_mask=None):
        """Return the result and what is kept."""
        key, value = self._key_dense(value), self._value_dense(value)
        result, _ = self._compute_attention(
            query=self._query_dense(query), key=key, value=value, attention_mask=attention_mask
        )
        return self._output_dense(result), ops.stack((key, value), axis=1)


def test_attention_by_the_names_of_keras(engine):
    layer, plain = Cached(2, 3, use_bias=False), layers.MultiHeadAttention(2, 3, use_bias=False)
    x = np.random.default_rng(0).normal(size=(2, 4, 6)).astype("float32")
    mask = np.tril(np.ones((2, 4, 4), bool))
    result, kept = layer(x, x, attention_mask=mask)
    plain.build(x.shape, x.shape)
    for name in ("_query_dense", "_key_dense", "_value_dense", "_output_dense"):
        getattr(plain, name).set_weights(getattr(layer, name).get_weights())
    np.testing.assert_allclose(result, plain(x, x, attention_mask=mask), rtol=1e-5, atol=1e-6)
    assert kept.shape == (2, 2, 4, 2, 3)
    assert layer._query_dense in layer._flatten_layers(include_self=False)
    with pytest.raises(AttributeError, match="_no_such"):
        layer._no_such()


class Gathered(layers.Layer):
    """A layer whose shape follows from those of two arguments."""

    def call(self, values, places):
        """Return the values at the places."""
        return ops.take_along_axis(values, ops.expand_dims(places, -1), axis=1)

    def compute_output_shape(self, values_shape, places_shape):
        """Return the shape."""
        return (*places_shape, values_shape[-1])


class Shifted(layers.Layer):
    """A layer that is called only with keywords."""

    def call(self, decoder_sequence, encoder_sequence=None):
        """Return the sum."""
        return decoder_sequence + encoder_sequence

    def compute_output_shape(self, decoder_sequence_shape):
        """Return the shape."""
        return decoder_sequence_shape


def test_shapes_go_to_compute_output_shape_by_name(engine):
    values, places = keras.Input((5, 3)), keras.Input((2,), dtype="int32")
    y = Gathered()(values, places=places)
    z = Shifted()(decoder_sequence=y, encoder_sequence=y)
    assert z.shape == (None, 2, 3)
    x = np.arange(30, dtype="float32").reshape(2, 5, 3)
    at = np.array([[0, 4], [1, 1]], "int32")
    result = keras.Model([values, places], z).predict([x, at], verbose=0)
    np.testing.assert_array_equal(result, 2 * np.take_along_axis(x, at[..., None], 1))


class EmbeddingAndTable(keras.layers.Embedding):
    """Returns its table with the vectors, and asks its parent class for their shape."""

    def compute_output_shape(self, input_shape):
        return [super().compute_output_shape(input_shape), (self.input_dim, self.output_dim)]

    def call(self, inputs):
        return [super().call(inputs), keras.ops.convert_to_tensor(self.embeddings)]


@pytest.mark.parametrize("engine", ["static", "eager"])
def test_a_shape_is_asked_of_the_parent_class(engine):
    keras.config.set_backend(engine)
    layer = EmbeddingAndTable(7, 3)
    assert layer.compute_output_shape((None, 5)) == [(None, 5, 3), (7, 3)]
    inputs = keras.Input((5,), dtype="int32")
    vectors, table = layer(inputs)
    assert (vectors.shape, table.shape) == ((None, 5, 3), (7, 3))
    found = keras.Model(inputs, vectors).predict(np.ones((2, 5), "int32"), verbose=0)
    assert found.shape == (2, 5, 3)


def test_build_without_a_shape_leaves_a_sequential_to_its_data():
    model = keras.Sequential([keras.layers.Dense(2)])
    model.build()
    assert model.predict(np.ones((4, 3)), verbose=0).shape == (4, 2)
    model.build()
    assert model.layers[0].kernel.shape == (3, 2)


def test_the_shape_of_a_list_of_one_tensor_is_its_shape():
    inputs = keras.Input((3,))
    model = keras.Model([inputs], [keras.layers.Dense(2)(inputs)])
    assert (model.input_shape, model.output_shape) == ((None, 3), (None, 2))
    two = keras.Model([inputs, keras.Input((4,))], inputs)
    assert two.input_shape == [(None, 3), (None, 4)]


def test_results_are_listed_in_the_order_of_keras():
    inputs = keras.Input((3,))
    outputs = [
        layers.Dense(1, "sigmoid", name="dense")(inputs),
        layers.Dense(4, "softmax", name="dense_1")(inputs),
    ]
    model = keras.Model(inputs, outputs)
    losses = ["binary_crossentropy", "sparse_categorical_crossentropy"]
    model.compile("sgd", losses, metrics=[["accuracy", "mse"], ["accuracy"]])
    x, y = np.ones((4, 3)), [np.ones((4, 1)), np.ones((4, 1))]
    # Keras 3.15.1: metrics of several outputs follow by the alphabet.
    of_outputs = ["dense_1_accuracy", "dense_accuracy", "dense_mse"]
    names = ["loss", "dense_loss", "dense_1_loss", *of_outputs]
    for listed, named in (
        (model.evaluate(x, y, verbose=0), model.evaluate(x, y, verbose=0, return_dict=True)),
        (model.test_on_batch(x, y), model.test_on_batch(x, y, return_dict=True)),
    ):
        assert listed == [named[name] for name in names]


def test_results_that_a_step_names_are_listed_by_the_alphabet():
    class Named(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(1)
            self.first = keras.metrics.Mean(name="first")

        def call(self, x):
            return self.dense(x)

        def train_step(self, data):
            self.first.update_state(ops.mean(self(data)))
            return {"z": ops.array(3.0), "first": self.first.result(), "a": ops.array(2.0)}

    model = Named()
    model.compile("sgd")
    first, *others = model.train_on_batch(np.ones((4, 2)))
    assert others == [2.0, 3.0]
    assert first == pytest.approx(float(model.predict(np.ones((1, 2)), verbose=0)[0, 0]))
