"""`python -m tests.mutants`: apply each mutant to a copy, run its tests, print and keep the score.

The test that is recorded as having killed a mutant runs first, and only it where it does so again.

Args:
    --only PATTERN: those whose "area/name" matches, as in a shell.
    --missing: those that are not recorded as killed.
    --new: those that have not been run as they are now, or whose test has changed since.
    --jobs N: how many copies work at once.
    --seconds N: no mutant begins after this time.
"""

from __future__ import annotations

import argparse
import fnmatch
import queue
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))

from mutant_page import (
    PAGE,
    is_current,
    mark_of,
    mark_of_test,
    missing,
    page,
    read_record,
    write_record,
)
from mutant_runs import Copy, Outcome
from mutants import Mutant, all_mutants


def chosen(arguments: argparse.Namespace) -> list[Mutant]:
    """Return the mutants to run."""
    result = [m for m in all_mutants() if fnmatch.fnmatch(m.name, arguments.only)]
    record = read_record()
    if arguments.new:
        return [m for m in result if not is_current(m, record.get(m.name))]
    return missing(result, record) if arguments.missing else result


def run_all(mutants: list[Mutant], jobs: int, seconds: float) -> dict[str, Outcome]:
    """Return the outcomes of those that could be begun in time; print and record each at once."""
    marks = {m.name: mark_of(m) for m in mutants}
    everything = all_mutants()
    recording, before = threading.Lock(), read_record()
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in mutants:
        waiting.put(mutant)
    outcomes: dict[str, Outcome] = {}
    end = time.monotonic() + seconds

    def work() -> None:
        copy = Copy()
        try:
            while time.monotonic() < end:
                try:
                    mutant = waiting.get_nowait()
                except queue.Empty:
                    return
                result = outcomes[mutant.name] = copy.run_recorded(
                    mutant, before.get(mutant.name, {}).get("by", "")
                )
                print(f"{result.verdict:9} {result.seconds:5.1f} s  {mutant.name}  {result.by}")
                sys.stdout.flush()
                with recording:  # an interrupted run keeps what it has found
                    record = read_record()
                    record[mutant.name] = {
                        "mark": marks[mutant.name], "test": mark_of_test(result.by),
                        "verdict": result.verdict, "by": result.by,
                    }  # fmt: skip
                    write_record(record, everything)
        finally:
            copy.close()

    workers = [threading.Thread(target=work) for _ in range(jobs)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return outcomes


def main() -> int:
    """Run, record, and return 1 where a mutant was not killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--only", default="*", metavar="PATTERN")
    parser.add_argument("--missing", action="store_true")
    parser.add_argument("--new", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9)
    arguments = parser.parse_args()
    mutants = chosen(arguments)
    outcomes = run_all(mutants, arguments.jobs, arguments.seconds)
    record = read_record()
    everything = all_mutants()
    PAGE.write_text(page(everything, record), "utf-8")
    killed = sum(o.verdict == "killed" for o in outcomes.values())
    print(f"{killed} of {len(outcomes)} killed; {len(missing(everything, record))} of "
          f"{len(everything)} mutants not recorded as killed")  # fmt: skip
    return int(killed < len(outcomes))


if __name__ == "__main__":
    sys.exit(main())
