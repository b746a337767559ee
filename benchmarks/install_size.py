"""`python -m benchmarks install-size`: what each peer and its dependencies take on the disk.

Sizes are of the files in each distribution's RECORD; dependencies follow the metadata, with the
markers of this machine and no extras but those named.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.report import format_table

ROOT = Path(__file__).resolve().parent.parent
# What scikit-learn users have anyway; the promise of a small install is about the rest.
SHARED = "scikit-learn"
GROUPS: dict[str, tuple[str, ...]] = {
    "keras + jax": ("keras", "jax", "jaxlib"),
    "keras + tensorflow": ("keras", "tensorflow|tensorflow-cpu"),
    "keras + torch": ("keras", "torch"),
    "torch": ("torch",),
    "jax": ("jax", "jaxlib"),
}


def kerasish_roots() -> tuple[str, ...]:
    """What kerasish requires: from its metadata, or from pyproject.toml where not installed."""
    if _is_present("kerasish"):
        requirements = importlib.metadata.requires("kerasish") or []
        return tuple(requirements)
    if sys.version_info < (3, 11):
        raise SystemExit("install kerasish, or use Python 3.11+, which can read pyproject.toml")
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return tuple(project["dependencies"])


def find_closure(requirements: Iterable[str]) -> tuple[set[str], set[str]]:
    """(installed distributions, missing ones) that `requirements` need, direct or not.

    Args:
        requirements: as in a wheel's metadata; "a|b" means the one that is installed.
    """
    result: set[str] = set()
    missing: set[str] = set()
    waiting = list(requirements)
    while waiting:
        name = _applicable_name(waiting.pop())
        if name is None or name in result or name in missing:
            continue
        try:
            more = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            missing.add(name)
            continue
        result.add(name)
        waiting += more
    return result, missing


def _applicable_name(requirement: str) -> str | None:
    """Normalized name of `requirement`, or None where its marker is false here."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    if "|" in requirement and ";" not in requirement:
        choices = requirement.split("|")
        return next((name for name in choices if _is_present(name)), choices[0])
    parsed = Requirement(requirement)
    if parsed.marker is not None and not parsed.marker.evaluate({"extra": ""}):
        return None
    return canonicalize_name(parsed.name)


def _is_present(name: str) -> bool:
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def measure_distribution(name: str) -> tuple[int, int]:
    """(bytes on the disk, bytes of distinct content) of the files that `name` installed.

    Wheels hold no links, so that a library under three names is on the disk three times.
    """
    total, distinct = 0, {}
    for file in importlib.metadata.distribution(name).files or []:
        path = Path(str(file.locate()))
        if path.is_file():
            size = path.stat().st_size
            total += size
            distinct[file.hash.value if file.hash else str(path)] = size
    return total, sum(distinct.values())


def measure_groups() -> dict[str, dict[str, Any]]:
    """For each group: bytes in all, without `SHARED`, of each distribution, and what is missing."""
    groups = {"kerasish": kerasish_roots(), **GROUPS}
    shared, _ = find_closure([SHARED])
    sizes: dict[str, tuple[int, int]] = {}
    result: dict[str, dict[str, Any]] = {}
    for group, roots in groups.items():
        results, missing = find_closure(roots)
        for name in results - sizes.keys():
            sizes[name] = measure_distribution(name)
        if group == "kerasish":
            results, sizes["kerasish"] = (
                results | {"kerasish"},
                (_measure_folder(ROOT / "kerasish"),) * 2,
            )
        beside = results - shared
        result[group] = {
            "bytes": sum(sizes[name][0] for name in results),
            "beside_shared": sum(sizes[name][0] for name in beside),
            "beside_shared_distinct": sum(sizes[name][1] for name in beside),
            "parts": {name: sizes[name][0] for name in sorted(results, key=lambda n: -sizes[n][0])},
            "missing": sorted(missing),
        }
    return result


def _measure_folder(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.py"))


def main(arguments: list[str]) -> int:
    """Print the table; 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks install-size", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    groups = measure_groups()
    rows = []
    for group, entry in groups.items():
        largest = ", ".join(f"{name} {size / 1e6:.0f}" for name, size in _largest(entry))
        lack = f" (not installed: {', '.join(entry['missing'])})" if entry["missing"] else ""
        keys = ("bytes", "beside_shared", "beside_shared_distinct")
        rows.append([group, *(f"{entry[key] / 1e6:.0f}" for key in keys), largest + lack])
    header = ["peer", "MB in all", f"MB without {SHARED} and its own", "distinct", "largest"]
    print(format_table(header, rows))
    if options.json:
        options.json.write_text(json.dumps(groups, indent=1) + "\n")
    return 0


def _largest(entry: dict[str, Any]) -> list[tuple[str, int]]:
    return list(entry["parts"].items())[:4]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
