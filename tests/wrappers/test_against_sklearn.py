"""The built-in MLP against scikit-learn's own: scores on its data sets, memory over many fits."""

import importlib
import runpy
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest
from threadpoolctl import threadpool_limits

import kerasish as keras

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def load(monkeypatch):
    """Imports a module of the checkout, which is not part of the installed package."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT)])
    return importlib.import_module


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits", "wine", "breast_cancer", "diabetes"])
def test_scores_are_at_least_those_of_scikit_learn(load, name):
    with threadpool_limits(1):
        ours, theirs = load("benchmarks.estimators").mean_scores(name, 3)
    assert ours >= theirs
    assert ours > {"digits": 0.96, "wine": 0.96, "breast_cancer": 0.95, "diabetes": 0.3}[name]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the memory held, on Linux only")
def test_many_fits_hold_no_more_memory():
    # What malloc keeps grows by steps in the first hundred fits.
    program = "from benchmarks.estimators import growth; print(growth(300, 100))"
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True,
        env={
            "PYTHONPATH": str(Path(keras.__file__).parent.parent),
            "KERASISH_BACKEND": keras.config.backend(), "OMP_NUM_THREADS": "1",
        },
    )  # fmt: skip
    assert float(result.stdout) < 5


@pytest.mark.slow
def test_the_example_plots_and_goes_on_after_a_kill(tmp_path, monkeypatch, capsys):
    assert matplotlib.__version__
    picture = tmp_path / "results.png"
    monkeypatch.setattr(sys, "argv", ["grid_search.py", str(picture), str(tmp_path / "memory")])
    first = runpy.run_path(str(ROOT / "examples" / "grid_search.py"))["search"]
    kept = sorted(path.stat().st_mtime_ns for path in tmp_path.glob("memory/*/*.fit"))
    again = runpy.run_path(str(ROOT / "examples" / "grid_search.py"))["search"]
    assert kept == sorted(path.stat().st_mtime_ns for path in tmp_path.glob("memory/*/*.fit"))
    assert len(kept) == 37 and picture.stat().st_size > 10_000
    assert first.cv_results_["mean_test_score"].max() > 0.95
    assert (
        again.cv_results_["mean_test_score"].tolist()
        == first.cv_results_["mean_test_score"].tolist()
    )
    printed = capsys.readouterr()
    assert "accuracy on rows kept apart" in printed.out
    assert not printed.err, "no bar outside of a terminal"
