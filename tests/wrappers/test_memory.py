"""The memory of searches: what is found again, what is not, and that a kill costs little."""

import contextlib
import functools
import os
import pickle
import runpy
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV

import kerasish as keras
from kerasish.wrappers import KerasClassifier, KerasRegressor, SearchMemory
from kerasish.wrappers import memory as memory_module

SCRIPT = Path(__file__).parent / "search_script.py"


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:200] / 16, y[:200]


@pytest.fixture
def trained(monkeypatch):
    """Count the calls of Model.fit."""
    calls = []
    plain = keras.Model.fit

    @functools.wraps(plain)
    def fit(self, *args, **kwargs):
        calls.append(1)
        return plain(self, *args, **kwargs)

    monkeypatch.setattr(keras.Model, "fit", fit)
    return calls


def make(**settings):
    return KerasClassifier(**{"random_state": 0, "epochs": 2, **settings})


def test_a_fit_is_found_again_whole(digits, tmp_path, trained):
    first = make(memory=tmp_path).fit(*digits)
    again = make(memory=str(tmp_path), verbose=False).fit(*digits)
    assert len(trained) == 1
    np.testing.assert_array_equal(first.predict_proba(digits[0]), again.predict_proba(digits[0]))
    assert first.history_ == again.history_ and again.n_features_in_ == 64
    first.partial_fit(*digits)
    again.partial_fit(*digits)
    np.testing.assert_array_equal(first.predict_proba(digits[0]), again.predict_proba(digits[0]))


@pytest.mark.parametrize(
    "other",
    [
        {"epochs": 3},
        {"random_state": 1},
        {"optimizer__learning_rate": 0.1},
        {"class_weight": "balanced"},
        {"hidden_layer_sizes": (7,)},
        {"optimizer": keras.optimizers.SGD(0.1)},
    ],
)
def test_other_parameters_are_other_fits(digits, tmp_path, trained, other):
    make(memory=tmp_path).fit(*digits)
    make(memory=tmp_path, **other).fit(*digits)
    make(memory=tmp_path, **other).fit(*digits)
    assert len(trained) == 2 and len(SearchMemory(tmp_path)) == 2


def test_other_data_are_other_fits(digits, tmp_path, trained):
    X, y = digits
    fitted = make(memory=tmp_path)
    fitted.fit(X, y)
    fitted.fit(X[:150], y[:150])
    fitted.fit(X, y[::-1])
    fitted.fit(X, y, sample_weight=1 + y)
    fitted.set_params(validation_split=0.5).fit(X, y)
    fitted.set_params(validation_split=0.0)
    assert len(trained) == 5
    fitted.fit(np.asfortranarray(X), list(y))
    assert len(trained) == 5


def test_without_a_seed_the_first_fit_is_found(digits, tmp_path, trained):
    first = make(memory=tmp_path, random_state=None).fit(*digits)
    again = make(memory=tmp_path, random_state=None).fit(*digits)
    np.testing.assert_array_equal(first.predict_proba(digits[0]), again.predict_proba(digits[0]))
    state = np.random.RandomState(3)
    for _ in range(2):  # the state moves on: another seed, another fit
        make(memory=tmp_path, random_state=state).fit(*digits)
    assert len(trained) == 3


def test_warm_starts_are_made_each_time(digits, tmp_path, trained):
    fitted = make(memory=tmp_path, warm_start=True)
    fitted.fit(*digits).fit(*digits).partial_fit(*digits)
    assert len(trained) == 3 and fitted.n_iter_ == 5 and len(SearchMemory(tmp_path)) == 1


def test_what_joblib_remembers_is_a_place_too(digits, tmp_path, trained):
    for _ in range(2):
        make(memory=joblib.Memory(tmp_path, verbose=0)).fit(*digits)
    assert len(trained) == 1 and (tmp_path / "kerasish").is_dir()
    make(memory=joblib.Memory(None)).fit(*digits)
    assert len(trained) == 2


def test_other_kinds_of_memory_are_refused(digits):
    with pytest.raises(TypeError, match="memory: expected a directory"):
        make(memory=3).fit(*digits)


def test_a_spoilt_file_is_made_again(digits, tmp_path, trained):
    first = make(memory=tmp_path).fit(*digits)
    (path,) = tmp_path.glob("*/*.fit")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.warns(UserWarning, match="not whole"):
        again = make(memory=tmp_path).fit(*digits)
    np.testing.assert_array_equal(first.predict_proba(digits[0]), again.predict_proba(digits[0]))
    assert len(trained) == 2
    make(memory=tmp_path).fit(*digits)
    assert len(trained) == 2


def test_memories_copy_and_forget(digits, tmp_path):
    memory = SearchMemory(tmp_path / "deep" / "er")
    assert len(memory) == 0 and memory
    fitted = clone(make(memory=memory)).fit(*digits)
    assert len(memory) == 1 and fitted.memory.location == memory.location
    assert pickle.loads(pickle.dumps(memory)).location == memory.location
    memory.clear()
    assert len(memory) == 0


def test_every_writer_has_a_directory(tmp_path):
    memory = SearchMemory(tmp_path)
    gate = threading.Barrier(3)

    def write(number):
        gate.wait()
        for i in range(20):
            memory.put(f"{i}", {"value": i})

    threads = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    folders = list(tmp_path.iterdir())
    assert len(folders) == 3 and all(len(list(f.glob("*.fit"))) == 20 for f in folders)
    assert not list(tmp_path.glob("*/*.unfinished"))
    assert len(memory) == 20 and memory.get("7") == {"value": 7}


def test_a_fork_is_another_writer(monkeypatch):
    here = memory_module._writer()
    assert memory_module._writer() == here
    monkeypatch.setattr(memory_module.os, "getpid", lambda: 0)
    assert memory_module._writer() != here


def test_regressors_remember(tmp_path, trained):
    X = np.linspace(0, 1, 40)[:, None]
    y = 100 * X[:, 0]
    for _ in range(2):
        fitted = KerasRegressor(random_state=0, epochs=3, memory=tmp_path).fit(X, y)
    assert len(trained) == 1 and fitted.predict(X).shape == (40,)


def test_a_search_repeats_nothing(digits, tmp_path, trained):
    def run(memory, n_jobs=None):
        grid = {"hidden_layer_sizes": [(4,), (8,)], "batch_size": [16, 32]}
        with joblib.parallel_config("threading"):
            return GridSearchCV(make(memory=memory), grid, cv=2, n_jobs=n_jobs).fit(*digits)

    plain = run(None)
    first = run(tmp_path, n_jobs=2)
    created = len(trained)
    again = run(tmp_path)
    assert len(trained) == created == 2 * (4 * 2 + 1)
    for search in (first, again):
        assert_same_results(search, plain)


def assert_same_results(search, expected):
    for name, values in expected.cv_results_.items():
        if "time" not in name:
            np.testing.assert_array_equal(search.cv_results_[name], values)


def kill_search(folder, kept_before, environment):
    """Kill a search when this many fits are kept; return how many are kept then."""
    folder.mkdir(exist_ok=True)
    killed = subprocess.Popen(
        [sys.executable, str(SCRIPT), str(folder)],
        env=environment, start_new_session=True, stdout=subprocess.PIPE,
    )  # fmt: skip
    memory = SearchMemory(folder)
    until = time.monotonic() + 120
    while len(memory) < kept_before and killed.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):  # all of them have ended
        os.killpg(killed.pid, signal.SIGKILL)
    finished = b"finished" in killed.communicate()[0]
    time.sleep(0.2)
    kept = len(memory)
    assert kept == 19 or not finished
    return kept


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is a signal of POSIX")
@pytest.mark.parametrize("kept_before", [1, 9])
def test_a_killed_search_repeats_at_most_what_was_running(tmp_path, kept_before):
    environment = {**os.environ, "PYTHONPATH": str(Path(keras.__file__).parent.parent)}
    kept = kill_search(tmp_path, kept_before, environment)
    for attempt in range(4):
        if kept < 19:
            break
        tmp_path /= f"after-{attempt}"  # the search was over before the signal came
        kept = kill_search(tmp_path, kept_before, environment)
    assert kept_before <= kept < 19

    before = sum(1 for _ in tmp_path.glob("*/*.fit"))
    rerun = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path)], env=environment, check=True, timeout=200
    )
    assert rerun.returncode == 0
    created = sum(1 for _ in tmp_path.glob("*/*.fit")) - before
    assert created == 6 * 3 + 1 - kept  # nothing of what was kept is made again

    script = runpy.run_path(str(SCRIPT), run_name="search_script")
    script["make_model"].__module__ = "__main__"  # as in the killed process
    X, y = script["load_data"]()
    result = script["make_search"](str(tmp_path)).fit(X, y)
    assert sum(1 for _ in tmp_path.glob("*/*.fit")) == before + created
    assert_same_results(result, script["make_search"](None).fit(X, y))
