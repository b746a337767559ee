"""What each source of batches costs in `fit`, compared with the same arrays in memory.

Each source and the arrays take turns in one process: two epochs of the model per turn. "step" is
the wall-clock time between the start of the first epoch and the end of the last one, divided by the
number of steps. "best" divides the shortest turns, "median" the medians, and "paired" is the median
of the ratios within a turn.
CPU seconds count all threads. "waits" is the share of the time in which the training waited for a
batch. "memory" is what the process's peak grew by in the turns of the source.

The rows are float32 and labels. A function given to `map` multiplies once, so that the function
itself costs next to nothing. Files are in a temporary folder and in the system's cache of files.

On a busy machine a step pushes Python's own memory out of the caches, and each of the few Python
calls per batch takes several times as long: take an idle one.

Run: python -m benchmarks.input_pipelines [--workload cnn] [--turns N] [--only NAMES]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import kerasish as keras
from benchmarks.machine import describe_machine
from benchmarks.report import format_table
from benchmarks.workloads import WORKLOADS, compile_model, make_data
from kerasish.callbacks import Callback, InputMonitor
from kerasish.data import Dataset

EPOCHS = 2
BATCHES = {"mlp": 60, "cnn": 12}  # per epoch
Source = tuple[tuple[Any, ...], dict[str, Any]]  # the arguments of fit


def scaled(x: Any, y: Any) -> tuple[Any, Any]:
    """Return an element with x doubled."""
    return x * 2.0, y


class Slices(keras.utils.PyDataset):
    """Batches that are slices of arrays."""

    def __init__(self, x: np.ndarray, y: np.ndarray, batch: int, workers: int) -> None:
        super().__init__(workers=workers)
        self.x, self.y, self.batch = x, y, batch

    def __len__(self) -> int:
        return len(self.x) // self.batch

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        rows = slice(index * self.batch, (index + 1) * self.batch)
        return self.x[rows], self.y[rows]


class Chosen(Slices):
    """Batches of rows in a given order."""

    def __init__(self, x: np.ndarray, y: np.ndarray, batch: int, workers: int) -> None:
        super().__init__(x, y, batch, workers)
        self.order = np.random.default_rng(1).permutation(len(x))

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        rows = self.order[index * self.batch : (index + 1) * self.batch]
        return self.x[rows], self.y[rows]


def slices(x: np.ndarray, y: np.ndarray, batch: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield batches without an end."""
    while True:
        for start in range(0, len(x) - batch + 1, batch):
            yield x[start : start + batch], y[start : start + batch]


def sources(
    x: np.ndarray, y: np.ndarray, batch: int, folder: Path
) -> dict[str, Callable[[], Source]]:
    """Return name -> function that makes the arguments of `fit`."""
    rows, count, sizes = Dataset.from_tensor_slices((x, y)), len(x), {"batch_size": batch}
    steps = {"steps_per_epoch": count // batch}
    np.save(folder / "x.npy", x)
    mapped = np.load(folder / "x.npy", mmap_mode="r")
    made: dict[str, Callable[[], Source]] = {
        "Dataset: shuffle, batch": lambda: ((rows.shuffle(count, 1).batch(batch),), {}),
        "Dataset: shuffle, batch, prefetch": lambda: (
            (rows.shuffle(count, 1).batch(batch).prefetch(2),), {}
        ),
        "Dataset: shuffle, batch, map, prefetch": lambda: (
            (rows.shuffle(count, 1).batch(batch).map(scaled).prefetch(2),), {}
        ),
        "Dataset: map, shuffle, batch, prefetch": lambda: (
            (rows.map(scaled).shuffle(count, 1).batch(batch).prefetch(2),), {}
        ),
        "PyDataset: slices, workers=0": lambda: ((Slices(x, y, batch, 0),), {}),
        "PyDataset: slices, workers=1": lambda: ((Slices(x, y, batch, 1),), {}),
        "PyDataset: slices, workers=2": lambda: ((Slices(x, y, batch, 2),), {}),
        "PyDataset: chosen rows, workers=1": lambda: ((Chosen(x, y, batch, 1),), {}),
        "generator of slices": lambda: ((slices(x, y, batch),), steps),
        "memory map": lambda: ((mapped, y), sizes),
        "memory map, shuffle=batch": lambda: ((mapped, y), {**sizes, "shuffle": "batch"}),
    }  # fmt: skip
    try:
        import h5py
    except ImportError:
        return made
    with h5py.File(folder / "rows.h5", "w") as file:
        file["x"] = x
    stored = h5py.File(folder / "rows.h5")["x"]
    made["HDF5"] = lambda: ((stored, y), sizes)
    made["HDF5, shuffle=batch"] = lambda: ((stored, y), {**sizes, "shuffle": "batch"})
    return made


class Clock(Callback):
    """The seconds between the start of the first epoch and the end of the last one."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Start with the first epoch."""
        if not epoch:
            self.cpu, self.wall = time.process_time(), time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Note the time so far."""
        self.spent = time.process_time() - self.cpu, time.perf_counter() - self.wall


@dataclass
class Turns:
    """What the turns of a source took, and those of the arrays between them."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    memory: float = 0.0


def epochs(model: keras.Model, source: Source) -> tuple[float, float, float]:
    """Train for two epochs; return CPU seconds, wall-clock seconds, and the share of waiting."""
    clock, (data, options) = Clock(), source
    callbacks = [clock, InputMonitor(verbose=0)]
    model.fit(*data, verbose=0, epochs=EPOCHS, callbacks=callbacks, **options)
    return *clock.spent, model.history.history["input_wait"][-1]


def peak() -> float:
    """Return the largest resident memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(model: keras.Model, arrays: Source, make: Callable[[], Source], result: Turns) -> None:
    """Give a source and the arrays a turn."""
    before, spent = peak(), {}
    for plain in (True, False) if len(result.wall) % 2 else (False, True):
        spent[plain] = epochs(model, arrays if plain else make())
    result.cpu.append(spent[False][0] / spent[True][0])
    result.wall.append(spent[False][1])
    result.plain.append(spent[True][1])
    result.waits.append(spent[False][2])
    result.memory += peak() - before


def line(name: str, turns: Turns, steps: int) -> list[str]:
    """Return a row of the table."""
    best = min(turns.wall) / min(turns.plain) - 1
    median = statistics.median(turns.wall) / statistics.median(turns.plain) - 1
    paired = statistics.median(a / b for a, b in zip(turns.wall, turns.plain)) - 1
    return [
        name, f"{min(turns.wall) / steps * 1e3:.3f}", f"{min(turns.plain) / steps * 1e3:.3f}",
        f"{best:+.1%}", f"{median:+.1%}", f"{paired:+.1%}",
        f"{statistics.median(turns.cpu) - 1:+.1%}", f"{statistics.median(turns.waits):.1%}",
        f"{turns.memory:+.0f} MB",
    ]  # fmt: skip


def main(arguments: list[str]) -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.input_pipelines")
    parser.add_argument("--workload", choices=BATCHES, default="mlp")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--only", default="", help="parts of names, with commas")
    options = parser.parse_args(arguments)
    workload, machine = WORKLOADS[options.workload], describe_machine()
    print(f"{machine['cpu']}, {machine['cores']} cores, load {machine['load']}")
    print(f"NumPy {np.__version__}, Python {sys.version[:6]}, the static engine")
    steps = BATCHES[workload.name]
    x, y = make_data(workload, steps * workload.batch)
    model = compile_model(keras, workload.build(keras))
    arrays: Source = ((x, y), {"batch_size": workload.batch})
    epochs(model, arrays)  # compiles
    print(f"{workload.name}: {steps} batches of {workload.batch} rows, {options.turns} turns")
    parts = options.only.split(",")
    results: dict[str, Turns] = {}
    with tempfile.TemporaryDirectory() as folder:
        makers = sources(x, y, workload.batch, Path(folder))
        makers = {n: m for n, m in makers.items() if any(part in n for part in parts)}
        for _ in range(options.turns):
            for name, make in makers.items():
                measure(model, arrays, make, results.setdefault(name, Turns()))
    rows = [line(name, turns, EPOCHS * steps) for name, turns in results.items()]
    header = [
        "source",
        "step ms",
        "arrays ms",
        "best",
        "median",
        "paired",
        "CPU",
        "waits",
        "memory",
    ]
    print(format_table(header, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
