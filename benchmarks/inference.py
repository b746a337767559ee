"""`python -m benchmarks inference`: predictions by kerasish, native libraries and ONNX Runtime.

All run in one process, in turns. `predict` is `Model.predict`, `native` the library of
`Model.export(format="native")` through ctypes, `onnxruntime` a session on the exported file.
kerasish and ONNX Runtime use `--threads` threads. A call of a native library uses one: several rows
are divided among as many Python threads, one row is computed by one.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from benchmarks.machine import describe_machine, find_versions
from benchmarks.report import format_table, show_time
from benchmarks.workloads import WORKLOADS, Workload, make_data

Call = Callable[[], Any]
_PEER = "onnxruntime"
# Seconds for the threads of one way to stop spinning before the next one starts: those of ONNX
# Runtime took a processor for 43 ms after a call, those of kerasish and of native libraries none.
_PAUSE = 0.06


def make_calls(workload: Workload, rows: int, threads: int, folder: str) -> dict[str, Call]:
    """Return for each way of predicting a function that returns the outputs of the same rows.

    Args:
        workload: the model and its data.
        rows: how many are predicted at once.
        threads: for each way.
        folder: where files are written; a new one for each call.
    """
    import kerasish

    kerasish.config.set_backend("static")
    kerasish.utils.set_random_seed(0)
    kerasish.config.set_threads(threads)
    model = workload.build(kerasish)
    x = make_data(workload, rows)[0]
    calls: dict[str, Call] = {
        "predict": lambda: model.predict(x, batch_size=rows, verbose=0),
        "native": _native(model, x, workload.classes, threads, folder),
    }
    if importlib.util.find_spec(_PEER) is not None:
        calls[_PEER] = _onnxruntime(model, x, threads, folder)
    return calls


def _native(model: Any, x: Any, classes: int, threads: int, folder: str) -> Call:
    from kerasish.export.native.link import library_suffix

    # Each library gets a new name: the system keeps libraries by their path.
    name = f"model_{time.time_ns()}"
    model.export(os.path.join(folder, name), format="native", verbose=False)
    library = ctypes.CDLL(os.path.join(folder, name + library_suffix()))
    predict = getattr(library, f"{name}_predict")
    y = np.zeros((len(x), classes), "float32")

    def part(first: int, last: int) -> list[Any]:
        pointers = [ctypes.c_void_p(a[first:].ctypes.data) for a in (x, y)]
        return [*pointers, ctypes.c_int64(last - first), None]

    cuts = [len(x) * i // threads for i in range(threads + 1)] if len(x) >= threads else [0, len(x)]
    parts = [part(a, b) for a, b in zip(cuts, cuts[1:])]
    pool = ThreadPoolExecutor(len(parts)) if len(parts) > 1 else None

    def run() -> Any:
        others = [pool.submit(predict, *p) for p in parts[1:]] if pool is not None else []
        codes = [predict(*parts[0]), *(f.result() for f in others)]
        if any(codes):
            raise RuntimeError(f"{name}_predict returned {codes}")
        return y

    return run


def _onnxruntime(model: Any, x: Any, threads: int, folder: str) -> Call:
    import onnxruntime

    path = os.path.join(folder, "model.onnx")
    model.export(path, verbose=False, verify=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda: session.run(None, {name: x})[0]


def measure(calls: dict[str, Call], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Return for each way the seconds of one call in each round; all take turns.

    Args:
        calls: name -> call.
        rounds: how many count; one warms up.
        seconds: of a turn, about.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            time.sleep(_PAUSE)
            start = time.perf_counter()
            call()
            count = max(1, int(seconds / (time.perf_counter() - start)))
            start = time.perf_counter()
            for _ in range(count):
                call()
            if number:
                times[name].append((time.perf_counter() - start) / count)
    return times


def summarize(times: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Return for each way its median and best time, and the ratio of medians to ONNX Runtime's.

    The ratio is missing where ONNX Runtime is.
    """
    results = {}
    for name, spent in times.items():
        results[name] = {"median": statistics.median(spent), "best": min(spent)}
        if _PEER in times:
            results[name]["ratio"] = results[name]["median"] / statistics.median(times[_PEER])
            results[name]["best ratio"] = min(spent) / min(times[_PEER])
    return results


def main(arguments: list[str]) -> int:
    """Print a table for each number of rows; 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks inference", description=__doc__)
    known = ",".join(WORKLOADS)
    parser.add_argument("--workloads", default=known, help="with commas (default: %(default)s)")
    parser.add_argument("--rows", default="1,256", help="rows at once (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.05, help="of a turn")
    options = parser.parse_args(arguments)
    for name in options.workloads.split(","):
        if name not in WORKLOADS:
            parser.error(f"unknown workload {name!r}; known: {', '.join(WORKLOADS)}")
    machine = describe_machine()
    print(f"{machine['cpu']}, {machine['cores']} cores, {' '.join(machine['instructions'])}")
    print(f"load {machine['load']}, {options.threads} threads, {find_versions()}")
    if importlib.util.find_spec(_PEER) is None:
        print("onnxruntime is not installed (it is in the extra 'bench'): no ratios")
    for rows in map(int, options.rows.split(",")):
        lines = []
        for name in options.workloads.split(","):
            with tempfile.TemporaryDirectory() as folder:
                calls = make_calls(WORKLOADS[name], rows, options.threads, folder)
                results = summarize(measure(calls, options.rounds, options.seconds))
            for way, values in results.items():
                shown = [show_time(values[key]) for key in ("median", "best")]
                ratios = [
                    f"{values[key]:.2f}" if key in values else "-"
                    for key in ("ratio", "best ratio")
                ]
                lines.append([name, way, *shown, *ratios])
        header = ["workload", "by", "median", "best", "of onnxruntime's", "best to best"]
        print(f"\n{rows} row{'s' * (rows > 1)}\n{format_table(header, lines)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
