"""Hyperparameter optimization with Optuna and pruning
===================================================

Optuna searches for the learning rate and the size of a network, and stops bad trials early.

Each trial trains a network with other hyperparameters. After each epoch it reports its validation
accuracy, and a pruner ends it if it is worse than most trials were at that point. Most of the time
is so spent on good trials.
Shows: a callback that reports to another library, ending a training by an exception, a search over
an architecture, training the best model again.

Needs Optuna: pip install optuna
Run: python examples/hyperparameters_optuna.py [picture.png]
"""

from __future__ import annotations

import sys

import numpy as np

try:
    import optuna
except ImportError:
    sys.exit("This example searches with Optuna: pip install optuna")
try:
    from matplotlib import pyplot as plt
except ImportError:
    sys.exit("This example draws a picture: pip install matplotlib")

import kerasish as keras
from kerasish import layers

(x, y), (x_test, y_test) = keras.datasets.digits.load_data()
x, x_test = (a.reshape(-1, 64).astype("float32") / 16 for a in (x, x_test))
x, y, x_valid, y_valid = x[:1077], y[:1077], x[1077:], y[1077:]
EPOCHS = 15

# %%
# The model of a trial
# --------------------
# `suggest_...` returns a value, and remembers the name and range of the hyperparameter.


def make_model(trial: optuna.trial.BaseTrial) -> keras.Model:
    model = keras.Sequential([keras.Input((64,))])
    for i in range(trial.suggest_int("layers", 1, 3)):
        model.add(layers.Dense(trial.suggest_int(f"units_{i}", 8, 128, log=True), "relu"))
        model.add(layers.Dropout(trial.suggest_float(f"dropout_{i}", 0.0, 0.6)))
    model.add(layers.Dense(10))
    rate = trial.suggest_float("learning_rate", 1e-4, 0.1, log=True)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(rate), loss, metrics=["accuracy"])
    return model


# %%
# Pruning
# -------
# A callback reports each epoch. If the pruner says so, it raises the exception that marks the trial
# as pruned; it ends `fit`, and Optuna continues with the next trial. (With
# `import kerasish.as_keras` as a program's first import, `KerasPruningCallback` of
# the package optuna-integration does the same.)


class Pruning(keras.callbacks.Callback):
    """Reports the validation accuracy of each epoch, and ends the training of bad trials."""

    def __init__(self, trial: optuna.Trial) -> None:
        super().__init__()
        self.trial = trial

    def on_epoch_end(self, epoch, logs=None):
        self.trial.report(logs["val_accuracy"], epoch)
        if self.trial.should_prune():
            raise optuna.TrialPruned


def objective(trial: optuna.Trial) -> float:
    """Return the validation accuracy of a trial's last epoch."""
    keras.utils.set_random_seed(0)
    model = make_model(trial)
    history = model.fit(
        x, y, batch_size=64, epochs=EPOCHS, validation_data=(x_valid, y_valid), verbose=0,
        callbacks=[Pruning(trial)],
    )  # fmt: skip
    return history.history["val_accuracy"][-1]


# %%
# The search
# ----------
# The sampler (TPE) draws more often where good trials were. The pruner compares a trial with the
# median of the others, from the third epoch on.

optuna.logging.set_verbosity(optuna.logging.WARNING)
study = optuna.create_study(
    direction="maximize",
    sampler=optuna.samplers.TPESampler(seed=0),
    pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=2),
)
study.optimize(objective, n_trials=40)
pruned = [t for t in study.trials if t.state == optuna.trial.TrialState.PRUNED]
epochs = sum(len(t.intermediate_values) for t in study.trials)
print(f"{len(study.trials)} trials, {len(pruned)} of them pruned; "
      f"{epochs} epochs instead of {len(study.trials) * EPOCHS}")  # fmt: skip
print(f"validation accuracy, best:  {study.best_value:.3f}")
print(f"validation accuracy, first: {study.trials[0].intermediate_values[EPOCHS - 1]:.3f}")
for name, value in study.best_params.items():
    print(f"  {name:<14} {value:.4g}")

# %%
# The best model
# --------------
# The best hyperparameters, trained again on training and validation data. The test data had no part
# in the search, so its accuracy is honest: that of the search is the best of many.

keras.utils.set_random_seed(0)
best = make_model(optuna.trial.FixedTrial(study.best_params))
best.fit(np.concatenate([x, x_valid]), np.concatenate([y, y_valid]), batch_size=64, epochs=EPOCHS,
         verbose=0)  # fmt: skip
print(f"held-out digits, best model: {best.evaluate(x_test, y_test, verbose=0)[1]:.3f}")

# %%
# On the left, each trial's accuracy by epoch; red ones were pruned. On the right, the learning rate
# of all trials: later trials are darker, and gather where the accuracy is high.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
for trial in study.trials:
    epoch, accuracy = zip(*trial.intermediate_values.items())
    ended = trial in pruned
    left.plot(np.add(epoch, 1), accuracy, color="crimson" if ended else "0.6", linewidth=1,
              marker="x" if ended else None, markevery=[-1])  # fmt: skip
accuracy = list(study.best_trial.intermediate_values.values())
left.plot(range(1, EPOCHS + 1), accuracy, color="tab:blue", linewidth=2.5, label="best")
left.plot([], [], color="0.6", label="complete")
left.plot([], [], color="crimson", marker="x", label="pruned")
left.set(title="Trials", xlabel="epoch", ylabel="validation accuracy")
left.legend()
points = right.scatter(
    [t.params["learning_rate"] for t in study.trials],
    [t.intermediate_values[t.last_step] for t in study.trials],
    c=[t.number for t in study.trials], cmap="Blues", edgecolors="0.3",
)  # fmt: skip
figure.colorbar(points, ax=right, label="number of the trial")
right.set(title="Learning rate", xlabel="learning rate", xscale="log",
          ylabel="validation accuracy, last epoch")  # fmt: skip

picture = sys.argv[1] if len(sys.argv) > 1 else "hyperparameters_optuna.png"
figure.savefig(picture, dpi=110)
print(f"picture: {picture}")
