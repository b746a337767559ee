"""Example inputs that the definitions of ops share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Pairs of shapes that try broadcasting; single shapes that try ranks 0 to 3 and no elements.
PAIRS = [(((2, 3), (2, 3)), {}), (((2, 3), (3,)), {}), (((2, 1), (1, 4)), {}), (((), (2,)), {})]


SINGLE = [(((2, 3),), {}), (((),), {}), (((0, 2),), {})]


def numbers(low: float, high: float, *shape: int) -> Callable[..., Any]:
    """Return an example input: uniform numbers in [low, high) of the given shape."""
    return lambda rng: rng.uniform(low, high, shape or (2, 3))


def integers(low: int, high: int, *shape: int, dtype: str = "int32") -> Callable[..., Any]:
    """Return an example input: integers in [low, high) of the given shape."""
    return lambda rng: rng.integers(low, high, shape or (2, 3)).astype(dtype)


def bools(*shape: int) -> Callable[..., Any]:
    """Return an example input: truth values of the given shape."""
    return lambda rng: rng.integers(0, 2, shape or (2, 3)).astype(bool)


def between(low: float, high: float) -> list[Any]:
    """Return examples for a function of one number that is smooth in (low, high)."""
    return [((numbers(low, high),), {}), ((numbers(low, high, 1, 2, 2),), {}), (((0, 2),), {})]
