"""Estimators: a model_fn and input functions, as TensorFlow's."""

import numpy as np
import pytest

import kerasish as keras
from kerasish import layers, losses, metrics, ops
from kerasish.estimator import (
    Estimator,
    EstimatorSpec,
    EvalSpec,
    ModeKeys,
    TrainSpec,
    train_and_evaluate,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(256, 4)).astype("float32")
Y = (X[:, 0] + X[:, 1] > 0).astype("int32")


def model_fn(features, labels, mode, params):
    hidden = layers.Dense(params["units"], activation="tanh")(features["x"])
    logits = layers.Dense(2)(hidden)
    predictions = {"class": ops.argmax(logits, axis=-1), "share": ops.softmax(logits)}
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions=predictions)
    loss = ops.mean(losses.sparse_categorical_crossentropy(labels, logits, from_logits=True))
    accuracy = (metrics.Accuracy(), labels, predictions["class"])
    return EstimatorSpec(
        mode, predictions=predictions, loss=loss, optimizer=keras.optimizers.Adam(0.02),
        eval_metric_ops={"accuracy": accuracy},
    )  # fmt: skip


def batches(size=32):
    return ((({"x": X[i : i + size]}), Y[i : i + size]) for i in range(0, len(X), size))


def endless():
    while True:
        yield from batches()


def test_train_evaluate_predict():
    keras.utils.set_random_seed(0)
    estimator = Estimator(model_fn, params={"units": 8})
    first = estimator.train(endless, steps=1).evaluate(batches)
    estimator.train(endless, max_steps=120)
    scores = estimator.evaluate(batches)
    assert scores["global_step"] == estimator.global_step == 120
    assert scores["loss"] < first["loss"] / 2 and scores["accuracy"] > 0.95
    rows = list(estimator.predict(lambda: iter([({"x": X[:7]}, None)])))
    assert len(rows) == 7 and rows[0]["share"].shape == (2,)
    whole = list(estimator.predict(lambda: {"x": X}))
    assert np.mean([r["class"] for r in whole] == Y) == pytest.approx(scores["accuracy"])
    estimator.train(batches)
    assert estimator.global_step == 128


def test_train_and_evaluate_goes_on_from_its_folder(tmp_path):
    def run(most):
        estimator = Estimator(model_fn, tmp_path, {"units": 8})
        began = estimator.global_step
        train, test = TrainSpec(endless, max_steps=most), EvalSpec(batches, steps=4, every=10)
        return began, train_and_evaluate(estimator, train, test)

    began, first = run(80)
    assert began == 0 and first["global_step"] == 80
    assert len(list(tmp_path.glob("*.weights.h5"))) == 5
    began, again = run(80)
    assert began == 80 and again == first
    began, more = run(90)
    assert (began, more["global_step"]) == (80, 90)


def test_one_batch_serves_for_each_step():
    data = Estimator(model_fn, params={"units": 4})
    assert data.train(lambda: ({"x": X}, Y), steps=5).global_step == 5
    with pytest.raises(ValueError, match="one batch, without end"):
        data.train(lambda: ({"x": X}, Y))
    dataset = keras.data.Dataset.from_tensor_slices(({"x": X}, Y)).batch(64)
    assert data.train(lambda: dataset).global_step == 9


def other_layers(features, labels, mode):
    y = layers.Dense(1 if mode == ModeKeys.TRAIN else 2)(features)
    return EstimatorSpec(mode, predictions=y, loss=ops.mean(y), optimizer="sgd")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda features: 3, "must return an EstimatorSpec, got int"),
        (lambda features, mode: EstimatorSpec(mode), "a loss of one number.*shape None"),
        (lambda features, mode: EstimatorSpec(mode, loss=features), r"\(None, 4\): take its mean"),
        (lambda features, mode: EstimatorSpec(mode, loss=ops.mean(layers.Dense(1)(features))),
         "no optimizer"),
        (other_layers, "the same layers for each mode"),
    ],
)  # fmt: skip
def test_wrong_model_functions(function, message):
    estimator = Estimator(function)

    def both():
        estimator.train(lambda: (X, Y), steps=1)
        estimator.evaluate(lambda: (X, Y), steps=1)

    with pytest.raises((ValueError, TypeError), match=message):
        both()


def test_wrong_calls():
    estimator = Estimator(model_fn, params={"units": 4})
    with pytest.raises(TypeError, match="takes a function"):
        Estimator(3)
    with pytest.raises(ValueError, match="not both"):
        estimator.train(batches, steps=1, max_steps=1)
    with pytest.raises(ValueError, match="gave no batch"):
        estimator.evaluate(lambda: iter(()))
    with pytest.raises(ValueError, match="gave no batch"):
        train_and_evaluate(estimator, TrainSpec(lambda: iter(()), 5), EvalSpec(batches))
