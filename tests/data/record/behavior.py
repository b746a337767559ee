"""Write behavior.json: what Keras gives for behavior_cases.py, on JAX."""

from __future__ import annotations

import json
import os
from pathlib import Path

os.environ["KERAS_BACKEND"] = "jax"

import behavior_cases as cases
import keras

FAMILIES = (
    "layers", "losses", "metrics", "optimizers", "optimizers.schedules", "initializers",
    "regularizers", "constraints",
)  # fmt: skip


def classes_of(family: str) -> list[str]:
    """Return the names of the classes in a module of Keras, each class once."""
    module = keras
    for part in family.split("."):
        module = getattr(module, part)
    found = {}
    for name in sorted(dir(module)):
        made = getattr(module, name)
        if isinstance(made, type) and name == made.__name__:
            found[made] = name
    return list(found.values())


if __name__ == "__main__":
    cases.add_configs({family: classes_of(family) for family in FAMILIES})
    facts = {name: cases.run(keras, name) for name in sorted(cases.CASES)}
    text = json.dumps(facts, separators=(",", ":"), sort_keys=True)
    path = Path(__file__).parents[1] / "behavior.json"
    path.write_text(text.replace('},"', '},\n"').replace('],"', '],\n"') + "\n", encoding="utf-8")
