"""`python -m benchmarks files`: saving and loading weights against plain h5py, in turns.

Plain h5py writes the same arrays to a new file, one dataset each, and reads them back into new
arrays. What fsync takes is shown apart, since h5py asks for none. Ratios are of times of one round;
the median over the rounds is what counts.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import describe_machine, peak_memory, resident_memory
from benchmarks.report import format_table

FORMATS = ("weights.h5", "keras", "h5", "safetensors")


def make_model(size: float, layers: int = 16) -> Any:
    """A stack of Dense layers of `size` megabytes in all."""
    import kerasish

    units = int((size * 1e6 / 4 / layers) ** 0.5)
    stack = [kerasish.layers.Dense(units) for _ in range(layers)]
    return kerasish.Sequential([kerasish.Input((units,)), *stack])


def measure(model: Any, ending: str, folder: Path) -> dict[str, float]:
    """Seconds of one round: write, save, fsync, read, load; bytes beyond the weights."""
    arrays = [v.numpy() for v in model.weights]
    plain, own = folder / "plain.h5", folder / f"model.{ending}"
    save = model.save if ending in ("keras", "h5") else model.save_weights
    synced = 0.0
    real = os.fsync

    def fsync(number: Any) -> None:
        nonlocal synced
        synced += _time(lambda: real(number))

    result = {"write": _time(lambda: _write_plain(arrays, plain))}
    before = _reset_peak()
    os.fsync = fsync  # type: ignore[assignment]
    try:
        result["save"] = _time(lambda: save(str(own)))
    finally:
        os.fsync = real
    result["fsync"] = synced
    result["extra"] = float(max(0, peak_memory() - before))
    result["read"] = _time(lambda: _read_plain(plain))
    result["load"] = _time(lambda: model.load_weights(str(own)))
    for path in (plain, own):
        path.unlink()
    return result


def _write_plain(arrays: list[Any], path: Path) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        for i, array in enumerate(arrays):
            file.create_dataset(str(i), data=array)


def _read_plain(path: Path) -> list[Any]:
    import h5py

    with h5py.File(path, "r") as file:
        return [file[str(i)][()] for i in range(len(file))]


def _time(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _reset_peak() -> int:
    """Let the peak of memory begin again, where the system can; return what is in use."""
    place = Path("/proc/self/clear_refs")
    if place.exists():
        place.write_text("5")
    return resident_memory()


def main(arguments: list[str]) -> int:
    """Print the table; 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks files", description=__doc__)
    parser.add_argument("--size", type=float, default=1000, metavar="MB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="on the disk to measure")
    parser.add_argument("--formats", nargs="*", choices=FORMATS, default=list(FORMATS))
    options = parser.parse_args(arguments)
    print(describe_machine())
    model = make_model(options.size)
    weights = sum(v.numpy().nbytes for v in model.weights)
    rows = []
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        for ending in options.formats:
            measure(model, ending, Path(name))  # what is imported or allocated once
            rounds = [measure(model, ending, Path(name)) for _ in range(options.rounds)]
            rows.append([ending, *_summary(rounds, weights)])
    header = [
        "format", "h5py write s", "save s", "fsync s", "save without fsync / write", "h5py read s",
        "load s", "load / read", "peak / weights",
    ]  # fmt: skip
    print(format_table(header, rows))
    return 0


def _summary(rounds: list[dict[str, float]], weights: int) -> list[str]:
    def middle(value: Callable[[dict[str, float]], float]) -> float:
        return statistics.median(map(value, rounds))

    def spread(value: Callable[[dict[str, float]], float]) -> str:
        low, high = np.min([*map(value, rounds)]), np.max([*map(value, rounds)])
        return f"{middle(value):.2f} ({low:.2f} to {high:.2f})"

    return [
        f"{middle(lambda r: r['write']):.2f}",
        f"{middle(lambda r: r['save']):.2f}",
        f"{middle(lambda r: r['fsync']):.2f}",
        spread(lambda r: (r["save"] - r["fsync"]) / r["write"]),
        f"{middle(lambda r: r['read']):.2f}",
        f"{middle(lambda r: r['load']):.2f}",
        spread(lambda r: r["load"] / r["read"]),
        f"{1 + middle(lambda r: r['extra']) / weights:.2f}",
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
