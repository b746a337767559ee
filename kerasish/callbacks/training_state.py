"""The state of a training: variables and random counters, captured and restored."""

from __future__ import annotations

import random as python_random
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish import config, random
from kerasish.errors import ResumeError
from kerasish.tensor import to_numpy, using_scope

if TYPE_CHECKING:
    from kerasish.engine.model.model import Model


def state_variables(model: Model, whole: bool = True) -> list[Any]:
    """Return all variables that a step may change: weights, seeds, optimizer slots, metrics.

    Each occurs once. The order is that of their creation, so the same program, run again, gives the
    same list.

    Args:
        model: the model.
        whole: the slots as files hold them; False: what this process holds of them.
    """
    optimizer = model.optimizer
    slots: list[Any] = []
    if optimizer is not None:
        slots = optimizer.undivided_variables if whole else optimizer.variables
    every: list[Any] = [*model.variables, *slots]
    for metric in model.metrics:
        every.extend(metric.variables)
    return list({id(v): v for v in every}.values())


def capture(variables: list[Any]) -> dict[str, np.ndarray]:
    """Return name -> current value of each variable; later steps do not write to these arrays."""
    return {f"{i}:{v.path}": np.asarray(to_numpy(v.latest)) for i, v in enumerate(variables)}


def put_back(variables: list[Any], kept: dict[str, np.ndarray], who: str) -> None:
    """Set variables to the result of `capture`: all of them, or none after an error.

    Raises:
        ResumeError: the variables are not those of the state.
    """
    wrong = _differences(variables, kept)
    if wrong:
        shown = "\n  ".join(wrong[:20])
        raise ResumeError(
            f"{who}: the state there was taken from another model or compile():\n  {shown}\n"
            "Train as before, or name another folder."
        )
    with using_scope(None):
        for v, value in zip(variables, kept.values()):
            v.assign(value)


def _differences(variables: list[Any], kept: dict[str, np.ndarray]) -> list[str]:
    results = []
    for i in range(max(len(variables), len(kept))):
        mine = theirs = "nothing"
        if i < len(variables):
            mine = f"{variables[i].path} {tuple(variables[i].shape)} {variables[i].dtype}"
        if i < len(kept):
            name, value = list(kept.items())[i]
            theirs = f"{name.partition(':')[2]} {value.shape} {value.dtype.name}"
        # Numbered names (dense_1) differ if a process creates a model twice.
        if mine.partition(" ")[2] != theirs.partition(" ")[2]:
            results.append(f"{theirs} in the state, {mine} in this model")
    return results


def random_state() -> dict[str, Any]:
    """Return the state of the process's random sequences: kerasish's, NumPy's and Python's."""
    version, words, gauss = python_random.getstate()
    return {
        "kerasish": config.random_state(),
        "steps": random.shared_state(),
        "numpy": np.random.get_state(legacy=False),  # noqa: NPY002 (the one users share)
        "python": [version, np.array(words, np.uint32), gauss],
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Set the process's random sequences to the result of `random_state`."""
    version, words, gauss = state["python"]
    python_random.setstate((version, tuple(words.tolist()), gauss))
    np.random.set_state(state["numpy"])  # noqa: NPY002
    config.set_random_state(state["kerasish"])
    random.set_shared_state(state["steps"])
