"""`python -m benchmarks`: every workload on every installed peer, alternating in one run."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.larger_workloads import LARGER
from benchmarks.machine import count_gpus, describe_machine, find_versions
from benchmarks.peers import (
    ALL_PEERS,
    PEERS,
    Peer,
    can_compile,
    is_installed,
    package_alone,
    thread_settings,
)
from benchmarks.rounds import Plan, busy_neighbor, compare, time_imports
from benchmarks.workloads import WORKLOADS

_DESCRIPTION = """Time kerasish against its peers. Commands: compare (this one, the default), roof,
parity, install-size. With none of --step-time, --first-step, --predict and --import-time, all four
are measured; with some, only those. The cold first step and the peak memory come for free."""


def make_parser() -> argparse.ArgumentParser:
    """The command line of `compare`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=_DESCRIPTION)
    add = parser.add_argument
    text = f"names with commas (default: %(default)s); larger ones: {','.join(LARGER)}"
    add("--workloads", default=",".join(WORKLOADS), help=text)
    add("--peers", default=",".join(PEERS), help="names with commas (default: %(default)s)")
    add("--before", type=Path, metavar="CHECKOUT", help="also time the kerasish of this checkout")
    add("--rounds", type=int, default=5, help="timed rounds (default: %(default)s)")
    add("--steps", type=int, help="steps per round (default: that of each workload)")
    add("--threads", type=int, help="threads for every library (default: that of each library)")
    add("--longest", type=float, default=5.0, help="seconds per round: slow peers get fewer steps")
    add("--by", choices=("fit", "train_on_batch"), default="fit", help="how to train")
    add("--timeout", type=float, default=300.0, help="seconds for any one answer")
    add("--busy", action="store_true", help="keep one neighbor process busy meanwhile")
    add("--gpu", action="store_true", help="run on the first CUDA device")
    add("--step-time", action="store_true", help="measure the training step")
    add("--first-step", action="store_true", help="measure the first step, cold and warm")
    add("--predict", action="store_true", help="measure one row through predict and through call")
    add("--import-time", action="store_true", help="measure the import in fresh processes")
    add("--json", type=Path, metavar="FILE", help="write all numbers there")
    add("--quiet", action="store_true", help="tell no progress on stderr")
    return parser


def main(arguments: list[str]) -> int:
    """Measure and print; 0, or 2 where the request cannot be met, or 1 where a peer failed."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    workloads = _choose(parser, "workload", options.workloads, {**WORKLOADS, **LARGER})
    peers = _choose(parser, "peer", options.peers, PEERS)
    if options.gpu and count_gpus() == 0:
        parser.error("--gpu: the CUDA driver offers no device here (no libcuda.so.1, or no GPU)")
    present = [PEERS[name] for name in peers if is_installed(PEERS[name])]
    missing = [name for name in peers if not is_installed(PEERS[name])]
    if not options.gpu and not can_compile() and PEERS["torch-compile"] in present:
        present.remove(PEERS["torch-compile"])
        missing.append("torch-compile (no C++ compiler)")
    if missing:
        print(f"not installed, left out: {', '.join(missing)}", file=sys.stderr)
    if not present:
        parser.error(f"none of these peers is installed: {', '.join(peers)}")
    with package_alone(options.before) if options.before else nullcontext():
        before = [ALL_PEERS["before"]] if options.before else []
        facts = measure(workloads, [*present, *before], options)
    if options.json:
        options.json.write_text(json.dumps(facts, indent=1) + "\n")
    return 1 if _count_failures(facts) else 0


def measure(workloads: list[str], peers: list[Peer], options: argparse.Namespace) -> dict[str, Any]:
    """Run what `options` asks for, print tables as they come, return everything as plain data."""
    measures = _measures(options)
    plan = Plan(
        rounds=options.rounds,
        steps=options.steps,
        threads=options.threads,
        method=options.by,
        device="gpu" if options.gpu else "cpu",
        timeout=options.timeout,
        longest=options.longest,
        measures=measures,
    )
    facts = describe_run(plan, options.busy)
    print(report.show_machine(facts), flush=True)
    say = _be_quiet if options.quiet else _tell
    with busy_neighbor() if options.busy else nullcontext():
        if set(measures) & {"step", "first", "predict"}:
            for name in workloads:
                facts["workloads"][name] = _measure_workload(name, peers, plan, say)
                print("\n" + report.show_workload(name, facts["workloads"][name]), flush=True)
        if "import" in measures:
            times = time_imports(peers, plan)
            facts["imports"] = {name: report.summarize(values) for name, values in times.items()}
            print("\n" + report.show_imports(facts["imports"]), flush=True)
    facts["machine"]["load_after"] = describe_machine()["load"]
    return facts


def describe_run(plan: Plan, busy: bool) -> dict[str, Any]:
    """Machine, versions and settings of a run whose results are still to come."""
    return {
        "machine": describe_machine(),
        "versions": find_versions(),
        "settings": {
            "threads": plan.threads,
            "variables": thread_settings(),
            "busy": busy,
            "rounds": plan.rounds,
            "method": plan.method,
            "device": plan.device,
        },
        "workloads": {},
    }


def _measure_workload(name: str, peers: list[Peer], plan: Plan, say: Any) -> dict[str, Any]:
    workload = {**WORKLOADS, **LARGER}[name]
    results = compare(workload, peers, plan, say)
    records = {peer: report.record_of(measured) for peer, measured in results.items()}
    for peer, record in records.items():
        if "failure" in record:
            print(f"\n{peer} failed on {name}:\n{record['detail']}", file=sys.stderr)
    return {
        "summary": workload.summary,
        "batch": workload.batch,
        "steps": plan.steps or workload.steps,
        "peers": records,
        "ratios": report.compare_with_best(records),
    }


def _choose(
    parser: argparse.ArgumentParser, what: str, text: str, known: dict[str, Any]
) -> list[str]:
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in known:
            parser.error(f"unknown {what} {name!r}; known: {', '.join(known)}")
    return names


def _measures(options: argparse.Namespace) -> tuple[str, ...]:
    asked = {
        "step": options.step_time,
        "first": options.first_step,
        "predict": options.predict,
        "import": options.import_time,
    }
    return tuple(name for name, wanted in asked.items() if wanted) or tuple(asked)


def _count_failures(facts: dict[str, Any]) -> int:
    entries = facts["workloads"].values()
    return sum("failure" in record for entry in entries for record in entry["peers"].values())


def _tell(text: str) -> None:
    print(f"  .. {text}", file=sys.stderr, flush=True)


def _be_quiet(text: str) -> None:
    return None
