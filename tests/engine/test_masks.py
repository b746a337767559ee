"""Masks: which layers carry them as Keras's do, and what a reader says where one was dropped."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mask_cases import fates

import kerasish as keras
from kerasish import layers, ops
from kerasish.errors import AdviceWarning

WORDS = np.array([[1, 2, 3, 0, 0], [4, 1, 0, 0, 0], [2, 2, 2, 2, 2]])
FACTS = json.loads((Path(__file__).parents[1] / "data" / "masks.json").read_text())
CARRIED_HERE = {"RMSNormalization()"}  # as by the other normalizations; Keras drops it
NAMES = sorted(FACTS.keys() - {"keras"})

# Dropping is only a warning, which other tests check.
pytestmark = pytest.mark.filterwarnings("ignore:.*does not support masking")


@pytest.fixture(scope="module")
def found() -> Any:
    def mask_of(t: Any) -> Any:
        mask = getattr(t, "_keras_mask", None)
        return None if mask is None else mask.numpy()

    def give_mask(t: Any, mask: Any) -> None:
        t._keras_mask = mask

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AdviceWarning)
        return fates(layers, ops.convert_to_tensor, mask_of, give_mask)


def test_each_fact_is_looked_at(found: Any) -> None:
    assert sorted(found) == NAMES and len(NAMES) > 90


@pytest.mark.parametrize("name", NAMES)
def test_masks_fare_as_in_keras(name: str, found: Any) -> None:
    expected = FACTS["Identity()"] if name in CARRIED_HERE else FACTS[name]
    assert found[name] == expected


# --- readers -------------------------------------------------------------------------------------


def embedding() -> Any:
    return layers.Embedding(6, 4, mask_zero=True)


def dropping() -> Any:
    return layers.Conv1D(4, 2, padding="same", name="dropper")


class Own(layers.Layer):
    def call(self, x: Any, mask: Any = None) -> Any:
        return x if mask is None else x * ops.cast(mask[..., None], "float32")


READERS = {
    "LSTM": lambda: layers.LSTM(3),
    "GRU": lambda: layers.GRU(3, return_sequences=True),
    "SimpleRNN": lambda: layers.SimpleRNN(3),
    "RNN": lambda: layers.RNN([layers.GRUCell(3), layers.LSTMCell(2)]),
    "Bidirectional": lambda: layers.Bidirectional(layers.LSTM(3)),
    "GlobalAveragePooling1D": layers.GlobalAveragePooling1D,
    "Own": Own,
}
BETWEEN = {
    "nothing": list,
    "layers that carry": lambda: [layers.Dense(3), layers.Dropout(0.1), layers.ReLU()],
    "layers that drop": lambda: [layers.MaxPooling1D(2), layers.Conv1D(3, 1)],
    "a reshape": lambda: [layers.Reshape((5, 2, 2)), layers.Reshape((5, 4))],
}


def message(reader: str) -> str:
    return rf'(?s){reader} ".*mask until Conv1D "dropper" dropped.*supports_masking.*mask=.*zero=F'


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_refuses_data_whose_mask_was_dropped(reader: str, between: str) -> None:
    stack = [embedding(), dropping(), *BETWEEN[between](), READERS[reader]()]
    with pytest.raises(ValueError, match=message(reader)):
        keras.Sequential([keras.Input((5,)), *stack])


@pytest.mark.parametrize("reader", READERS)
def test_the_same_stack_without_the_drop_is_fine(reader: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = keras.Sequential([keras.Input((5,)), embedding(), READERS[reader]()])
        quiet = layers.Embedding(6, 4)
        other = keras.Sequential([keras.Input((5,)), quiet, dropping(), READERS[reader]()])
        assert model.predict(WORDS, verbose=0).shape == other.predict(WORDS, verbose=0).shape


def _functional() -> Any:
    x = keras.Input((5,))
    return keras.Model(x, layers.LSTM(2)(dropping()(embedding()(x))))


def _unbuilt() -> Any:
    return keras.Sequential([embedding(), dropping(), layers.LSTM(2)])(WORDS)


class Sub(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.parts = [embedding(), dropping(), layers.LSTM(2)]

    def call(self, x: Any, mask: Any = None) -> Any:
        for part in self.parts:
            x = part(x)
        return x


def _nested() -> Any:
    x = keras.Input((5,))
    first = keras.Model(x, dropping()(embedding()(x)))
    y = keras.Input((5,))
    return keras.Model(y, layers.LSTM(2)(first(y))).predict(WORDS, verbose=0)


MODELS = {
    "functional": _functional, "sequential, unbuilt": _unbuilt, "subclass": lambda: Sub()(WORDS),
    "subclass in fit": lambda: _fitted(Sub()), "nested": _nested,
}  # fmt: skip


def _fitted(model: Any) -> Any:
    model.compile("sgd", "mse")
    model.fit(WORDS, np.zeros((3, 2), "float32"), verbose=0)


@pytest.mark.parametrize("backend", ["static", "eager"])
@pytest.mark.parametrize("kind", MODELS)
def test_each_kind_of_model_on_each_engine(kind: str, backend: str) -> None:
    before = keras.config.backend()
    keras.config.set_backend(backend)
    try:
        with pytest.raises(ValueError, match=message("LSTM")):
            MODELS[kind]()
    finally:
        keras.config.set_backend(before)


def test_a_mask_given_to_the_reader_is_an_answer() -> None:
    x = keras.Input((5,))
    y = layers.LSTM(2)(dropping()(embedding()(x)), mask=ops.not_equal(x, 0))
    assert keras.Model(x, y).predict(WORDS, verbose=0).shape == (3, 2)
    z = dropping()(embedding()(WORDS))
    attention = layers.MultiHeadAttention(2, 3)
    assert attention(z, z, attention_mask=np.ones((3, 5, 5), "bool")).shape == (3, 5, 4)


def test_attention_needs_the_mask_of_what_it_looks_at() -> None:
    masked, lost = embedding()(WORDS), dropping()(embedding()(WORDS))
    for layer in (layers.MultiHeadAttention(2, 3), layers.GroupQueryAttention(3, 2, 1)):
        assert layer(lost, masked).shape == (3, 5, 4)  # each query looks for itself
        for call in (lambda one=layer: one(lost, lost), lambda one=layer: one(masked, lost)):
            with pytest.raises(ValueError, match=message(type(layer).__name__)):
                call()
    for dot in (layers.Attention(), layers.AdditiveAttention()):
        assert dot([lost, masked]).shape == (3, 5, 4)
        with pytest.raises(ValueError, match=message(type(dot).__name__)):
            dot([masked, lost])


def test_where_steps_end_there_is_nothing_to_miss() -> None:
    """A flat result, an axis of other things, the last output of a sequence: no steps."""
    for stack in (
        [layers.Flatten(), layers.Dense(6), layers.Reshape((3, 2)), layers.LSTM(2)],
        [dropping(), layers.GlobalMaxPooling1D(), layers.RepeatVector(3), layers.LSTM(2)],
        [dropping(), layers.Permute((2, 1)), layers.LSTM(2)],
        [dropping(), layers.Reshape((10, 2)), layers.LSTM(2)],
        [layers.LSTM(4), layers.RepeatVector(3), layers.LSTM(2)],
        [dropping(), layers.BatchNormalization(), layers.Dense(2), layers.GlobalMaxPooling1D()],
    ):
        model = keras.Sequential([keras.Input((5,)), embedding(), *stack])
        assert model.predict(WORDS, verbose=0).shape == (3, 2)


def test_a_layer_over_time_reads_the_masks_inside_a_step() -> None:
    class Twice(layers.Layer):
        def call(self, x: Any) -> Any:
            return x * 2.0

    texts = Twice(name="dropper")(embedding()(np.stack([WORDS, WORDS], 1)))  # (3, 2, 5, 4)
    assert layers.TimeDistributed(layers.Dense(2))(texts).shape == (3, 2, 5, 2)
    with pytest.raises(ValueError, match='(?s)TimeDistributed ".*until Twice "dropper" dropped'):
        layers.TimeDistributed(layers.LSTM(2))(texts)
    steps = Twice()(embedding()(WORDS))  # whose mask is of the steps themselves
    inner = layers.TimeDistributed(layers.Dense(2))
    assert inner(steps).shape == (3, 5, 2)


def test_a_mixed_precision_cast_keeps_the_trace() -> None:
    x = dropping()(embedding()(WORDS))
    with pytest.raises(ValueError, match=message("LSTM")):
        layers.LSTM(2, dtype="bfloat16")(x)


def test_what_merges_and_ops_drop_is_advice_at_the_reader() -> None:
    x = keras.Input((5,))
    plain = layers.Embedding(5, 4)(ops.zeros_like(x))
    summed = layers.Add(name="meet")([embedding()(x), plain])
    with pytest.warns(AdviceWarning, match='mask until Add "meet" dropped') as seen:
        layers.LSTM(2)(summed)
    assert len(seen) == 1
    with pytest.warns(AdviceWarning, match="mask until the op Multiply dropped"):
        layers.LSTM(2)(embedding()(x) * 2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layers.LSTM(2)(embedding()(x)[:, 1:])  # other steps
        layers.LSTM(2)(embedding()(x) * 2.0, mask=ops.not_equal(x, 0))
        layers.Dense(2)(embedding()(x) * 2.0)


def test_models_from_files_work_as_they_were_trained(tmp_path: Any) -> None:
    x = keras.Input((5,))
    lost = dropping()(embedding()(x))
    reader = layers.LSTM(2)
    reader.accepts_dropped_mask = True  # as if Keras had made it
    model = keras.Model(x, reader(lost))
    expected = model.predict(WORDS, verbose=0)
    for name in ("model.keras", "model.h5"):
        model.save(tmp_path / name)
        again = keras.models.load_model(tmp_path / name)
        np.testing.assert_array_equal(again.predict(WORDS, verbose=0), expected)
        assert keras.models.clone_model(again).predict(WORDS, verbose=0).shape == (3, 2)
    fresh = keras.Sequential.from_config(
        {"layers": [keras.saving.serialize_keras_object(one) for one in Sub().parts]}
    )
    assert fresh(WORDS).shape == (3, 2)


def test_masking_leaves_out_steps_whose_features_all_have_its_value():
    x = np.asarray([[[0.0, 1.0], [0.0, 0.0], [2.0, 3.0]]], "float32")
    y = layers.Masking()(x)
    assert y.tolist() == x.tolist()
    assert y._keras_mask.tolist() == [[True, False, True]]
    y = layers.Masking(2.0)(np.asarray([[[2.0, 2.0], [2.0, 3.0]]], "float32"))
    assert y.tolist() == [[[0.0, 0.0], [2.0, 3.0]]]
    assert y._keras_mask.tolist() == [[False, True]]
