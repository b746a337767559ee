"""What Keras gives for small programs: symbolic shapes, errors, configs, layers learned from data.

The programs are in `tests/shared/behavior_cases.py`, the facts in `tests/data/behavior.json`.
"""

from __future__ import annotations

import builtins
import json
import math
import re
from pathlib import Path
from typing import Any

import behavior_cases as cases
import pytest

import kerasish
from kerasish import errors
from kerasish.callbacks.progress import readable

FACTS: dict[str, Any] = json.loads((Path(__file__).parent / "data/behavior.json").read_text())
CONFIGS = "config "

MORE = "a config of kerasish keeps this argument, so that the object can be made again"
KNOWN = "kerasish knows a size that Keras gives as None"
WRONG = "Keras's symbolic shape is not that of its result"
TAKES = "kerasish computes what Keras refuses"
DIFFERENT = {
    **dict.fromkeys((
        "config initializers/Identity", "config layers/CategoryEncoding",
        "config layers/MaxNumBoundingBoxes", "config layers/MultiHeadAttention",
        "config layers/RandomGrayscale", "config layers/SimpleRNN",
        "config losses/CosineSimilarity", "config losses/Huber",
        "config losses/SparseCategoricalCrossentropy", "config metrics/CosineSimilarity",
        "config metrics/SparseTopKCategoricalAccuracy",
    ), MORE),
    "config layers/RandomCrop": "Keras draws a seed for the config; kerasish keeps None",
    **dict.fromkeys((
        "symbolic/concatenate_known", "symbolic/stack", "symbolic/dstack_vectors",
    ), KNOWN),
    **dict.fromkeys((
        "symbolic/corrcoef", "symbolic/slogdet", "symbolic/vstack_vectors", "symbolic/where_alone",
    ), WRONG),
    "symbolic/ndim": "the number of axes is known: a number, not a tensor",
    **dict.fromkeys((
        "symbolic/cond", "symbolic/crop_images_none", "symbolic/digitize", "symbolic/squeeze_axis",
        "normalization/list",
    ), TAKES),
    "augmentation/flip_mode": "Keras takes any word, and flips nothing",
    "augmentation/rotation_mode": "ValueError, as for other unknown words",
}  # fmt: skip


def families() -> dict[str, list[str]]:
    """Return family -> names of the classes whose configs are facts."""
    result: dict[str, list[str]] = {}
    for name in FACTS:
        if name.startswith(CONFIGS):
            family, own = name.removeprefix(CONFIGS).split("/")
            result.setdefault(family, []).append(own)
    return result


cases.add_configs(families())


def same(ours: Any, keras: Any) -> bool:
    """Return whether two results are equal, up to rounding; of errors the class counts."""
    if isinstance(keras, dict) and isinstance(ours, dict):
        if keras.keys() == ours.keys() == {"error"}:
            return is_error(ours["error"], keras["error"])
        return keras.keys() == ours.keys() and all(same(ours[k], keras[k]) for k in keras)
    if isinstance(keras, list) and isinstance(ours, list):
        return len(ours) == len(keras) and all(map(same, ours, keras))
    kinds = {type(ours), type(keras)}
    if float in kinds and kinds <= {int, float}:
        return math.isclose(ours, keras, rel_tol=1e-3, abs_tol=1e-4) or ours != ours != keras
    return type(ours) is type(keras) and ours == keras


def is_error(ours: str, keras: str) -> bool:
    """Return whether an error class is Keras's, or a subclass of it."""
    found = getattr(errors, ours, None) or getattr(builtins, ours)
    return keras in [kind.__name__ for kind in found.__mro__]


def test_every_case_has_a_fact():
    assert sorted(FACTS) == sorted(cases.CASES)
    assert set(DIFFERENT) <= set(FACTS)


@pytest.mark.parametrize("name", sorted(FACTS))
def test_behavior(name):
    ours, keras = cases.run(kerasish, name), FACTS[name]
    if name in DIFFERENT:
        assert not same(ours, keras), f"{name} is as in Keras now: remove it from DIFFERENT"
    else:
        assert same(ours, keras), (ours, keras)


@pytest.mark.parametrize("seconds", [2e-7, 1.2e-4, 0.0034, 0.2, 1.26, 59.98, 75.0, 7300.0, 4e5])
@pytest.mark.parametrize("end", ["", "/step", "/epoch"])
def test_times_of_a_slow_machine_are_left_out(seconds, end):
    assert re.sub(cases.TIMES, "T", f"5/5 - {readable(seconds)}{end} - x:") == "5/5 - T - x:"
