"""The signature of a call: the properties of its arguments that a compiled step depends on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish.tensor import Tensor, Variable
from kerasish.typing import Structure


def explain(key: Sequence[Any], known: list[Any]) -> str:
    """Return how a signature differs from the nearest compiled one."""
    if not known:
        return "first call"

    def parts(k: Sequence[Any]) -> list[Any]:
        return list(k) if isinstance(k, tuple) else [k]

    def differences(other: Sequence[Any]) -> list[str]:
        left, right = parts(key), parts(other)
        if len(left) != len(right):
            return [f"{len(left)} arguments instead of {len(right)}"]
        return [
            f"argument {i}: {_describe(a)} instead of {_describe(b)}"
            for i, pair in enumerate(zip(left, right))
            for a, b in _differing(*pair)
        ]

    result = min((differences(k) for k in known), key=len)
    return "; ".join(result) or "another number of threads"


def _differing(a: Any, b: Any) -> list[tuple[Any, Any]]:
    """Return the smallest parts in which two signatures of an argument differ."""
    if a == b:
        return []
    nested = type(a) is type(b) is tuple and len(a) == len(b) and a[0] is b[0]
    if nested and a[0] in (list, tuple, dict):
        return [pair for parts in zip(a, b) for pair in _differing(*parts)]
    return [(a, b)]


def _describe(part: StaticArgument | tuple[Any, ...]) -> str:
    if isinstance(part, StaticArgument):
        return repr(part.value)
    if type(part) is tuple and len(part) == 2 and type(part[0]) is tuple:
        return f"{part[1]}{list(part[0])}"
    return str(part)


class StaticArgument(NamedTuple):
    """A Python value among the arguments; it is compiled into the step."""

    value: Any
    kind: type  # 1, 1.0 and True compare equal but are different constants


MOST_CONSTANTS = 32  # different Python values that a step is compiled for before it raises


def without_constants(key: Structure) -> Structure:
    """Return a signature without its Python values."""
    if isinstance(key, StaticArgument):
        return StaticArgument
    return tuple([without_constants(part) for part in key]) if isinstance(key, tuple) else key


def signature(x: Structure) -> StaticArgument | tuple[Any, ...] | None:
    """Return the properties of an argument that a compiled step depends on."""
    if isinstance(x, (np.ndarray, np.generic)):
        if x.dtype.kind in "OUS":  # strings are constants
            return "constant", x.shape, *x.ravel().tolist()
        return x.shape, x.dtype
    if x is None:
        return None
    if isinstance(x, (Tensor, Variable)):
        return tuple(x.shape), x.dtype
    if isinstance(x, (list, tuple)):
        return (type(x), *map(signature, x))
    if isinstance(x, dict):
        return (dict, *((k, signature(x[k])) for k in sorted(x)))
    return StaticArgument(x, type(x))
