"""The child process: runs one workload on one peer, on command.

Requests and replies are lines of JSON on stdin and on the process's first stdout; whatever the
libraries print is sent to stderr. Between requests the process is blocked in a read.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from itertools import pairwise
from typing import Any, TextIO

from benchmarks import fake_gpu
from benchmarks.gpu_workloads import GPU_WORKLOADS
from benchmarks.larger_workloads import LARGER
from benchmarks.machine import peak_memory, resident_memory
from benchmarks.peers import ALL_PEERS, Peer
from benchmarks.workloads import make_data

_RUNNERS = {
    "keras": ("benchmarks.keras_runner", "KerasRunner"),
    "torch": ("benchmarks.torch_runner", "TorchRunner"),
    "jax": ("benchmarks.jax_runner", "JaxRunner"),
}


class Session:
    """One peer holding one model; each public method answers one kind of request."""

    def __init__(self, peer: Peer, workload: str, steps: int, method: str, device: str) -> None:
        self.peer, self.workload = peer, {**GPU_WORKLOADS, **LARGER}[workload]
        self.steps, self.method, self.device = steps, method, device

    def start(self) -> dict[str, Any]:
        """Import, build and take the first step; seconds of each."""
        x, y = make_data(self.workload, self.workload.samples(self.steps))
        base, clock = resident_memory(), time.perf_counter
        moments = [clock()]
        module, name = _RUNNERS[self.peer.runner]
        self.runner = getattr(importlib.import_module(module), name)(self.peer.api, self.device)
        moments.append(clock())
        self.runner.build(self.workload, x, y)
        moments.append(clock())
        self._train(1)
        moments.append(clock())
        seconds = [after - before for before, after in pairwise(moments)]
        names = ("import_s", "build_s", "first_step_s")
        return {
            **dict(zip(names, seconds, strict=True)),
            "parameters": self.runner.count_parameters(),
            "base_bytes": base,
        }

    def steps_of(self, count: int) -> dict[str, float]:
        """Train `count` steps; seconds of the epoch and of the call, and cores kept busy."""
        cpu, wall = time.process_time(), time.perf_counter()
        result = self._train(count)
        wall = time.perf_counter() - wall
        result["cores"] = (time.process_time() - cpu) / wall
        return result

    def single(self, seconds: float) -> dict[str, dict[str, float]]:
        """Latency in seconds of one row's output, by way of asking."""
        calls = self.runner.single_calls()
        return {name: _time_calls(call, seconds) for name, call in calls.items()}

    def memory(self) -> dict[str, int]:
        """Largest and present resident size, bytes."""
        return {"peak_bytes": peak_memory(), "resident_bytes": resident_memory()}

    def _train(self, count: int) -> dict[str, float]:
        run = self.runner.run if self.method == "fit" else self.runner.run_batches
        result: dict[str, float] = run(count)
        return result


def _time_calls(call: Callable[[], Any], seconds: float, most: int = 2000) -> dict[str, float]:
    for _ in range(3):
        call()
    times: list[float] = []
    stop = time.perf_counter() + seconds
    while len(times) < 3 or (len(times) < most and time.perf_counter() < stop):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return {"best": min(times), "median": statistics.median(times)}


def _answer(session: Session, request: dict[str, Any]) -> dict[str, Any]:
    try:
        method = getattr(session, request["do"])
        return {"result": method(*request.get("with", ()))}
    except Exception as error:  # the parent reports it and continues with the others
        return {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}


def serve(requests: TextIO, replies: TextIO, session: Session) -> None:
    """Answer requests until the stream ends."""
    for line in requests:
        replies.write(json.dumps(_answer(session, json.loads(line))) + "\n")
        replies.flush()


def main() -> None:
    """Run as `python -m benchmarks.worker PEER WORKLOAD STEPS METHOD DEVICE`."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    peer, workload, steps, method, device = sys.argv[1:]
    if device == "gpu":
        fake_gpu.install()
    serve(sys.stdin, replies, Session(ALL_PEERS[peer], workload, int(steps), method, device))
    replies.flush()
    os._exit(0)  # some libraries take seconds to leave, or complain while at it


if __name__ == "__main__":
    main()
