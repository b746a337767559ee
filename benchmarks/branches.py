"""Whether independent branches of a step pay at the same time: python -m benchmarks.branches.

Two equal towers (small dense layers, convolutions, or one product of many) compute their results
and gradients in three ways: in turn on one thread; in turn with as many threads as each of their
parts chooses among two; and at the same time, one thread each, as independent recurrences do.
Printed are the shortest of many runs that alternate, in microseconds of the clock, and "gain": the
better of the first two by the third.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import kerasish
from kerasish import config, ops
from kerasish.backends import choose
from kerasish.backends.static.codegen.driver import Program, Record
from kerasish.backends.static.codegen.nested_records import concurrent_record
from kerasish.backends.static.lowering.units import threads_records

SECONDS = 4.0  # for each case


def dense(batch: int, width: int, depth: int = 3) -> tuple[Callable[..., Any], list[Any]]:
    """Return a tower of dense layers, and its inputs: x and kernels."""
    rng = np.random.default_rng(0)
    shapes = [(batch, width), *[(width, width)] * depth]
    arrays = [(rng.normal(size=s) / width**0.5).astype("float32") for s in shapes]

    def run(x: Any, *kernels: Any) -> Any:
        for kernel in kernels:
            x = ops.relu(ops.matmul(x, kernel))
        return ops.mean(x)

    return run, arrays


def convolutions(batch: int, size: int, filters: int) -> tuple[Callable[..., Any], list[Any]]:
    """Return a tower of two convolutions."""
    rng = np.random.default_rng(0)
    shapes = [(batch, size, size, 3), (3, 3, 3, filters), (3, 3, filters, filters)]
    arrays = [(rng.normal(size=s) / 5).astype("float32") for s in shapes]

    def run(x: Any, *kernels: Any) -> Any:
        for kernel in kernels:
            x = ops.relu(ops.conv(x, kernel, padding="same"))
        return ops.mean(x)

    return run, arrays


def records_of(
    run: Callable[..., Any], arrays: list[Any], threads: int
) -> tuple[Any, list[Record]]:
    """Return a compiled tower with its gradients, and its records."""
    gradients = kerasish.value_and_grad(run, tuple(range(1, len(arrays))))
    with config.using_threads(threads):
        step = choose("static").compile(gradients)
        step(*arrays)
        (executable,) = step.executables()
    (program,) = executable.parts
    return step, list(program.records)


def times(ways: Sequence[Program]) -> list[float]:
    """Return the shortest time of each program, in microseconds."""
    best = [float("inf")] * len(ways)
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        for number, program in enumerate(ways):
            for _ in range(5):
                start = time.perf_counter()
                program.run()
                best[number] = min(best[number], time.perf_counter() - start)
    return [1e6 * seconds for seconds in best]


def compare(name: str, make: Callable[[], tuple[Callable[..., Any], list[Any]]]) -> None:
    """Print a row for two towers."""
    kept, lists = [], {}
    for threads in (1, 2):
        pairs = [records_of(*make(), threads) for _ in range(2)]
        kept.append(pairs)
        lists[threads] = [records for _, records in pairs]
    one = threads_records(1)
    ways = [
        Program([*one, *lists[1][0], *lists[1][1]]),
        Program([*threads_records(2), *lists[2][0], *lists[2][1]]),
        Program([*threads_records(2), concurrent_record([[*one, *r] for r in lists[1]])]),
    ]
    a, b, c = times(ways)
    print(f"{name:28} {a:10.0f} {b:10.0f} {c:10.0f} {min(a, b) / c:8.2f}")


def main() -> None:
    """Print all cases."""
    print(f"{'two towers':28} {'1 thread':>10} {'2 threads':>10} {'at once':>10} {'gain':>8}")
    for batch in (32, 128, 1024):
        for width in (16, 64, 256, 512):
            compare(f"dense {batch} x {width}", lambda b=batch, w=width: dense(b, w))
    for batch, size, filters in ((8, 8, 8), (32, 16, 8), (32, 16, 32), (64, 32, 16)):
        name = f"convolutions {batch} x {size} x {filters}"
        compare(name, lambda b=batch, s=size, f=filters: convolutions(b, s, f))
    compare("24 products 32 x 64", lambda: dense(32, 64, 24))


if __name__ == "__main__":
    main()
