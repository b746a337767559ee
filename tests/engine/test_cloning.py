"""Models made of other models: clones, parts of a graph, Sequentials that grow and shrink."""

from __future__ import annotations

import json

import numpy as np
import pytest

import kerasish
from kerasish import Input, Model, Sequential, layers, saving
from kerasish.models import clone_model

X = np.random.RandomState(5).rand(4, 3).astype("float32")


def chain():
    x = Input((3,), name="start")
    first = layers.Dense(5, name="first")(x)
    last = layers.Dense(2, name="last")(layers.Dense(4, name="middle")(first))
    return Model(x, last), first, last


def test_a_part_of_a_graph_is_a_model_of_its_own(engine, tmp_path):
    model, first, last = chain()
    part = Model(first, last)
    assert [type(layer).__name__ for layer in part.layers] == ["InputLayer", "Dense", "Dense"]
    assert part.layers[1] is model.get_layer("middle")
    hidden = model.get_layer("first")(X)
    np.testing.assert_allclose(part(hidden), model(X), rtol=1e-6)
    part.save(tmp_path / "part.keras")
    again = saving.load_model(tmp_path / "part.keras")
    np.testing.assert_allclose(again.predict(hidden.numpy(), verbose=0), model(X), rtol=1e-5)


def test_a_part_may_begin_at_an_input_and_inside():
    x, y = Input((3,)), Input((2,))
    inside = layers.Dense(2)(x)
    total = layers.Add()([inside, y])
    part = Model([inside, y], total)
    ones = np.ones((1, 2), "float32")
    assert part([ones, 2 * ones]).numpy().tolist() == [[3.0, 3.0]]
    assert part.inputs[1] is y


def test_clones_are_compiled_alike():
    model, _, _ = chain()
    model.compile(kerasish.optimizers.Adam(0.25), "mae", metrics=["mse"])
    clone = clone_model(model)
    assert clone.compiled and clone.loss == "mae"
    assert clone.optimizer is not model.optimizer
    assert float(clone.optimizer.learning_rate) == 0.25
    clone.fit(X, X[:, :2], verbose=0)
    assert int(model.optimizer.iterations) == 0
    assert not clone_model(chain()[0]).compiled


def test_a_compile_config_is_text():
    model, _, _ = chain()
    model.compile(kerasish.optimizers.SGD(0.5), "mse", metrics=["mae"])
    config = json.loads(json.dumps(model.get_compile_config()))
    other, _, _ = chain()
    other.compile_from_config(config)
    assert float(other.optimizer.learning_rate) == 0.5
    assert set(other.evaluate(X, X[:, :2], verbose=0, return_dict=True)) == {"loss", "mae"}


def test_clones_ask_for_the_calls_inside_nested_models():
    x = Input((3,))
    inner, _, _ = chain()
    model = Model(x, layers.Dense(1)(inner(x)))

    def call(layer, *args, **kwargs):
        result = layer(*args, **kwargs)
        return layers.Dropout(0.5)(result) if isinstance(layer, layers.Dense) else result

    clone = clone_model(model, call_function=call, clone_function=lambda x: x, recursive=True)
    kinds = [type(layer).__name__ for layer in clone.layers[1].layers]
    assert kinds == ["InputLayer", *["Dense", "Dropout"] * 3]
    assert [type(layer).__name__ for layer in clone.layers[2:]] == ["Dense", "Dropout"]


def test_clones_start_from_tensors_of_the_same_structure():
    x, y = Input((3,)), Input((3,))
    model = Model({"x": x, "y": y}, x + y)
    assert list(clone_model(model, input_tensors={"x": y, "y": x}).input) == ["x", "y"]
    with pytest.raises(ValueError, match="structures differ"):
        clone_model(model, input_tensors=[x, y])
    start = Input((3,))
    clone = clone_model(Sequential([layers.Dense(2)]), input_tensors=start)
    assert clone.inputs[0] is start
    assert clone.output_shape == (None, 2)


def test_a_frozen_model_freezes_no_layer_of_its_config():
    x = Input((3,))
    model = Model(x, layers.Dense(2)(x), trainable=False)
    again = Model.from_config(model.get_config())
    assert again.get_config() == model.get_config()
    assert again.trainable_variables == model.trainable_variables == []
    again.trainable = True
    assert len(again.trainable_variables) == 2


def test_sequentials_stay_built_while_they_change(engine):
    model = Sequential([layers.Dense(4), layers.Dense(5)])
    model(X)
    model.pop()
    assert model.built and len(model.weights) == 2
    assert model(X).shape == (4, 4)
    model.add(layers.Dense(6))
    assert model.output_shape == (None, 6)
    assert model.predict(X, verbose=0).shape == (4, 6)


def test_sequentials_of_layers_without_shapes():
    class Shapeless(layers.Layer):
        def call(self, x):
            return x + 1

        def compute_output_spec(self, *args, **kwargs):
            raise NotImplementedError

    model = Sequential([Shapeless(), Shapeless()])
    np.testing.assert_allclose(model(X), X + 2, rtol=1e-6)


def test_lists_for_inputs_with_names():
    a, b = Input((3,), name="b"), Input((3,), name="a")
    model = Model({"b": a, "a": b}, layers.Subtract()([a, b]))
    with pytest.raises(ValueError, match=r"names \['b', 'a'\], got a list; give a dict"):
        model([X, 2 * X])
    np.testing.assert_allclose(model({"b": 2 * X, "a": X}), X)
    with pytest.warns(kerasish.errors.AdviceWarning, match=r"\['zz'\] are not used") as caught:
        model({"b": 2 * X, "a": X, "zz": X})
    assert caught[0].filename == __file__
    a, b = Input((3,)), Input((3,))
    with pytest.warns(kerasish.errors.AdviceWarning, match=r"read in the order \['p', 'q'\]"):
        result = Model({"p": a, "q": b}, layers.Subtract()([a, b]))([3 * X, X])
    np.testing.assert_allclose(result, 2 * X, rtol=1e-6)


def test_inputs_that_are_not_optional():
    a, b = Input((3,), name="a"), Input((3,), name="b", optional=True)

    class Plus(layers.Layer):
        def call(self, x, y=None):
            return x if y is None else x + y

        def compute_output_shape(self, x_shape):
            return x_shape

    model = Model([a, b], Plus()(a, b))
    np.testing.assert_allclose(model([X, None]), X)
    with pytest.raises(ValueError, match="input 'a' is not optional"):
        model([None, X])


def test_export_to_no_known_format():
    with pytest.raises(ValueError, match="has no format 'zip'"):
        chain()[0].export("x", format="zip")


@pytest.mark.parametrize("kind", [tuple, list])
def test_structures_of_outputs_come_back(kind):
    x = Input((3,))
    model = Model(x, kind([layers.Dense(2)(x), layers.Dense(1)(x)]))
    assert type(Model.from_config(model.get_config())(X)) is kind


def test_inputs_have_their_declared_dtype():
    half, whole = Input((3,), dtype="float16"), Input((3,), dtype="int32")
    model = Model([half, whole], [half * 2, whole * 2])
    doubled, numbers = model([X.astype("float64"), np.full((4, 3), 2.75)])
    assert doubled.dtype == "float16"
    assert numbers.dtype == "int32" and numbers.numpy().max() == 4
    many = np.array([[2**24 + 1]])
    assert Model(*[Input((1,))] * 2)(many).numpy().tolist() == [[2**24 + 1]]


def test_a_batch_size_binds_no_other_batch(engine):
    x = Input((3,), batch_size=2)
    model = Model(x, layers.Dense(2)(x))
    assert model(X).shape == (4, 2)
    assert model.predict(X, verbose=0).shape == (4, 2)
    with pytest.raises(ValueError, match=r"must have shape \(2, 3\), got \(4, 2\)"):
        model(X[:, :2])


def test_a_layers_input_and_output_are_those_of_its_first_call():
    layer = layers.Dense(2)
    x, y = Input((3,)), Input((3,))
    first = layer(x)
    layer(y)
    assert layer.input is x and layer.output is first
    with pytest.raises(ValueError, match="never called"):
        _ = layers.Dense(2).output
