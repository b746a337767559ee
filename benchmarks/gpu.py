"""`python -m benchmarks --gpu`: steps on a GPU, beside those of others, and our kernels there."""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from benchmarks import gpu_roof, report
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
    add("--skip", choices=("steps", "kernels"), help="leave out one half")
    add("--json", nargs="?", type=Path, const=Path(), metavar="FILE",
        help="write all numbers there (without a name: under benchmarks/results/)")  # fmt: skip
    return parser


def why_not() -> str:
    """Why nothing can be measured here; empty where it can."""
    if count_gpus() == 0:
        return "the CUDA driver offers no device here (no libcuda.so.1, or no GPU)"
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed: install the extra gpu13 or gpu12"
    return ""


def main(arguments: list[str]) -> int:
    """Measure and print; 0, or 1 where a peer failed, or 2 where there is no GPU to measure."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    reason = why_not()
    if reason:
        print(f"python -m benchmarks --gpu: {reason}", file=sys.stderr)
        return 2
    workloads = _named(parser, options.workloads, GPU_WORKLOADS)
    peers = [p for p in _named(parser, options.peers, ALL_PEERS) if is_installed(p)]
    if options.tf32:
        os.environ["KERASISH_TF32"] = "1"
    facts = describe_run(options)
    print(show_gpu(facts), flush=True)
    if options.skip != "kernels":
        facts["kernels"] = gpu_roof.measure_kernels(_cupy(), facts["copy"])
        print("\n" + show_kernels(facts["kernels"]), flush=True)
        _cupy().get_default_memory_pool().free_all_blocks()
    for workload in workloads if options.skip != "steps" else ():
        plan = Plan(options.rounds, device="gpu", timeout=options.timeout, measures=("step",))
        found = compare(workload, peers, plan, lambda text: None)
        entry = facts["workloads"][workload.name] = workload_entry(workload, found, facts)
        print("\n" + show_entry(workload, entry), flush=True)
    if options.json is not None:
        _write(facts, options.json)
    records = [r for e in facts["workloads"].values() for r in e.values()]
    return 1 if any("failure" in r for r in records) else 0


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
    facts = {
        "gpu": gpu_roof.describe_gpu(xp),
        "machine": describe_machine(),
        "versions": find_versions(),
        "settings": {"rounds": options.rounds, "tf32": options.tf32},
        "copy": gpu_roof.measure_copy(xp),
        "products": gpu_roof.measure_products(xp),
        "kernels": [],
        "workloads": {},
    }
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
            record["share_of_products"] = work.flops / facts["products"][dtype] / best
            record["share_of_copy"] = work.bytes / facts["copy"] / best
    return entry


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
            f"copy: {facts['copy'] / 1e9:,.0f} GB/s (read + written); products: {rates} ({tf32})",
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
            f"{row['share']:.0%}",
        ]
        for row in rows
    ]
    return report.format_table(header, cells)


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
                 f"{record['share_of_products']:.1%}", f"{record['share_of_copy']:.1%}", ratio]
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


def _write(facts: dict[str, Any], asked: Path) -> None:
    path = result_path(facts, asked)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(facts, indent=1) + "\n")
    print(f"\nwritten: {path}")
