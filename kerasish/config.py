"""Settings of the process: default float, epsilon, image layout, backend's name, random seed."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

_FLOATS = ("float16", "bfloat16", "float32", "float64")


class _Settings:
    floatx = os.environ.get("KERASISH_FLOATX", "float32")
    epsilon = 1e-7
    image_data_format = "channels_last"
    backend = os.environ.get("KERASISH_BACKEND", "")
    interactive_logging = True
    traceback_filtering = True
    max_epochs: int | None = None
    max_steps_per_epoch: int | None = None
    seed: int | None = None
    threads: int | None = None
    draws = itertools.count()
    seeded: list[Callable[[], None]] = []


def floatx() -> str:
    """Return the default float dtype, "float32" unless set otherwise."""
    return _Settings.floatx


def set_floatx(value: str) -> None:
    """Set the default float dtype: "float16", "bfloat16", "float32" or "float64"."""
    if value not in _FLOATS:
        raise ValueError(f"set_floatx: expected one of {_FLOATS}, got {value!r}.")
    _Settings.floatx = str(value)


def epsilon() -> float:
    """Return the small number that keeps divisions and logarithms finite (1e-7 at the start)."""
    return _Settings.epsilon


def set_epsilon(value: float) -> None:
    """Set the number that `epsilon()` returns; it must be positive."""
    if not value > 0:
        raise ValueError(f"set_epsilon: expected a positive number, got {value!r}.")
    _Settings.epsilon = float(value)


def image_data_format() -> str:
    """Return "channels_last" (n, h, w, c) or "channels_first" (n, c, h, w)."""
    return _Settings.image_data_format


def set_image_data_format(data_format: str) -> None:
    """Set where the channels of images stand."""
    _Settings.image_data_format = standardize_data_format(data_format)


def standardize_data_format(data_format: str | None) -> str:
    """Return `data_format`, or the process's default for None."""
    if data_format is None:
        return _Settings.image_data_format
    if data_format not in ("channels_last", "channels_first"):
        raise ValueError(
            f"data_format must be 'channels_last' or 'channels_first', got {data_format!r}."
        )
    return str(data_format)


def backend_name() -> str:
    """Return the name of the backend that new models use ("" for the default)."""
    return _Settings.backend


def set_backend_name(name: str) -> None:
    """Remember the name of the backend that new models use."""
    _Settings.backend = name


def is_interactive_logging_enabled() -> bool:
    """Return whether progress is drawn as a bar (True) or left out of the output."""
    return _Settings.interactive_logging


def enable_interactive_logging() -> None:
    """Draw progress bars on terminals."""
    _Settings.interactive_logging = True


def disable_interactive_logging() -> None:
    """Draw no progress bars: one line an epoch."""
    _Settings.interactive_logging = False


def is_traceback_filtering_enabled() -> bool:
    """Return whether tracebacks would be filtered; kerasish keeps them short by design."""
    return _Settings.traceback_filtering


def enable_traceback_filtering() -> None:
    """Accepted for Keras's sake: kerasish's tracebacks are short already."""
    _Settings.traceback_filtering = True


def disable_traceback_filtering() -> None:
    """Accepted for Keras's sake: kerasish's tracebacks are short already."""
    _Settings.traceback_filtering = False


def max_epochs() -> int | None:
    """Return the cap on `fit`'s epochs, or None."""
    return _Settings.max_epochs


def set_max_epochs(max_epochs: int | None) -> None:
    """Cap the epochs of every `fit` (None: no cap)."""
    _Settings.max_epochs = max_epochs


def max_steps_per_epoch() -> int | None:
    """Return the cap on the steps of an epoch, or None."""
    return _Settings.max_steps_per_epoch


def set_max_steps_per_epoch(max_steps_per_epoch: int | None) -> None:
    """Cap the steps of every epoch (None: no cap)."""
    _Settings.max_steps_per_epoch = max_steps_per_epoch


def set_threads(threads: int | None) -> None:
    """Let the CPU engine use `threads` threads, 1 or more (None: as many as the machine gives us)."""
    if threads is not None and (
        isinstance(threads, bool) or int(threads) != threads or threads < 1
    ):
        raise ValueError(f"set_threads: expected None or an integer of 1 or more, got {threads!r}.")
    _Settings.threads = None if threads is None else int(threads)


def threads() -> int | None:
    """Return the number of `set_threads`, or None where it was left to the machine."""
    return _Settings.threads


def set_seed(seed: int | None) -> None:
    """Make the seeds that `next_seed` hands out a function of `seed` and their order."""
    _Settings.seed = seed
    _Settings.draws = itertools.count()
    for restart in _Settings.seeded:
        restart()


def when_seeded(restart: Callable[[], None]) -> None:
    """Let `set_seed` call `restart`, for whoever keeps a random state of the process."""
    _Settings.seeded.append(restart)


def seed() -> int | None:
    """Return the seed of `set_seed`, or None."""
    return _Settings.seed


def next_seed() -> int:
    """Return a seed in [0, 2**31) for whoever was given none.

    With `set_seed(s)` the n-th call is a fixed function of s and n; else it comes from the system.
    """
    if _Settings.seed is None:
        return int.from_bytes(os.urandom(4), "little") >> 1
    mixed = (_Settings.seed + 1) * 0x9E3779B97F4A7C15 + next(_Settings.draws) * 0xBF58476D1CE4E5B9
    mixed &= 0xFFFFFFFFFFFFFFFF
    mixed ^= mixed >> 31
    mixed = mixed * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    return mixed >> 33
