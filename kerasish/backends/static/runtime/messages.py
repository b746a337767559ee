"""Messages of the static engine: compilations that the user asked to see, and warnings."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

from kerasish.backends.static.lowering.slow_units import advice
from kerasish.backends.static.lowering.units import Unit
from kerasish.graph.ir import Graph, Value


def say(text: str) -> None:
    """Print a line that the user asked for (explain_compiles, KERASISH_DEBUG)."""
    print(f"kerasish: {text}", file=sys.stderr)


_warned: set[str] = set()


def warn_once(text: str) -> None:
    """Warn about a missing dependency, once per process."""
    if text not in _warned:
        _warned.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=2)


def report_slow(name: str, paths: dict[Value, str], traced: Graph, units: Sequence[Unit]) -> None:
    """Warn about the ops of a training step that have no native code."""
    text = advice(name, units, paths, traced)
    if text is not None:
        warn_once(text)


def show_pass(name: str, before: Graph, after: Graph) -> None:
    """Print the graph before and after a pass that changed it."""
    say(f"{name}: {len(before.nodes)} -> {len(after.nodes)} nodes")
