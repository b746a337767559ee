"""What a layer says when something is missing, and where masks end."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import kerasish
from kerasish import layers
from kerasish.engine.diagnostics import AdviceWarning


class Empty(layers.Layer):
    pass


@pytest.mark.parametrize("use", [
    lambda layer: layer(np.ones((2, 3))),
    lambda layer: layer(layers.Input((3,))),
    lambda layer: layer.compute_output_shape((2, 3)),
    lambda layer: kerasish.Sequential([layers.Input((3,)), layer]),
])  # fmt: skip
def test_a_layer_without_call_says_so(use):
    with pytest.raises(NotImplementedError, match='Empty "empty.*does not have a `call` method'):
        use(Empty())


class Doubled(layers.Layer):
    def call(self, x):
        return 2 * x


class Counted(layers.Layer):
    def call(self, x, mask=None):
        return x if mask is None else x * kerasish.ops.cast(mask[..., None], "float32")


class Scales:
    """A mixin that defines what a layer or model computes."""

    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1],), initializer="ones", name="w")

    def call(self, x):
        return x * self.w


@pytest.mark.parametrize("base", [layers.Layer, kerasish.Model, Counted])
def test_a_mixin_may_bring_build_and_call(base):
    class Scaled(Scales, base):
        pass

    class Further(Scaled):
        pass

    for kind in (Scaled, Further):
        part = kind(name="part")
        np.testing.assert_array_equal(part(np.ones((2, 3)), training=True), np.ones((2, 3)))
        assert part.built and [w.path for w in part.weights] == ["part/w"]


@pytest.mark.parametrize("symbolic", [False, True])
def test_a_dropped_mask_is_said_once(symbolic):
    embedding, layer = layers.Embedding(5, 2, mask_zero=True), Doubled()
    x = layers.Input((3,), dtype="int32") if symbolic else np.array([[1, 2, 0]])
    with pytest.warns(AdviceWarning, match="supports_masking=True") as seen:
        results = [layer(embedding(x)) for _ in range(2)]
    assert len(seen) == 1 and getattr(results[0], "_keras_mask", None) is None


def test_a_mask_that_is_used_or_passed_on_is_no_mistake():
    embedded = layers.Embedding(5, 2, mask_zero=True)(np.array([[1, 2, 0]]))
    passing = Doubled()
    passing.supports_masking = True
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept = passing(embedded)
        counted = Counted()(embedded)
    assert kept._keras_mask is embedded._keras_mask
    np.testing.assert_array_equal(counted.numpy()[0, 2], [0, 0])
    assert np.abs(embedded.numpy()[0, 2]).min() > 0


@pytest.mark.parametrize("method", ["fit", "evaluate", "train_on_batch", "test_on_batch"])
def test_without_a_loss_there_is_none(method):
    """As in Keras: with only metrics no loss of 0 is reported."""
    model = kerasish.Sequential([layers.Input((3,)), layers.Dense(2)])
    model.compile("sgd", loss=None, metrics=["mae"])
    options = {"verbose": 0} if method in ("fit", "evaluate") else {}
    with pytest.raises(ValueError, match="no loss to minimize"):
        getattr(model, method)(np.ones((8, 3)), np.ones((8, 2)), **options)


def test_a_config_describes_its_objects():
    layer = layers.Conv1D(2, 3, activation="relu", kernel_regularizer="l2", dtype="bfloat16")
    config = layer.get_config()
    assert config["activation"] == "relu" and config["kernel_size"] == (3,)
    assert config["kernel_regularizer"]["class_name"] == "L2" and config["bias_constraint"] is None
    assert config["dtype"]["config"] == {"name": "bfloat16"}
    again = layers.Conv1D.from_config(config)
    assert again.activation is kerasish.activations.relu and again.compute_dtype == "bfloat16"


class Plus(layers.Layer):
    """A cell that nothing registers."""

    state_size = output_size = 2

    def __init__(self, step=1.0, **kwargs):
        super().__init__(**kwargs)
        self.step = step

    def call(self, inputs, states):
        new = states[0] + self.step
        return new, [new]


@pytest.mark.parametrize("wrapped", [
    lambda: layers.RNN(Plus(2.0)),
    lambda: layers.Bidirectional(layers.RNN(Plus(2.0)), merge_mode="sum"),
    lambda: layers.TimeDistributed(Doubled()),
    lambda: layers.Dense(2, activation=lambda x: x + 1.0),
])  # fmt: skip
def test_clones_need_no_registered_classes(wrapped):
    inputs = layers.Input((3, 2))
    model = kerasish.Model(inputs, wrapped()(inputs))
    clone = kerasish.models.clone_model(model)
    clone.set_weights(model.get_weights())
    x = np.arange(12.0).reshape(2, 3, 2)
    np.testing.assert_array_equal(clone(x).numpy(), model(x).numpy())
    assert clone.layers[1] is not model.layers[1]


@pytest.mark.parametrize("cls", [layers.ReLU, layers.Softmax, layers.MaxPooling1D, layers.Identity,
    layers.GlobalMaxPooling2D, layers.Masking, layers.UnitNormalization])  # fmt: skip
def test_what_has_nothing_to_build_is_built(cls):
    class Builds(cls):
        def build(self, input_shape):
            self.shift = self.add_weight(shape=(), initializer="zeros")

    assert cls().built and not Builds().built and not Doubled().built


class Penal(layers.Layer):
    def call(self, x):
        self.add_loss(kerasish.ops.sum(x))
        return x


def test_building_leaves_no_losses_behind():
    model = kerasish.Sequential([kerasish.Sequential([Penal()])])
    model(np.ones(3))
    assert [float(v) for v in model.losses] == [3.0]


def test_a_built_layer_takes_no_weights():
    class Late(layers.Layer):
        def call(self, x):
            self.w = self.add_weight(shape=(), name="late")
            return x

    with pytest.raises(ValueError, match='Late "late": it is built.*in __init__ or in build'):
        Late()(np.ones(2))


@pytest.mark.parametrize(("args", "named", "error", "match"), [
    (("kernel",), {"shape": (2,)}, ValueError, "keyword argument"),
    (((2,),), {"shape": (2,)}, ValueError, "by place and by name"),
    (((2,), "zeros", "float32", "kernel"), {}, TypeError, "at most"),
])  # fmt: skip
def test_add_weight_takes_three_arguments_by_place(args, named, error, match):
    with pytest.raises(error, match=match):
        Doubled().add_weight(*args, **named)
    created = Doubled().add_weight((2, 3), "ones", "int32")
    assert created.shape == (2, 3) and created.dtype == "int32" and created.numpy().min() == 1


def test_build_takes_shapes_of_arguments_that_call_has():
    class Two(layers.Layer):
        def build(self, x_shape, z_shape):
            self.sizes = (x_shape, z_shape)

        def call(self, x, y):
            return x + y

    with pytest.raises(ValueError, match="Two .*'z_shape'.*call takes"):
        Two()(np.ones(2), np.ones(2))


def test_policies_come_to_constructors_by_name():
    class Plain(layers.Dense):
        def __init__(self, *args, dtype=None, **kwargs):
            assert dtype is None or isinstance(dtype, str)
            super().__init__(*args, dtype=dtype, **kwargs)

    config = layers.Dense(2, dtype="mixed_bfloat16").get_config()
    assert Plain.from_config(config).compute_dtype == "bfloat16"


def test_the_policy_of_a_map_is_set_at_its_path():
    layer = layers.Dense(2, dtype=kerasish.dtype_policies.DTypePolicyMap())
    layer.build((None, 3))
    layer.dtype_policy = "mixed_bfloat16"
    assert isinstance(layer.dtype_policy, kerasish.dtype_policies.DTypePolicyMap)
    assert layer.dtype_policy[layer.path].name == "mixed_bfloat16"
    assert layer.compute_dtype == "bfloat16"


class Same(layers.Layer):
    supports_masking = True

    def call(self, x, mask=None):
        return x


@pytest.mark.parametrize("made", [Same, lambda: layers.LSTM(2, return_sequences=True)])
def test_a_mask_given_by_hand_goes_on(made):
    mask = np.array([[True, False]])
    result = made()(np.ones((1, 2, 3)), mask=mask)
    np.testing.assert_array_equal(np.asarray(result._keras_mask), mask)


def test_masks_of_tuples_are_tuples():
    class Sees(layers.Layer):
        supports_masking = True

        def call(self, x, x_mask=None, mask=None):
            self.seen = type(mask)
            return x[0]

    x = layers.Masking()(np.ones((1, 2, 3)))
    for kind in (list, tuple):
        layer = Sees()
        layer(kind([x, x]))
        assert layer.seen is kind


@pytest.mark.parametrize("eagerly", [True, False])
def test_a_sequential_model_without_input_takes_other_sizes(eagerly):
    model = kerasish.Sequential([layers.Conv1D(2, 2), layers.GlobalMaxPooling1D()])
    model.compile("sgd", "mse", run_eagerly=eagerly)
    for steps in (5, 3, 8):
        x = np.ones((2, steps, 1))
        assert model(x).shape == (2, 2) and model.predict(x, verbose=0).shape == (2, 2)
        model.fit(x, np.ones((2, 2)), verbose=0)
    with pytest.raises(ValueError, match="Conv1D|axes|channels|shape"):
        model(np.ones((2, 3, 4)))


class Scale(layers.Layer):
    """A layer whose methods call themselves something else than self."""

    def build(this, input_shape):  # noqa: N805
        this.w = this.add_weight(shape=(input_shape[-1],), initializer="ones")

    def call(this, x, mask=None, training=False):  # noqa: N805
        return x * this.w * (2.0 if training else 1.0)


def test_methods_may_name_their_first_argument_as_they_like():
    layer = Scale()
    np.testing.assert_array_equal(layer(np.ones((2, 3)), training=True), np.full((2, 3), 2.0))
    assert layer.get_build_config() == {"input_shape": (2, 3)}
    model = kerasish.Sequential([layers.Input((3,)), Scale()])
    assert model.output_shape == (None, 3)


@pytest.mark.parametrize(
    "make", [lambda: layers.Dense(3), lambda: kerasish.Sequential([layers.Dense(2)])]
)
def test_parameters_of_what_is_not_built_are_not_counted(make):
    thing = make()
    with pytest.raises(ValueError, match="not built"):
        thing.count_params()
    thing(np.ones((2, 4), "float32"))
    assert thing.count_params() == sum(int(np.prod(w.shape)) for w in thing.weights) > 0
