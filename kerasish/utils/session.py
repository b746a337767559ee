"""The state of the process: its random seeds and automatic names."""

from __future__ import annotations

import gc
import random

import numpy as np

from kerasish import config
from kerasish.naming import reset_names
from kerasish.utils.names import reset_uids


def set_random_seed(seed: int) -> None:
    """Seed the random generators of Python, NumPy and kerasish, so that a run can be repeated.

    Args:
        seed: 0 <= seed < 2**32.

    Example:
        >>> from kerasish import random as keras_random
        >>> set_random_seed(7)
        >>> first = keras_random.uniform(())
        >>> set_random_seed(7)
        >>> float(first) == float(keras_random.uniform(()))
        True
    """
    whole = isinstance(seed, (int, np.integer)) and not isinstance(seed, bool)
    if not whole or not 0 <= seed < 2**32:
        raise ValueError(f"set_random_seed: expected an integer from 0 to 2**32 - 1, got {seed!r}.")
    random.seed(int(seed))
    np.random.seed(int(seed))  # noqa: NPY002 (users' code draws from the global generator)
    config.set_seed(int(seed))


def clear_session(free_memory: bool = True) -> None:
    """Restart the numbering of layer names, and run the garbage collector.

    kerasish keeps no list of models: a model without references is freed without this call.

    Args:
        free_memory: whether to run the garbage collector.

    Example:
        >>> clear_session()
    """
    reset_names()
    reset_uids()
    if free_memory:
        gc.collect()
