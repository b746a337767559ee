"""What newcomers get wrong: an error or one line of advice each, and silence for the correct twin.

Each case is a function of `wrong`: with True it makes the mistake, with False the same program is
correct. Where the mistake is a warning, the case returns what trains again: that stays silent.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import kerasish as keras
from kerasish import layers
from kerasish.engine.diagnostics import graph_walk
from kerasish.errors import AdviceWarning, ShapeError, UnknownNameError

RNG = np.random.default_rng(7)
N = 60
X = RNG.normal(size=(N, 4)).astype("float32")
LABELS = np.arange(N) % 3
ONE_HOT = np.eye(3, dtype="float32")[LABELS]
BINARY = (np.arange(N) % 2).astype("float32")
MEASURES = RNG.normal(size=(N, 1)).astype("float32")
PICTURES = RNG.random((N, 6, 6, 3)).astype("float32")
BYTES = RNG.integers(0, 256, (N, 6, 6, 3)).astype("uint8")
WORDS = RNG.integers(1, 9, (N, 5))
STEPS = RNG.normal(size=(N, 5, 2)).astype("float32")
SPARSE, ONE_HOT_LOSS = "sparse_categorical_crossentropy", "categorical_crossentropy"


class Case(NamedTuple):
    run: Callable[[bool], Any]
    kind: type
    says: tuple[str, ...]


CASES: dict[str, Case] = {}


def mistake(kind: type, *says: str) -> Callable[[Any], Any]:
    """Add a case: what the mistake gives, and regular expressions that its text must match."""

    def add(run: Callable[[bool], Any]) -> Callable[[bool], Any]:
        CASES[run.__name__] = Case(run, kind, says)
        return run

    return add


def net(*stack: Any, shape: Any = (4,)) -> Any:
    return keras.Sequential([keras.Input(shape), *stack])


def softmax(units: int = 3) -> Any:
    return layers.Dense(units, activation="softmax")


def sigmoid() -> Any:
    return layers.Dense(1, activation="sigmoid")


def train(model: Any, loss: Any, y: Any, x: Any = X, metrics: Any = None, **fit: Any) -> Any:
    """Train once; return what trains again."""
    model.compile("sgd", loss, metrics=metrics)

    def once() -> Any:
        return model.fit(x, y, verbose=0, **fit)

    once()
    return once


# --- labels and losses ---------------------------------------------------------------------------


@mistake(ValueError, "y: sparse_cat", "0 to 2", "1 to 3", r"y = y - 1")
def labels_from_one(wrong):
    return train(net(softmax()), SPARSE, LABELS + 1 if wrong else LABELS)


@mistake(ValueError, "0 to 2", "-1 to 2", r"ignore_class=-1")
def a_negative_label(wrong):
    y = LABELS.copy()
    y[3] = -1
    loss = SPARSE if wrong else keras.losses.SparseCategoricalCrossentropy(ignore_class=-1)
    return train(net(softmax()), loss, y)


@mistake(ValueError, "0 to 2", "0 to 20", "21 units")
def more_labels_than_units(wrong):
    return train(net(softmax()), SPARSE, LABELS * 10 if wrong else LABELS)


@mistake(ValueError, "class numbers", "got 0.5", "regression")
def fractions_as_labels(wrong):
    return train(net(softmax()), SPARSE, LABELS + 0.5 if wrong else LABELS.astype("float32"))


@mistake(ValueError, "1 output", "sigmoid", "binary_crossentropy")
def sparse_loss_over_one_unit(wrong):
    model = net(sigmoid())
    return train(model, SPARSE if wrong else "binary_crossentropy", LABELS % 2)


@mistake(ShapeError, r"y: mean_squared_error", r"\(32,\)", r"\(32, 3\)", "1 unit")
def a_vector_against_three_outputs(wrong):
    return train(net(layers.Dense(3 if wrong else 1)), "mse", MEASURES[:, 0])


@mistake(ShapeError, r"y: mean_absolute_error", r"\(32, 1\)", r"\(32, 3\)", "1 unit")
def a_column_against_three_outputs(wrong):
    return train(net(layers.Dense(3 if wrong else 1)), "mae", MEASURES)


@mistake(ShapeError, r"\(32, 3\)", r"\(32, 1\)", r"3 unit")
def three_targets_against_one_output(wrong):
    return train(net(layers.Dense(1 if wrong else 3)), "mse", np.tile(MEASURES, (1, 3)))


@mistake(ShapeError, "y: categorical_crossentropy", "sparse_cat", r"to_categorical\(y, 3\)")
def numbers_with_the_one_hot_loss(wrong):
    return train(net(softmax()), ONE_HOT_LOSS, LABELS if wrong else ONE_HOT)


@mistake(ShapeError, "y: sparse_cat", "'categorical_crossentropy'", "argmax")
def one_hot_with_the_sparse_loss(wrong):
    return train(net(softmax()), SPARSE, ONE_HOT if wrong else LABELS)


@mistake(ShapeError, "binary_crossentropy", r"\(32, 3\)", "sparse_categorical_crossentropy")
def class_numbers_with_binary_loss(wrong):
    loss = "binary_crossentropy" if wrong else SPARSE
    return train(net(softmax()), loss, LABELS)


@mistake(ShapeError, r"\(32, 5, 1\)", "return_sequences=False")
def an_answer_a_step_for_a_target_a_sequence(wrong):
    stack = [layers.LSTM(3, return_sequences=wrong), layers.Dense(1)]
    return train(net(*stack, shape=(5, 2)), "mse", MEASURES, STEPS)


@mistake(ShapeError, r"\(32, 4, 4, 3\)", "Flatten")
def no_flatten_before_the_last_layer(wrong):
    stack = [layers.Conv2D(2, 3), *([] if wrong else [layers.Flatten()]), softmax()]
    return train(net(*stack, shape=(6, 6, 3)), SPARSE, LABELS, PICTURES)


@mistake(AdviceWarning, "from 0 to 1", "got -1 to 1", r"\(y \+ 1\) / 2")
def signs_with_binary_loss(wrong):
    return train(net(sigmoid()), "binary_crossentropy", BINARY * 2 - 1 if wrong else BINARY)


@mistake(AdviceWarning, "from 0 to 1", "got 1 to 2", "y - 1")
def binary_labels_from_one(wrong):
    return train(net(sigmoid()), "binary_crossentropy", BINARY + 1 if wrong else BINARY)


@mistake(AdviceWarning, "2 classes at once", "sigmoid")
def several_labels_with_softmax(wrong):
    y = ONE_HOT.copy()
    y[0] = [1, 1, 0]
    if wrong:
        return train(net(softmax()), ONE_HOT_LOSS, y)
    return train(net(layers.Dense(3, activation="sigmoid")), "binary_crossentropy", y)


@mistake(AdviceWarning, "hinge", "-1 and 1", "0 to 2")
def many_classes_with_hinge(wrong):
    return train(net(layers.Dense(1)), "hinge", LABELS if wrong else BINARY)


@mistake(AdviceWarning, "poisson", ">= 0", "mse")
def negative_counts_with_poisson(wrong):
    y = np.abs(MEASURES)
    return train(net(layers.Dense(1, "softplus")), "poisson", -y if wrong else y)


@mistake(AdviceWarning, "percentage", "some are 0", "mae")
def zeros_with_percentage_error(wrong):
    return train(net(layers.Dense(1)), "mape", BINARY if wrong else BINARY + 1)


# --- the last layer ------------------------------------------------------------------------------


@mistake(AdviceWarning, "from_logits=False", "activation='linear'", "softmax")
def no_softmax(wrong):
    return train(net(layers.Dense(3) if wrong else softmax()), SPARSE, LABELS)


@mistake(AdviceWarning, "from_logits=False", "activation='relu'", "softmax")
def relu_instead_of_softmax(wrong):
    last = layers.Dense(3, activation="relu") if wrong else layers.Dense(3, "softmax")
    return train(net(last), ONE_HOT_LOSS, ONE_HOT)


@mistake(AdviceWarning, "from_logits=False", "activation='linear'", "sigmoid")
def no_sigmoid(wrong):
    loss = keras.losses.BinaryCrossentropy(from_logits=not wrong)
    return train(net(layers.Dense(1)), loss, BINARY)


@mistake(AdviceWarning, "from_logits=True", "activation='softmax' already")
def softmax_twice(wrong):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=wrong)
    return train(net(softmax()), loss, LABELS)


@mistake(AdviceWarning, "from_logits=True", "activation='sigmoid' already")
def sigmoid_twice(wrong):
    loss = keras.losses.BinaryCrossentropy(from_logits=wrong)
    return train(net(layers.Dense(1), layers.Activation("sigmoid")), loss, BINARY)


@mistake(AdviceWarning, "1 unit", "always 1", "sigmoid")
def softmax_over_one_unit(wrong):
    last = layers.Dense(1, activation="softmax" if wrong else "sigmoid")
    return train(net(last), "binary_crossentropy", BINARY)


@mistake(AdviceWarning, "'relu'", "cannot", "linear")
def relu_for_negative_targets(wrong):
    return train(net(layers.Dense(1, activation="relu")), "mse", MEASURES * (1 if wrong else 0))


@mistake(AdviceWarning, "'sigmoid'", "from 0 to 1", "linear")
def sigmoid_for_large_targets(wrong):
    return train(net(sigmoid()), "mse", BINARY * (50 if wrong else 1))


@mistake(AdviceWarning, "metrics: 'accuracy'", "mean_squared_error", "mae")
def accuracy_of_a_regression(wrong):
    metric = "accuracy" if wrong else "mae"
    return train(net(layers.Dense(1)), "mse", MEASURES, metrics=[metric])


@mistake(AdviceWarning, "metrics: 'accuracy'", "logits", r"threshold=0\.0")
def accuracy_of_logits(wrong):
    metric = "accuracy" if wrong else keras.metrics.BinaryAccuracy(threshold=0.0)
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    return train(net(layers.Dense(1)), loss, BINARY, metrics=[metric])


@mistake(ShapeError, "metrics: 'precision'", "one-hot")
def precision_of_class_numbers(wrong):
    loss, y = (SPARSE, LABELS) if wrong else (ONE_HOT_LOSS, ONE_HOT)
    return train(net(softmax()), loss, y, metrics=[keras.metrics.Precision(name="precision")])


# --- the data ------------------------------------------------------------------------------------


def with_one(value: float, a: Any = X) -> Any:
    result = a.copy()
    result.flat[9] = value
    return result


@mistake(AdviceWarning, "x holds NaN in row 2, column 1", "nan_to_num")
def nan_in_x(wrong):
    return train(net(layers.Dense(1)), "mse", MEASURES, with_one(np.nan) if wrong else X)


@mistake(AdviceWarning, "x holds Inf in row 2, column 1")
def inf_in_x(wrong):
    return train(net(layers.Dense(1)), "mse", MEASURES, with_one(np.inf) if wrong else X)


@mistake(AdviceWarning, "y holds NaN in row 9, column 0", "loss will be NaN")
def nan_in_y(wrong):
    y = with_one(np.nan, MEASURES)
    return train(net(layers.Dense(1)), "mse", y if wrong else MEASURES)


@mistake(AdviceWarning, "loss is nan", "x holds NaN in row 2, column 1")
def nan_that_a_layer_of_the_users_meets(wrong):
    stack = [layers.Lambda(lambda t: t * 2), layers.Dense(1)]
    return train(net(*stack), "mse", MEASURES, with_one(np.nan) if wrong else X)


@mistake(AdviceWarning, "sample_weight is 0")
def weights_of_nothing(wrong):
    weights = np.full(N, 0.0 if wrong else 1.0)
    return train(net(layers.Dense(1)), "mse", MEASURES, sample_weight=weights)


@mistake(AdviceWarning, "sample_weight holds NaN in row 9")
def weights_of_nan(wrong):
    weights = with_one(np.nan if wrong else 1.0, np.ones(N))
    return train(net(layers.Dense(1)), "mse", MEASURES, sample_weight=weights)


@mistake(AdviceWarning, "pixels from 0 to 255", "Conv2D", r"Rescaling\(1 / 255\)")
def bytes_of_pictures(wrong):
    first = [] if wrong else [layers.Rescaling(1 / 255)]
    stack = [*first, layers.Conv2D(2, 3), layers.Flatten(), softmax()]
    return train(net(*stack, shape=(6, 6, 3)), SPARSE, LABELS, BYTES)


@mistake(AdviceWarning, "pixels from 0 to 255", "Dense")
def bytes_of_flat_pictures(wrong):
    x = BYTES.astype("float32") / (1 if wrong else 255)
    return train(net(layers.Flatten(), softmax(), shape=(6, 6, 3)), SPARSE, LABELS, x)


@mistake(AdviceWarning, r"reaches 1.6e\+09 unscaled", "Normalization")
def a_time_stamp_among_the_inputs(wrong):
    x = X.copy()
    x[:, 2] += 1.6e9 if wrong else 1.6
    return train(net(layers.Dense(1)), "mse", MEASURES, x)


@mistake(AdviceWarning, "channels first", "channels_last", "transpose")
def channels_first(wrong):
    x = RNG.random((N, 3, 7, 7) if wrong else (N, 7, 7, 3))
    stack = [layers.Conv2D(2, 3), layers.Flatten(), softmax()]
    return train(net(*stack, shape=x.shape[1:]), SPARSE, LABELS, x)


@mistake(ValueError, r"x: Embedding", "input_dim=5", "1 to 8", "input_dim=9")
def words_beyond_the_embedding(wrong):
    stack = [layers.Embedding(5 if wrong else 9, 2), layers.Flatten(), softmax()]
    return train(net(*stack, shape=(5,)), SPARSE, LABELS, WORDS)


@mistake(AdviceWarning, "Embedding", "integers", "Dense")
def measures_into_an_embedding(wrong):
    x = WORDS[:, :4] / (2 if wrong else 1)
    stack = [layers.Embedding(9, 2), layers.Flatten(), softmax()]
    return train(net(*stack), SPARSE, LABELS, x)


@mistake(ValueError, "x: expected numbers", "row 0, column 1", "'a'")
def strings_among_the_inputs(wrong):
    x = np.array([[1, "a" if wrong else 2, 3, 4]] * N, dtype=object)
    return train(net(layers.Dense(1)), "mse", MEASURES, x)


@mistake(ValueError, "y: expected numbers", "strings into numbers")
def strings_as_labels(wrong):
    names = np.array(["a", "b", "c"])[LABELS]
    y = names if wrong else np.unique(names, return_inverse=True)[1]
    return train(net(softmax()), SPARSE, y)


@mistake(ValueError, "x: expected nested lists", "pad_sequences")
def lists_of_unequal_length(wrong):
    return train(
        net(layers.Dense(1), shape=(2,)), "mse", [1, 2], [[1, 2], [3] if wrong else [3, 4]]
    )


@mistake(ValueError, "x: 60", "y: 59")
def fewer_targets_than_rows(wrong):
    return train(net(layers.Dense(1)), "mse", MEASURES[:-1] if wrong else MEASURES)


@mistake(ValueError, "loss", "no targets y")
def forgotten_targets(wrong):
    return train(net(layers.Dense(1)), "mse", None if wrong else MEASURES)


@mistake(AdviceWarning, "validation_split=0.2", "last 12 of 60", "class 2 only there", "Shuffle")
def a_split_of_sorted_labels(wrong):
    y = np.repeat([0, 1, 2], [24, 24, 12]) if wrong else LABELS
    return train(net(softmax()), SPARSE, y, validation_split=0.2)


@mistake(AdviceWarning, "class 0, 1 not there")
def a_split_of_sorted_one_hot_labels(wrong):
    y = np.eye(3)[np.sort(LABELS) if wrong else LABELS]
    return train(net(softmax()), ONE_HOT_LOSS, y, validation_split=0.2)


@mistake(UserWarning, "generator", "ran out of data in epoch 2", "while True")
def a_generator_that_runs_dry(wrong):
    def batches():
        for _ in range(1 if wrong else 3):
            yield X, MEASURES

    model = net(layers.Dense(1))
    model.compile("sgd", "mse")
    model.fit(batches(), steps_per_epoch=1, epochs=3, verbose=0)


@mistake(ValueError, "function", r"x=f\(\)")
def a_generator_not_called(wrong):
    def batches():
        yield X, MEASURES

    return train(net(layers.Dense(1)), "mse", None, batches if wrong else batches()) and None


@mistake(ValueError, "validation_split", "validation_data")
def a_split_of_a_generator(wrong):
    options = {"validation_split": 0.2} if wrong else {"validation_data": (X, MEASURES)}
    train(net(layers.Dense(1)), "mse", None, iter([(X, MEASURES)]), **options)


# --- shapes of models ----------------------------------------------------------------------------


@mistake(ShapeError, r"must have shape \(None, 4\)", r"got \(4,\)", r"x\[None\]")
def one_example_without_a_batch(wrong):
    assert net(layers.Dense(1)).predict(X[0] if wrong else X[:1], verbose=0).shape == (1, 1)


@mistake(ShapeError, r"\(None, 60, 4\)", r"\(32, 4\)", "leaves the batch axis out")
def the_batch_in_the_inputs_shape(wrong):
    model = net(layers.Dense(1), shape=X.shape if wrong else X.shape[1:])
    assert model.predict(X, verbose=0).shape == (N, 1)


@mistake(ShapeError, r"Conv2D.*4 axes", r"x\[\.\.\., None\]")
def pictures_without_channels(wrong):
    assert net(layers.Conv2D(2, 3), shape=(6, 6) if wrong else (6, 6, 1)).built


@mistake(ShapeError, "LSTM", "3 axes", "return_sequences=True")
def recurrent_layers_stacked(wrong):
    assert net(layers.LSTM(2, return_sequences=not wrong), layers.LSTM(2), shape=(5, 2)).built


@mistake(ShapeError, "MaxPooling2D", "window of 4", "padding='same'")
def pictures_pooled_away(wrong):
    size = 4 if wrong else 2
    assert net(layers.MaxPooling2D(4), layers.MaxPooling2D(size), shape=(8, 8, 1)).built


@mistake(ShapeError, r"Add.*\(None, 2\)", r"\(None, 3\)", "Concatenate")
def sums_of_unequal_shapes(wrong):
    inputs = [keras.Input((2,)), keras.Input((3 if wrong else 2,))]
    assert layers.Add()(inputs).shape == (None, 2)


@mistake(ValueError, "depend on the input", "not among")
def a_model_of_unconnected_parts(wrong):
    a, b = keras.Input((2,)), keras.Input((2,))
    assert keras.Model(a, layers.Dense(1)(b if wrong else a)).built


@mistake(ValueError, "two layers are called 'twin'")
def two_layers_of_one_name(wrong):
    names = ("twin", "twin" if wrong else "other")
    assert keras.Sequential([layers.Dense(1, name=n) for n in names]).layers


@mistake(ValueError, "the class Dense", r"Dense\(\.\.\.\)")
def a_class_instead_of_a_layer(wrong):
    assert keras.Sequential([layers.Dense if wrong else layers.Dense(1)]).layers


@mistake(TypeError, "truth value", "ops.where")
def an_if_on_a_symbolic_tensor(wrong):
    x = keras.Input((2,))
    positive = x > 0
    y = (x if positive else -x) if wrong else keras.ops.where(positive, x, -x)
    assert y.shape == (None, 2)


@mistake(TypeError, "NumPy functions", "kerasish.ops")
def numpy_on_a_symbolic_tensor(wrong):
    assert (np if wrong else keras.ops).sqrt(keras.Input((2,))).shape == (None, 2)


@mistake(RuntimeError, "A has no", r"super\(\).__init__\(\)")
def a_layer_without_its_parents_init(wrong):
    class A(keras.layers.Layer):
        def __init__(self):
            if not wrong:
                super().__init__()
            self.dense = layers.Dense(1)

        def call(self, x):
            return self.dense(x)

    assert A()(X).shape == (N, 1)


@mistake(NotImplementedError, "no call", "write one")
def a_model_without_call(wrong):
    class A(keras.Model):
        pass

    class B(keras.Model):
        def call(self, x):
            return x

    assert (A if wrong else B)()(X).shape == X.shape


@mistake(ValueError, "symbolic tensors", r"Input\(shape\)", r"fit\(\)")
def data_instead_of_inputs(wrong):
    x = keras.Input((4,))
    assert (keras.Model(X, MEASURES) if wrong else keras.Model(x, layers.Dense(1)(x))).built


@mistake(AdviceWarning, "Conv1D", "mask", "does not support masking", "LSTM")
def a_mask_dropped(wrong):
    middle = layers.Conv1D(2, 2) if wrong else layers.LSTM(2, return_sequences=True)
    last = layers.GlobalMaxPooling1D() if wrong else layers.LSTM(2)
    stack = [layers.Embedding(9, 2, mask_zero=True), middle, last, softmax()]
    return train(net(*stack, shape=(5,)), SPARSE, LABELS, WORDS)


@mistake(ValueError, 'LSTM "reads"', 'Twice "drops" dropped', "supports_masking", "mask_zero=False")
def a_mask_dropped_before_a_reader(wrong):
    class Twice(keras.Layer):
        def call(self, x):
            return 2 * x

    twice = Twice(name="drops")
    twice.supports_masking = not wrong
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*does not support masking")  # said before
        stack = [layers.Embedding(9, 2, mask_zero=True), twice, layers.LSTM(2, name="reads")]
        assert net(*stack, shape=(5,)).built


@mistake(AdviceWarning, 'LSTM "reads"', 'Add "meets" dropped', "inputs all carry masks")
def a_mask_merged_away(wrong):
    x = keras.Input((5,))
    places = keras.Input((5,))
    parts = [layers.Embedding(9, 2, mask_zero=n == 0 or not wrong) for n in range(2)]
    summed = layers.Add(name="meets")([parts[0](x), parts[1](places)])
    read = layers.LSTM(2, name="reads")
    model = keras.Model([x, places], softmax()(read(summed)))
    return train(model, SPARSE, LABELS, [WORDS, WORDS])


# --- settings ------------------------------------------------------------------------------------


@mistake(UnknownNameError, "loss: 'mean_sqared_error'", "'mean_squared_error'")
def a_loss_misspelt(wrong):
    return train(net(layers.Dense(1)), "mean_sqared_error" if wrong else "mse", MEASURES)


@mistake(UnknownNameError, "optimizer: 'adm'", "'adam'")
def an_optimizer_misspelt(wrong):
    net(layers.Dense(1)).compile("adm" if wrong else "adam", "mse")


@mistake(UnknownNameError, "metric: 'acuracy'", "'accuracy'")
def a_metric_misspelt(wrong):
    name = "acuracy" if wrong else "accuracy"
    return train(net(softmax()), SPARSE, LABELS, metrics=[name])


@mistake(UnknownNameError, "activation: 'rleu'", "'relu'")
def an_activation_misspelt(wrong):
    layers.Dense(1, activation="rleu" if wrong else "relu")


@mistake(UserWarning, "no 'val_lss'", "loss")
def a_monitor_misspelt(wrong):
    name = "val_lss" if wrong else "val_loss"
    stop = keras.callbacks.EarlyStopping(monitor=name, mode="min")
    model = net(layers.Dense(1))
    model.compile("sgd", "mse")
    model.fit(X, MEASURES, epochs=2, verbose=0, callbacks=[stop], validation_split=0.2)


@mistake(UserWarning, "no 'val_loss'", "validation data")
def validation_monitored_without_validation(wrong):
    data = None if wrong else (X, MEASURES)
    model = net(layers.Dense(1))
    model.compile("sgd", "mse")
    stop = keras.callbacks.EarlyStopping()
    model.fit(X, MEASURES, verbose=0, callbacks=[stop], validation_data=data)


@mistake(ValueError, "metrics must be a list", "'mae'")
def metrics_not_in_a_list(wrong):
    return train(net(layers.Dense(1)), "mse", MEASURES, metrics="mae" if wrong else ["mae"])


@mistake(ValueError, "call compile")
def fit_before_compile(wrong):
    model = net(layers.Dense(1))
    if not wrong:
        model.compile("sgd", "mse")
    model.fit(X, MEASURES, verbose=0)


@mistake(ValueError, "no loss")
def no_loss(wrong):
    return train(net(layers.Dense(1)), None if wrong else "mse", MEASURES)


@mistake(AdviceWarning, "trainable=False of Dense", "after compile", "compile")
def frozen_after_training_began(wrong):
    model = net(layers.Dense(2), layers.Dense(1))
    once = train(model, "mse", MEASURES)
    model.layers[0].trainable = False
    if not wrong:
        model.compile("sgd", "mse")
    once()
    return once


@mistake(AdviceWarning, "trainable=False of Dense", "after compile", "compile")
def frozen_after_compile(wrong):
    model = net(layers.Dense(2), layers.Dense(1))
    if not wrong:
        model.layers[0].trainable = False
    model.compile("sgd", "mse")
    model.layers[0].trainable = False
    model.fit(X, MEASURES, verbose=0)


@mistake(AdviceWarning, "no weight is trainable", "trainable=True")
def everything_frozen(wrong):
    model = net(layers.Dense(1))
    model.trainable = not wrong
    return train(model, "mse", MEASURES)


@mistake(ValueError, "unexpected argument 'lr'", "learning_rate")
def the_old_name_of_the_learning_rate(wrong):
    keras.optimizers.Adam(**{"lr" if wrong else "learning_rate": 0.1})


@mistake(ValueError, "learning_rate", ">= 0", "-0.1")
def a_negative_learning_rate(wrong):
    keras.optimizers.Adam(-0.1 if wrong else 0.1)


@mistake(ValueError, "learning_rate", "'0.1'")
def a_learning_rate_in_quotes(wrong):
    keras.optimizers.Adam("0.1" if wrong else 0.1)


@mistake(ValueError, "Adam", "new optimizer")
def one_optimizer_for_two_models(wrong):
    optimizer = keras.optimizers.Adam()
    for units in (1, 2):
        model = net(layers.Dense(units))
        model.compile(optimizer if wrong else keras.optimizers.Adam(), "mse")
        model.fit(X, np.tile(MEASURES, (1, units)), verbose=0)


@mistake(ValueError, "Dropout", "rate", "got 50")
def percent_of_dropout(wrong):
    layers.Dropout(50 if wrong else 0.5)


@mistake(ValueError, "units", ">= 1", "got 2.5")
def units_that_are_no_number(wrong):
    layers.Dense(2.5 if wrong else 2)


@mistake(ValueError, "regularizer", "0.01", "float")
def a_number_as_regularizer(wrong):
    layers.Dense(1, kernel_regularizer=0.01 if wrong else keras.regularizers.L2(0.01))


@mistake(ValueError, "validation_split", "between 0 and 1", "20")
def percent_of_validation(wrong):
    share = 20 if wrong else 0.2
    return train(net(layers.Dense(1)), "mse", MEASURES, validation_split=share)


@mistake(ValueError, "epochs", "2.5")
def epochs_that_are_no_number(wrong):
    return train(net(layers.Dense(1)), "mse", MEASURES, epochs=2.5 if wrong else 2)


@mistake(ValueError, "batch_size", "positive", "got 0")
def no_rows_in_a_batch(wrong):
    return train(net(layers.Dense(1)), "mse", MEASURES, batch_size=0 if wrong else 32)


@mistake(ValueError, "class_weight", "dict", "list")
def class_weights_in_a_list(wrong):
    weights = [1, 2, 3] if wrong else {0: 1, 1: 2, 2: 3}
    return train(net(softmax()), SPARSE, LABELS, class_weight=weights)


@mistake(TypeError, "callbacks", r"EarlyStopping\(\)")
def a_class_among_the_callbacks(wrong):
    kind = keras.callbacks.TerminateOnNaN
    if wrong:
        kind = keras.callbacks.EarlyStopping
    return train(net(layers.Dense(1)), "mse", MEASURES, callbacks=[kind if wrong else kind()])


@mistake(ValueError, "ModelCheckpoint", r"\.keras", "model.pt")
def a_checkpoint_of_another_kind(wrong):
    keras.callbacks.ModelCheckpoint("model.pt" if wrong else "model.keras")


# --- the tests -----------------------------------------------------------------------------------

PLAIN = {  # no training in them: one engine is enough
    name for name, case in CASES.items() if "train" not in case.run.__code__.co_names
    and "fit" not in case.run.__code__.co_names
}  # fmt: skip
RUNS = [
    (name, engine)
    for name in CASES
    for engine in (("static",) if name in PLAIN else ("eager", "static"))
]


def test_the_catalogue_is_long():
    assert len(CASES) >= 40


@pytest.mark.parametrize(("name", "engine"), RUNS)
def test_the_mistake_is_said(name, engine):
    case = CASES[name]
    keras.config.set_backend(engine)
    if issubclass(case.kind, Warning):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            again = case.run(True)
            result = [w for w in caught if issubclass(w.category, case.kind)]
            texts = [str(w.message) for w in caught]
            if again is not None:
                again()
        assert len(result) == 1 and len(texts) == 1, texts
        assert len(caught) == 1, f"said again: {[str(w.message) for w in caught[1:]]}"
        assert caught[0].filename.endswith("test_mistakes.py") or case.kind is UserWarning
        text = texts[0]
    else:
        with pytest.raises(case.kind) as error:
            case.run(True)
        text = str(error.value)
    assert "\n" not in text
    for part in case.says:
        assert re.search(part, text), text


@pytest.mark.parametrize(("name", "engine"), RUNS)
def test_the_correct_twin_stays_silent(name, engine):
    keras.config.set_backend(engine)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        CASES[name].run(False)
    assert not caught, [str(w.message) for w in caught]


def test_a_layer_with_a_call_of_its_own_has_no_role():
    class Other(layers.Softmax):
        def call(self, inputs):
            return inputs

    class Wide(layers.Dense):
        def call(self, inputs):
            return inputs

    class Wider(Wide):
        pass

    class Same(layers.Layer):
        def call(self, inputs):
            return inputs

    class Mixed(Same, layers.Dense):
        pass

    assert layers.Dense(2).layer_role == layers.Dense.layer_role == "dense"
    assert Wide(2).layer_role == Wider(2).layer_role == Mixed.layer_role == ""
    x = keras.Input((3,))
    assert graph_walk.last_layer(keras.Model(x, layers.Softmax()(x)), 0)[1] == "softmax"
    assert graph_walk.last_layer(keras.Model(x, Other()(x)), 0)[1] == ""
