"""The progress bar of searches, and their results as a frame."""

import io
import threading

import joblib
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.experimental import enable_halving_search_cv
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    HalvingGridSearchCV,
    LeaveOneOut,
    RandomizedSearchCV,
    ShuffleSplit,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kerasish.wrappers import KerasClassifier, results_frame, search_progress
from kerasish.wrappers.searches import fits_of

GRID = {"hidden_layer_sizes": [(4,), (8,)], "optimizer__learning_rate": [0.01, 0.1]}
PLAIN = joblib.Parallel.print_progress, joblib.Parallel.__call__


@pytest.fixture(scope="module")
def digits():
    assert enable_halving_search_cv is not None
    X, y = load_digits(return_X_y=True)
    return X[:200] / 16, y[:200] % 3


def search(n_jobs=None, **settings):
    estimator = KerasClassifier(random_state=0, epochs=2)
    return GridSearchCV(estimator, GRID, cv=3, n_jobs=n_jobs, error_score="raise", **settings)


@pytest.mark.parametrize(
    ("backend", "n_jobs"),
    [
        ("sequential", None),
        ("threading", 2),
        pytest.param("loky", 2, marks=pytest.mark.slow),
        pytest.param("multiprocessing", 2, marks=pytest.mark.slow),
    ],
)
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_the_bar_counts_fits_wherever_they_run(digits, backend, n_jobs):
    text = io.StringIO()
    with joblib.parallel_config(backend), search_progress(search(), file=text) as bar:
        search(n_jobs).fit(*digits)
    assert (bar.n, bar.total) == (12, 12) and "12/12" in text.getvalue()
    assert (joblib.Parallel.print_progress, joblib.Parallel.__call__) == PLAIN


def test_the_bar_moves_while_the_search_runs(digits):
    seen = []

    def score(estimator, X, y):
        seen.append(bar.n)
        return 0.0

    with search_progress(file=io.StringIO()) as bar:
        search(scoring=score).fit(*digits)
    assert seen == list(range(12)) and bar.n == 12 and bar.total is None


def test_searches_inside_count_once(digits):
    X, y = digits
    inner = GridSearchCV(RidgeClassifier(), {"alpha": [0.1, 1]}, cv=2)
    with search_progress(total=3, file=io.StringIO()) as bar:
        cross_val_score(inner, X, y, cv=3)
    assert bar.n == 3


def test_bars_inside_and_beside_each_other(digits):
    X, y = digits
    done = []

    def beside():
        with search_progress(file=io.StringIO()) as bar:
            cross_val_score(RidgeClassifier(), X, y, cv=4)
        done.append(bar.n)

    thread = threading.Thread(target=beside)
    with search_progress(file=io.StringIO()) as outer:
        thread.start()
        cross_val_score(RidgeClassifier(), X, y, cv=3)
        with search_progress(file=io.StringIO()) as inner:
            cross_val_score(RidgeClassifier(), X, y, cv=2)
        cross_val_score(RidgeClassifier(), X, y, cv=5)
        thread.join()
    assert (outer.n, inner.n, done) == (8, 2, [4])
    assert (joblib.Parallel.print_progress, joblib.Parallel.__call__) == PLAIN


def test_an_error_puts_joblib_back(digits):
    with pytest.raises(ValueError, match="epochs"), search_progress(file=io.StringIO()):
        GridSearchCV(KerasClassifier(epochs=0), {"alpha": [1]}, error_score="raise").fit(*digits)
    assert (joblib.Parallel.print_progress, joblib.Parallel.__call__) == PLAIN


@pytest.mark.parametrize(
    ("made", "fits"),
    [
        (GridSearchCV(Ridge(), {"alpha": [1, 2]}), 10),
        (GridSearchCV(Ridge(), [{"alpha": [1, 2]}, {"tol": [1.0]}], cv=2), 6),
        (RandomizedSearchCV(Ridge(), {"alpha": [1, 2, 3]}, n_iter=2, cv=4), 8),
        (GridSearchCV(Ridge(), {"alpha": [1, 2]}, cv=ShuffleSplit(7)), 14),
        (GridSearchCV(Ridge(), {"alpha": [1, 2]}, cv=GroupKFold(3)), 6),
        (GridSearchCV(Ridge(), {"alpha": [1, 2]}, cv=LeaveOneOut()), None),
        (HalvingGridSearchCV(Ridge(), {"alpha": [1, 2]}), None),
        (None, None),
    ],
)
def test_the_number_of_fits_is_told_before(made, fits):
    assert fits_of(made) == fits


def test_results_are_a_frame(digits):
    pandas = pytest.importorskip("pandas")
    pipeline = make_pipeline(StandardScaler(), KerasClassifier(random_state=0, epochs=2))
    grid = {f"kerasclassifier__{name}": values for name, values in GRID.items()}
    result = GridSearchCV(pipeline, grid, cv=2, return_train_score=True).fit(*digits)
    frame = results_frame(result)
    assert isinstance(frame, pandas.DataFrame) and len(frame) == 4
    assert list(frame.columns) == [
        "hidden_layer_sizes", "learning_rate", "mean_test_score", "std_test_score",
        "rank_test_score", "mean_train_score", "std_train_score", "mean_fit_time",
        "mean_score_time",
    ]  # fmt: skip
    assert frame["mean_test_score"].is_monotonic_decreasing
    assert frame.loc[0, "mean_test_score"] == result.best_score_
    best = [frame.loc[0, name] for name in ("hidden_layer_sizes", "learning_rate")]
    assert best == [result.best_params_[name] for name in grid]


def test_frames_keep_names_apart_and_gaps_empty(digits):
    X, y = digits
    pipeline = make_pipeline(StandardScaler(), RidgeClassifier())
    grid = [{"standardscaler__copy": [True]}, {"ridgeclassifier__alpha": [1.0, 2.0]}]
    frame = results_frame(GridSearchCV(pipeline, grid, cv=2).fit(X, y))
    assert frame["alpha"].isna().sum() == 1 and frame["copy"].notna().sum() == 1
    same = [{"standardscaler__with_mean": [True]}, {"deep__with_mean": [False]}]
    fake = type("Search", (), {})()
    fake.cv_results_ = {
        "params": [dict(g) for g in same], "mean_test_score": np.ones(2),
        "rank_test_score": np.ones(2), "mean_fit_time": np.ones(2), "mean_score_time": np.ones(2),
    }  # fmt: skip
    assert "standardscaler__with_mean" in results_frame(fake).columns


def test_halving_searches_tell_their_rounds(digits):
    estimator = KerasClassifier(random_state=0, epochs=2)
    created = HalvingGridSearchCV(estimator, GRID, cv=2, factor=2, min_resources=60)
    with search_progress(created, file=io.StringIO()) as bar:
        created.fit(*digits)
    frame = results_frame(created)
    assert bar.n == 2 * len(frame) and {"iter", "n_resources"} <= set(frame.columns)


def test_only_fitted_searches_have_results():
    with pytest.raises(ValueError, match="fitted search"):
        results_frame(search())
