"""`python -m benchmarks import-cost`: CPU seconds of `import kerasish` beyond those of NumPy.

Fresh processes take turns, each with byte code and compiled programs of earlier runs, so that the
figures are those of the second start of a program. `--base` names another checkout to compare with.
`--fit` adds the first `fit` of a model of one layer: a deferred import is paid there.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.report import format_table

ROOT = Path(__file__).resolve().parent.parent
IMPORT = "import numpy, kerasish"
FIT = """
import numpy, kerasish
model = kerasish.Sequential([kerasish.Input((4,)), kerasish.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(numpy.ones((8, 4), "f"), numpy.ones((8, 1), "f"), batch_size=8, verbose=0)
"""


def measure(code: str, checkout: Path, cache: Path) -> float:
    """Return the CPU seconds of a fresh process that runs `code` on a checkout."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(checkout),
        "PYTHONPYCACHEPREFIX": str(cache / "bytecode"),
        "XDG_CACHE_HOME": str(cache),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, cwd=cache, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare(checkouts: list[Path], rounds: int, fit: bool) -> dict[str, list[float]]:
    """Return the seconds of each round, by what ran.

    Args:
        checkouts: folders that hold `kerasish/`.
        rounds: fresh processes for each of them.
        fit: measure the first `fit`, too.
    """
    with tempfile.TemporaryDirectory() as folder:
        runs = {"numpy": ("import numpy", ROOT, Path(folder))}
        for checkout in checkouts:
            cache = Path(folder, checkout.name + str(len(runs)))
            cache.mkdir()
            runs[f"{checkout.name}: import"] = (IMPORT, checkout, cache)
            if fit:
                runs[f"{checkout.name}: import and fit"] = (FIT, checkout, cache)
        times: dict[str, list[float]] = {name: [] for name in runs}
        for number in range(rounds + 2):  # two rounds fill the caches
            for name, run in runs.items():
                seconds = measure(*run)
                if number > 1:
                    times[name].append(seconds)
    return times


def main(arguments: list[str]) -> int:
    """Print the table; 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks import-cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="processes (default: %(default)s)")
    parser.add_argument("--base", type=Path, metavar="FOLDER", help="another checkout")
    parser.add_argument("--fit", action="store_true", help="measure the first fit, too")
    options = parser.parse_args(arguments)
    checkouts = [ROOT] if options.base is None else [options.base.resolve(), ROOT]
    times = compare(checkouts, options.rounds, options.fit)
    numpy = times["numpy"]
    rows = []
    for name, values in times.items():
        beyond = [value - base for value, base in zip(values, numpy, strict=True)]
        rows.append([
            name,
            *(f"{pick(values):.3f}" for pick in (statistics.median, min)),
            f"{statistics.median(beyond):.3f}",
            f"{min(values) - min(numpy):.3f}",
        ])  # fmt: skip
    header = ["CPU s", "median", "best", "median of differences to numpy", "best minus best"]
    print(format_table(header, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
