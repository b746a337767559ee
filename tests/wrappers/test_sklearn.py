"""The scikit-learn estimators: scikit-learn's own checks, data of all kinds, seeds, searches."""

import copy
import pickle

import joblib
import numpy as np
import pytest
from estimator_cases import parametrize_with_checks
from scipy import sparse
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import kerasish as keras
from kerasish.backends.static.codegen import kernels
from kerasish.backends.static.engine import COMPILED_PLANS
from kerasish.callbacks import EarlyStopping
from kerasish.errors import UnknownNameError
from kerasish.wrappers import KerasClassifier, KerasRegressor


def make_classifier(meta, units=16, rate=0.0):
    width = meta["n_outputs_expected_"]
    single = width == 1 or meta["target_type_"] == "multilabel-indicator"
    return chain(meta, units, rate, width, "sigmoid" if single else "softmax")


def make_regressor(meta, units=16, rate=0.0):
    return chain(meta, units, rate, meta["n_outputs_expected_"], None)


def chain(meta, units, rate, width, last):
    dtype = "float64" if meta["X_dtype_"] == np.float64 else "float32"
    return keras.Sequential(
        [
            keras.Input((meta["n_features_in_"],), dtype=dtype),
            keras.layers.Dense(units, activation="relu", dtype=dtype),
            keras.layers.Dropout(rate, dtype=dtype),
            keras.layers.Dense(width, activation=last, dtype=dtype),
        ]
    )


GIVEN = {"optimizer": "adam", "batch_size": -1, "epochs": 60}


@parametrize_with_checks(
    [
        KerasClassifier(make_classifier, optimizer__learning_rate=0.02, **GIVEN),
        KerasRegressor(make_regressor, optimizer__learning_rate=0.03, **GIVEN),
    ]
)
@pytest.mark.filterwarnings("default")  # scikit-learn counts the warnings that it wants
def test_checks_with_a_model(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([KerasClassifier(), KerasRegressor()])
@pytest.mark.filterwarnings("default")
def test_checks_without_a_model(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return (X[:400] / 16).astype("float32"), y[:400]


def quick(**settings):
    return KerasClassifier(random_state=0, **{"epochs": 4, "batch_size": 64, **settings})


def test_kinds():
    assert is_classifier(KerasClassifier()) and is_regressor(KerasRegressor())


def test_built_in_model_is_accurate():
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    classifier = KerasClassifier(random_state=0).fit(X[::2], y[::2])
    assert classifier.score(X[1::2], y[1::2]) > 0.95
    assert 1 <= classifier.n_iter_ <= 200


def test_built_in_regressor_learns_unscaled_targets():
    X, y = load_diabetes(return_X_y=True)
    regressor = KerasRegressor(random_state=0, epochs=60).fit(X[:350], y[:350])
    assert regressor.score(X[350:], y[350:]) > 0.4


def test_routed_parameters_arrive(digits):
    classifier = quick(
        model=make_classifier,
        model__units=24,
        optimizer="sgd",
        optimizer__learning_rate=0.25,
        fit__batch_size=100,
        callbacks=EarlyStopping,
        callbacks__patience=7,
        callbacks__monitor="loss",
    ).fit(*digits)
    assert classifier.model_.layers[0].units == 24
    assert float(classifier.model_.optimizer.learning_rate) == 0.25
    assert int(classifier.model_.optimizer.iterations) == 4 * 4
    assert clone(classifier).get_params() == classifier.get_params()


def test_bare_parameters_reach_the_function(digits):
    classifier = quick(model=make_classifier, units=9).fit(*digits)
    assert classifier.model_.layers[0].units == 9


@pytest.mark.parametrize(
    ("settings", "near"),
    [
        ({"model": make_classifier, "model__unit": 3}, "model__units"),
        ({"optimizer__learning_rat": 0.1}, "optimizer__learning_rate"),
        ({"fit__batchsize": 3}, "fit__batch_size"),
        ({"callbacks": EarlyStopping, "callbacks__patiense": 3}, "callbacks__patience"),
        ({"batchsize": 3}, "batch_size"),
        ({"hidden_layer_size": 3}, "hidden_layer_sizes"),
    ],
)
def test_misspelt_parameters_list_the_nearest(digits, settings, near):
    with pytest.raises(UnknownNameError, match=near):
        quick(**settings).fit(*digits)


def test_set_params_refuses_unknown_names():
    with pytest.raises(ValueError, match="batch_size"):
        KerasClassifier().set_params(batchsize=3)
    assert KerasClassifier().set_params(model__units=3).get_params()["model__units"] == 3


def test_build_fn_is_told_to_be_old(digits):
    with pytest.warns(DeprecationWarning, match="build_fn"):
        quick(build_fn=make_classifier).fit(*digits)


def test_settings_without_effect_are_told(digits):
    def ready(meta):
        model = make_classifier(meta)
        model.compile("adam", "sparse_categorical_crossentropy")
        return model

    with pytest.warns(UserWarning, match="optimizer has no effect"):
        quick(model=ready, optimizer__learning_rate=0.5).fit(*digits)


def test_a_model_is_copied(digits):
    model = make_classifier(
        {
            "n_outputs_expected_": 10,
            "n_features_in_": 64,
            "target_type_": "multiclass",
            "X_dtype_": np.dtype("float32"),
        }
    )
    model.compile("adam", "categorical_crossentropy")
    before = model.get_weights()
    classifier = quick(model=model).fit(*digits)
    for old, now in zip(before, model.get_weights()):
        np.testing.assert_array_equal(old, now)
    assert classifier.predict_proba(digits[0]).shape == (400, 10)


@pytest.mark.parametrize("labels", [["a", "b"], ["x", "y", "z"]])
def test_labels_of_text(digits, labels):
    X, y = digits
    y = np.array(labels)[y % len(labels)]
    classifier = quick().fit(X, y)
    assert classifier.classes_.tolist() == labels
    assert set(classifier.predict(X)) <= set(labels)
    proba = classifier.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_array_equal(classifier.classes_[proba.argmax(1)], classifier.predict(X))
    np.testing.assert_allclose(np.exp(classifier.predict_log_proba(X)), proba)
    scores = classifier.decision_function(X)
    assert scores.shape == ((400,) if len(labels) == 2 else (400, 3))


def test_multi_label(digits):
    X, y = digits
    Y = np.stack([y % 2, y > 4], axis=1).astype(int)
    classifier = quick(epochs=20).fit(X, Y)
    assert classifier.predict(X).shape == Y.shape
    assert classifier.score(X, Y) > 0.7


def test_multi_output(digits):
    X, y = digits
    Y = np.stack([y % 3, y], axis=1)
    classifier = quick(epochs=20).fit(X, Y)
    assert [p.shape for p in classifier.predict_proba(X)] == [(400, 3), (400, 10)]
    assert classifier.score(X, Y) > 0.7


def test_multi_output_regression(digits):
    X, y = digits
    Y = np.stack([y, 100.0 - y], axis=1)
    regressor = KerasRegressor(random_state=0, epochs=40).fit(X, Y)
    assert regressor.predict(X).shape == Y.shape and regressor.score(X, Y) > 0.7


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_matrix, sparse.csr_array])
def test_sparse_rows(digits, kind):
    X, y = digits
    dense, thin = quick().fit(X, y), quick().fit(kind(X), y)
    np.testing.assert_array_equal(dense.predict_proba(X), thin.predict_proba(kind(X)))


def test_data_frames():
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(np.random.default_rng(0).normal(size=(60, 3)), columns=["a", "b", "c"])
    classifier = quick().fit(X, pandas.Series(X["a"] > 0))
    assert classifier.feature_names_in_.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        classifier.predict(X.rename(columns={"a": "z"}))


def test_weights_are_repetitions():
    rng = np.random.default_rng(0)
    X, y, w = rng.normal(size=(30, 4)), rng.integers(0, 3, 30), rng.integers(0, 4, 30)
    weighted = KerasClassifier(random_state=0).fit(X, y, sample_weight=w)
    repeated = KerasClassifier(random_state=0).fit(X.repeat(w, 0), y.repeat(w))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-6)


def test_balanced_classes(digits):
    X, y = digits
    rare = y == 3
    plain = quick(epochs=2).fit(X, rare)
    balanced = quick(epochs=2, class_weight="balanced").fit(X, rare)
    by_hand = quick(
        epochs=2, class_weight={False: 0.5 / (1 - rare.mean()), True: 0.5 / rare.mean()}
    ).fit(X, rare)
    assert balanced.predict_proba(X)[:, 1].mean() > plain.predict_proba(X)[:, 1].mean()
    np.testing.assert_allclose(
        balanced.predict_proba(X), by_hand.predict_proba(X), rtol=1e-4, atol=1e-6
    )


def test_class_weights_multiply_sample_weights(digits):
    X, y = digits
    weights, factors = 1.0 + np.arange(len(y)) % 3, {label: 1.0 + label for label in range(10)}
    both = quick(class_weight=factors).fit(X, y, sample_weight=weights)
    by_hand = quick().fit(X, y, sample_weight=weights * (1.0 + y))
    np.testing.assert_allclose(
        both.predict_proba(X), by_hand.predict_proba(X), rtol=1e-4, atol=1e-6
    )


def test_targets_of_weight_0_leave_no_trace():
    """Targets are standardized by the mean and deviation of those that count."""
    X, y = load_diabetes(return_X_y=True)
    weights = (np.arange(len(y)) % 3 > 0).astype(float)
    odd = np.where(weights > 0, y, 1e4)
    plain, result = (
        KerasRegressor(random_state=0, epochs=3).fit(X, t, sample_weight=weights) for t in (y, odd)
    )
    np.testing.assert_allclose(result.predict(X), plain.predict(X), rtol=1e-5)


def test_partial_fit_goes_on(digits):
    X, y = digits
    classifier = quick()
    classifier.partial_fit(X[:50], y[:50] % 5, classes=np.arange(10))
    classifier.partial_fit(X[50:], y[50:])
    assert classifier.n_iter_ == classifier.current_epoch == 2
    assert classifier.classes_.tolist() == list(range(10))
    with pytest.raises(ValueError, match="not among the known classes"):
        classifier.partial_fit(X, y + 1)


def test_warm_start_goes_on(digits):
    classifier = quick(warm_start=True).fit(*digits)
    first = classifier.history_["loss"][-1]
    classifier.fit(*digits)
    assert classifier.n_iter_ == 8 and classifier.history_["loss"][-1] < first
    assert quick().fit(*digits).fit(*digits).n_iter_ == 4


def test_best_epoch_of_early_stopping(digits):
    stopping = EarlyStopping("val_loss", patience=2, restore_best_weights=True)
    classifier = quick(
        epochs=60, validation_split=0.25, callbacks=stopping, optimizer__learning_rate=0.05
    ).fit(*digits)
    losses = classifier.history_["val_loss"]
    assert classifier.best_epoch_ == int(np.argmin(losses))
    assert classifier.n_iter_ == len(losses)
    assert stopping.best is None  # the one given is a parameter, and stays as it was


def test_the_best_epoch_counts_over_all_fits(digits):
    stopping = EarlyStopping("loss", patience=9)
    classifier = quick(epochs=3, warm_start=True, callbacks=stopping)
    for fits in (1, 2, 3):
        classifier.fit(*digits)
        losses = classifier.history_["loss"]
        assert len(losses) == classifier.n_iter_ == 3 * fits
        assert classifier.best_epoch_ == int(np.argmin(losses)) >= 3 * (fits - 1)


@pytest.mark.parametrize("save", [lambda e: pickle.loads(pickle.dumps(e)), copy.deepcopy])
@pytest.mark.parametrize("model", [None, make_classifier])
def test_copies_predict_and_train_alike(digits, save, model):
    X, y = digits
    classifier = quick(model=model, callbacks=EarlyStopping("loss", patience=3)).fit(X, y)
    copied = save(classifier)
    np.testing.assert_array_equal(copied.predict_proba(X), classifier.predict_proba(X))
    copied.partial_fit(X, y)
    classifier.partial_fit(X, y)
    np.testing.assert_array_equal(copied.predict_proba(X), classifier.predict_proba(X))


def test_pickles_are_small(digits, tmp_path):
    classifier = quick().fit(*digits)
    weights = 4 * sum(w.size for w in classifier.model_.get_weights())
    joblib.dump(classifier, tmp_path / "classifier.joblib")
    # Weights, and two moments of each for Adam.
    assert (tmp_path / "classifier.joblib").stat().st_size < 3 * weights + 30_000
    loaded = joblib.load(tmp_path / "classifier.joblib")
    np.testing.assert_array_equal(loaded.predict(digits[0]), classifier.predict(digits[0]))


@pytest.mark.parametrize("model", [None, make_classifier])
def test_a_seed_repeats_bit_for_bit(digits, model):
    X, y = digits
    routed = {"model__rate": 0.3} if model else {}
    first = quick(model=model, **routed).fit(X, y).predict_proba(X)
    keras.utils.set_random_seed(77)
    again = quick(model=model, **routed).fit(X, y).predict_proba(X)
    np.testing.assert_array_equal(first, again)
    other = clone(quick(model=model, **routed)).set_params(random_state=1).fit(X, y)
    assert (other.predict_proba(X) != first).any()


def test_fits_leave_the_seeds_of_the_process_alone(digits):
    keras.utils.set_random_seed(5)
    expected = [keras.config.next_seed() for _ in range(2)], np.random.rand()
    keras.utils.set_random_seed(5)
    first = keras.config.next_seed()
    quick(model=make_classifier, model__rate=0.2).fit(*digits)
    assert ([first, keras.config.next_seed()], np.random.rand()) == expected


def test_threads_give_the_same_fits(digits):
    def run(rate):
        fitted = quick(model=make_classifier, model__rate=rate).fit(*digits)
        return fitted.predict_proba(digits[0])

    rates = [0, 0.5, 0, 0.5, 0.2]
    alone = [run(rate) for rate in rates]
    beside = joblib.Parallel(4, prefer="threads")(joblib.delayed(run)(rate) for rate in rates)
    for result, expected in zip(beside, alone):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("parallel", [{}, {"n_jobs": 2}])
def test_search_over_a_pipeline(digits, parallel):
    X, y = digits
    pipeline = make_pipeline(StandardScaler(), quick(model=make_classifier))
    grid = {
        "kerasclassifier__model__units": [8, 32],
        "kerasclassifier__optimizer__learning_rate": [0.001, 0.02],
    }
    with joblib.parallel_config("threading" if parallel else "sequential"):
        search = GridSearchCV(pipeline, grid, cv=2, error_score="raise", **parallel).fit(X, y)
    assert search.best_params_ == {
        "kerasclassifier__model__units": 32,
        "kerasclassifier__optimizer__learning_rate": 0.02,
    }
    assert search.score(X, y) > 0.9
    assert cross_val_predict(search.best_estimator_, X, y, cv=2).shape == y.shape


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"hidden_layer_sizes": (0,)}, "hidden_layer_sizes"),
        ({"alpha": -1}, "alpha"),
        ({"model": 3}, "model: expected"),
        ({"model": lambda: 3}, "expected a Model"),
    ],
)
def test_bad_arguments_are_named(digits, settings, told):
    with pytest.raises((ValueError, TypeError), match=told):
        quick(**settings).fit(*digits)


def test_models_of_another_width_are_told(digits):
    def narrow(meta):
        return chain(meta, 4, 0, 3, "softmax")

    with pytest.raises(ValueError, match="3 outputs for 10 classes"):
        quick(model=narrow).fit(*digits)


def test_models_outlive_their_estimators(digits):
    classifier = quick().fit(*digits)
    expected, model = classifier.predict_proba(digits[0]), classifier.model_
    assert model.training_program.compiled_steps()
    del classifier
    assert not model.training_program.compiled_steps()  # freed at once
    result = np.exp(model.predict(digits[0], batch_size=1024, verbose=0))
    np.testing.assert_allclose(result / result.sum(1, keepdims=True), expected, rtol=1e-4)


def test_the_next_model_of_a_structure_compiles_nothing(digits):
    keras.config.set_backend("static")
    X, y = digits
    quick(model=make_classifier, model__units=11).fit(X, y).score(X, y)
    before = kernels.statistics.compiled
    for rate in (0.002, 0.03):
        other = quick(model=make_classifier, model__units=11, optimizer__learning_rate=rate)
        other.set_params(random_state=int(1000 * rate)).fit(X, y).score(X, y)
    assert kernels.statistics.compiled == before
    created = COMPILED_PLANS.count
    wider = quick(model=make_classifier, model__units=11, model__rate=0.5).fit(X, y)
    # Its kernels may be known from another model, or from the disk; what is made of them is new.
    assert wider.n_iter_ == 4 and COMPILED_PLANS.count > created
