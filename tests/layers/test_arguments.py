"""What layers refuse when they are made, and what they take."""

from __future__ import annotations

import inspect
import pydoc

import numpy as np
import pytest

import kerasish
from kerasish import layers
from kerasish.errors import ShapeError


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("Embedding", {"input_dim": 2.0, "output_dim": 3}),
        ("Embedding", {"input_dim": 4, "output_dim": True}),
        ("Embedding", {"input_dim": -4, "output_dim": 3}),
        ("GroupNormalization", {"groups": 0}),
        ("GroupNormalization", {"groups": 2.5}),
        ("Dropout", {"rate": 0.5, "noise_shape": "all"}),
        ("Dropout", {"rate": 0.5, "noise_shape": (None, 1.5)}),
        ("Dropout", {"rate": 0.5, "noise_shape": (2, 0)}),
        ("Cropping1D", {"cropping": (2,)}),
        ("Cropping1D", {"cropping": "2"}),
        ("ZeroPadding1D", {"padding": (1, 1, 1)}),
        ("ZeroPadding2D", {"padding": ((1, 1), (1, 1, 1))}),
        ("UpSampling1D", {"size": 0}),
        ("UpSampling2D", {"size": (2, 3, 4)}),
        ("UpSampling2D", {"size": 0}),
        ("UpSampling3D", {"size": (2, 3)}),
        ("UpSampling3D", {"size": (2, 3, 0)}),
        ("RepeatVector", {"n": -1}),
        ("Reshape", {"target_shape": (3, -4)}),
        ("Reshape", {"target_shape": (-1, 2, -1)}),
        ("ConvLSTM2D", {"filters": 1, "kernel_size": 2, "strides": 2, "dilation_rate": (1, 2)}),
        ("Dense", {"units": 2, "trainable": "no"}),
    ],
)
def test_wrong_values_are_refused(name, arguments):
    with pytest.raises(ValueError, match=f"{name[:8]}.* "):
        getattr(layers, name)(**arguments)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("UpSampling1D", {"size": 1.5}), ("LayerNormalization", {"axis": {"axis": 1}})],
)
def test_wrong_types_are_refused(name, arguments):
    with pytest.raises(TypeError, match=f"{name} "):
        getattr(layers, name)(**arguments)


def test_an_activation_may_be_taken_away():
    x = np.array([[-1.0, 2.0]])
    for layer, data in (
        (layers.Dense(3, activation="relu"), x),
        (layers.EinsumDense("ab,bc->ac", 3, activation="relu"), x),
        (layers.Conv1D(2, 1, activation="relu"), x[..., None]),
    ):
        layer.build(data.shape)
        layer.set_weights([-np.ones(w.shape) for w in layer.weights])
        assert layer(data).numpy().min() == 0
        layer.activation = None
        assert layer(data).numpy().min() < 0
        assert type(layer).from_config(layer.get_config())(data).shape == layer(data).shape


def test_einsum_bias_before_unnamed_axes():
    layer = layers.EinsumDense("ab...,bcd->acd...", (2, 3), bias_axes="c")
    layer.build((4, 5, 6, 7))
    assert layer.bias.shape == (2, 1, 1, 1)
    assert layer(np.ones((4, 5, 6, 7))).shape == (4, 2, 3, 6, 7)


def test_reshape_takes_sizes_that_are_not_known_yet():
    inputs = layers.Input((None,), dtype="int32")
    outputs = layers.Reshape((3, 2))(inputs)
    assert outputs.shape == (None, 3, 2) and outputs.dtype == "int32"
    model = kerasish.Model(inputs, outputs)
    assert model(np.arange(12).reshape(2, 6)).shape == (2, 3, 2)
    with pytest.raises(ShapeError, match="do not fit"):
        model(np.arange(10).reshape(2, 5))


@pytest.mark.parametrize("sizes", [(3, 4), (2, 5), (3, 4, 1)])
def test_time_distributed_looks_at_the_mask(sizes):
    layer = layers.TimeDistributed(layers.Dense(2))
    mask = np.ones(sizes, bool)
    if sizes[:2] == (3, 4):
        assert layer(np.ones((3, 4, 5)), mask=mask).shape == (3, 4, 2)
        return
    with pytest.raises(ShapeError, match="mask"):
        layer(np.ones((3, 4, 5)), mask=mask)


def test_softmax_keeps_to_its_mask():
    x = np.array([[1.0, 1.0, 5.0], [2.0, 3.0, 4.0]])
    kept = np.array([[True, True, False], [False, False, False]])
    expected = [[0.5, 0.5, 0], [0, 0, 0]]
    for mask in (kept, kept.astype("float32")):
        np.testing.assert_allclose(layers.Softmax()(x, mask=mask).numpy(), expected)
    for wrong in (np.ones((1, 2, 3)), np.ones((3, 3))):
        with pytest.raises(ShapeError, match="mask"):
            layers.Softmax()(x, mask=wrong)


def test_inputs_from_tensors():
    tensor = kerasish.KerasTensor((2, 3), "int32")
    layer = layers.InputLayer(input_tensor=tensor)
    assert layer.output is tensor and layer.batch_shape == (2, 3) and layer.dtype == "int32"
    for wrong in (
        {"input_tensor": np.ones(3)}, {"input_tensor": tensor, "shape": (4,)},
        {"batch_shape": (2, 3), "batch_size": 2}, {"batch_shape": (2, 3), "shape": (3,)},
        {"input_tensor": tensor, "dtype": "float32"}, {"input_tensor": tensor, "batch_size": 4},
    ):  # fmt: skip
        with pytest.raises(ValueError, match="InputLayer "):
            layers.InputLayer(**wrong)
    with pytest.warns(UserWarning, match="old name of `shape`"):
        assert layers.InputLayer(input_shape=(3,)).batch_shape == (None, 3)


@pytest.mark.parametrize("mask", [np.ones((1, 2)), [np.ones((1, 2))]])
@pytest.mark.parametrize("name", ["Attention", "AdditiveAttention"])
def test_attention_takes_masks_of_query_and_value(name, mask):
    x = np.ones((1, 2, 3))
    with pytest.raises(ValueError, match="takes the masks"):
        getattr(layers, name)()([x, x], mask=mask)


SHARED = [  # layers whose arguments are declared per family, with those that have no default
    ("Dense", {"units": 2}), ("EinsumDense", {"equation": "ab,bc->ac", "output_shape": 2}),
    ("Conv1D", {"filters": 2, "kernel_size": 3}), ("Conv2D", {"filters": 2, "kernel_size": 3}),
    ("Conv3D", {"filters": 2, "kernel_size": 3}), ("DepthwiseConv1D", {"kernel_size": 3}),
    ("DepthwiseConv2D", {"kernel_size": 3}), ("SeparableConv1D", {"filters": 2, "kernel_size": 3}),
    ("SeparableConv2D", {"filters": 2, "kernel_size": 3}),
    ("Conv1DTranspose", {"filters": 2, "kernel_size": 3}),
    ("Conv2DTranspose", {"filters": 2, "kernel_size": 3}),
    ("Conv3DTranspose", {"filters": 2, "kernel_size": 3}),
    ("MaxPooling2D", {}), ("AveragePooling3D", {"pool_size": 2}),
    ("BatchNormalization", {}), ("LayerNormalization", {}), ("GroupNormalization", {}),
    ("MultiHeadAttention", {"num_heads": 2, "key_dim": 3}),
    ("GroupQueryAttention", {"head_dim": 2, "num_query_heads": 4, "num_key_value_heads": 2}),
    ("SimpleRNN", {"units": 2}), ("SimpleRNNCell", {"units": 2}), ("GRU", {"units": 2}),
    ("GRUCell", {"units": 2}), ("LSTM", {"units": 2}), ("LSTMCell", {"units": 2}),
    ("ConvLSTM1D", {"filters": 2, "kernel_size": 3}),
    ("ConvLSTM2D", {"filters": 2, "kernel_size": 3}), ("RandomRotation", {"factor": 0.5}),
    ("RandomShear", {}),
]  # fmt: skip
OTHERS = {
    "_initializer": "ones", "_regularizer": "l2", "_constraint": "non_neg", "dropout": 0.25,
    "use_bias": False, "padding": "same", "seed": 3, "return_sequences": True,
}  # fmt: skip


@pytest.mark.parametrize(("name", "required"), SHARED, ids=[name for name, _ in SHARED])
def test_arguments_by_position_are_those_by_name(name, required):
    kind = getattr(layers, name)
    parameters = [p for n, p in inspect.signature(kind).parameters.items() if n != "kwargs"]
    given = {p.name: required.get(p.name, p.default) for p in parameters}
    for argument in given:
        _, _, what = argument.rpartition("_")
        given[argument] = OTHERS.get(argument, OTHERS.get(f"_{what}", given[argument]))
    by_place = kind(*given.values()).get_config()
    by_name = kind(**given).get_config()
    assert {**by_place, "name": ""} == {**by_name, "name": ""}
    for argument, value in given.items():
        if value == "l2" and argument != "activity_regularizer":
            assert by_place[argument]["class_name"] == "L2", argument


@pytest.mark.parametrize(("name", "required"), SHARED, ids=[name for name, _ in SHARED])
def test_signature_and_help_show_every_argument(name, required):
    kind = getattr(layers, name)
    parameters = inspect.signature(kind).parameters
    shown = pydoc.render_doc(kind, renderer=pydoc.plaintext)
    assert "options" not in parameters and "kwargs" in parameters
    for argument, parameter in parameters.items():
        assert parameter.annotation is not parameter.empty, argument
        assert f"{argument}: " in shown, argument
        required_too = parameter.default is parameter.empty and argument != "kwargs"
        assert required_too == (argument in required), argument


def test_the_defaults_per_axis_are_those_of_the_rank():
    def default(name, argument):
        return inspect.signature(getattr(layers, name)).parameters[argument].default

    assert [default(f"Conv{n}D", "strides") for n in (1, 2, 3)] == [1, (1, 1), (1, 1, 1)]
    assert [default(f"MaxPooling{n}D", "pool_size") for n in (1, 2, 3)] == [2, (2, 2), (2, 2, 2)]
    assert default("Conv3DTranspose", "dilation_rate") == (1, 1, 1)

    class Mine(layers.Conv2D):
        def __init__(self, width=2, **kwargs):
            super().__init__(width, 3, **kwargs)

    assert list(inspect.signature(Mine).parameters) == ["width", "kwargs"]
    assert Mine(4, strides=2).strides == (2, 2)


def test_wrong_arguments_of_a_family_are_named():
    with pytest.raises(TypeError, match="activation is given twice|multiple values"):
        layers.LSTM(2, "tanh", activation="relu")
    with pytest.raises(TypeError, match="kernel_initializer is given twice"):
        layers.Dense(2, None, True, "ones", kernel_initializer="zeros")
    with pytest.raises(TypeError, match="Dense takes 13 arguments by position at most, got 14"):
        layers.Dense(*[None] * 14)
    with pytest.raises(TypeError, match=r"Conv2D: unexpected argument.*kernel_initialiser"):
        layers.Conv2D(2, 3, kernel_initialiser="ones")
    with pytest.raises(ValueError, match="time_major=True"):
        layers.GRU(2, time_major=True)


@pytest.mark.parametrize("make", [layers.Activation, lambda a: layers.Dense(2, activation=a)])
def test_an_activation_that_takes_more_than_a_tensor_is_refused(make):
    with pytest.raises(ValueError, match=r"it takes x, threshold, default_value\. .* lambda x:"):
        make("threshold")


def test_a_misspelled_argument_gets_a_suggestion():
    with pytest.raises(TypeError, match=r"Did you mean 'activation'\?"):
        layers.Dense(3, activaton="relu")
    with pytest.raises(TypeError, match=r"\['quux'\]; it takes \[.*\]\.$"):
        layers.Dense(3, quux=1)
