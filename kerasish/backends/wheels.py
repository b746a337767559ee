"""Installed packages: their versions and files, without importing them.

`importlib.metadata` also has these, but its import takes longer than that of the modules here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator


def version_of(package: str) -> str:
    """Return the version of an installed package, "" if there is none.

    Args:
        package: its name, with underscores.

    Example:
        >>> version_of("no_such_package")
        ''
    """
    for _, info in _infos(package):
        return os.path.basename(info).removeprefix(f"{package}-").removesuffix(".dist-info")
    return ""


def files_of(package: str, name: str) -> list[str]:
    """Return the paths of the files of a name that were installed with a package.

    Args:
        package: its name, with underscores.
        name: of the file, without its folder.

    Example:
        >>> files_of("no_such_package", "libdnnl.so.3")
        []
    """
    results = []
    for folder, info in _infos(package):
        record = os.path.join(info, "RECORD")
        if os.path.exists(record):
            with open(record, encoding="utf-8") as lines:
                paths = [line.partition(",")[0] for line in lines]
            results += [os.path.join(folder, p) for p in paths if os.path.basename(p) == name]
    return [path for path in map(os.path.realpath, results) if os.path.exists(path)]


def _infos(package: str) -> Iterator[tuple[str, str]]:
    """Yield (folder of modules, folder of the package's metadata), in the order of imports."""
    for folder in sys.path:
        try:
            names = os.listdir(folder or os.curdir)
        except OSError:  # no folder: an archive, or one that is not there
            continue
        for name in names:
            if name.startswith(f"{package}-") and name.endswith(".dist-info"):
                yield folder, os.path.join(folder, name)
