"""`python -m benchmarks native`: native libraries and ONNX Runtime, one row, one thread.

Both run in one process on one processor, in turns. `reading` is a loop in C that adds up the
numbers of the library's weights, in the same turns: no product by these weights can take less time.
Weights that fit into the processor's cache stay there between calls, for all three.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

from benchmarks.inference import _PEER, Call, _onnxruntime, measure, summarize
from benchmarks.machine import describe_machine, find_versions
from benchmarks.report import format_table, show_time
from benchmarks.workloads import WORKLOADS, Workload, make_data

READING = "reading"
_SOURCE = """
#include <stddef.h>
/* Eight sums of a vector of 16 numbers each: as many loads at once as the processor takes. */
float reading(const float *numbers, size_t count) {
    typedef float wide __attribute__((vector_size(64)));
    wide sums[8] = {0};
    const wide *all = __builtin_assume_aligned(numbers, 64);
    size_t vectors = count / 16, i = 0;
    for (; i + 8 <= vectors; i += 8)
        for (int j = 0; j < 8; j++) sums[j] += all[i + j];
    for (; i < vectors; i++) sums[0] += all[i];
    float result = 0;
    for (int j = 0; j < 8; j++)
        for (int k = 0; k < 16; k++) result += sums[j][k];
    return result;
}
"""


def aligned_bytes(path: str) -> np.ndarray[Any, Any]:
    """Return the content of a file, at an address that is a multiple of 64."""
    size = os.path.getsize(path)
    owner = np.zeros(size + 64, np.uint8)
    first = -owner.ctypes.data % 64
    owner[first : first + size] = np.fromfile(path, np.uint8)
    return owner[first : first + size]


def make_calls(workload: Workload, folder: str) -> tuple[dict[str, Call], int]:
    """Return what is compared, and the bytes of the weights.

    Args:
        workload: the model and its data.
        folder: where files are written; a new one for each call.
    """
    import kerasish
    from kerasish.export.native.link import library_suffix

    kerasish.config.set_backend("static")
    kerasish.utils.set_random_seed(0)
    model = workload.build(kerasish)
    x = make_data(workload, 1)[0]
    name = f"model_{time.time_ns()}"  # the system keeps libraries by their path
    path = os.path.join(folder, name)
    model.export(path, format="native", weights="beside", verbose=False)
    weights = aligned_bytes(f"{path}.weights")
    predict = getattr(ctypes.CDLL(path + library_suffix()), f"{name}_predict")
    y = np.zeros((1, workload.classes), "float32")
    given = weights, x, y
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in given]

    def native() -> Any:
        if predict(*pointers, ctypes.c_int64(1), None):
            raise RuntimeError(f"{name}_predict failed")
        return given[-1]  # and the other arrays stay alive

    calls: dict[str, Call] = {"native": native, READING: _reading(weights, folder)}
    calls[_PEER] = _onnxruntime(model, x, 1, folder)
    return calls, weights.nbytes


def _reading(weights: np.ndarray[Any, Any], folder: str) -> Call:
    library = os.path.join(folder, f"reading_{time.time_ns()}.so")
    command = [
        "cc",
        "-O3",
        "-march=native",
        "-fassociative-math",
        "-fno-signed-zeros",
        "-fno-trapping-math",
        "-shared",
        "-fPIC",
        "-x",
        "c",
        "-",
    ]
    subprocess.run([*command, "-o", library], input=_SOURCE, text=True, check=True)
    function = ctypes.CDLL(library).reading
    function.restype = ctypes.c_float

    def read() -> Any:
        return function(ctypes.c_void_p(weights.ctypes.data), ctypes.c_size_t(weights.nbytes // 4))

    return read


def main(arguments: list[str]) -> int:
    """Print a table; 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks native", description=__doc__)
    known = ",".join(WORKLOADS)
    parser.add_argument("--workloads", default=known, help="with commas (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=0.03, help="of a turn")
    options = parser.parse_args(arguments)
    for name in options.workloads.split(","):
        if name not in WORKLOADS:
            parser.error(f"unknown workload {name!r}; known: {', '.join(WORKLOADS)}")
    if shutil.which("cc") is None:
        parser.error("there is no C compiler cc, which links the libraries")
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        print(_table(options))
    finally:
        os.sched_setaffinity(0, allowed)
    return 0


def _table(options: argparse.Namespace) -> str:
    machine = describe_machine()
    lines = []
    for name in options.workloads.split(","):
        with tempfile.TemporaryDirectory() as folder:
            calls, nbytes = make_calls(WORKLOADS[name], folder)
            times = measure(calls, options.rounds, options.seconds)
        results = summarize(times)
        own, floor, peer = (results[way] for way in ("native", READING, _PEER))
        shown = [show_time(r[key]) for r in (own, peer, floor) for key in ("best", "median")]
        ratios = [f"{own[key]:.2f}" for key in ("best ratio", "ratio")]
        rate = f"{nbytes / floor['best'] / 1e9:.0f} GB/s"
        lines.append(
            [name, *shown[:4], *ratios, f"{nbytes / 1e6:.2f} MB", *shown[4:5], rate,
             f"{own['best'] / floor['best']:.2f}", f"{floor['best'] / peer['best']:.2f}"]
        )  # fmt: skip
    header = [
        "workload", "native", "median", _PEER, "median", "best to best", "medians", "weights",
        READING, "at", "native to it", "it to onnxruntime",
    ]  # fmt: skip
    cpu = f"{machine['cpu']}, {' '.join(machine['instructions'])}, load {machine['load']}"
    return f"{cpu}, one thread, one row, {find_versions()}\n\n{format_table(header, lines)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
