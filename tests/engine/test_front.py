"""Models with layers that run on the host: the same training as on data prepared beforehand."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import kerasish
from kerasish import layers
from kerasish.engine.functional.host_stage import HostInputs, host_stage_of
from kerasish.errors import TraceError

WORDS = ["red green", "blue", "green blue red", "", "red red unknown"] * 8
LABELS = np.arange(40.0) % 3
both_engines = pytest.mark.parametrize("eagerly", [False, True], ids=["static", "eager"])


def words_layer(**options):
    options = {"vocabulary": ["red", "green", "blue"], "output_sequence_length": 3, **options}
    return layers.TextVectorization(**options)


def tail():
    return [
        layers.Embedding(6, 4, embeddings_initializer=kerasish.initializers.RandomUniform(seed=1)),
        layers.Flatten(),
        layers.Dense(1, kernel_initializer=kerasish.initializers.GlorotUniform(seed=2)),
    ]


def compiled(model, eagerly=False):
    model.compile("adam", "mse", run_eagerly=eagerly)
    return model


def generator(x, y):
    while True:
        for i in range(0, 40, 10):
            yield x[i : i + 10], y[i : i + 10]


@both_engines
@pytest.mark.parametrize(
    ("x", "start"),
    [
        (np.array(WORDS), ()),
        (np.array(WORDS, dtype=object), (None,)),
        (np.array(WORDS)[:, None], (None, 1)),
        (WORDS, ()),
    ],
    ids=["array", "objects", "column", "list"],
)
def test_training_on_strings_is_training_on_their_numbers(x, start, eagerly):
    numbers = words_layer()(np.array(WORDS)).numpy()
    direct = compiled(kerasish.Sequential([layers.Input((3,), dtype="int64"), *tail()]), eagerly)
    front = [layers.Input(batch_shape=start, dtype="string")] if start else []
    model = compiled(kerasish.Sequential([*front, words_layer(), *tail()]), eagerly)
    options = {"epochs": 2, "batch_size": 16, "verbose": 0, "validation_split": 0.25}
    kerasish.utils.set_random_seed(3)
    expected = direct.fit(numbers, LABELS, **options).history
    kerasish.utils.set_random_seed(3)
    result = model.fit(x, LABELS, **options).history
    assert result.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(result[name], expected[name], rtol=1e-5)
    predictions = direct.predict(numbers, verbose=0)
    np.testing.assert_allclose(model.predict(x, verbose=0), predictions, rtol=1e-5, atol=1e-6)
    assert model.evaluate(x, LABELS, verbose=0) == pytest.approx(
        direct.evaluate(numbers, LABELS, verbose=0), rel=1e-5
    )
    array = np.array(x)
    np.testing.assert_allclose(model(array).numpy(), predictions, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        model.predict_on_batch(array[:5]), predictions[:5], rtol=1e-5, atol=1e-6
    )
    assert model.train_on_batch(array[:5], LABELS[:5]) == pytest.approx(
        direct.train_on_batch(numbers[:5], LABELS[:5]), rel=1e-5
    )


@both_engines
def test_streams_go_through_the_front_batch_by_batch(eagerly):
    model = compiled(kerasish.Sequential([words_layer(), *tail()]), eagerly)
    x = np.array(WORDS)
    history = model.fit(generator(x, LABELS), steps_per_epoch=4, epochs=2, verbose=0)
    assert len(history.history["loss"]) == 2
    assert model.predict((x[i : i + 10] for i in (0, 10)), verbose=0).shape == (20, 1)


def test_rows_of_unequal_length_are_prepared_batch_by_batch():
    model = kerasish.Sequential(
        [words_layer(output_sequence_length=None), layers.Embedding(6, 4),
         layers.GlobalAveragePooling1D(), layers.Dense(1)]
    )  # fmt: skip
    compiled(model).fit(np.array(WORDS), LABELS, batch_size=8, verbose=0)
    assert host_stage_of(model.layer_graph).row_bytes() == float("inf")
    assert model.predict(np.array(WORDS), verbose=0).shape == (40, 1)


def test_texts_from_folders_train_a_model(tmp_path):
    for number, text in enumerate(WORDS):
        folder = tmp_path / ("odd" if number % 2 else "even")
        folder.mkdir(exist_ok=True)
        (folder / f"{number:02}.txt").write_text(text)
    data = kerasish.utils.text_dataset_from_directory(tmp_path, batch_size=8, verbose=False)
    words = layers.TextVectorization(output_mode="multi_hot")
    words.adapt(data)
    assert set(words.get_vocabulary()) == {"[UNK]", "red", "green", "blue", "unknown"}
    model = kerasish.Sequential([words, layers.Dense(1, activation="sigmoid")])
    model.compile("adam", "binary_crossentropy")
    model.fit(data, epochs=2, verbose=0)
    assert model.predict(data, verbose=0).shape == (40, 1)


def columns_model():
    words = layers.Input((1,), dtype="string", name="words")
    size = layers.Input((2,), name="size")
    hashed = layers.Hashing(8, output_mode="multi_hot")(layers.Identity()(words))
    parts = [hashed, layers.Dense(3, activation="relu")(size)]
    return kerasish.Model([words, size], layers.Dense(1)(layers.Concatenate()(parts)))


def test_only_what_must_runs_on_the_host():
    model = columns_model()
    front = host_stage_of(model.layer_graph)
    assert [o.name.split("_")[0] for o in front.operations] == ["identity", "hashing"]
    assert not front.needs_eager
    x = {"words": np.array(WORDS)[:, None], "size": np.ones((40, 2), "float32")}
    prepared = model._prepare_inputs(x)
    assert type(prepared) is HostInputs
    assert sorted(v.shape for v in prepared.values) == [(40, 2), (40, 8)]
    compiled(model).fit(x, LABELS, epochs=2, verbose=0)
    result = model.predict(x, verbose=0)
    np.testing.assert_allclose(result, model(x).numpy(), rtol=1e-5, atol=1e-6)
    before = model.evaluate(x, LABELS, verbose=0)
    assert before == pytest.approx(np.mean((result[:, 0] - LABELS) ** 2), rel=1e-4)


def test_models_without_such_layers_have_no_front():
    model = kerasish.Sequential([layers.Input((2,)), layers.Dense(1)])
    assert host_stage_of(model.layer_graph) is None
    x = np.ones((3, 2), "float32")
    assert model._prepare_inputs(x) is x


def test_models_that_are_all_on_the_host():
    numbers = kerasish.Sequential([layers.StringLookup(vocabulary=["red", "blue"])])
    assert numbers.predict(np.array([["red", "x"]]), verbose=0).tolist() == [[1, 0]]
    back = kerasish.Sequential(
        [layers.Input((2,), dtype="int64"), layers.StringLookup(vocabulary=["red"], invert=True)]
    )
    assert back.predict(np.array([[1, 0]]), verbose=0).tolist() == [["red", "[UNK]"]]


@pytest.mark.parametrize("hosted", [True, False])
def test_strings_that_go_straight_to_an_output(hosted):
    words = layers.Input((1,), dtype="string", name="words")
    size = layers.Input((1,), name="size")
    out = layers.StringLookup(vocabulary=["red"])(words) if hosted else words
    model = kerasish.Model([words, size], [layers.Dense(1)(size), out, words])
    for batch in (["red", "x"], ["y", "red"]):
        x = [np.array(batch)[:, None], np.ones((2, 1), "float32")]
        result = model.predict(x, verbose=0)
        assert result[2].ravel().tolist() == batch
        if hosted:
            assert result[1].ravel().tolist() == [int(w == "red") for w in batch]


def test_strings_that_are_not_needed():
    words = layers.Input((1,), dtype="string", name="words")
    size = layers.Input((1,), name="size")
    model = compiled(kerasish.Model([words, size], layers.Dense(1)(size)))
    x = [np.array(WORDS)[:, None], np.ones((40, 1), "float32")]
    model.fit(x, LABELS, verbose=0)
    assert not host_stage_of(model.layer_graph).needs_eager


def test_strings_given_to_a_compiled_function_are_constants():
    longer = kerasish.function(lambda x, words: x + len(words[0]), backend="static")
    for word in ("ab", "c"):
        assert float(longer(np.float32(1), np.array([word, "zz"]))) == 1 + len(word)


def test_a_lookup_behind_trained_layers_predicts_but_does_not_train():
    inputs = layers.Input((2,))
    best = kerasish.ops.argmax(layers.Dense(3, name="scores")(inputs), axis=-1)
    names = layers.StringLookup(vocabulary=["a", "b", "c"], num_oov_indices=0, invert=True)(best)
    model = kerasish.Model(inputs, names)
    assert set(model.predict(np.eye(2, dtype="float32"), verbose=0)) <= {"a", "b", "c"}
    compiled(model)
    with pytest.raises(ValueError, match="'scores' has weights to train, but it precedes"):
        model.fit(np.eye(2, dtype="float32"), np.zeros(2), verbose=0)


def test_nested_models_of_preprocessing_alone():
    words = kerasish.Sequential([layers.Input((1,), dtype="string"), words_layer()])
    inputs = layers.Input((1,), dtype="string")
    x = words(inputs)
    for layer in tail():
        x = layer(x)
    model = compiled(kerasish.Model(inputs, x))
    column = np.array(WORDS)[:, None]
    model.fit(column, LABELS, verbose=0)
    np.testing.assert_allclose(
        model.predict(column, verbose=0), model(column).numpy(), rtol=1e-5, atol=1e-6
    )


class Own(kerasish.Model):
    def __init__(self):
        super().__init__()
        self.words, self.rest = words_layer(), kerasish.Sequential(tail())

    def call(self, x):
        return self.rest(self.words(x))


def test_a_class_of_ones_own_runs_eagerly_or_says_so():
    model = compiled(Own(), eagerly=True)
    model.fit(np.array(WORDS), LABELS, verbose=0)
    assert model.predict(np.array(WORDS), verbose=0).shape == (40, 1)
    kerasish.config.set_backend("static")
    with pytest.raises(TraceError, match="runs on the host, not in a compiled step.*run_eagerly"):
        compiled(Own()).fit(np.array(WORDS), LABELS, verbose=0)


class OwnStep(kerasish.Sequential):
    def train_step(self, data):
        x, y = data
        with kerasish.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        return {"loss": loss}


@both_engines
def test_a_step_of_ones_own_gets_what_the_front_made(eagerly):
    model = compiled(OwnStep([words_layer(), *tail()]), eagerly)
    before = model.evaluate(np.array(WORDS), LABELS, verbose=0)
    model.fit(np.array(WORDS), LABELS, epochs=20, verbose=0)
    assert model.evaluate(np.array(WORDS), LABELS, verbose=0) < before


def test_numbers_where_strings_belong():
    model = kerasish.Sequential([layers.Input((1,), dtype="string"), words_layer(), *tail()])
    with pytest.raises(ValueError, match="takes strings, got numbers of dtype float32"):
        model.predict(np.ones((2, 1), "float32"), verbose=0)
    other = kerasish.Sequential([layers.Input((1,)), layers.Dense(1)])
    with pytest.raises(TypeError, match="Expected numbers"):
        other.predict(np.array([["a"]]), verbose=0)


def test_copies_and_pickles_have_the_same_front():
    model = compiled(kerasish.Sequential([words_layer(), *tail()]))
    x = np.array(WORDS)
    model.fit(x, LABELS, verbose=0)
    expected = model.predict(x, verbose=0)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_allclose(other.predict(x, verbose=0), expected, rtol=1e-5, atol=1e-6)


def test_summary_shows_strings(capsys):
    model = kerasish.Sequential([layers.Input((1,), dtype="string"), words_layer(), *tail()])
    model.summary()
    assert "TextVectorization" in capsys.readouterr().out


def test_long_texts_take_no_more_than_their_own_length():
    """One long text among many short ones: an array of str would be a gigabyte."""
    texts = np.array(["x " * 20_000, *["red"] * 20_000], dtype=object)
    model = kerasish.Sequential([words_layer(output_mode="count", output_sequence_length=None)])
    result = model.predict(texts, verbose=0)
    assert result[0].tolist() == [20_000, 0, 0, 0] and result[1].tolist() == [0, 1, 0, 0]
