"""`python -m benchmarks.link`: how much of the sums over ranks a step hides, over a slow link.

Two network namespaces of this machine are joined by a link of 1 Gbit/s (`ip`, `tc`; needs root).
Each holds one rank, on a separate core. A network of dense layers trains there in turns:
without sums, with sums one after the other, and with sums while the step computes. The bare sums
are timed, too. What early sums add to a step is not hidden; all else of the time of the bare
sums is. The gain against sums in turn is printed, too.

    python -m benchmarks.link --rows 1024 --layers 8 --seconds 40
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import kerasish as keras
from benchmarks.report import format_table, show_time
from benchmarks.scaling_job import Clock
from kerasish import launch
from kerasish.backends.static import engine
from kerasish.backends.static.lowering import build, overlap
from kerasish.backends.static.lowering.exchange import ExchangeUnit
from kerasish.backends.static.lowering.units import Unit
from kerasish.graph.ir import Value
from kerasish.ranks import current_group

ROOT = Path(__file__).resolve().parent.parent
HOSTS = {"kerasishA": "10.77.0.1", "kerasishB": "10.77.0.2"}
WIDTH, STEPS = 512, 4
KINDS = ("none", "in turn", "early", "bare")
# In place of ssh: runs a command in the namespace of a host, on a separate core.
AGENT = """#!/bin/bash
while [[ "$1" == -* ]]; do shift; done
host=$1; shift
case $host in 10.77.0.1) name=kerasishA; core=0;; *) name=kerasishB; core=1;; esac
exec ip netns exec $name taskset -c $core bash -c "$*"
"""


def _is_up(name: str) -> bool:
    """Return whether the device of a namespace can send."""
    command = ["ip", "-n", name, "-o", "link", "show", "type", "veth"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return "state UP" in shown


@contextmanager
def joined_namespaces(rate: str) -> Iterator[None]:
    """Two network namespaces that a link of some rate joins, as long as the block lasts."""
    first, second = HOSTS
    commands = [f"ip netns add {name}" for name in HOSTS]
    commands.append(f"ip link add kA netns {first} type veth peer name kB netns {second}")
    for (name, address), device in zip(HOSTS.items(), ("kA", "kB")):
        commands += [
            f"ip -n {name} addr add {address}/24 dev {device}",
            f"ip -n {name} link set lo up",
            f"ip -n {name} link set {device} addrgenmode none up",
            f"tc -n {name} qdisc add dev {device} root tbf rate {rate} burst 256k latency 50ms",
        ]
    try:
        for command in commands:
            subprocess.run(command.split(), check=True)
        while not all(map(_is_up, HOSTS)):
            time.sleep(0.05)
        yield
    finally:
        for name in HOSTS:
            subprocess.run(["ip", "netns", "delete", name], check=False)


def in_turn(units: Sequence[Unit], root: Callable[[Value], Value]) -> list[Unit]:
    """Return the units with each sum awaited where it is started."""
    results: list[Unit] = []
    for unit in units:
        if isinstance(unit, ExchangeUnit):
            requests = np.zeros(1, np.int64), np.zeros(1, np.int64)
            start = overlap.StartUnit(unit, requests, 0, unit.exchange)
            results += [start, overlap.FinishUnit(start)]
        else:
            results.append(unit)
    return results


def measure(rows: int, depth: int, optimizer: str, seconds: float) -> dict[str, list[float]]:
    """Return the seconds per step of each kind, one number per turn.

    Args:
        rows: of a rank's batch.
        depth: how many layers the network has.
        optimizer: its name.
        seconds: that all turns may take together.
    """
    group, parallel = current_group(), keras.distribution.DataParallel()
    layers = [keras.layers.Dense(WIDTH, activation="tanh") for _ in range(depth)]
    total = rows * STEPS * group.size
    x = np.random.default_rng(0).standard_normal((total, WIDTH), dtype=np.float32)
    y = np.tanh(x)
    own = slice(rows * STEPS * group.rank, rows * STEPS * (group.rank + 1))
    clock = Clock(STEPS, time.perf_counter)
    given: dict[str, Any] = {"epochs": 2, "verbose": 0, "shuffle": False, "callbacks": [clock]}
    models = {}
    for kind in KINDS[:3]:
        keras.utils.set_random_seed(0)
        models[kind] = keras.models.clone_model(keras.Sequential([keras.Input((WIDTH,)), *layers]))
        models[kind].compile(optimizer, "mse")
    arrays = [np.ones(WIDTH * WIDTH + WIDTH, np.float32) for _ in layers]

    def turn(kind: str) -> float:
        group.gather(None)
        if kind == "bare":
            start = time.perf_counter()
            for array in arrays * STEPS:
                group.comm.Allreduce(array.copy(), array)  # type: ignore[attr-defined]
            return (time.perf_counter() - start) / STEPS
        clock.times.clear()
        if kind == "none":
            keras.distribution.set_distribution(None)
            models[kind].fit(x[own], y[own], batch_size=rows, **given)
        else:
            keras.distribution.set_distribution(parallel)
            schedule = in_turn if kind == "in turn" else overlap.overlapped
            plans = engine.CompiledPlans()  # equal graphs share their plans
            with (
                patch.object(build, "overlapped", schedule),
                patch.object(engine, "COMPILED_PLANS", plans),
            ):
                models[kind].fit(x, y, batch_size=rows * group.size, **given)
        return clock.times[-1]  # the first epoch compiles

    results: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for kind in KINDS:
        turn(kind)  # compiles
    end = time.monotonic() + seconds
    while group.broadcast(time.monotonic() < end):
        for kind in KINDS:
            results[kind].append(max(group.gather(turn(kind))))
    return results


def report(results: dict[str, list[float]]) -> str:
    """Return a table of the times, and the parts that are hidden."""
    rows = [[k, show_time(float(np.median(v))), show_time(min(v))] for k, v in results.items()]
    lines = [format_table(["sums", "median", "least"], rows)]
    for name, of in (("medians", np.median), ("least", np.min)):
        none, turn, early, bare = (float(of(results[kind])) for kind in KINDS)
        lines.append(
            f"{name}: {1 - (early - none) / bare:.0%} of the bare sums hidden; "
            f"{(turn - early) / (turn - none):.0%} of what sums in turn add to a step"
        )
    return "\n".join(lines) + f"\n{len(results['none'])} turns of {STEPS} steps per kind"


def main(arguments: Sequence[str]) -> int:
    """Run the job between two namespaces, or, on a rank, its part of it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.link", description=__doc__)
    parser.add_argument("--rows", type=int, default=1024, help="of a rank's batch")
    parser.add_argument("--layers", type=int, default=8, help="of the network, 1 MB each")
    parser.add_argument("--optimizer", default="adam")
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.rank:
        keras.distribution.initialize()
        rank = current_group().rank
        os.sched_setaffinity(0, {rank % (os.cpu_count() or 1)})
        results = measure(given.rows, given.layers, given.optimizer, given.seconds)
        if rank == 0:
            print(json.dumps(results), flush=True)
        return 0
    with joined_namespaces(given.rate), tempfile.TemporaryDirectory() as folder:
        agent = Path(folder) / "agent"
        agent.write_text(AGENT)
        agent.chmod(0o755)
        python_path = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        environment = {
            "UCX_TLS": "tcp,self",  # both ranks see that they share a machine
            "UCX_NET_DEVICES": "kA,kB", "FI_PROVIDER": "tcp", **os.environ, "OMP_NUM_THREADS": "1",
            "PYTHONPATH": python_path,
        }  # fmt: skip
        command = [
            "ip", "netns", "exec", next(iter(HOSTS)), launch.find_mpiexec(), "-launcher", "ssh",
            "-launcher-exec", str(agent), "-hosts", ",".join(HOSTS.values()), "-ppn", "1", "-n",
            "2", sys.executable, "-m", "benchmarks.link", "--rank", "--rows", str(given.rows),
            "--layers", str(given.layers), "--optimizer", given.optimizer, "--seconds",
            str(given.seconds),
        ]  # fmt: skip
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=False, cwd=ROOT
        )
    if done.returncode:
        return done.returncode
    print(report(json.loads(done.stdout.splitlines()[-1])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
