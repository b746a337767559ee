"""The parent's side: starts one worker a peer and lets them take turns, round by round."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers import Peer, worker_environment
from benchmarks.workloads import Workload

ROOT = Path(__file__).resolve().parent.parent
_PAUSE = 0.05  # seconds for the last peer's threads to stop spinning before the next one starts


class WorkerError(RuntimeError):
    """A worker failed, died or did not answer in time; `detail` holds its own words."""

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


@dataclass(frozen=True)
class Plan:
    """What to measure and under which conditions.

    Args:
        rounds: timed rounds, after one round that is not counted.
        steps: steps per round, or None for those of each workload.
        method: "fit" or "train_on_batch".
        timeout: seconds to wait for any one answer.
        longest: seconds a round should take at most; a slower peer gets fewer steps.
        measures: of "step", "first", "predict".
        until: when (`time.monotonic`) no peer is started and no round begun any more: every peer
            gets one timed round if it has started.
    """

    rounds: int = 5
    steps: int | None = None
    threads: int | None = None
    method: str = "fit"
    device: str = "cpu"
    timeout: float = 300.0
    longest: float = 5.0
    measures: tuple[str, ...] = ("step", "first", "predict")
    until: float = math.inf


@dataclass
class Measured:
    """All that one peer gave for one workload; seconds and bytes."""

    start: dict[str, Any] = field(default_factory=dict)
    warm: dict[str, Any] = field(default_factory=dict)
    steps: int = 0
    step: list[float] = field(default_factory=list)
    call: list[float] = field(default_factory=list)
    cores: list[float] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    single: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    failure: str = ""
    detail: str = ""


class Worker:
    """A peer in its own process, which does nothing until asked."""

    def __init__(self, peer: Peer, workload: Workload, steps: int, plan: Plan, cache: str) -> None:
        self.peer, self.timeout = peer, plan.timeout
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the worker
        arguments = (peer.name, workload.name, str(steps), plan.method, plan.device)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            cwd=ROOT,
            env=worker_environment(peer, plan.threads, cache, plan.device == "gpu"),
        )

    def ask(self, do: str, *arguments: Any) -> Any:
        """The answer to one request; WorkerError if there is none."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        timer = threading.Timer(self.timeout, self.process.kill)
        timer.start()
        try:
            self.process.stdin.write(json.dumps({"do": do, "with": arguments}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if not line:
            code = self.process.wait()
            raise WorkerError(f"no answer to {do!r}, exit status {code}", self._last_words())
        reply = json.loads(line)
        if "error" in reply:
            raise WorkerError(f"{do!r}: {reply['error']}", reply["traceback"])
        return reply["result"]

    def stop(self) -> None:
        """End the process and wait for it."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.errors.close()

    def _last_words(self, characters: int = 3000) -> str:
        self.errors.seek(0)
        return self.errors.read()[-characters:]


def compare(
    workload: Workload, peers: list[Peer], plan: Plan, say: Callable[[str], None]
) -> dict[str, Measured]:
    """Measure every peer on `workload`, alternating; a peer that fails drops out, with its error.

    Args:
        workload: the model and its data.
        peers: installed ones, in the order of the table.
        plan: rounds, threads, device and what to measure.
        say: called with progress messages, for the terminal.
    """
    steps = plan.steps or workload.steps
    results = {peer.name: Measured() for peer in peers}
    with tempfile.TemporaryDirectory() as caches:
        workers = _start(workload, peers, plan, steps, caches, results, say)
        try:
            if "step" in plan.measures:
                _run_rounds(workers, plan, steps, results, say)
            if "predict" in plan.measures:
                _run_single(workers, plan, results, say)
            for worker in list(workers):
                with _dropping(worker, workers, results, say):
                    results[worker.peer.name].memory = worker.ask("memory")
        finally:
            for worker in workers:
                worker.stop()
        if "first" in plan.measures:
            again = [peer for peer in peers if not results[peer.name].failure]
            _start_again(workload, again, plan, steps, caches, results, say)
    return results


def _start(
    workload: Workload,
    peers: list[Peer],
    plan: Plan,
    steps: int,
    caches: str,
    results: dict[str, Measured],
    say: Callable[[str], None],
) -> list[Worker]:
    workers: list[Worker] = []
    for peer in peers:
        if time.monotonic() > plan.until:
            results[peer.name].failure = "not started: the time was up"
            continue
        say(f"{workload.name}: starting {peer.name}")
        worker = Worker(peer, workload, steps, plan, f"{caches}/{peer.name}")
        workers.append(worker)
        with _dropping(worker, workers, results, say):
            results[peer.name].start = worker.ask("start")
    return workers


def _start_again(
    workload: Workload,
    peers: list[Peer],
    plan: Plan,
    steps: int,
    caches: str,
    results: dict[str, Measured],
    say: Callable[[str], None],
) -> None:
    for peer in peers:
        say(f"{workload.name}: first step again, {peer.name}")
        worker = Worker(peer, workload, steps, plan, f"{caches}/{peer.name}")
        workers = [worker]
        with _dropping(worker, workers, results, say):
            results[peer.name].warm = worker.ask("start")
        for left in workers:
            left.stop()


def _run_rounds(
    workers: list[Worker],
    plan: Plan,
    steps: int,
    results: dict[str, Measured],
    say: Callable[[str], None],
) -> None:
    for number in range(plan.rounds + 1):
        if number > 1 and time.monotonic() > plan.until:
            return
        say(f"round {number} of {plan.rounds}" if number else "round that is not counted")
        for worker in _rotate(workers, number):
            time.sleep(_PAUSE)
            with _dropping(worker, workers, results, say):
                measured = results[worker.peer.name]
                count = measured.steps if number else max(1, steps // 8)
                answer = worker.ask("steps_of", count)
                if not number:
                    affordable = int(plan.longest * count / answer["call_seconds"])
                    measured.steps = max(1, min(steps, affordable))
                else:
                    measured.step.append(answer["seconds"] / count)
                    measured.call.append(answer["call_seconds"] / count)
                    measured.cores.append(answer["cores"])
                    measured.loss.append(answer["loss"])


def _run_single(
    workers: list[Worker], plan: Plan, results: dict[str, Measured], say: Callable[[str], None]
) -> None:
    for number in range(min(plan.rounds, 3)):
        say(f"one row, turn {number + 1}")
        for worker in _rotate(workers, number):
            time.sleep(_PAUSE)
            with _dropping(worker, workers, results, say):
                for name, times in worker.ask("single", 0.3).items():
                    results[worker.peer.name].single.setdefault(name, []).append(times)


def _rotate(workers: list[Worker], number: int) -> list[Worker]:
    """`workers` in another order each round, so that none always follows the same one."""
    shift = number % len(workers) if workers else 0
    return workers[shift:] + workers[:shift]


@contextmanager
def _dropping(
    worker: Worker,
    workers: list[Worker],
    results: dict[str, Measured],
    say: Callable[[str], None],
) -> Iterator[None]:
    """Take `worker` out of `workers` when it fails, and note why."""
    try:
        yield
    except WorkerError as error:
        measured = results[worker.peer.name]
        measured.failure, measured.detail = str(error), error.detail
        say(f"{worker.peer.name} drops out: {error}")
        workers.remove(worker)
        worker.stop()
    except json.JSONDecodeError as error:
        raise WorkerError(f"{worker.peer.name} wrote no JSON: {error.doc[:200]!r}") from error


@contextmanager
def busy_neighbor() -> Iterator[None]:
    """Another process that keeps a core busy during the measurement."""
    code = "import os; parent = os.getppid()\nwhile os.getppid() == parent: sum(range(100_000))"
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def time_imports(peers: list[Peer], plan: Plan) -> dict[str, list[float]]:
    """Seconds of each peer's import in fresh processes, alternating; three rounds at most."""
    times: dict[str, list[float]] = {peer.name: [] for peer in peers}
    code = (
        "import time; start = time.perf_counter(); import {0}; "
        "print('took', time.perf_counter() - start)"
    )
    for number in range(min(plan.rounds, 3) + 1):
        for peer in peers:
            with tempfile.TemporaryDirectory() as cache:
                done = subprocess.run(
                    [sys.executable, "-c", code.format(peer.api)],
                    capture_output=True,
                    text=True,
                    cwd=ROOT,
                    env=worker_environment(peer, plan.threads, cache, plan.device == "gpu"),
                )
            if number and done.returncode == 0:
                times[peer.name].append(float(done.stdout.split()[-1]))
    return times
