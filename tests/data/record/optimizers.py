"""Write optimizers.npz: what Keras's optimizers and schedules do, for tests/optimizers.

On PyTorch, and then, in a second process, on JAX for the cases that say so (`by_jax`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

os.environ["KERAS_BACKEND"] = os.environ.get("FACTS_ON", "torch")

import facts
import keras
import numpy as np
import optimizer_cases as cases


def array(x: Any) -> np.ndarray:
    """Return the numbers of a variable."""
    return np.array(keras.ops.convert_to_numpy(x))


def steps_of(case: str) -> dict[str, Any]:
    """Return the values of the variables and of the optimizer's after the steps."""
    options = cases.options_of(case, keras.optimizers.schedules)
    made = getattr(keras.optimizers, cases.CASES[case][0])(**options)
    shapes = cases.SHAPES.items()
    weights = [keras.Variable(cases.start(s, i), name=n) for i, (n, s) in enumerate(shapes)]
    made.build(weights)
    first: list[Any] = []
    for step in range(cases.STEPS):
        gradients = [cases.gradient(s, i, step) for i, s in enumerate(cases.SHAPES.values())]
        made.apply([keras.ops.convert_to_tensor(g) for g in gradients])
        first = first or [array(w) for w in weights]
    trained = [array(w) for w in weights]
    made.finalize_variable_values(weights)
    # Two more variables lead: the number of steps, and the rate unless a schedule gives it.
    start = 2 if isinstance(options["learning_rate"], float) else 1
    return {
        "first": first,
        "weights": trained,
        "final": [array(w) for w in weights],
        "slots": [array(v) for v in made.variables[start:]],
        "names": [v.path.split("/")[-1] for v in made.variables],
        "config": keras.saving.serialize_keras_object(made)["config"],
    }


def schedule_of(case: str) -> dict[str, Any]:
    """Return the values of a schedule at some steps, and its config."""
    name, arguments, options = cases.SCHEDULES[case]
    schedule = getattr(keras.optimizers.schedules, name)(*arguments, **options)
    values = np.array([float(schedule(step)) for step in cases.SCHEDULE_STEPS], "float64")
    return {"values": values, "config": schedule.get_config()}


def on_torch() -> None:
    """Write the file with all but the cases for JAX."""
    kept = {case: steps_of(case) for case in cases.CASES if not cases.by_jax(case)}
    schedules = {case: schedule_of(case) for case in cases.SCHEDULES}
    found = {"keras": keras.__version__, "optimizers": kept, "schedules": schedules}
    print(f"{len(kept)} cases of optimizers, {facts.write('optimizers', found)} bytes", flush=True)


def on_jax() -> None:
    """Add the cases for JAX to the file."""
    found = facts.read("optimizers")
    added = {case: steps_of(case) for case in cases.CASES if cases.by_jax(case)}
    found["optimizers"].update(added)
    print(f"{len(added)} more on JAX, {facts.write('optimizers', found)} bytes")


if __name__ == "__main__":
    if keras.backend.backend() == "jax":
        on_jax()
    else:
        on_torch()
        command = [sys.executable, "-m", "tests.data.record.optimizers"]
        subprocess.run(command, env={**os.environ, "FACTS_ON": "jax"}, check=True)
