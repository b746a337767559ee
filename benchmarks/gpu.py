"""`python -m benchmarks --gpu`: steps on a GPU, against those of others, and our kernels there."""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import fake_gpu, gpu_roof, report
from benchmarks.counts import count_step
from benchmarks.gpu_workloads import GPU_WORKLOADS
from benchmarks.machine import count_gpus, describe_machine, find_versions
from benchmarks.peers import ALL_PEERS, is_installed
from benchmarks.rounds import Measured, Plan, compare
from benchmarks.workloads import Workload

OURS = "kerasish-eager"
_PEERS = (OURS, "torch", "torch-compile", "keras-jax")
_RESULTS = Path(__file__).parent / "results"


def make_parser() -> argparse.ArgumentParser:
    """The command line of `--gpu`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks --gpu", description=__doc__)
    add = parser.add_argument
    add("--workloads", default=",".join(GPU_WORKLOADS), help="names (default: %(default)s)")
    add("--peers", default=",".join(_PEERS), help="names (default: %(default)s)")
    add("--rounds", type=int, default=5, help="timed rounds (default: %(default)s)")
    add("--tf32", action="store_true", help="let everybody round float32 factors to TF32")
    add("--timeout", type=float, default=300.0, help="seconds for any one answer")
    add("--seconds", type=float, default=1500.0, help="for everything (default: %(default)s)")
    add("--sizes", default="64,256", help="MiB of what kernels are measured on")
    add("--skip", choices=("steps", "kernels"), help="leave out one half")
    add("--json", nargs="?", type=Path, const=Path(), metavar="FILE",
        help="write all numbers there (without a name: under benchmarks/results/)")  # fmt: skip
    return parser


def why_not() -> str:
    """Why nothing can be measured here; empty where it can."""
    if fake_gpu.is_wanted():
        return ""
    if count_gpus() == 0:
        return "the CUDA driver offers no device here (no libcuda.so.1, or no GPU)"
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed: install the extra gpu13 or gpu12"
    return ""


def main(arguments: list[str]) -> int:
    """Measure and print; 0, or 1 where something failed, or 2 where there is no GPU to measure."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    stop = time.monotonic() + options.seconds
    reason = why_not()
    if reason:
        print(f"python -m benchmarks --gpu: {reason}", file=sys.stderr)
        return 2
    fake_gpu.install()
    workloads = _named(parser, options.workloads, GPU_WORKLOADS)
    peers = [p for p in _named(parser, options.peers, ALL_PEERS) if is_installed(p)]
    if options.tf32:
        os.environ["KERASISH_TF32"] = "1"
    facts = describe_run(options)
    path = None if options.json is None else result_path(facts, options.json)
    _write(facts, path)
    print(show_gpu(facts), flush=True)
    if options.skip != "kernels":
        sizes = tuple(round(float(size) * gpu_roof.MIB) for size in options.sizes.split(","))
        facts["kernels"] = gpu_roof.measure_kernels(_cupy(), facts["copy"], sizes)
        _write(facts, path)
        print("\n" + show_kernels(facts["kernels"]), flush=True)
        _cupy().get_default_memory_pool().free_all_blocks()
    chosen = workloads if options.skip != "steps" else []
    for number, workload in enumerate(chosen):
        plan = plan_of(options, stop, len(chosen) - number, len(peers))
        result = compare(workload, peers, plan, lambda text: None)
        entry = facts["workloads"][workload.name] = workload_entry(workload, result, facts)
        _write(facts, path)
        print("\n" + show_entry(workload, entry), flush=True)
    if path is not None:
        print(f"\nwritten: {path}")
    return 1 if has_failures(facts) else 0


def plan_of(options: argparse.Namespace, stop: float, workloads: int, peers: int) -> Plan:
    """How the next workload is measured, so that all that are left end in time.

    Args:
        stop: when (`time.monotonic`) all must be over.
        workloads: how many are left, this one included.
    """
    share = max(stop - time.monotonic(), 0.0) / max(workloads, 1)
    # Half of it for imports, compilation and first steps.
    longest = share / 2 / max(peers, 1) / (options.rounds + 1)
    return Plan(
        options.rounds, device="gpu", timeout=min(options.timeout, max(share, 20.0)),
        longest=min(max(longest, 0.1), 5.0), measures=("step",), until=time.monotonic() + share,
    )  # fmt: skip


def has_failures(facts: dict[str, Any]) -> bool:
    """Whether a kernel, a peer or a measurement of the chip failed."""
    records = [r for e in facts["workloads"].values() for r in e.values()]
    return bool(facts["failures"]) or any("failure" in r for r in [*records, *facts["kernels"]])


def _cupy() -> Any:
    import cupy

    return cupy


def _named(parser: argparse.ArgumentParser, text: str, known: dict[str, Any]) -> list[Any]:
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in known:
            parser.error(f"unknown name {name!r}; known: {', '.join(known)}")
    return [known[name] for name in names]


def describe_run(options: argparse.Namespace) -> dict[str, Any]:
    """The GPU, its measured roof, machine, versions, settings."""
    xp = _cupy()
    settings = {k: getattr(options, k) for k in ("rounds", "tf32", "seconds", "sizes")}
    facts: dict[str, Any] = {
        "gpu": gpu_roof.describe_gpu(xp), "machine": describe_machine(),
        "versions": find_versions(), "settings": settings, "copy": None, "products": {},
        "kernels": [], "workloads": {}, "failures": [],
    }  # fmt: skip
    most = float(max(options.sizes.split(","), key=float))
    large = most >= 64  # a try-out on small sizes takes small ones here, too
    size, side = (1024 * gpu_roof.MIB, 8192) if large else (1 << 12, 8)
    for name, measure in (
        ("copy", lambda: gpu_roof.measure_copy(xp, size)),
        ("products", lambda: gpu_roof.measure_products(xp, side)),
    ):
        try:
            facts[name] = measure()
        except Exception as error:  # the rest is worth having all the same
            facts["failures"].append(f"{name}: {type(error).__name__}: {error}")
    xp.get_default_memory_pool().free_all_blocks()
    return facts


def workload_entry(
    workload: Workload, found: dict[str, Measured], facts: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """Each peer's step, and what share of the chip's rates it comes to.

    Bytes are counted as float32: for bfloat16 their share is too large by up to two.
    """
    work = count_step(workload.name, workload.batch, workload.shape)
    dtype = "bfloat16" if workload.policy == "mixed_bfloat16" else "float32"
    entry = {}
    for peer, measured in found.items():
        record = entry[peer] = report.record_of(measured)
        step = record.get("step")
        if step:
            best = step["best"]
            record["samples_a_second"] = workload.batch / best
            record["share_of_products"] = _share(work.flops / best, facts["products"].get(dtype))
            record["share_of_copy"] = _share(work.bytes / best, facts["copy"])
    return entry


def _share(rate: float, best: float | None) -> float | None:
    return rate / best if best else None


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def show_gpu(facts: dict[str, Any]) -> str:
    """The GPU and what it can do, a line each."""
    gpu = facts["gpu"]
    rates = ", ".join(f"{k} {v / 1e12:,.1f} TFLOP/s" for k, v in facts["products"].items())
    tf32 = "TF32 allowed" if facts["settings"]["tf32"] else "no TF32"
    return "\n".join(
        [
            f"GPU: {gpu['name']}, {gpu['processors']} processors, {gpu['memory'] / 2**30:.0f} GiB, "
            f"CUDA {gpu['runtime']}, driver {gpu['driver']}, CuPy {gpu['cupy']}",
            "versions: " + ", ".join(f"{k} {v}" for k, v in facts["versions"].items()),
            f"copy: {(facts['copy'] or 0) / 1e9:,.0f} GB/s (read + written); "
            f"products: {rates} ({tf32})",
            *(f"FAILED {what}" for what in facts["failures"]),
        ]
    )


def show_kernels(rows: list[dict[str, Any]]) -> str:
    """The table of memory-bound kernels."""
    header = ["kernel", "dtype", "MiB", "GB/s", "of copy"]
    cells = [
        [
            row["kernel"],
            row["dtype"],
            f"{row['bytes'] / gpu_roof.MIB:,.0f}",
            f"{row['rate'] / 1e9:,.0f}",
            _percent(row["share"]),
        ]
        for row in rows
        if "failure" not in row
    ]
    failures = [
        f"FAILED {r['kernel']}, {r['dtype']}, {r['bytes'] / gpu_roof.MIB:,.0f} MiB: {r['failure']}"
        for r in rows
        if "failure" in r
    ]
    return "\n".join([report.format_table(header, cells), *failures])


def show_entry(workload: Workload, entry: dict[str, dict[str, Any]]) -> str:
    """The table of one workload, and who failed."""
    mine = entry.get(OURS, {}).get("step")
    header = ["peer", "step best", "median", "spread", "samples/s", "of products", "of copy"]
    header.append("ours / it")
    cells = []
    for peer, record in entry.items():
        step = record.get("step")
        if step:
            ratio = f"{mine['best'] / step['best']:.2f}" if mine else "-"
            cells.append(
                [peer, report.show_time(step["best"]), report.show_time(step["median"]),
                 f"{step['spread']:.0%}", f"{record['samples_a_second']:,.0f}",
                 _percent(record["share_of_products"]), _percent(record["share_of_copy"]), ratio]
            )  # fmt: skip
    failures = [f"FAILED {p}: {r['failure']}" for p, r in entry.items() if "failure" in r]
    title = f"{workload.name}: {workload.summary}, batch {workload.batch}"
    return "\n".join([title, report.format_table(header, cells), *failures])


def result_path(facts: dict[str, Any], asked: Path) -> Path:
    """Where the numbers go: the file asked for, or one named after the GPU and the day."""
    if asked != Path():
        return asked
    chip = re.sub(r"[^a-z0-9]+", "-", facts["gpu"]["name"].lower()).strip("-")
    return _RESULTS / f"gpu-{chip}-{datetime.date.today().isoformat()}.json"


def _write(facts: dict[str, Any], path: Path | None) -> None:
    """Write the numbers measured so far: later ones may be cut short."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(facts, indent=1) + "\n")
