"""Many programs on many engines, in processes of their own: what `python -m tests.fuzz` runs."""

from __future__ import annotations

import argparse
import collections
import json
import pathlib
import queue
import subprocess
import sys
import threading
import time
from typing import Any

from .compare import Verdict, check
from .generate import program_of
from .known import reason
from .run import ENGINES, STATIC
from .script import script_of
from .shrink import shrink

PATIENCE = 300.0  # seconds without a line from a worker: it hangs


def engines_of(seed: int, count: int) -> list[Any]:
    """Return the engines that a seed's program runs on: all, or some in turn."""
    if count >= len(STATIC):
        return list(STATIC)
    start = seed * count + seed // len(STATIC)
    return [STATIC[(start + k) % len(STATIC)] for k in range(count)]


def judge(seed: int, count: int, faults: Any = None, whole: bool = True) -> tuple[Any, Verdict]:
    """Return a seed's program and the verdict on it; every third is saved and loaded on the way."""
    program = program_of(seed, faults)
    known = reason(program)
    if known:
        return program, Verdict("known", text=known)
    return program, check(program, engines_of(seed, count), saved=seed % 3 == 0, whole=whole)


def report(program: Any, verdict: Verdict, saved: bool, seconds: float, whole: bool = True) -> str:
    """Return the shrunk program of a bad verdict as a script."""
    engine = ENGINES[verdict.engine if verdict.engine in ENGINES else "fast_run"]
    if engine.name == "eager":
        engine = ENGINES["fast_run"]
    small = shrink(
        program,
        lambda p: check(p, [engine], saved, whole=whole).kind == verdict.kind,
        seconds,
    )
    title = f"Seed {program.seed}, {verdict.kind} on {engine.name}:\n{verdict.text}"
    return script_of(small, engine, title.replace('"""', "'''").replace("\\", "/"))


def work(arguments: argparse.Namespace) -> None:
    """Judge the seeds that come in as lines; answer each with a line."""
    for line in sys.stdin:
        seed = int(line)
        faults: collections.Counter[str] = collections.Counter()
        answer: dict[str, Any] = {"seed": seed}
        program, verdict = judge(seed, arguments.engines, faults, not arguments.thin)
        answer.update(kind=verdict.kind, engine=verdict.engine, text=verdict.text[-1500:])
        answer.update(noisy=verdict.noisy, faults=dict(faults))
        if verdict.bad:
            answer["script"] = report(
                program, verdict, seed % 3 == 0, arguments.shrink, not arguments.thin
            )
        print(json.dumps(answer), flush=True)


def main(given: list[str] | None = None) -> int:
    """Run a campaign; return how many programs disagreed or crashed, at most 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seeds", default="0:200", help="A:B, from A to below B")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--engines", type=int, default=len(STATIC), help="engines for each program")
    parser.add_argument("--shrink", type=float, default=60.0, help="seconds to shrink one program")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no program after these")
    parser.add_argument("--out", default="", help="a folder for the scripts of what fails")
    parser.add_argument("--thin", action="store_true", help="outputs and gradients, no training")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(given)
    if arguments.worker:
        work(arguments)
        return 0
    return _campaign(arguments)


def _campaign(arguments: argparse.Namespace) -> int:
    first, last = (int(part) for part in arguments.seeds.split(":"))
    seeds: queue.SimpleQueue[int] = queue.SimpleQueue()
    for seed in range(first, last):
        seeds.put(seed)
    result: list[dict[str, Any]] = []
    end = time.monotonic() + arguments.seconds
    threads = [
        threading.Thread(target=_hire, args=(arguments, seeds, result, end))
        for _ in range(arguments.jobs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return _summary(result, first)


def _hire(arguments: Any, seeds: Any, result: list[dict[str, Any]], end: float) -> None:
    """Let one worker after another judge seeds, a new one after a crash of the process."""
    command = [
        sys.executable, "-W", "ignore", "-m", "fuzz", "--worker",
        "--engines", str(arguments.engines), "--shrink", str(arguments.shrink),
        *(["--thin"] if arguments.thin else []),
    ]  # fmt: skip
    here = pathlib.Path(__file__).resolve().parent.parent
    worker = None
    while time.monotonic() < end:
        try:
            seed = seeds.get_nowait()
        except queue.Empty:
            break
        if worker is None or worker.poll() is not None:
            worker = subprocess.Popen(
                command, cwd=here, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        timer = threading.Timer(PATIENCE, worker.kill)
        timer.start()
        print(seed, file=worker.stdin, flush=True)
        line = worker.stdout.readline()  # type: ignore[union-attr]
        timer.cancel()
        if line:
            answer = json.loads(line)
        else:
            code = worker.wait()
            answer = {"seed": seed, "kind": "died", "text": f"exit status {code}", "engine": ""}
        result.append(answer)
        _show(answer, arguments.out)
    if worker is not None:
        worker.communicate()


def _show(answer: dict[str, Any], out: str) -> None:
    if answer["kind"] not in ("disagreement", "crash", "died"):
        return
    print(
        f"seed {answer['seed']}: {answer['kind']} {answer['engine']}\n{answer['text']}", flush=True
    )
    if out and "script" in answer:
        folder = pathlib.Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"seed_{answer['seed']}.py").write_text(answer["script"])


def _summary(result: list[dict[str, Any]], first: int) -> int:
    kinds = collections.Counter(a["kind"] for a in result)
    faults: collections.Counter[str] = collections.Counter()
    for answer in result:
        faults.update(answer.get("faults", {}))
    for text, count in faults.most_common(20):
        print(f"while writing programs, {count} times: {text}")
    reached = max((a["seed"] for a in result), default=first - 1) + 1
    print(
        f"{len(result)} programs, {kinds['disagreement']} disagreements, "
        f"{kinds['crash'] + kinds['died']} crashes, seeds {first}:{reached}; "
        f"{kinds['equal']} equal ({sum(a.get('noisy', 0) > 0 for a in result)} of them badly "
        f"conditioned), {kinds['refused']} refused by all engines, {kinds['known']} known findings"
    )
    return int(kinds["disagreement"] + kinds["crash"] + kinds["died"] > 0)
