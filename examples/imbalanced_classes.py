"""Imbalanced classification: class weights, threshold, precision-recall curve
===========================================================================

One payment in fifty is fraud. A network that calls all of them honest is right 98 times in 100, and
useless.

Accuracy says little about rare classes. This example looks at precision (how many alarms are right)
and recall (how much fraud is seen) instead, weights the classes in training, and chooses the
threshold of an alarm by what errors cost.
Shows: class_weight, metrics for rare classes, predicted probabilities, choosing a threshold on
validation data, precision-recall curves.

Run: python examples/imbalanced_classes.py [picture.png]
"""

from __future__ import annotations

import sys

import numpy as np
from sklearn.datasets import make_classification
from sklearn.metrics import average_precision_score, precision_recall_curve
from sklearn.model_selection import train_test_split

try:
    from matplotlib import pyplot as plt
except ImportError:
    sys.exit("This example draws a picture: pip install matplotlib")

import kerasish as keras
from kerasish import layers

keras.utils.set_random_seed(0)

# %%
# The data
# --------
# 30,000 generated payments of 12 features. The split keeps the share of fraud equal in all parts:
# with few positives, chance could leave a part with too few of them.

x, y = make_classification(
    30_000, n_features=12, n_informative=6, n_redundant=2, n_clusters_per_class=3,
    weights=[0.98], flip_y=0.002, class_sep=1.2, random_state=0,
)  # fmt: skip
x, x_test, y, y_test = train_test_split(x, y, test_size=1 / 3, stratify=y, random_state=0)
x, x_valid, y, y_valid = train_test_split(x, y, test_size=1 / 4, stratify=y, random_state=0)
print(f"{len(y):,} payments to learn from, {y.sum()} of them are fraud")

# %%
# Class weights
# -------------
# The errors of a class are multiplied by its weight. With these weights both classes count the same
# in the sum: the few frauds weigh as much as all honest payments.

share = y.mean()
weights = {0: 0.5 / (1 - share), 1: 0.5 / share}
print(f"class weights: {weights[0]:.2f} and {weights[1]:.2f}")


def train(class_weight: dict[int, float] | None) -> keras.Model:
    """Return a trained network: the probability of fraud."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((12,)),
            layers.BatchNormalization(),
            layers.Dense(64, activation="relu"),
            layers.Dense(32, activation="relu"),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(
        keras.optimizers.Adam(0.003), "binary_crossentropy",
        metrics=["accuracy", keras.metrics.Precision(), keras.metrics.Recall()],
    )  # fmt: skip
    model.fit(x, y, batch_size=128, epochs=12, class_weight=class_weight, verbose=0)
    return model


models = {"plain": train(None), "weighted": train(weights)}

# %%
# The threshold
# -------------
# An alarm need not start at a probability of 0.5. Here a fraud that is missed costs 100, a false
# alarm 3. Of all thresholds, the one with the lowest cost on validation data is taken.

MISSED, FALSE_ALARM = 100, 3


def cost(y: np.ndarray, alarm: np.ndarray) -> float:
    """Return the cost per payment of alarms (booleans) where `y` is the truth."""
    return (MISSED * np.sum(y[~alarm]) + FALSE_ALARM * np.sum(1 - y[alarm])) / len(y)


def best_threshold(y: np.ndarray, likely: np.ndarray) -> float:
    candidates = np.quantile(likely, np.linspace(0.5, 0.999, 500))
    return float(min(candidates, key=lambda at: cost(y, likely > at)))


valid = {name: model.predict(x_valid, verbose=0)[:, 0] for name, model in models.items()}
test = {name: model.predict(x_test, verbose=0)[:, 0] for name, model in models.items()}
chosen = {name: best_threshold(y_valid, likely) for name, likely in valid.items()}

alarms = {"never an alarm": np.zeros(len(y_test), bool)}
for name, likely in test.items():
    alarms[f"{name}, at 0.5"] = likely > 0.5
    alarms[f"{name}, chosen"] = likely > chosen[name]
print(f"{'':<18} accuracy  precision  recall   cost")
for name, alarm in alarms.items():
    right = np.sum(y_test[alarm])
    precision, recall = right / max(alarm.sum(), 1), right / y_test.sum()
    print(f"{name:<18} {np.mean(alarm == y_test):8.3f} {precision:10.3f} {recall:7.3f} "
          f"{cost(y_test, alarm):6.2f}")  # fmt: skip

# %%
# What one sees
# -------------
# Never giving an alarm has a high accuracy and the highest cost. At the threshold of 0.5, the class
# weights trade precision for recall. With a chosen threshold both networks cost nearly the same: at
# high recall, where these costs lead, their curves meet. So the threshold matters more than the
# weights, and it needs no new training.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
for (name, likely), color in zip(test.items(), ("tab:blue", "tab:orange")):
    precision, recall, _ = precision_recall_curve(y_test, likely)
    area = average_precision_score(y_test, likely)
    left.plot(recall, precision, color=color, label=f"{name} (average precision {area:.2f})")
    for at, marker in ((0.5, "o"), (chosen[name], "*")):
        alarm = likely > at
        hits = np.sum(y_test[alarm])
        left.plot(
            hits / y_test.sum(), hits / alarm.sum(), marker, color=color, markersize=11,
            markeredgecolor="black",
        )  # fmt: skip
    at = np.linspace(0.005, 0.995, 199)
    costs = [cost(y_test, likely > one) for one in at]
    right.plot(at, costs, color=color, label=name)
    right.plot(chosen[name], cost(y_test, likely > chosen[name]), "*", color=color, markersize=13,
               markeredgecolor="black")  # fmt: skip
left.axhline(share, color="gray", linestyle=":", label="alarms at random")
left.plot([], [], "o", color="white", markeredgecolor="black", label="threshold 0.5")
left.plot([], [], "*", color="white", markeredgecolor="black", markersize=11, label="chosen")
left.set(title="Precision-recall curve", xlabel="recall", ylabel="precision", ylim=(0, 1.03))
left.legend(loc="lower left", fontsize=9)
right.axhline(MISSED * y_test.mean(), color="gray", linestyle=":", label="never an alarm")
right.set(title="Cost of errors", xlabel="threshold", ylabel="cost per payment", ylim=(0, None))
right.legend(fontsize=9)

picture = sys.argv[1] if len(sys.argv) > 1 else "imbalanced_classes.png"
figure.savefig(picture, dpi=110)
print(f"picture: {picture}")
