"""Searches over threads, processes and a cluster: shares of threads, kernels, equal bits."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from threadpoolctl import threadpool_limits

import kerasish as keras
from kerasish.wrappers import KerasClassifier

GRID = {"hidden_layer_sizes": [(16,), (32,)], "optimizer__learning_rate": [0.002, 0.02]}


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return (X[:500] / 16).astype("float32"), y[:500]


def search(n_jobs=None, **settings):
    estimator = KerasClassifier(random_state=0, epochs=3, batch_size=50, **settings)
    return GridSearchCV(estimator, GRID, cv=3, n_jobs=n_jobs, error_score="raise")


def assert_equal_to_the_bit(one, other, X):
    for name, values in one.cv_results_.items():
        if "time" not in name:
            np.testing.assert_array_equal(values, other.cv_results_[name])
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


def run_python(program, tmp_path, **environment):
    """Run a program in a process of its own, where loky's settings are what a user has."""
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(program))
    quiet = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    kept = {k: v for k, v in os.environ.items() if k not in quiet}
    package = str(Path(keras.__file__).parent.parent)
    result = subprocess.run(
        [sys.executable, str(path)], env={**kept, "PYTHONPATH": package, **environment},
        capture_output=True, text=True, timeout=250,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


@pytest.mark.parametrize("rows", [400, 500])
@pytest.mark.parametrize("wide", [False, True])
def test_a_seed_means_the_same_bits_with_any_number_of_threads(digits, rows, wide):
    X, y = digits[0][:rows], digits[1][:rows]
    result = {}
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="openmp"):  # as in a worker with such a share
            model = {"model": make_wide} if wide else {"hidden_layer_sizes": (32,)}
            fitted = KerasClassifier(**model, random_state=0, epochs=2, batch_size=50).fit(X, y)
            result[threads] = fitted.predict_proba(X)
    np.testing.assert_array_equal(result[1], result[2])


def make_wide(meta):
    return keras.Sequential(
        [
            keras.Input((meta["n_features_in_"],)),
            keras.layers.Dense(512, activation="relu"),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(256, activation="tanh"),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(meta["n_classes_"], activation="softmax"),
        ]
    )


def test_users_choose_the_threads_of_seeded_fits(digits):
    seen = []

    class Look(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            seen.append(keras.config.threads())

    X, y = digits
    KerasClassifier(random_state=0, epochs=1, callbacks=[Look]).fit(X, y)
    KerasClassifier(epochs=1, callbacks=[Look]).fit(X, y)
    keras.config.set_threads(2)
    try:
        KerasClassifier(random_state=0, epochs=1, callbacks=[Look]).fit(X, y)
    finally:
        keras.config.set_threads(None)
    assert seen == [1, None, 2] and keras.config.threads() is None


@pytest.mark.parametrize("n_jobs", [2, 5])
def test_threads_search_alike(digits, n_jobs):
    alone = search().fit(*digits)
    with joblib.parallel_config("threading"):
        beside = search(n_jobs).fit(*digits)
    assert_equal_to_the_bit(alone, beside, digits[0])


@pytest.mark.slow
@pytest.mark.parametrize("n_jobs", [2, 3])
def test_processes_search_alike(digits, n_jobs):
    alone = search().fit(*digits)
    with joblib.parallel_config("loky"):
        beside = search(n_jobs).fit(*digits)
    assert_equal_to_the_bit(alone, beside, digits[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_jobs", "chosen", "expected"),
    [(2, {}, "share"), (4, {}, "share"), (2, {"OMP_NUM_THREADS": "3"}, "3")],
)
def test_each_process_has_its_share_of_the_threads(tmp_path, n_jobs, chosen, expected):
    program = f"""
        import joblib

        def threads(_):
            import numpy as np
            from kerasish.backends.onednn import native
            from kerasish.wrappers import KerasClassifier
            KerasClassifier(epochs=1).fit(np.eye(4), [0, 1, 0, 1])
            return native.get_threads()

        if __name__ == "__main__":
            share = max(1, joblib.cpu_count() // {n_jobs})
            found = joblib.Parallel({n_jobs}, "loky")(map(joblib.delayed(threads), range(4)))
            print(share, *found)
    """
    share, *result = run_python(program, tmp_path, **chosen)
    assert result == [share if expected == "share" else expected] * 4


@pytest.mark.slow
def test_processes_share_the_kernels_on_disk(tmp_path):
    program = """
        import joblib
        import numpy as np
        from kerasish.wrappers import KerasClassifier

        def compiled(units):
            from kerasish.backends.static.codegen import kernels
            before = kernels.statistics.compiled
            X = np.random.default_rng(0).normal(size=(300, 7)).astype("float32")
            KerasClassifier(hidden_layer_sizes=units, epochs=2).fit(X, X[:, 0] > 0)
            return kernels.statistics.compiled - before

        if __name__ == "__main__":
            run = joblib.Parallel(2, "loky")
            print(sum(run(joblib.delayed(compiled)(5) for _ in range(2))))
    """
    first, again = (
        int(run_python(program, tmp_path, KERASISH_CACHE_DIR=str(tmp_path / "kernels"))[-1])
        for _ in range(2)
    )
    assert first > 0 and again == 0


@pytest.mark.slow
def test_a_dask_cluster_of_processes_searches_alike(digits):
    distributed = pytest.importorskip("distributed")
    alone = search().fit(*digits)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
        joblib.parallel_config("dask"),
    ):
        beside = search(n_jobs=-1).fit(*digits)
        workers = client.run(os.getpid)
    assert len(set(workers.values()) - {os.getpid()}) == 2
    assert_equal_to_the_bit(alone, beside, digits[0])
