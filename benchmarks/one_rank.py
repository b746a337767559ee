"""`python -m benchmarks.one_rank`: what a step costs under `mpiexec -n 1`, and in a plain process.

One process trains as it is; another one, started by mpiexec, has joined its group of one and trains
by `DataParallel`. They take turns of a few steps, so that other work on the machine strikes both
alike: the medians of the turns' ratios count.

    python -m benchmarks.one_rank --workloads mlp,cnn,lstm --seconds 10
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import kerasish as keras
from benchmarks.report import format_table, show_time
from benchmarks.workloads import WORKLOADS, compile_model, make_data
from kerasish import launch

ROOT = Path(__file__).resolve().parent.parent
STEPS, EPOCHS = 8, 3  # of an epoch; of a turn


def serve(name: str, ranks: bool) -> None:
    """Train for a turn at each line of stdin; print the CPU and the wall seconds per step.

    Args:
        name: of the workload.
        ranks: whether to join a group, and train by `DataParallel`.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {(os.cpu_count() or 1) - 1})
    if ranks:
        keras.distribution.initialize()
        keras.distribution.set_distribution(keras.distribution.DataParallel())
    keras.utils.set_random_seed(0)
    workload = WORKLOADS[name]
    model = workload.build(keras)
    compile_model(keras, model)
    x, y = make_data(workload, workload.batch * STEPS)
    given: dict[str, Any] = {"batch_size": workload.batch, "verbose": 0, "shuffle": False}
    model.fit(x, y, **given)
    print("ready", flush=True)
    for _ in sys.stdin:
        cpu, wall = time.process_time(), time.perf_counter()
        model.fit(x, y, epochs=EPOCHS, **given)
        taken = time.process_time() - cpu, time.perf_counter() - wall
        print(*(seconds / STEPS / EPOCHS for seconds in taken), flush=True)


def start(name: str, ranks: bool) -> subprocess.Popen[str]:
    """Return a process that runs `serve`."""
    python_path = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    command = [sys.executable, "-m", "benchmarks.one_rank", "--serve", name]
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    more = launch.environment(1, {**os.environ, "OMP_NUM_THREADS": "1"}, launch.cores(), root)
    if ranks:
        command = [launch.find_mpiexec(), "-n", "1", *command, "--ranks"]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, **more, "OMP_NUM_THREADS": "1", "PYTHONPATH": python_path},
    )  # fmt: skip


def ask(process: subprocess.Popen[str]) -> list[float]:
    """Return what a process says of one turn."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return [float(word) for word in process.stdout.readline().split()]


def measure(name: str, seconds: float) -> np.ndarray:
    """Return turns x (plain, by mpiexec) x (CPU, wall) seconds per step."""
    both = [start(name, ranks) for ranks in (False, True)]
    for process in both:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    turns: list[list[list[float]]] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        order = (0, 1) if len(turns) % 2 else (1, 0)
        taken = {i: ask(both[i]) for i in order}
        turns.append([taken[0], taken[1]])
    for process in both:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=30)
    return np.array(turns[1:])


def main(arguments: Sequence[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.one_rank", description=__doc__)
    parser.add_argument("--workloads", default="mlp,cnn,lstm,transformer")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each workload")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--ranks", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.serve:
        serve(given.serve, given.ranks)
        return 0
    rows = []
    for name in given.workloads.split(","):
        turns = measure(name, given.seconds)
        ratios = np.median(turns[:, 1] / turns[:, 0], axis=0) - 1
        least = turns[:, 1].min(axis=0) / turns[:, 0].min(axis=0) - 1
        plain, ranks = (show_time(float(s)) for s in np.median(turns[:, :, 0], axis=0))
        rows.append([name, plain, ranks, f"{ratios[0]:+.2%}", f"{least[0]:+.2%}",
                     f"{ratios[1]:+.2%}", f"{len(turns)}"])  # fmt: skip
    header = ["workload", "plain", "mpiexec -n 1", "CPU", "CPU, least", "wall", "turns"]
    print(format_table(header, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
