"""Handwritten digits from start to end: train, be killed, resume, evaluate, search, draw.

    python examples/quickstart.py

Everything it writes goes to quickstart_output/ (--output changes that). It trains a small
convolutional network on scikit-learn's 1,797 digits (no download) in a separate process, kills
that process in the middle, as a power cut would, and continues from the last backup. Then it
measures the best model on digits held out from the start, searches the settings of a smaller
network with scikit-learn's GridSearchCV, and draws what happened. The exit status is 0 if more
than 97 % of the held-out digits were recognized.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

try:
    import kerasish as keras
except ImportError:
    sys.exit("Install kerasish first: pip install . (in the folder above this one)")
from kerasish import layers

GOAL = 0.97
EPOCHS = 40
KILL_AFTER = 4  # epochs


def load_digits() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return training and held-out digits as floating pictures of 8 x 8 x 1, with labels."""
    (x_train, y_train), (x_test, y_test) = keras.datasets.digits.load_data()
    return (
        (x_train[..., None].astype("float32"), y_train),
        (x_test[..., None].astype("float32"), y_test),
    )


def make_cnn() -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Rescaling(1 / 16),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Dropout(0.3),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dropout(0.3),
            layers.Dense(10, activation="softmax"),
        ],
        name="digits",
    )
    optimizer = keras.optimizers.Adam(0.003)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def train(output: Path) -> None:
    """Train, going on from the backup in `output` where there is one."""
    keras.utils.set_random_seed(1)
    (x, y), _ = load_digits()
    callbacks = [
        keras.callbacks.BackupAndRestore(output / "backup"),
        keras.callbacks.ModelCheckpoint(output / "best.keras", save_best_only=True),
        keras.callbacks.EarlyStopping(patience=4, verbose=1),
        keras.callbacks.CSVLogger(output / "log.csv", append=True),
    ]
    make_cnn().fit(x, y, batch_size=32, epochs=EPOCHS, validation_split=0.15, callbacks=callbacks)


def train_until_killed(output: Path) -> None:
    """Train in another process, and kill it when `KILL_AFTER` epochs are done."""
    command = [sys.executable, __file__, "--output", str(output), "--train"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        for line in child.stdout or ():
            print(line, end="", flush=True)
            if line.startswith(f"Epoch {KILL_AFTER}/"):
                child.kill()
                print("(killed)")
                return
    sys.exit(f"The training process ended by itself, with status {child.returncode}.")


def read_log(output: Path) -> dict[int, dict[str, float]]:
    """Return epoch -> numbers; an epoch that ran again after the kill counts once."""
    with (output / "log.csv").open(newline="") as file:
        rows = [{name: float(cell) for name, cell in row.items()} for row in csv.DictReader(file)]
    return {int(row.pop("epoch")) + 1: row for row in rows}


def evaluate(output: Path) -> tuple[float, np.ndarray]:
    """Return the best model's accuracy on the held-out digits, and its confusion matrix."""
    _, (x, y) = load_digits()
    model = keras.models.load_model(output / "best.keras")
    _, accuracy = model.evaluate(x, y, verbose=0)
    predicted = model.predict(x, verbose=0).argmax(axis=1)
    confusion = np.zeros((10, 10), int)
    np.add.at(confusion, (y, predicted), 1)
    return accuracy, confusion


def make_mlp(units: int = 32) -> keras.Model:
    return keras.Sequential(
        [keras.Input((64,)), layers.Dense(units, activation="relu"), layers.Dense(10, "softmax")]
    )


def search() -> None:
    """Search the width and the learning rate of a small network, scaled inputs before it."""
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from kerasish.wrappers import KerasClassifier

    (x, y), (x_test, y_test) = load_digits()
    network = KerasClassifier(
        make_mlp, loss="sparse_categorical_crossentropy", optimizer="adam", epochs=8, verbose=0,
        random_state=0,
    )  # fmt: skip
    grid = {
        "kerasclassifier__model__units": [16, 64],
        "kerasclassifier__optimizer__learning_rate": [0.001, 0.01],
    }
    search = GridSearchCV(make_pipeline(StandardScaler(), network), grid, cv=3)
    search.fit(x.reshape(len(x), -1), y)
    results = search.cv_results_
    for settings, mean, spread in zip(
        results["params"], results["mean_test_score"], results["std_test_score"]
    ):
        named = ", ".join(f"{k.rpartition('__')[2]} {v}" for k, v in settings.items())
        mark = "  <- best" if settings == search.best_params_ else ""
        print(f"  {named:<31} {mean:.3f} ± {spread:.3f}{mark}")
    print(
        f"  the best one on the held-out digits: {search.score(x_test.reshape(-1, 64), y_test):.3f}"
    )


def draw(output: Path, log: dict[int, dict[str, float]], confusion: np.ndarray) -> Path | None:
    """Draw curves and confusion matrix; return the path, or None where Matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (losses, accuracies, matrix) = pyplot.subplots(
        1, 3, figsize=(14, 4.4), layout="constrained", width_ratios=(1, 1, 1.05)
    )
    epochs = sorted(log)
    for axes, name in ((losses, "loss"), (accuracies, "accuracy")):
        axes.plot(epochs, [log[e][name] for e in epochs], label="training (with dropout)")
        axes.plot(epochs, [log[e][f"val_{name}"] for e in epochs], label="validation")
        axes.axvline(KILL_AFTER + 0.5, color="gray", linestyle=":", label="killed, resumed")
        axes.set(title=name.capitalize(), xlabel="epoch")
        axes.grid(alpha=0.3)
        axes.legend()
    losses.set_yscale("log")
    # Rare mistakes would vanish next to full counts: colors show the square root.
    matrix.imshow(np.sqrt(confusion), cmap="Blues")
    for row, column in np.argwhere(confusion):
        dark = confusion[row, column] > confusion.max() / 4
        matrix.text(
            column, row, confusion[row, column], ha="center", va="center",
            color="white" if dark else "black",
        )  # fmt: skip
    matrix.set(
        title=f"Held-out digits: {np.trace(confusion)} of {confusion.sum()} recognized",
        xlabel="predicted", ylabel="true", xticks=range(10), yticks=range(10),
    )  # fmt: skip
    path = output / "quickstart.png"
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return path


def clean(output: Path) -> None:
    """Make the folder, and remove what an earlier run left there."""
    output.mkdir(parents=True, exist_ok=True)
    for path in [*(output / "backup").glob("*"), *map(output.joinpath, ("log.csv", "best.keras"))]:
        path.unlink(missing_ok=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("quickstart_output"))
    parser.add_argument("--train", action="store_true", help="only train, or continue the training")
    arguments = parser.parse_args()
    output = arguments.output
    if arguments.train:
        train(output)
        return 0
    start = time.perf_counter()
    clean(output)
    print(
        f"1. Train a small CNN on handwritten digits; kill it after epoch {KILL_AFTER}", flush=True
    )
    train_until_killed(output)
    print("\n2. Resume from the backup, to the end")
    train(output)
    print("\n3. Evaluate the best epoch's model, read back from its file")
    accuracy, confusion = evaluate(output)
    print(f"  {accuracy:.1%} of {confusion.sum()} held-out digits recognized")
    print("\n4. Search the settings of a smaller network with GridSearchCV")
    search()
    picture = draw(output, read_log(output), confusion)
    shown = picture or "none, since Matplotlib is missing: pip install '.[plot]' adds it"
    print(f"\nPicture: {shown}\nTime: {time.perf_counter() - start:.0f} s")
    if accuracy <= GOAL:
        print(f"Expected more than {GOAL:.0%} of the held-out digits to be recognized.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
