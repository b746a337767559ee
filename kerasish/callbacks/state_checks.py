"""Checks of the saved state of a training, before anything of it is restored."""

from __future__ import annotations

import random as python_random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kerasish.typing import Array

# The errors that Python and NumPy raise for values of a damaged record.
WRONG_KINDS = (
    AttributeError, TypeError, KeyError, IndexError, OverflowError, ArithmeticError, ValueError,
)  # fmt: skip
Check = Callable[[Any], bool]


def is_count(value: int) -> bool:
    """Return whether a value is an integer >= 0."""
    return type(value) is int and 0 <= value < 2**63


def is_number(value: object) -> bool:
    """Return whether a value is a number."""
    return type(value) in (int, float)


def is_text(value: Any) -> bool:
    """Return whether a value is a string."""
    return isinstance(value, str)


def is_bool(value: bool) -> bool:
    """Return whether a value is True or False."""
    return isinstance(value, bool)


def is_array(value: Array) -> bool:
    """Return whether a value is an array."""
    return isinstance(value, np.ndarray)


def maybe(check: Check) -> Check:
    """Return a check that also accepts None."""
    return lambda value: value is None or check(value)


def list_of(check: Check) -> Check:
    """Return a check of all elements of a list."""
    return lambda value: isinstance(value, list) and all(map(check, value))


def dict_of(check: Check) -> Check:
    """Return a check of all values of a dict with strings as keys."""
    return lambda value: (
        isinstance(value, dict) and all(isinstance(k, str) and check(v) for k, v in value.items())
    )


def check_values(who: str, values: dict[str, Any], checks: Mapping[str, Check]) -> None:
    """Check the values of a dict.

    Raises:
        ValueError: a value is missing or of another kind; the message names it.
    """
    if not isinstance(values, dict):
        raise ValueError(f"{who} is a {type(values).__name__}, no dict")
    for name, check in checks.items():
        if name not in values:
            raise ValueError(f"{who} has no {name!r}")
        if not check(values[name]):
            raise ValueError(f"{who}: {name} cannot be {_shown(values[name])}")


def _shown(value: object) -> str:
    if isinstance(value, (dict, list, np.ndarray)):
        return f"a {type(value).__name__}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _is_log(value: float) -> bool:
    return value is None or isinstance(value, (bool, int, float, str, list, dict, np.ndarray))


_STATE: dict[str, Check] = {
    "version": is_count, "first": is_count, "epoch": is_count, "batch": is_count,
    "seed": lambda v: type(v) is int and -(2**63) <= v < 2**64,
    "logs": maybe(dict_of(_is_log)), "stopped": is_bool,
    "engine": lambda v: (
        isinstance(v, dict) and is_text(v.get("name")) and maybe(is_count)(v.get("threads", ""))
    ),
    "callbacks": dict_of(lambda v: isinstance(v, dict)),
    "variables": dict_of(is_array),
}  # fmt: skip


def check_state(state: dict[str, Any], version: int) -> None:
    """Check the state of a training that was read from a file.

    Raises:
        ValueError: it has a value that no training writes; the message names it.
    """
    if type(state.get("version")) is int and state["version"] != version:
        return  # an unknown version; the reader raises an error
    check_values("the state", state, _STATE)
    if state["epoch"] < state["first"]:
        raise ValueError(f"the state: epoch {state['epoch']} is before {state['first']}")
    if not maybe(dict_of(is_text))(state.get("facts")):
        raise ValueError("the state: facts are no texts")
    for name in ("at_start", "at_epoch", "random"):
        if name not in state:
            raise ValueError(f"the state has no {name!r}")
        if state[name] is not None or name == "random":
            _check_random(f"the state: {name}", state[name])


def _check_random(who: str, state: dict[str, Any]) -> None:
    check_values(who, state, {
        "kerasish": lambda v: (
            isinstance(v, list) and len(v) == 2 and maybe(_is_seed)(v[0]) and maybe(is_count)(v[1])
        ),
        "steps": maybe(lambda v: is_array(v) and v.shape == (2,) and v.dtype.kind == "u"),
        "numpy": lambda v: isinstance(v, dict),
        "python": lambda v: isinstance(v, list) and len(v) == 3 and is_array(v[1]),
    })  # fmt: skip
    try:
        own = np.random.get_state(legacy=False)["bit_generator"]  # noqa: NPY002
        if state["numpy"]["bit_generator"] != own:
            raise ValueError(f"not of the generator {own}")
        if own == "MT19937":
            np.random.RandomState(0).set_state(state["numpy"])
        version, words, gauss = state["python"]
        python_random.Random(0).setstate((version, tuple(words.tolist()), gauss))
    except WRONG_KINDS as error:
        raise ValueError(f"{who} is no state of a random sequence ({error!r})") from error
    if not maybe(is_number)(state["python"][2]):
        raise ValueError(f"{who} is no state of a random sequence ({state['python'][2]!r})")


def _is_seed(value: object) -> bool:
    return type(value) is int and abs(value) < 2**64
