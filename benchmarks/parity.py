"""`python -m benchmarks parity`: do losses follow Keras's, step by step?

Reference and candidate get the same weights and the same batches and train 20 steps; their losses
must agree within `TOLERANCE`. Each runs in its own process, since Keras has one backend a process.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import calls
from benchmarks.peers import PEERS, is_installed, worker_environment
from benchmarks.report import format_table
from benchmarks.rounds import ROOT
from benchmarks.workloads import compile_model

STEPS, BATCH, TOLERANCE = 20, 32, 1e-4


def build_mlp(keras: Any) -> Any:
    """Two hidden layers."""
    layers = keras.layers
    stack = [layers.Dense(64, activation="relu"), layers.Dense(32, activation="tanh")]
    return keras.Sequential([keras.Input(shape=(40,)), *stack, layers.Dense(5)])


def build_cnn(keras: Any) -> Any:
    """Convolutions with both paddings, both poolings."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input(shape=(14, 14, 3)),
            layers.Conv2D(8, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Conv2D(16, 3, strides=2, padding="same", activation="relu"),
            layers.AveragePooling2D(2, padding="same"),
            layers.Flatten(),
            layers.Dense(5),
        ]
    )


def build_norm(keras: Any) -> Any:
    """Batch normalization after a convolution and after a dense layer."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input(shape=(8, 8, 3)),
            layers.Conv2D(8, 3, use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(16),
            layers.BatchNormalization(),
            layers.Activation("relu"),
            layers.Dense(5),
        ]
    )


def build_lstm(keras: Any) -> Any:
    """Embedding, LSTM, Dense."""
    layers = keras.layers
    inputs = keras.Input(shape=(12,), dtype="int32")
    return keras.Sequential([inputs, layers.Embedding(50, 16), layers.LSTM(24), layers.Dense(5)])


MODELS = {"mlp": build_mlp, "cnn": build_cnn, "batchnorm": build_norm, "lstm": build_lstm}
_SHAPES = {"mlp": (40,), "cnn": (14, 14, 3), "batchnorm": (8, 8, 3), "lstm": (12,)}
OPTIMIZERS = {
    "adam": lambda keras: keras.optimizers.Adam(learning_rate=0.01),
    "sgd+momentum": lambda keras: keras.optimizers.SGD(learning_rate=0.05, momentum=0.9),
}


def make_batches(name: str) -> tuple[np.ndarray, np.ndarray]:
    """`STEPS` batches of random samples and labels for model `name`."""
    rng = np.random.default_rng(5)
    shape = (STEPS * BATCH, *_SHAPES[name])
    labels = rng.integers(0, 5, STEPS * BATCH, dtype=np.int32)
    if name == "lstm":
        return rng.integers(0, 50, shape, dtype=np.int32), labels
    return rng.standard_normal(shape, dtype=np.float32), labels


def make_weights(shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
    """Weights of these shapes, the same for everyone: small, positive where a variance may be."""
    rng = np.random.default_rng(9)
    return [
        rng.uniform(0.5, 1.5, shape).astype(np.float32)
        if len(shape) == 1
        else rng.uniform(-0.2, 0.2, shape).astype(np.float32)
        for shape in shapes
    ]


def train(keras: Any, model_name: str, optimizer_name: str) -> list[float]:
    """Loss of each of `STEPS` training steps."""
    model = MODELS[model_name](keras)
    model.set_weights(make_weights([tuple(array.shape) for array in model.get_weights()]))
    compile_model(keras, model, OPTIMIZERS[optimizer_name](keras))
    x, y = make_batches(model_name)
    losses = []
    for step in range(STEPS):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        model.reset_metrics()
        losses.append(float(model.train_on_batch(x[rows], y[rows], return_dict=True)["loss"]))
    return losses


def train_all(api: str) -> dict[str, Any]:
    """Losses of the Keras-like module `api` by "model, optimizer"; where it failed, the error."""
    keras = importlib.import_module(api)
    losses: dict[str, Any] = {}
    for model in MODELS:
        for optimizer in OPTIMIZERS:
            try:
                losses[f"{model}, {optimizer}"] = train(keras, model, optimizer)
            except Exception as error:  # reported for this pair; the others still count
                losses[f"{model}, {optimizer}"] = f"{type(error).__name__}: {error}"
    return losses


def run_peer(name: str) -> dict[str, Any]:
    """`train_all` in a process of peer `name`."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "losses.json"
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.parity", "--child", PEERS[name].api, str(target)],
            cwd=ROOT,
            env=worker_environment(PEERS[name], None, folder, gpu=False),
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise SystemExit(f"{name} failed:\n{done.stderr[-3000:]}")
        result: dict[str, Any] = json.loads(target.read_text())
        return result


def largest_difference(reference: list[float], candidate: list[float]) -> float:
    """Largest |a - b| / max(1, |a|); NaN counts as infinite."""
    a, b = np.asarray(reference), np.asarray(candidate)
    difference = np.abs(a - b) / np.maximum(1.0, np.abs(a))
    return float(np.where(np.isnan(difference), np.inf, difference).max())


def main(arguments: list[str]) -> int:
    """Compare and print; 1 where any pair differs by more than the tolerance."""
    if arguments[:1] == ["--child"]:
        Path(arguments[2]).write_text(json.dumps(train_all(arguments[1])))
        return 0
    peers = [name for name, peer in PEERS.items() if peer.runner == "keras"]
    keras = [name for name in peers if PEERS[name].kind == "keras" and is_installed(PEERS[name])]
    parser = argparse.ArgumentParser(prog="python -m benchmarks parity", description=__doc__)
    parser.add_argument("--reference", choices=peers, default=keras[0] if keras else "keras-jax")
    parser.add_argument("--candidates", default="kerasish,kerasish-eager", help="with commas")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE)
    parser.add_argument("--calls", action="store_true", help="every op and layer, call by call")
    options = parser.parse_args(arguments)
    if options.calls:
        return calls.main()
    for name in (options.reference, *options.candidates.split(",")):
        if name not in peers or not is_installed(PEERS[name]):
            parser.error(f"{name!r} is not installed, or none of {', '.join(peers)}")
    reference = run_peer(options.reference)
    failures = 0
    for name in options.candidates.split(","):
        failures += _compare(name, run_peer(name), options.reference, reference, options.tolerance)
    return 1 if failures else 0


def _compare(
    name: str, losses: dict[str, Any], against: str, reference: dict[str, Any], tolerance: float
) -> int:
    rows, failures = [], 0
    for pair, expected in reference.items():
        got = losses[pair]
        if isinstance(expected, str) or isinstance(got, str):
            rows.append(
                [pair, "-", "-", "-", f"FAILED {got if isinstance(got, str) else expected}"]
            )
            failures += 1
            continue
        difference = largest_difference(expected, got)
        good = difference <= tolerance
        failures += not good
        verdict = "ok" if good else f"BEYOND {tolerance:g}"
        first, last = f"{expected[0]:.6f}", f"{expected[-1]:.6f}"
        rows.append([pair, first, last, f"{difference:.2e}", verdict])
    header = ["model, optimizer", "first loss", "last loss", "difference", ""]
    print(f"{name} against {against}, {STEPS} steps\n{format_table(header, rows)}\n", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
