"""The peak performance of this machine: a product and a copy, measured once and kept on disk."""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from kerasish.backends.backend import Peaks
from kerasish.backends.disk import cache_folder, replace, seal, unseal
from kerasish.backends.onednn import native
from kerasish.backends.static.lowering.compiled_plan import CompiledPlan
from kerasish.backends.static.runtime.program import Executable
from kerasish.graph.ir import Graph, Node, Value
from kerasish.ops.op import REGISTRY

_MARK = b"kerasish peaks 1\n"
_SIDE = 1024  # of the matrices: 2 GFLOP, far above any overhead
_COPY_BYTES = 64 * 2**20  # larger than the caches of most processors
_TIMES = 6

_known: dict[int, Peaks] = {}
_lock = threading.Lock()


def measured_peaks() -> Peaks:
    """Return the peaks for the current number of threads: from the cache, or measured now.

    A measurement takes about half a second. It is kept in the folder `peaks` of the cache and is
    valid for the same processor.
    """
    threads = native.get_threads()
    with _lock:
        if threads not in _known:
            path = _file(threads)
            _known[threads] = _read(path) or _measured(threads, path)
        return _known[threads]


def _file(threads: int) -> Path | None:
    folder = cache_folder("peaks")
    if folder is None:
        return None
    facts = [platform.machine(), _processor(), str(threads)]
    return folder / f"{hashlib.sha256(chr(10).join(facts).encode()).hexdigest()[:16]}.json"


def _processor() -> str:
    """Return the processor's name as reported by Linux, or else by Python."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _read(path: Path | None) -> Peaks | None:
    if path is None:
        return None
    try:
        flops, nbytes = json.loads(unseal(_MARK, path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
    numbers = all(isinstance(n, float) and n > 0 for n in (flops, nbytes))
    return Peaks(flops, nbytes) if numbers else None


def _measured(threads: int, path: Path | None) -> Peaks:
    peaks = Peaks(_product_rate(), max(_copy_rate(n) for n in range(1, threads + 1)))
    if path is not None:
        # A folder that cannot be written only costs a measurement per process.
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            replace(path, seal(_MARK, json.dumps([*peaks]).encode()))
    return peaks


def _product_rate() -> float:
    """Return the FLOP per second of a large product of float32, as steps compute it."""
    a, b, out = (Value((_SIDE, _SIDE), "float32") for _ in range(3))
    matmul = REGISTRY["matmul"]
    graph = Graph([a, b], {}, [Node(matmul, [a, b], {}, [out])], [out])
    executable = Executable(CompiledPlan(graph, (), (), lambda op: op.kernel), {})
    rng = np.random.default_rng(0)
    for view in executable.inputs:
        view[...] = rng.standard_normal(view.shape, np.float32)
    return 2.0 * _SIDE**3 / _best(executable.run)


def _copy_rate(threads: int) -> float:
    """Return the bytes per second that a large copy reads and writes."""
    source = np.ones(_COPY_BYTES, np.uint8)
    target = np.zeros_like(source)
    parts = list(zip(np.array_split(source, threads), np.array_split(target, threads)))

    def copy() -> None:
        others = [threading.Thread(target=np.copyto, args=(to, come)) for come, to in parts[1:]]
        for thread in others:
            thread.start()
        np.copyto(parts[0][1], parts[0][0])
        for thread in others:
            thread.join()

    return 2.0 * _COPY_BYTES / _best(copy)


def _best(call: Callable[[], object]) -> float:
    """Return the shortest of several times, in seconds."""
    call()
    times = []
    for _ in range(_TIMES):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)
