"""Run a program written for `keras` or `tf.keras`: `python -m kerasish train.py [arguments]`."""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from kerasish.aliases import install


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a script, or a module, as Python does, with `kerasish.as_keras` in charge.

    Args:
        arguments: those of the command; None: `sys.argv`.
    """
    parser = argparse.ArgumentParser(
        "python -m kerasish",
        description="Run a program written for keras or tf.keras, unchanged, on kerasish.",
        epilog="`python -m kerasish.launch` starts a program on several processes.",
    )
    parser.add_argument("-m", dest="module", action="store_true", help="run a module by its name")
    parser.add_argument("program", help="the script's file, or with -m the module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="passed to the program")
    given = parser.parse_args(arguments)
    if not given.module and not Path(given.program).exists():
        parser.error(f"there is no file {given.program!r}")

    install()
    sys.argv = [given.program, *given.arguments]
    if given.module:
        sys.path.insert(0, "")
        runpy.run_module(given.program, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(given.program).resolve().parent)
        runpy.run_path(given.program, run_name="__main__")


if __name__ == "__main__":
    main()
