"""`python -m benchmarks callers`: `predict` of one model from several Python threads.

Each call computes with one thread (`config.set_threads(1)`). The numbers of callers take turns. The
CPU seconds show how many cores the callers had: on a busy machine they cannot have all of them.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from typing import Any, NamedTuple

from benchmarks.machine import describe_machine, find_versions
from benchmarks.report import format_table, show_time
from benchmarks.workloads import WORKLOADS, make_data


class Spent(NamedTuple):
    """What some calls took, in seconds per call."""

    wall: float
    cpu: float


def run(model: Any, x: Any, expected: bytes, callers: int, calls: int) -> Spent:
    """Let threads predict the same rows; return the time per call.

    Raises:
        AssertionError: a result has other bits than the one expected.
    """
    wrong: list[int] = []

    def call(count: int) -> None:
        for i in range(count):
            y = model.predict(x, batch_size=len(x), verbose=0)
            if i % 16 == 0 and y.tobytes() != expected:
                wrong.append(i)

    threads = [threading.Thread(target=call, args=(calls // callers,)) for _ in range(callers)]
    start, cpu = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = calls // callers * callers
    spent = Spent((time.perf_counter() - start) / done, (time.process_time() - cpu) / done)
    if wrong:
        raise AssertionError(f"{len(wrong)} results differ from those of one thread")
    return spent


def measure(name: str, rows: int, callers: int, rounds: int, seconds: float) -> dict[int, Spent]:
    """Return the best time per call of one caller and of several."""
    import kerasish

    kerasish.config.set_backend("static")
    kerasish.config.set_threads(1)
    kerasish.utils.set_random_seed(0)
    workload = WORKLOADS[name]
    model = workload.build(kerasish)
    x = make_data(workload, rows)[0]
    expected = model.predict(x, batch_size=rows, verbose=0).tobytes()
    one = run(model, x, expected, 1, 5).wall
    calls = max(callers, int(seconds / one))
    spent: dict[int, list[Spent]] = {1: [], callers: []}
    for _ in range(rounds):
        for count, results in spent.items():
            results.append(run(model, x, expected, count, calls))
    return {count: min(results) for count, results in spent.items()}


def main(arguments: list[str]) -> int:
    """Print a table; 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks callers", description=__doc__)
    known = ",".join(WORKLOADS)
    parser.add_argument("--workloads", default=known, help="with commas (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=1, help="per call")
    parser.add_argument("--callers", type=int, default=2, help="threads")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.2, help="of a turn, about")
    options = parser.parse_args(arguments)
    for name in options.workloads.split(","):
        if name not in WORKLOADS:
            parser.error(f"unknown workload {name!r}; known: {', '.join(WORKLOADS)}")
    machine = describe_machine()
    print(f"{machine['cpu']}, {machine['cores']} cores, load {machine['load']}, {find_versions()}")
    lines = []
    for name in options.workloads.split(","):
        best = measure(name, options.rows, options.callers, options.rounds, options.seconds)
        one, several = best[1], best[options.callers]
        lines.append(
            [name, show_time(one.wall), show_time(several.wall), f"{one.wall / several.wall:.2f}",
             f"{one.cpu / one.wall:.2f}", f"{several.cpu / several.wall:.2f}"]
        )  # fmt: skip
    callers = f"{options.callers} callers"
    header = ["workload", "1 caller", callers, "calls per second", "cores of 1", f"of {callers}"]
    print(f"\n{options.rows} rows per call\n{format_table(header, lines)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
