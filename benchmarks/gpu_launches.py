"""`python -m benchmarks.gpu_launches`: launches, allocations and bytes of a step on a GPU, counted.

No GPU is needed: the tests' fake CuPy counts what the eager engine hands to it, with cuBLASLt and
cuDNN there (`--without` counts without them). The compulsory bytes are those of
`benchmarks/counts.py`: parameters and activations, each as often as a layer needs them. Nothing
here is a time.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from benchmarks.counts import count_step
from benchmarks.workloads import WORKLOADS

_FOLDER = Path(__file__).resolve().parent.parent / "tests" / "shared"


def rows(batch: int | None, libraries: bool, names: list[str]) -> list[tuple[str, Any, int]]:
    """Return (name, counts of a step, compulsory bytes) of workloads."""
    sys.path.append(str(_FOLDER))
    import dry_gpu
    import pytest

    result = []
    with pytest.MonkeyPatch.context() as patch, dry_gpu.installed(patch, libraries, libraries):
        for name in names:
            workload = WORKLOADS[name]
            counts = dry_gpu.workload_step(workload, batch)
            needed = count_step(name, batch or workload.batch, workload.shape).bytes
            result.append((name, counts, needed))
    return result


def main(arguments: list[str] | None = None) -> int:
    """Print a line for each workload, and with `--names` its launches by name."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_launches")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--batch", type=int, help="instead of each workload's own")
    parser.add_argument("--without", action="store_true", help="without cuBLASLt and cuDNN")
    parser.add_argument("--names", action="store_true", help="launches by name")
    options = parser.parse_args(arguments)
    print(f"{'workload':12} {'launches':>8} {'allocations':>11} {'MB moved':>9} {'MB needed':>9}")
    for name, counts, needed in rows(
        options.batch, not options.without, options.workloads.split(",")
    ):
        moved = sum(counts.bytes.values())
        print(f"{name:12} {counts.total:8.0f} {counts.allocations:11.0f} {moved / 1e6:9.1f} "
              f"{needed / 1e6:9.1f}")  # fmt: skip
        for launch, many in counts.launches.most_common() if options.names else ():
            print(f"    {many:6.0f} {launch:28} {counts.bytes[launch] / 1e6:9.2f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
