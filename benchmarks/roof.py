"""`python -m benchmarks roof`: each workload's step against what this machine could do at most."""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.counts import count_step, is_counted, trace_step
from benchmarks.larger_workloads import LARGER
from benchmarks.machine import usable_cores
from benchmarks.peers import PEERS, Peer, is_installed
from benchmarks.rounds import Plan, compare
from benchmarks.workloads import WORKLOADS

_ALL = {**WORKLOADS, **LARGER}
_SIDE = 2048  # of the square matrices: 17 GFLOP a product, far above any overhead
_COPY_BYTES = 256 * 2**20  # larger than any last-level cache


def best_time(call: Callable[[], Any], seconds: float = 2.0) -> float:
    """Fastest of the calls that fit into `seconds` (three at least), in seconds."""
    call()
    times: list[float] = []
    stop = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < stop:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def measure_peaks() -> dict[str, float]:
    """FLOP/s of a large float32 matmul, by who ran it."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((_SIDE, _SIDE), dtype=np.float32)
    b = rng.standard_normal((_SIDE, _SIDE), dtype=np.float32)
    flops = 2 * _SIDE**3
    out = np.empty_like(a)
    peaks = {"NumPy's BLAS": flops / best_time(lambda: np.matmul(a, b, out=out))}
    product = _find_static_matmul(a, b)
    if product is not None:
        peaks["kerasish static (oneDNN)"] = flops / best_time(product)
    return peaks


def _find_static_matmul(a: np.ndarray, b: np.ndarray) -> Callable[[], Any] | None:
    """A call of kerasish's compiled matmul, or None, saying why, where there is none."""
    os.environ.setdefault("KERASISH_BACKEND", "static")
    try:
        import kerasish

        matmul = kerasish.function(lambda x, y: kerasish.ops.matmul(x, y))
        left, right = kerasish.ops.convert_to_tensor(a), kerasish.ops.convert_to_tensor(b)
        np.testing.assert_allclose(np.asarray(matmul(left, right))[:2], (a[:2] @ b), atol=1e-2)
    except (ImportError, AttributeError, NotImplementedError, ValueError) as error:
        print(f"no compiled matmul of kerasish here ({type(error).__name__}: {error})")
        return None
    return lambda: matmul(left, right)


def measure_bandwidth(threads: int) -> float:
    """Bytes read plus bytes written a second by a large copy; the best of 1..`threads` threads."""
    source = np.ones(_COPY_BYTES, np.uint8)
    target = np.zeros_like(source)
    return max(
        2 * _COPY_BYTES / best_time(partial(_copy, source, target, count), 1.0)
        for count in range(1, threads + 1)
    )


def _copy(source: np.ndarray, target: np.ndarray, threads: int) -> None:
    parts = zip(np.array_split(source, threads), np.array_split(target, threads), strict=True)
    workers = [threading.Thread(target=np.copyto, args=(to, come)) for come, to in parts]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def make_parser() -> argparse.ArgumentParser:
    """The command line of `roof`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks roof", description=__doc__)
    parser.add_argument("--results", type=Path, help="take steps from this file of compare --json")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--peers", default="kerasish", help="measured where --results is missing")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser


def main(arguments: list[str]) -> int:
    """Measure the roof and print each workload's share of it; 1 where a peer failed."""
    options = make_parser().parse_args(arguments)
    names = [name for name in options.workloads.split(",") if name in _ALL]
    peaks, bandwidth = measure_peaks(), measure_bandwidth(usable_cores())
    steps = _read_steps(options.results) if options.results else _measure_steps(names, options)
    # Again, after the steps: a busy moment of the machine must not pass for its peak.
    peaks = {name: max(flops, peaks[name]) for name, flops in measure_peaks().items()}
    bandwidth = max(bandwidth, measure_bandwidth(usable_cores()))
    who = max(peaks, key=lambda name: peaks[name])
    for name, flops in peaks.items():
        mark = " <- the peak used below" if name == who else ""
        print(f"matmul {_SIDE}x{_SIDE} float32, {name}: {flops / 1e9:.0f} GFLOP/s{mark}")
    print(f"copy of {_COPY_BYTES >> 20} MiB: {bandwidth / 1e9:.1f} GB/s (read + written)\n")
    no_peer: dict[str, float | None] = {"-": None}
    rows = [
        _entry(name, peer, seconds, peaks[who], bandwidth)
        for name in names
        for peer, seconds in (steps.get(name) or no_peer).items()
    ]
    print(show_rows(rows))
    if options.json:
        facts = {"peaks": peaks, "bandwidth": bandwidth, "rows": rows}
        options.json.write_text(json.dumps(facts, indent=1) + "\n")
    return 0 if any(row["step"] for row in rows) else 1


def _entry(
    name: str, peer: str, step: float | None, peak: float, bandwidth: float
) -> dict[str, Any]:
    workload = _ALL[name]
    counted = is_counted(name)
    work = count_step(name, workload.batch, workload.shape) if counted else trace_step(workload)
    compute, traffic = work.flops / peak, work.bytes / bandwidth
    return {
        "workload": name,
        "peer": peer,
        "flops": work.flops,
        "bytes": work.bytes,
        "compute": compute,
        "traffic": traffic,
        "step": step,
        "share_of_peak": compute / step if step else None,
        "share_of_roof": max(compute, traffic) / step if step else None,
    }


def show_rows(rows: list[dict[str, Any]]) -> str:
    """The table of `roof`."""
    header = ["workload", "peer", "MFLOP", "MB", "at peak", "from memory", "step", "of peak"]
    header.append("of roof")
    cells = [
        [
            row["workload"],
            row["peer"],
            f"{row['flops'] / 1e6:,.1f}",
            f"{row['bytes'] / 1e6:,.2f}",
            report.show_time(row["compute"]),
            report.show_time(row["traffic"]),
            report.show_time(row["step"]),
            _percent(row["share_of_peak"]),
            _percent(row["share_of_roof"]),
        ]
        for row in rows
    ]
    return (
        report.format_table(header, cells)
        + "\nof peak, of another peer: no step with these FLOPs takes a smaller share of its time."
        + "\nat peak: the step's FLOPs at the matmul's speed. from memory: its bytes at the copy's "
        "speed, as if no cache\nhelped. Above 100%: caches did help, or the machine was busier "
        "when the peak was measured than in the best round."
    )


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _read_steps(path: Path) -> dict[str, dict[str, float | None]]:
    facts = json.loads(path.read_text())
    return {
        name: {
            peer: record["step"]["best"]
            for peer, record in entry["peers"].items()
            if record.get("step")
        }
        for name, entry in facts["workloads"].items()
    }


def _measure_steps(
    names: list[str], options: argparse.Namespace
) -> dict[str, dict[str, float | None]]:
    peers: list[Peer] = [
        PEERS[name] for name in options.peers.split(",") if is_installed(PEERS[name])
    ]
    plan = Plan(rounds=options.rounds, measures=("step",))
    steps: dict[str, dict[str, float | None]] = {}
    for name in names if peers else []:
        results = compare(_ALL[name], peers, plan, lambda text: None)
        for peer, measured in results.items():
            if measured.failure:
                print(f"{peer} failed on {name}: {measured.failure}\n{measured.detail}")
            else:
                steps.setdefault(name, {})[peer] = min(measured.step)
    return steps
