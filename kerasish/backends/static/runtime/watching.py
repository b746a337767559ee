"""Checks while Python traces a step: random numbers of NumPy and Python."""

from __future__ import annotations

import contextlib
import random
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np


@contextlib.contextmanager
def watching_random(name: str) -> Iterator[None]:
    """Warn if Python draws random numbers in a trace: they would be the same in every call."""

    def states() -> tuple[Any, ...]:
        kind, keys, place, *_ = np.random.get_state()  # noqa: NPY002 (what users draw from)
        return kind, keys.tobytes(), place, random.getstate()

    before = states()
    yield
    if states() != before:
        warnings.warn(
            f"{name}: np.random or random drew numbers while the step was traced. They are "
            "constants of the compiled step, the same at each call. Use kerasish.random with a "
            "SeedGenerator, or run_eagerly=True.",
            RuntimeWarning,
            stacklevel=2,
        )
