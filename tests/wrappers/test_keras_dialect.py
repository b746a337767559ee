"""Keras's own scikit-learn estimators."""

import numpy as np
import pytest
from estimator_cases import parametrize_with_checks
from sklearn.base import clone
from sklearn.datasets import make_classification, make_regression
from sklearn.pipeline import make_pipeline

import kerasish as keras
from kerasish.wrappers import SKLearnClassifier, SKLearnRegressor, SKLearnTransformer


def seeded(seed):
    return keras.initializers.GlorotUniform(seed=seed)


def chain(X, width, last, loss):
    model = keras.Sequential(
        [
            keras.Input((X.shape[1],)),
            keras.layers.Dense(16, activation="relu", kernel_initializer=seeded(1)),
            keras.layers.Dense(width, activation=last, kernel_initializer=seeded(2)),
        ]
    )
    model.compile(keras.optimizers.Adam(0.02), loss)
    return model


def make_classifier(X, y, loss="categorical_crossentropy"):
    return chain(X, y.shape[1], "softmax", loss)


def make_regressor(X, y):
    return chain(X, y.shape[1] if y.ndim > 1 else 1, None, "mse")


def make_transformer(X, y=None):
    model = keras.Sequential([keras.Input((X.shape[1],)), keras.layers.Dense(3)])
    model.compile("adam", "mse")
    return model


def test_classifier_learns():
    X, y = make_classification(200, 10, random_state=0)
    labels = np.array(["no", "yes"])[y]
    given = {"epochs": 1, "batch_size": 16}
    classifier = SKLearnClassifier(make_classifier, fit_kwargs=given).fit(X, labels, epochs=20)
    assert classifier.score(X, labels) > 0.9
    assert classifier.epoch_ == 20 and classifier.predict_proba(X).shape == (200, 2)


def test_regressor_learns():
    X, y = make_regression(200, 5, random_state=0)
    y = y / y.std()
    regressor = SKLearnRegressor(make_regressor).fit(X, y, epochs=60)
    assert regressor.score(X, y) > 0.9 and regressor.predict(X).shape == (200,)


def test_a_model_is_cloned_unless_warm():
    X, y = make_classification(60, 4, random_state=0)
    model = make_classifier(X, np.eye(2)[y])
    before = model.get_weights()
    fitted = SKLearnClassifier(model).fit(X, y)
    assert fitted.model_ is not model
    for old, now in zip(before, model.get_weights()):
        np.testing.assert_array_equal(old, now)
    assert SKLearnClassifier(model, warm_start=True).fit(X, y).model_ is model


def test_transformer_in_a_pipeline():
    X, _ = make_classification(60, 4, random_state=0)
    transformer = SKLearnTransformer(make_transformer)
    with pytest.raises(ValueError, match="loss"):
        make_pipeline(clone(transformer)).fit(X)
    result = clone(transformer).fit(X, np.zeros((60, 3)))
    assert result.transform(X).shape == (60, 3)
    assert result.get_feature_names_out().tolist() == [f"sklearntransformer{i}" for i in range(3)]


def test_models_must_come_compiled():
    X, y = make_classification(20, 4, random_state=0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    with pytest.raises(RuntimeError, match="compiled"):
        SKLearnClassifier(model).fit(X, y)


def test_unknown_kinds_of_model_are_told():
    with pytest.raises(TypeError, match="model: expected"):
        SKLearnRegressor(3).fit([[1.0]], [1.0])


@parametrize_with_checks(
    [
        # They have no random_state: seeded weights and unshuffled rows repeat a fit.
        SKLearnClassifier(make_classifier, fit_kwargs={"epochs": 15, "shuffle": False}),
        SKLearnRegressor(make_regressor, fit_kwargs={"epochs": 30, "shuffle": False}),
    ],
)
@pytest.mark.filterwarnings("default")
def test_checks(estimator, check):
    check(estimator)
