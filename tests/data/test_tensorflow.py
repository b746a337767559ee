"""Layers and ops inside `tf.data.Dataset.map`: TensorFlow passes values without numbers."""

from __future__ import annotations

import numpy as np
import pytest

import kerasish
from kerasish import layers, ops

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

rng = np.random.default_rng(0)
IMAGES = rng.uniform(0, 255, (8, 16, 16, 3)).astype("float32")
LABELS = np.arange(8) % 3


def arrays(dataset):
    return [tf.nest.map_structure(lambda t: t.numpy(), element) for element in dataset]


@pytest.mark.parametrize("backend", ["static", "eager"])
def test_layers_compute_in_map(backend):
    kerasish.config.set_backend(backend)
    chain = kerasish.Sequential([layers.Rescaling(1 / 255), layers.CenterCrop(8, 8)])
    dense = layers.Dense(4)
    dataset = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS)).batch(3)
    mapped = dataset.map(lambda x, y: (dense(chain(x)), y), num_parallel_calls=2)
    assert mapped.element_spec[0].shape.as_list() == [None, 8, 8, 4]
    assert mapped.element_spec[0].dtype == tf.float32
    for (x, y), start in zip(arrays(mapped), (0, 3, 6), strict=True):
        want = dense(IMAGES[start : start + 3, 4:12, 4:12] / np.float32(255))
        np.testing.assert_allclose(x, want, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(y, LABELS[start : start + 3])


def test_random_layers_draw_for_each_batch():
    flip = layers.RandomFlip("horizontal", seed=1)
    dataset = tf.data.Dataset.from_tensors(IMAGES).repeat(6)
    results = arrays(dataset.map(lambda x: flip(x, training=True)))
    assert len({r.tobytes() for r in results}) > 1
    rows = np.concatenate(results)
    both = np.concatenate(
        [np.tile(IMAGES, (6, 1, 1, 1)), np.tile(IMAGES[:, :, ::-1], (6, 1, 1, 1))]
    )
    same = [any((r == b).all() for b in both[i % 8 :: 8]) for i, r in enumerate(rows)]
    assert all(same)
    plain = arrays(dataset.map(lambda x: flip(x, training=False)))
    np.testing.assert_array_equal(plain[0], IMAGES)


def test_ops_and_functions_of_ops():
    def scaled(x, y):
        x = ops.image.resize(x, (8, 8)) / 255.0
        return {"x": ops.clip(ops.add(x, 1.0), 0.0, 1.5)}, ops.one_hot(y, 3)

    dataset = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS)).map(scaled)
    assert dataset.element_spec[0]["x"].shape.as_list() == [8, 8, 3]
    for i, (x, y) in enumerate(arrays(dataset)):
        want, label = scaled(IMAGES[i], LABELS[i])
        np.testing.assert_allclose(x["x"], want["x"], rtol=1e-5)
        np.testing.assert_array_equal(y, label)


def test_several_values_and_results():
    dataset = tf.data.Dataset.from_tensor_slices((IMAGES, IMAGES + 1))
    add = layers.Add()
    mapped = dataset.map(lambda a, b: (add([a, b]), ops.stack([a, b]), ops.split(a, 2, axis=0)))
    for i, (total, both, halves) in enumerate(arrays(mapped)):
        np.testing.assert_allclose(total, IMAGES[i] * 2 + 1, rtol=1e-6)
        np.testing.assert_array_equal(both, [IMAGES[i], IMAGES[i] + 1])
        np.testing.assert_array_equal(np.concatenate(halves), IMAGES[i])


def test_text_layers():
    texts = np.array(["so far", "so good", "far away so"])
    vectors = layers.TextVectorization(output_sequence_length=4)
    vectors.adapt(texts)
    lookup = layers.StringLookup(vocabulary=["a", "b"])
    mapped = tf.data.Dataset.from_tensor_slices(texts).batch(2).map(vectors)
    np.testing.assert_array_equal(np.concatenate(arrays(mapped)), vectors(texts))
    letters = tf.data.Dataset.from_tensor_slices(["b", "x", "a"]).map(lookup)
    assert [int(v) for v in arrays(letters)] == [2, 0, 1]


def test_a_model_trains_on_the_mapped_data():
    dataset = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS)).batch(4)
    scale = layers.Rescaling(1 / 255)
    model = kerasish.Sequential([layers.Flatten(), layers.Dense(3, activation="softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    history = model.fit(dataset.map(lambda x, y: (scale(x), y)), epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"]).all()


def test_an_unknown_number_of_axes_is_named():
    dataset = tf.data.Dataset.from_tensor_slices(IMAGES)
    lost = dataset.map(lambda x: tf.numpy_function(lambda a: a, [x], tf.float32))
    with pytest.raises(ValueError, match="ensure_shape"):
        lost.map(layers.Rescaling(2.0))


def test_a_call_leaves_the_layer_free_for_models():
    scale = layers.Rescaling(2.0)
    arrays(tf.data.Dataset.from_tensor_slices(IMAGES).map(scale))
    assert scale.inbound_nodes == []
