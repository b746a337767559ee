"""Tools of others on models of kerasish, each tried for real where its package is installed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kerasish

CHECKOUT = Path(kerasish.__file__).parents[1]
START = """
import kerasish.as_keras
import keras
import numpy as np

rng = np.random.default_rng(0)
x = rng.normal(size=(64, 4)).astype("float32")
y = (x.sum(1) > 0).astype("float32")[:, None]


def make(units=8, rate=0.01):
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(units, activation="relu"),
            keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(keras.optimizers.Adam(rate), "binary_crossentropy", metrics=["accuracy"])
    return model
"""


def run(program: str, folder: Path, *packages: str) -> str:
    """Return what a program prints; skip the test where it needs packages that are not there."""
    for package in packages:
        if importlib.util.find_spec(package) is None:  # some need as_keras to be imported
            pytest.skip(f"{package} is not installed")
    path = folder / "program.py"
    path.write_text(START + program)
    report = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=280, cwd=folder,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), "WANDB_MODE": "offline",
             "WANDB_SILENT": "true", "MLFLOW_DISABLE_TELEMETRY": "true",
             "KERAS_BACKEND": "jax"},
    )  # fmt: skip
    assert report.returncode == 0, report.stdout + report.stderr
    return report.stdout


WANDB = """
import wandb
from wandb.integration.keras import WandbMetricsLogger, WandbModelCheckpoint

run = wandb.init(project="test", dir=".")
callbacks = [
    WandbMetricsLogger(log_freq=2),
    WandbModelCheckpoint("best-{epoch}.keras", monitor="val_loss", save_best_only=True),
]
make().fit(x, y, epochs=3, validation_split=0.25, verbose=0, callbacks=callbacks)
summary = dict(run.summary)
assert summary["epoch/epoch"] == 2
assert 0 < summary["epoch/val_loss"] < 1 and "batch/loss" in summary
run.finish()
keras.models.load_model("best-1.keras")
print("done")
"""
MLFLOW = """
import mlflow

mlflow.set_tracking_uri("sqlite:///runs.db")
mlflow.keras.autolog()
model = make()
with mlflow.start_run() as run:
    history = model.fit(x, y, epochs=3, verbose=0, batch_size=16)
logged = mlflow.get_run(run.info.run_id).data
assert logged.params["batch_size"] == "16" and logged.params["optimizer_name"] == "adam"
assert abs(logged.metrics["loss"] - history.history["loss"][-1]) < 1e-6
with mlflow.start_run():
    info = mlflow.keras.log_model(model, name="model")
loaded = mlflow.keras.load_model(info.model_uri)
assert np.array_equal(loaded.predict(x, verbose=0), model.predict(x, verbose=0))
print("done")
"""
OPTUNA = """
import optuna
from optuna_integration import KerasPruningCallback


def objective(trial):
    rate = trial.suggest_float("rate", 1e-5, 0.1, log=True)
    model = make(trial.suggest_int("units", 2, 16), rate)
    history = model.fit(
        x, y, epochs=5, validation_split=0.25, verbose=0,
        callbacks=[KerasPruningCallback(trial, "val_loss")],
    )
    return history.history["val_loss"][-1]


study = optuna.create_study(
    sampler=optuna.samplers.RandomSampler(seed=0),
    pruner=optuna.pruners.MedianPruner(n_startup_trials=2),
)
study.optimize(objective, n_trials=8)
states = {trial.state.name for trial in study.trials}
assert states == {"COMPLETE", "PRUNED"}, states
print("done")
"""
TUNER = """
import keras_tuner


def build(hp):
    return make(hp.Int("units", 2, 16), hp.Float("rate", 1e-4, 0.1, sampling="log"))


for kind, options in (
    (keras_tuner.RandomSearch, {"max_trials": 3}),
    (keras_tuner.BayesianOptimization, {"max_trials": 3}),
    (keras_tuner.Hyperband, {"max_epochs": 3}),
):
    tuner = kind(build, objective="val_loss", directory=kind.__name__, **options)
    tuner.search(x, y, epochs=2, validation_split=0.25, verbose=0)
    best = tuner.get_best_models()[0]
    assert isinstance(best, keras.Model) and best.evaluate(x, y, verbose=0)[0] < 1
    assert 2 <= tuner.get_best_hyperparameters()[0].values["units"] <= 16
print("done")
"""
SHAP = """
import shap

model = make()
model.fit(x, y, epochs=5, verbose=0)
predict = lambda rows: model.predict(rows, verbose=0).ravel()
kernel = shap.KernelExplainer(predict, x[:20])
values = kernel.shap_values(x[:3], nsamples=50, silent=True)
assert np.allclose(values.sum(1) + kernel.expected_value, predict(x[:3]), atol=1e-4)
exact = shap.Explainer(predict, x[:20])(x[:3])
assert np.allclose(exact.values.sum(1) + exact.base_values, predict(x[:3]), atol=1e-4)
for kind in (shap.GradientExplainer, shap.DeepExplainer):  # these reach into a framework's graph
    try:
        kind(model, x[:20])
    except (AttributeError, ImportError, ValueError, TypeError) as error:
        assert "kerasish" in str(error), error
    else:
        raise AssertionError(f"{kind.__name__} works now: say so in docs/guides/tools.md")
print("done")
"""
SKOPS = """
import skops.io
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from kerasish.wrappers import KerasClassifier

pipeline = make_pipeline(StandardScaler(), KerasClassifier(make, epochs=2, verbose=0))
labels = y.ravel().astype(int)
pipeline.fit(x, labels)
try:
    skops.io.dumps(pipeline)
except RecursionError:
    print("skops stores no models")
restored = skops.io.loads(skops.io.dumps(pipeline[0]))
pipeline[1].model_.save("network.keras")
network = keras.models.load_model("network.keras")
share = network.predict(restored.transform(x), verbose=0).ravel()
assert ((share > 0.5).astype(int) == pipeline.predict(x)).all()
print("done")
"""
FOREIGN = """
import sys

sys.meta_path.pop(0)  # the real Keras from here on, its callbacks on a model of kerasish
model = make()
for name in [n for n in sys.modules if n.partition(".")[0] == "keras"]:
    del sys.modules[name]
import keras as real

assert not real.__file__.startswith(__import__("kerasish").__path__[0])
seen = []


class Report(real.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        seen.append(logs["loss"])
        assert self.model is model


history = model.fit(x, y, epochs=2, verbose=0, callbacks=[Report()])
assert seen == history.history["loss"] and len(seen) == 2
print("done")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "packages"),
    [
        pytest.param(WANDB, ["wandb"], id="wandb"),
        pytest.param(MLFLOW, ["mlflow"], id="mlflow"),
        pytest.param(OPTUNA, ["optuna", "optuna_integration"], id="optuna"),
        pytest.param(TUNER, ["keras_tuner"], id="keras_tuner"),
        pytest.param(SHAP, ["shap"], id="shap"),
        pytest.param(FOREIGN, ["keras", "jax"], id="callbacks of Keras itself"),
    ],
)
def test_it_works(program, packages, tmp_path):
    assert run(program, tmp_path, *packages).splitlines()[-1] == "done"


@pytest.mark.slow
def test_skops_stores_the_steps_around_a_model(tmp_path):
    assert run(SKOPS, tmp_path, "skops").splitlines() == ["skops stores no models", "done"]
