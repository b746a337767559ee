"""`python -m benchmarks parity --calls`: every op and layer against Keras's, call by call.

Ops: the cases of `tests/ops/test_as_keras.py`. Layers: the example that each class carries, made in
Keras from our config and given our weights. Both libraries run in one process on the same arrays.
"""

from __future__ import annotations

import os
import runpy
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import format_table

TOLERANCE = 1e-5
HALVES = {"float16": TOLERANCE / (2 * 2.0**-10), "bfloat16": TOLERANCE / (2 * 2.0**-7)}
TESTS = Path(__file__).parent.parent / "tests"


def difference(ours: Any, theirs: Any) -> float:
    """Return the largest |a - b| / max(1, |a|); infinity where shapes or NaNs differ.

    Of 16-bit results, two units in the last place count as 1e-5.
    """
    a, b = np.asarray(theirs), np.asarray(ours)
    if a.shape != b.shape:
        return float("inf")
    if a.dtype.kind in "OUSV" or b.dtype.kind in "OUSV":
        return 0.0 if a.tolist() == b.tolist() else float("inf")
    scale = HALVES.get(a.dtype.name, 1.0)
    wide = "complex128" if "c" in (a.dtype.kind, b.dtype.kind) else "float64"
    a, b = a.astype(wide), b.astype(wide)
    equal = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        apart = np.abs(a - b) / np.maximum(1.0, np.abs(a))
    apart = np.where(equal, 0.0, np.where(np.isfinite(apart), apart, np.inf))
    return float(apart.max(initial=0.0)) * scale


def op_calls(keras: Any, kerasish: Any) -> Iterator[tuple[str, float | str]]:
    """Yield (op, difference) for each recorded case of an op; text where Keras has no answer."""
    cases = runpy.run_path(str(TESTS / "ops" / "test_as_keras.py"))
    for name, args, kwargs in cases["keyed"]().values():
        try:
            theirs = cases["call"](keras.ops, name, args, kwargs)
        except Exception as error:
            yield name, f"Keras: {type(error).__name__}"
            continue
        ours = cases["call"](kerasish.ops, name, args, kwargs)
        pairs = zip(ours, theirs, strict=True)
        yield name, max((difference(a, b) for a, b in pairs), default=0.0)


def layer_calls(keras: Any, kerasish: Any) -> Iterator[tuple[str, float | str]]:
    """Yield (layer, difference) for each layer that has an example."""
    sys.path.insert(0, str(TESTS / "shared"))
    import layer_examples as examples

    for name in examples.EXAMPLES:
        if not hasattr(keras.layers, name):
            yield name, "Keras has none"
            continue
        layer, inputs = examples.started(name), examples.data(name)
        theirs = keras.layers.deserialize(kerasish.layers.serialize(layer))
        examples.call(theirs, name, inputs)
        theirs.set_weights(layer.get_weights())
        pairs = zip(
            examples.flat(examples.call(layer, name, inputs)),
            examples.flat(examples.call(theirs, name, inputs)),
            strict=True,
        )
        yield name, max((difference(a, b) for a, b in pairs), default=0.0)


def main() -> int:
    """Print both tables; return 1 where something differs by more than 1e-5."""
    os.environ.setdefault("KERAS_BACKEND", "jax")
    warnings.simplefilter("ignore")
    import keras

    import kerasish

    beyond = 0
    for title, calls in (("op", op_calls), ("layer", layer_calls)):
        worst: dict[str, float] = {}
        counts: dict[str, int] = {}
        silent: dict[str, str] = {}
        for name, result in calls(keras, kerasish):
            if isinstance(result, str):
                silent[name] = result
                continue
            worst[name] = max(worst.get(name, 0.0), result)
            counts[name] = counts.get(name, 0) + 1
        rows = [
            [name, str(counts[name]), f"{d:.1e}", "ok" if d <= TOLERANCE else "BEYOND"]
            for name, d in sorted(worst.items(), key=lambda item: -item[1])
        ]
        print(format_table([title, "calls", "difference", ""], rows))
        bad = sum(d > TOLERANCE for d in worst.values())
        beyond += bad
        print(f"{len(worst)} {title}s, {sum(counts.values())} calls, {bad} beyond {TOLERANCE:g}")
        print(f"not compared: {silent}\n")
    return int(bool(beyond))
