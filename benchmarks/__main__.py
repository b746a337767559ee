"""`python -m benchmarks [compare|inference|native|roof|parity|files|...] ...`, or `--gpu ...`."""

from __future__ import annotations

import sys

from benchmarks import (
    callers,
    compare,
    files,
    gpu,
    import_cost,
    inference,
    install_size,
    native,
    parity,
    roof,
    scaling,
)

_COMMANDS = {
    "callers": callers.main,
    "compare": compare.main,
    "inference": inference.main,
    "native": native.main,
    "roof": roof.main,
    "parity": parity.main,
    "files": files.main,
    "import-cost": import_cost.main,
    "install-size": install_size.main,
    "scaling": scaling.main,
    "--gpu": gpu.main,
}


def main(arguments: list[str]) -> int:
    """Run the command named first; `compare` where none is."""
    if arguments and arguments[0] in _COMMANDS:
        return _COMMANDS[arguments[0]](arguments[1:])
    return compare.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
