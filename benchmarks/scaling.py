"""`python -m benchmarks scaling`: the gain of more ranks, predicted from measurements here.

Two ranks measure how long sums of different sizes take; a line through the times gives a latency
and a bandwidth. With these, and the measured step of each workload on one rank, the usual model of
latency and bandwidth predicts steps on 2 to 1,000 ranks. Networks may be named instead:
`--latency 2e-6 --bandwidth 11.5e9` is a fast cluster's. Times measured on 2 and 4 ranks of this
machine are next to the predictions; ranks that share its cores are slower for that reason.

Not in the model: topology, and the start of a job. Ranks wait for the slowest one: `--jitter` is
the mean of an exponential delay per step, as a share of the step.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import format_table, show_time
from kerasish import launch

ROOT = Path(__file__).resolve().parent.parent
RANKS = (2, 4, 8, 16, 64, 256, 1000)
SIZES = (1, 1 << 10, 1 << 14, 1 << 17, 1 << 19, 1 << 21, 1 << 22)  # float32 numbers
BACKWARD = 2 / 3  # of a step's computation: its share of the reverse pass
WORKLOADS = ("tiny", "mlp", "cnn", "resnet20", "lstm", "transformer", "wide")


@dataclass(frozen=True)
class Network:
    """What a message costs: latency + bytes / bandwidth.

    Args:
        latency: seconds. bandwidth: bytes per second. addition: seconds per byte that is added.
    """

    latency: float
    bandwidth: float
    addition: float = 1e-10

    def halving_doubling(self, nbytes: float, ranks: int) -> float:
        """Seconds of a sum by recursive halving and doubling (Rabenseifner)."""
        moved = (ranks - 1) / ranks * nbytes
        rounds = 2 * math.ceil(math.log2(ranks))
        return rounds * self.latency + 2 * moved / self.bandwidth + moved * self.addition

    def ring(self, nbytes: float, ranks: int) -> float:
        """Seconds of a sum around a ring."""
        moved = (ranks - 1) / ranks * nbytes
        return 2 * (ranks - 1) * self.latency + 2 * moved / self.bandwidth + moved * self.addition


def fit(times: Mapping[int, float], ranks: int = 2) -> Network:
    """Return the network whose sums take times like these (bytes -> seconds), by relative error.

    Example:
        >>> real = Network(1e-5, 1e9)
        >>> found = fit({n: real.halving_doubling(n, 2) for n in (4, 10**4, 10**6, 10**7)})
        >>> round(found.latency * 1e6, 3), round(found.bandwidth / 1e9, 3)
        (10.0, 1.0)
    """
    nbytes = np.array(sorted(times), float)
    seconds = np.array([times[int(n)] for n in nbytes])
    moved = (ranks - 1) / ranks * nbytes
    columns = np.stack([np.full_like(nbytes, 2 * math.ceil(math.log2(ranks))), 2 * moved], 1)
    weights = 1 / seconds
    known = moved * Network(0, 1).addition
    solved, *_ = np.linalg.lstsq(
        columns * weights[:, None], (seconds - known) * weights, rcond=None
    )
    latency, per_byte = (max(float(v), 1e-12) for v in solved)
    return Network(latency, 1 / per_byte)


def predict(
    network: Network, compute: float, nbytes: float, ranks: int, jitter: float = 0.0
) -> dict[str, float]:
    """Return {"sum", "ring", "plain", "overlap", "buckets"}: seconds, and the best number of parts.

    Args:
        compute: seconds of a rank's step without sums.
        nbytes: of all gradients.
        jitter: the mean delay of a rank, as a share of the step.
    """
    total = network.halving_doubling(nbytes, ranks)
    # The mean of the greatest of `ranks` exponential delays: their mean times a harmonic number.
    late = jitter * compute * sum(1 / i for i in range(1, ranks + 1))
    best, buckets = compute + total, 1
    for parts in (1, 2, 4, 8, 16, 32, 64):
        each = network.halving_doubling(nbytes / parts, ranks)
        forward, backward = compute * (1 - BACKWARD), compute * BACKWARD
        end = forward
        for i in range(1, parts + 1):
            end = max(end, forward + backward * i / parts) + each
        if end < best:
            best, buckets = end, parts
    return {
        "sum": total, "ring": network.ring(nbytes, ranks), "plain": compute + total + late,
        "overlap": best + late, "buckets": buckets,
    }  # fmt: skip


def run_job(ranks: int, *arguments: str, seconds: float = 600.0) -> dict[str, Any]:
    """Return what a job of `scaling_job` prints on rank 0."""
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    more = launch.environment(ranks, {**os.environ, "OMP_NUM_THREADS": "1"}, launch.cores(), root)
    python_path = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    done = subprocess.run(
        [launch.find_mpiexec(), "-n", str(ranks), sys.executable, "-m", "benchmarks.scaling_job",
         *arguments],
        env={**os.environ, **more, "OMP_NUM_THREADS": "1", "PYTHONPATH": python_path},
        capture_output=True, text=True, timeout=seconds, check=False, cwd=ROOT,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"scaling: the job on {ranks} ranks failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def table(
    name: str, network: Network, alone: Mapping[str, float], measured: Mapping[int, float],
    jitter: float, ranks: Sequence[int] = RANKS,
) -> str:  # fmt: skip
    """Return the predictions of one workload as a table."""
    compute, nbytes = alone["seconds"], alone["bytes"]
    rows = []
    for count in ranks:
        p = predict(network, compute, nbytes, count, jitter)
        rows.append(
            [
                f"{count}", show_time(p["sum"]), show_time(p["ring"]), show_time(p["plain"]),
                f"{compute / p['plain']:.0%}", show_time(p["overlap"]),
                f"{compute / p['overlap']:.0%}", f"{int(p['buckets'])}",
                show_time(measured.get(count)),
            ]
        )  # fmt: skip
    header = ["ranks", "sum", "ring", "step", "eff.", "overlap", "eff.", "parts", "measured"]
    title = f"{name}: {show_time(compute)} per step on one rank, {nbytes / 1e6:.3g} MB of gradients"
    return f"{title}\n{format_table(header, rows)}\n"


def print_costs(names: Sequence[str], seconds: float) -> int:
    """Print what sums cost beyond a bare `MPI_Allreduce`, in CPU time on two ranks."""
    rows = []
    for name in names:
        workload, _, batch = name.partition(":")
        cost = run_job(2, "cost", workload, batch or "0", str(seconds))
        times = [show_time(cost[kind]) for kind in ("with", "without", "bare")]
        rows.append([name, *times, f"{cost['share']:.1%}"])
    print(format_table(["workload", "with sums", "without", "bare sums", "beyond"], rows))
    print(
        "CPU time per step and rank. Bare sums: what a blocking MPI_Allreduce after each step adds."
        "\nBeyond: by how much a step with sums is above one with bare sums."
    )
    return 0


def main(arguments: Sequence[str]) -> int:
    """Measure, predict, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks scaling", description=__doc__)
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--measure", default="2,4", help="numbers of ranks to measure; '' for none")
    parser.add_argument("--latency", type=float, help="seconds per message; default: measured")
    parser.add_argument("--bandwidth", type=float, help="bytes per second; default: measured")
    parser.add_argument("--jitter", type=float, default=0.01)
    parser.add_argument(
        "--cost",
        help="names, or name:rows, of workloads: prints the CPU time of a step with sums, without, "
        "and of bare sums, on 2 ranks, and nothing else",
    )
    parser.add_argument("--seconds", type=float, default=6.0, help="of each workload of --cost")
    parser.add_argument("--json", help="a file for the numbers")
    given = parser.parse_args(arguments)
    if given.cost:
        return print_costs(given.cost.split(","), given.seconds)
    names = given.workloads.split(",")
    unknown = [n for n in names if n not in WORKLOADS]
    if unknown:
        parser.error(f"unknown workloads {unknown}; there are {', '.join(WORKLOADS)}")
    times = {int(k): v for k, v in run_job(2, "sums", *map(str, SIZES)).items()}
    network = fit(times)
    network = Network(given.latency or network.latency, given.bandwidth or network.bandwidth)
    print("Sums on 2 ranks of this machine:")
    shown = [[f"{n:,}", show_time(s), show_time(network.halving_doubling(n, 2))]
             for n, s in sorted(times.items())]  # fmt: skip
    print(format_table(["bytes", "measured", "model"], shown))
    print(f"latency {show_time(network.latency)}, {network.bandwidth / 1e9:.3g} GB/s\n")
    report: dict[str, Any] = {"sums": times, "latency": network.latency}
    report.update(bandwidth=network.bandwidth, workloads={})
    for name in names:
        alone = run_job(1, "step", name)
        counts = [int(c) for c in given.measure.split(",") if c]
        measured = {c: run_job(c, "step", name)["seconds"] for c in counts}
        report["workloads"][name] = {"alone": alone, "measured": measured}
        print(table(name, network, alone, measured, given.jitter))
    print(
        f"eff.: efficiency with {given.jitter:.0%} jitter, each rank with a batch of its own size; "
        "measured: ranks share this machine's cores."
    )
    if given.json:
        Path(given.json).write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    return 0
