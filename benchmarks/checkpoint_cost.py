"""What it costs to keep the training state after every batch: `fit` with resume against without.

The two take turns in one process. CPU seconds count all threads; wall-clock seconds are also
shown. "saving" is the share of the CPU seconds that was spent inside of saving, in all threads: on
a busy machine, where the same work takes more or fewer seconds each time, it says more than the
ratios. "states" is how many reached the disk: in the background those that fall due while one is
being written, or that would cost more than `Resume.share` of the time, are left out for the latest.

Run: python -m benchmarks.checkpoint_cost [epochs] [turns]
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import kerasish as keras
from benchmarks.machine import describe_machine
from kerasish import layers
from kerasish.callbacks import Resume


class Counted(Resume):
    """Counts the states, and how old the latest one on the disk grows."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.states, self.cost = 0, 0.0
        self.ages: list[float] = []
        self._last = time.perf_counter()

    def save(self, epoch: int, batch: int, logs: Any = None) -> None:
        """Save, and count the CPU seconds of this thread."""
        start = time.thread_time()
        super().save(epoch, batch, logs)
        self.cost += time.thread_time() - start

    def _write(self, state: dict[str, Any]) -> None:
        start = time.thread_time()
        super()._write(state)
        if self.background:  # else `save` has counted it
            self.cost += time.thread_time() - start
        now = time.perf_counter()
        self.states += 1
        self.ages.append(now - self._last)
        self._last = now


def make(eager: bool) -> keras.Model:
    """Return the MLP for scikit-learn's digits."""
    model = keras.Sequential(
        [
            keras.Input((64,)), layers.Dense(64, "relu"), layers.Dense(64, "relu"),
            layers.Dense(10, "softmax"),
        ]
    )  # fmt: skip
    loss = "sparse_categorical_crossentropy"
    model.compile("adam", loss, metrics=["accuracy"], run_eagerly=eager)
    return model


def measure(eager: bool, way: dict[str, Any], epochs: int, turns: int) -> dict[str, Any]:
    """Return the extra cost of each turn in parts of the time without, and what was saved."""
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype("float32")
    model = make(eager)
    model.fit(x, y, epochs=2, verbose=0)
    cpu, wall, states, ages, single, saving_share = [], [], 0, [], [], []
    for turn in range(turns):
        spent: dict[bool, tuple[float, float]] = {}
        for saving in (True, False) if turn % 2 else (False, True):
            with tempfile.TemporaryDirectory() as folder:
                resume = Counted(Path(folder, "states"), **way) if saving else None
                start = time.process_time(), time.perf_counter()
                model.fit(x, y, epochs=epochs, verbose=0, resume=resume)
                spent[saving] = time.process_time() - start[0], time.perf_counter() - start[1]
            if resume is not None:
                states += resume.states
                ages += resume.ages[1:]
                saving_share.append(resume.cost / spent[True][0])
        cpu.append(spent[True][0] / spent[False][0] - 1)
        wall.append(spent[True][1] / spent[False][1] - 1)
        single.append(spent[False][1])
    batches = epochs * -(-len(x) // 32)
    return {
        "cpu": cpu, "wall": wall, "states": states / turns, "batches": batches,
        "saving": float(np.median(saving_share)), "apart": float(np.median(ages)),
        "step": float(np.median(single)) / batches,
    }  # fmt: skip


def main(arguments: list[str]) -> None:
    """Print the table."""
    epochs = int(arguments[0]) if arguments else 100
    turns = int(arguments[1]) if len(arguments) > 1 else 9
    machine = describe_machine()
    print(f"{machine['cpu']}, {machine['cores']} cores, load {machine['load']}, {turns} turns")
    print(f"states go to {tempfile.gettempdir()}, NumPy {np.__version__}, Python {sys.version[:6]}")
    head = f"{'engine':<7} {'way':<22} {'step':>8} {'CPU':>7} {'least':>7} {'most':>7} {'wall':>7}"
    print(f"{head} {'saving':>7} {'states':>13} {'apart':>9}")
    background: dict[str, Any] = {"every": 1}
    ways = {
        "every batch, aside": background,
        "every 500, waiting": {"every": 500, "background": False},
    }
    for engine, eager, scale in (("static", False, 1), ("eager", True, 10)):
        for name, way in ways.items():
            result = measure(eager, way, max(1, epochs // scale), turns)
            cpu, wall = np.array(result["cpu"]) * 100, np.array(result["wall"]) * 100
            print(
                f"{engine:<7} {name:<22} {1e6 * result['step']:>5.0f} us {np.median(cpu):>+6.1f}% "
                f"{cpu.min():>+6.1f}% {cpu.max():>+6.1f}% {np.median(wall):>+6.1f}% "
                f"{100 * result['saving']:>6.1f}% {result['states']:>5.0f}/{result['batches']:<7} "
                f"{1e3 * result['apart']:>6.0f} ms",
                flush=True,
            )


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(sys.argv[1:])
