"""The estimators inside scikit-learn's other tools: metadata routing, outputs, ensembles."""

import warnings

import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.experimental import enable_halving_search_cv
from sklearn.inspection import permutation_importance
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    cross_val_predict,
    cross_val_score,
    learning_curve,
    validation_curve,
)
from sklearn.multioutput import ClassifierChain, MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import kerasish as keras
from kerasish.wrappers import (
    KerasClassifier,
    KerasRegressor,
    SKLearnClassifier,
    SKLearnRegressor,
    SKLearnTransformer,
)


@pytest.fixture(scope="module")
def iris():
    assert enable_halving_search_cv is not None
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(150)
    return StandardScaler().fit_transform(X)[order], y[order]


def quick(**settings):
    given = {"hidden_layer_sizes": (16,), "epochs": 25, "batch_size": 32, "random_state": 0}
    return KerasClassifier(**{**given, "optimizer__learning_rate": 0.02, **settings})


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


class Asked(KerasClassifier):
    """Keeps what weights came to `fit`."""

    seen = []  # shared by clones

    def fit(self, X, y, sample_weight=None):
        self.seen.append(None if sample_weight is None else np.array(sample_weight))
        return super().fit(X, y, sample_weight=sample_weight)


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("wanted", [True, False])
def test_weights_are_routed_through_searches_and_pipelines(iris, wanted):
    X, y = iris
    weights = np.arange(150.0)
    Asked.seen.clear()
    asked = Asked(epochs=1, random_state=0).set_fit_request(sample_weight=wanted)
    scoring = make_scorer(accuracy_score).set_score_request(sample_weight=wanted)
    grid = {"asked__hidden_layer_sizes": [(4,), (8,)]}
    scaler = StandardScaler().set_fit_request(sample_weight=True)
    pipeline = make_pipeline(scaler, asked)
    created = GridSearchCV(pipeline, grid, cv=3, scoring=scoring, error_score="raise")
    created.fit(X, y, sample_weight=weights)
    assert len(Asked.seen) == 2 * 3 + 1
    assert [w is not None for w in Asked.seen] == [wanted] * 7
    if wanted:
        np.testing.assert_array_equal(Asked.seen[-1], weights)
        assert {len(w) for w in Asked.seen[:-1]} == {100}


@pytest.mark.usefixtures("routing")
def test_unrequested_weights_are_refused(iris):
    X, y = iris
    with pytest.raises(ValueError, match="sample_weight"):
        GridSearchCV(quick(), {"alpha": [1]}, cv=2).fit(X, y, sample_weight=np.ones(150))


@pytest.mark.usefixtures("routing")
def test_partial_fit_asks_for_classes_and_weights(iris):
    X, y = iris
    asked = quick().set_partial_fit_request(classes=True, sample_weight=True)
    assert clone(asked).partial_fit(X[:9], y[:9], classes=np.arange(3)).n_classes_ == 3


@pytest.mark.usefixtures("routing")
def test_weights_routed_weigh(iris):
    X, y = iris
    weights = np.where(y == 0, 50.0, 1.0)
    routed = make_pipeline(FunctionTransformer(), quick().set_fit_request(sample_weight=True))
    routed.fit(X, y, sample_weight=weights)
    direct = quick().fit(X, y, sample_weight=weights)
    np.testing.assert_array_equal(routed.predict_proba(X), direct.predict_proba(X))


def test_votes_of_several(iris):
    members = [("a", quick()), ("b", quick(random_state=1)), ("c", RidgeClassifier())]
    assert VotingClassifier(members).fit(*iris).score(*iris) > 0.9
    soft = VotingClassifier(members[:2], voting="soft").fit(*iris)
    expected = np.mean([m.predict_proba(iris[0]) for m in soft.estimators_], axis=0)
    np.testing.assert_allclose(soft.predict_proba(iris[0]), expected)


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_calibration(iris, method):
    X, y = iris
    calibrated = CalibratedClassifierCV(quick(), method=method, cv=3).fit(X, y)
    assert calibrated.score(X, y) > 0.9
    binary = CalibratedClassifierCV(quick(), method=method, cv=3).fit(X, y == 1)
    assert binary.predict_proba(X).shape == (150, 2)


def test_ensembles_of_them(iris):
    X, y = iris
    assert BaggingClassifier(quick(), 3, random_state=0).fit(X, y).score(X, y) > 0.9
    stacked = StackingClassifier([("net", quick())], RidgeClassifier(), cv=3)
    assert stacked.fit(X, y).score(X, y) > 0.9
    labels = np.stack([y == 0, y == 1], axis=1).astype(int)
    chain = ClassifierChain(quick(), order=[0, 1]).fit(X, labels)
    assert (chain.predict(X) == labels).mean() > 0.9


def test_multi_output_regressor_of_them(iris):
    X, _ = iris
    Y = np.stack([X.sum(1), X[:, 0]], axis=1)
    estimator = KerasRegressor(random_state=0, epochs=30, optimizer__learning_rate=0.02)
    assert MultiOutputRegressor(estimator).fit(X, Y).score(X, Y) > 0.9


def test_predictions_across_folds(iris):
    X, y = iris
    names = np.array(["x", "y", "z"])[y]
    assert (cross_val_predict(quick(), X, names, cv=3) == names).mean() > 0.9
    for method in ("predict_proba", "predict_log_proba", "decision_function"):
        result = cross_val_predict(quick(), X, names, cv=3, method=method)
        assert result.shape == (150, 3) and (result.argmax(1) == y).mean() > 0.9


def test_importance_of_permuted_features(iris):
    X, y = iris
    fitted = quick().fit(X, y)
    result = permutation_importance(fitted, X, y, n_repeats=3, random_state=0)
    assert result.importances_mean.argmax() in (2, 3)  # petals tell irises apart


def test_learning_curves(iris):
    sizes, _, scores = learning_curve(quick(), *iris, train_sizes=[0.3, 1.0], cv=3)
    assert sizes.tolist() == [30, 100] and scores[-1].mean() > 0.9
    _, scores = validation_curve(
        quick(), *iris, param_name="hidden_layer_sizes", param_range=[(1,), (16,)], cv=3
    )
    assert scores[1].mean() > scores[0].mean()


@pytest.mark.parametrize("resource", ["n_samples", "epochs"])
def test_halving_searches(iris, resource):
    grid = {"hidden_layer_sizes": [(2,), (16,)], "optimizer__learning_rate": [1e-5, 0.05]}
    limits = {"min_resources": 5, "max_resources": 20} if resource == "epochs" else {}
    created = HalvingGridSearchCV(quick(), grid, cv=3, factor=2, resource=resource, **limits)
    result = created.fit(*iris)
    assert result.best_params_["optimizer__learning_rate"] == 0.05
    assert result.n_iterations_ >= 2 and result.score(*iris) > 0.85


def test_random_searches_with_several_scores(iris):
    grid = {"optimizer__learning_rate": [1e-5, 0.02], "alpha": [0.0, 0.1]}
    scoring = {"accuracy": make_scorer(accuracy_score), "loss": "neg_log_loss"}
    result = RandomizedSearchCV(
        quick(), grid, n_iter=3, cv=2, scoring=scoring, refit="loss", random_state=0
    ).fit(*iris)
    assert result.best_params_["optimizer__learning_rate"] == 0.02
    assert {"mean_test_accuracy", "mean_test_loss"} <= set(result.cv_results_)


def test_clones_keep_every_parameter():
    def build(meta):
        return None

    created = KerasClassifier(
        build, warm_start=True, random_state=3, optimizer="sgd", loss="mse", metrics=["mae"],
        batch_size=7, validation_batch_size=3, verbose=2, callbacks=[keras.callbacks.History],
        validation_split=0.1, shuffle=False, run_eagerly=True, epochs=9, hidden_layer_sizes=(3,),
        activation="tanh", alpha=0.3, memory="somewhere", class_weight={0: 1.0}, model__units=3,
        fit__verbose=0, free=1,
    )  # fmt: skip
    params, copied = created.get_params(), clone(created).get_params()
    assert params == copied and len(params) == 23
    pipeline = clone(make_pipeline(StandardScaler(), created))
    for name, value in params.items():
        assert pipeline.get_params()[f"kerasclassifier__{name}"] == value
    assert "model__units=3" in repr(created)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "KerasClassifier" in created._repr_html_()


def make_net(X, y):
    width, loss = (y.shape[1], "mse") if np.ndim(y) == 2 else (3, "mse")
    model = keras.Sequential([keras.Input((X.shape[1],)), keras.layers.Dense(width, "softmax")])
    model.compile("adam", loss)
    return model


@pytest.mark.parametrize("kind", [SKLearnClassifier, SKLearnRegressor, SKLearnTransformer])
def test_keras_dialect_in_pipelines_and_searches(iris, kind):
    X, y = iris
    target = np.eye(3)[y] if kind is not SKLearnClassifier else y
    created = make_pipeline(StandardScaler(), clone(kind(make_net, fit_kwargs={"epochs": 2})))
    created.fit(X, target)
    if kind is SKLearnTransformer:
        assert created.transform(X).shape == (150, 3)
    else:
        name = kind.__name__.lower()
        grid = {f"{name}__fit_kwargs": [{"epochs": 1}, {"epochs": 2}]}
        result = GridSearchCV(created, grid, cv=2, error_score="raise").fit(X, target)
        assert np.isfinite(result.best_score_)


@pytest.mark.parametrize("container", ["default", "pandas", "polars"])
def test_transformers_give_the_container_asked_for(iris, container):
    X, y = iris
    given = X
    if container != "default":
        library = pytest.importorskip(container)
        columns = ["a", "b", "c", "d"]
        given = library.DataFrame(dict(zip(columns, X.T)))
    transformer = SKLearnTransformer(make_net).set_output(transform=container)
    pipeline = make_pipeline(StandardScaler().set_output(transform=container), transformer)
    result = pipeline.fit(given, np.eye(3)[y]).transform(given)
    assert result.shape == (150, 3)
    if container == "default":
        assert isinstance(result, np.ndarray)
    else:
        assert isinstance(result, library.DataFrame)
        assert list(result.columns) == [f"sklearntransformer{i}" for i in range(3)]
        assert transformer.feature_names_in_.tolist() == columns


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames_of_mixed_columns(iris, library):
    frames = pytest.importorskip(library)
    X, y = iris
    names = np.array(["x", "y", "z"])[y]
    frame = frames.DataFrame({"a": X[:, 2], "b": X[:, 3].astype("float32"), "c": y * 2})
    labels = frames.Series(names)
    fitted = quick().fit(frame, labels)
    assert fitted.feature_names_in_.tolist() == ["a", "b", "c"]
    assert fitted.score(frame, labels) > 0.95
    split = make_column_transformer((StandardScaler(), ["a", "b"]), remainder="passthrough")
    assert make_pipeline(split, quick()).fit(frame, labels).score(frame, labels) > 0.9
    assert np.isfinite(cross_val_score(quick(epochs=2), frame, labels, cv=2)).all()
    regressor = KerasRegressor(random_state=0, epochs=2).fit(frame, frames.Series(y * 1.0))
    assert regressor.predict(frame).shape == (150,)


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
@pytest.mark.parametrize("estimator", [KerasClassifier, KerasRegressor])
def test_sparse_rows(iris, kind, estimator):
    X, y = iris
    X = np.where(np.abs(X) > 0.5, X, 0)
    settings = {"random_state": 0, "epochs": 3}
    dense, thin = estimator(**settings).fit(X, y), estimator(**settings).fit(kind(X), y)
    np.testing.assert_array_equal(dense.predict(X), thin.predict(kind(X)))
    assert estimator(**settings).fit(X, y, sample_weight=y + 1.0).n_features_in_ == 4
    weighted = estimator(**settings).fit(kind(X), y, sample_weight=np.maximum(y - 0.5, 0))
    assert weighted.predict(kind(X)).shape == (150,)
    scores = cross_val_score(estimator(**settings), kind(X).tocsr(), y, cv=2)
    assert np.isfinite(scores).all()


def test_validation_scores_choose_the_epoch(iris):
    stopping = keras.callbacks.EarlyStopping("val_loss", patience=3, restore_best_weights=True)
    fitted = quick(
        epochs=80, validation_split=0.3, callbacks=stopping, optimizer__learning_rate=0.3
    ).fit(*iris)
    losses = fitted.history_["val_loss"]
    assert fitted.best_epoch_ == int(np.argmin(losses)) and fitted.n_iter_ == len(losses) < 80
    X, y = iris
    kept = fitted.model_.evaluate(
        X[105:].astype("float32"), y[105:].astype("int32"), batch_size=32, verbose=0
    )
    assert np.ravel(kept)[0] == pytest.approx(min(losses), rel=0.05, abs=1e-3)


def test_targets_in_units_of_their_own():
    X, y = load_diabetes(return_X_y=True)
    fitted = KerasRegressor(random_state=0, epochs=30).fit(X, y * 1e6)
    plain = KerasRegressor(random_state=0, epochs=30).fit(X, y)
    np.testing.assert_allclose(fitted.predict(X) / 1e6, plain.predict(X), rtol=1e-3)
