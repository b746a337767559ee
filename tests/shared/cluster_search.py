"""A grid search on a cluster: `cluster_search.py alone|dask|dask-mpi|ray FOLDER` prints its digest.

`mpiexec -n 4 python cluster_search.py dask-mpi FOLDER`: a scheduler, this program, two workers.
FOLDER keeps the fits that are finished; workers share it.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import joblib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV

import kerasish as keras
from kerasish.wrappers import KerasClassifier

GRID = {"hidden_layer_sizes": [(8,), (16,)], "optimizer__learning_rate": [0.002, 0.02]}


class CountThreads(keras.callbacks.Callback):
    """Fails where a worker's engine runs on more threads than seeded fits do."""

    def on_train_begin(self, logs: Any = None) -> None:
        assert keras.config.threads() == 1, keras.config.threads()


def search(folder: str) -> str:
    """Return a digest of scores, parameters and predictions."""
    X, y = load_digits(return_X_y=True)
    X, y = (X[:300] / 16).astype("float32"), y[:300]
    estimator = KerasClassifier(
        random_state=0, epochs=2, batch_size=50, callbacks=[CountThreads], memory=folder
    )
    found = GridSearchCV(estimator, GRID, cv=2, n_jobs=2, error_score="raise").fit(X, y)
    result = hashlib.sha256(repr(found.best_params_).encode())
    for name, values in sorted(found.cv_results_.items()):
        if "time" not in name and "param" not in name:
            result.update(name.encode() + np.asarray(values).tobytes())
    result.update(np.ascontiguousarray(found.predict_proba(X)).tobytes())
    return result.hexdigest()


def on_dask(folder: str) -> str:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
        joblib.parallel_config("dask"),
    ):
        return search(folder)


def on_dask_mpi(folder: str) -> str:
    from dask_mpi import initialize
    from distributed import Client

    initialize(interface="lo", nthreads=1, dashboard=False)
    with Client(), joblib.parallel_config("dask"):
        return search(folder)


def on_ray(folder: str) -> str:
    import ray
    from ray.util.joblib import register_ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    register_ray()
    try:
        with joblib.parallel_config("ray"):
            return search(folder)
    finally:
        ray.shutdown()


def alone(folder: str) -> str:
    with joblib.parallel_config("sequential"):
        return search(folder)


KINDS = {"alone": alone, "dask": on_dask, "dask-mpi": on_dask_mpi, "ray": on_ray}

if __name__ == "__main__":
    print("digest", KINDS[sys.argv[1]](sys.argv[2]), flush=True)
