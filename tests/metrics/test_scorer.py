"""scikit-learn's scorers as metrics: exact, on both engines, by name, function and object."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as sk

import kerasish
from kerasish import layers
from kerasish.errors import UnknownNameError
from kerasish.metrics import SklearnScorer

RNG = np.random.default_rng(3)
X = RNG.normal(size=(90, 4)).astype("float32")
LABELS = RNG.integers(0, 3, 90)


def classifier(metrics, units=3, loss="sparse_categorical_crossentropy", activation="softmax"):
    stack = [kerasish.Input((4,)), layers.Dense(units, activation=activation)]
    model = kerasish.Sequential(stack)
    model.compile("sgd", loss, metrics=metrics)
    return model


def test_scores_are_scikit_learns_for_any_batch_size(engine):
    model = classifier([SklearnScorer("f1_macro"), "accuracy", SklearnScorer("roc_auc_ovr")])
    model.fit(X, LABELS, verbose=0)
    shares = model.predict(X, verbose=0)
    for size in (7, 32, 90):
        result = model.evaluate(X, LABELS, batch_size=size, verbose=0, return_dict=True)
        assert result["f1_macro"] == sk.f1_score(LABELS, shares.argmax(1), average="macro")
        expected = sk.roc_auc_score(LABELS, shares, multi_class="ovr")
        assert result["roc_auc_ovr"] == pytest.approx(expected, rel=1e-6)
        assert result["accuracy"] == pytest.approx(np.mean(shares.argmax(1) == LABELS))


def test_fit_reports_validation_scores(engine):
    model = classifier(["accuracy", SklearnScorer("balanced_accuracy")])
    stop = kerasish.callbacks.EarlyStopping("val_balanced_accuracy", patience=9)
    history = model.fit(
        X, LABELS, epochs=2, validation_data=(X[:40], LABELS[:40]), verbose=0, callbacks=[stop]
    ).history
    expected = sk.balanced_accuracy_score(LABELS[:40], model.predict(X[:40], verbose=0).argmax(1))
    assert history["val_balanced_accuracy"][-1] == pytest.approx(expected)
    assert "balanced_accuracy" not in history and len(history["accuracy"]) == 2
    assert stop.best == max(history["val_balanced_accuracy"])


def test_generators_are_read_once(engine):
    model = classifier([SklearnScorer("accuracy")])
    batches = ((X[i : i + 30], LABELS[i : i + 30]) for i in (0, 30, 60))
    result = model.evaluate(batches, verbose=0, return_dict=True)
    assert result["accuracy"] == np.mean(model.predict(X, verbose=0).argmax(1) == LABELS)


@pytest.mark.parametrize(
    ("scorer", "name"),
    [
        (sk.accuracy_score, "accuracy_score"),
        (sk.make_scorer(sk.fbeta_score, beta=2, average="macro"), "fbeta_score"),
        (SklearnScorer("matthews_corrcoef", name="mcc"), "mcc"),
    ],
)
def test_scikit_learns_own_objects_can_be_given(engine, scorer, name):
    model = classifier([scorer])
    result = model.evaluate(X, LABELS, verbose=0, return_dict=True)[name]
    labels = model.predict(X, verbose=0).argmax(1)
    expected = {
        "accuracy_score": sk.accuracy_score(LABELS, labels),
        "fbeta_score": sk.fbeta_score(LABELS, labels, beta=2, average="macro"),
        "mcc": sk.matthews_corrcoef(LABELS, labels),
    }
    assert result == pytest.approx(expected[name])


def test_binary_logits_and_one_hot_targets():
    y = (LABELS > 0).astype("float32")
    loss = kerasish.losses.BinaryCrossentropy(from_logits=True)
    scorers = [SklearnScorer(n, from_logits=True) for n in ("average_precision", "f1")]
    model = classifier(scorers, 1, loss, None)
    logits = model.predict(X, verbose=0)[:, 0]
    result = model.evaluate(X, y, verbose=0, return_dict=True)
    assert result["average_precision"] == pytest.approx(sk.average_precision_score(y, logits))
    assert result["f1"] == pytest.approx(sk.f1_score(y, logits > 0))
    score = SklearnScorer("accuracy")
    score.update_state(np.eye(3)[[0, 1, 2]], np.eye(3)[[0, 1, 1]])
    assert score.result() == pytest.approx(2 / 3)


def test_regression_weights_and_own_functions():
    y = X @ np.array([1.0, 2, 3, 4], "float32")
    weights = RNG.random(90)

    def worst(y_true, y_pred):
        return np.abs(y_true.ravel() - y_pred.ravel()).max()

    model = kerasish.Sequential([kerasish.Input((4,)), layers.Dense(1)])
    model.compile(
        "sgd", "mse", metrics=["mae", SklearnScorer("r2"), SklearnScorer(worst)],
        weighted_metrics=[SklearnScorer("neg_mean_absolute_error")],
    )  # fmt: skip
    result = model.evaluate(X, y, sample_weight=weights, verbose=0, return_dict=True)
    p = model.predict(X, verbose=0)[:, 0]
    assert result["r2"] == pytest.approx(sk.r2_score(y, p), rel=1e-5)
    assert result["worst"] == pytest.approx(np.abs(y - p).max(), rel=1e-6)
    expected = -sk.mean_absolute_error(y, p, sample_weight=weights.astype("float32"))
    assert result["neg_mean_absolute_error"] == pytest.approx(expected, rel=1e-5)


def test_names_come_back_from_a_config_and_unknown_ones_do_not_pass():
    for scorer in ("f1_macro", sk.accuracy_score):
        again = SklearnScorer.from_config(SklearnScorer(scorer).get_config())
        again.update_state([0, 1], [[0.9, 0.1], [0.2, 0.8]])
        assert again.result() == 1.0
    with pytest.raises(UnknownNameError, match="f1_macro"):
        SklearnScorer("f1_makro")
    assert np.isnan(SklearnScorer("accuracy").result())
    assert SklearnScorer(sk.mean_squared_error).direction == "down"
