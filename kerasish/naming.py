"""Automatic names: dense, dense_1, and snake case of class names."""

from __future__ import annotations

import re
import threading

_lock = threading.Lock()
_counts: dict[str, int] = {}


def to_snake_case(name: str) -> str:
    """Return a class name in snake case.

    Example:
        >>> [to_snake_case(n) for n in ("Conv2DTranspose", "PReLU", "LSTMCell", "MaxPooling1D")]
        ['conv2d_transpose', 'p_re_lu', 'lstm_cell', 'max_pooling1d']
    """
    name = re.sub(r"\W+", "", name)
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def unique_name(prefix: str) -> str:
    """Return `prefix` the first time, then prefix_1, prefix_2 and so on."""
    with _lock:
        count = _counts.get(prefix, 0)
        _counts[prefix] = count + 1
    return f"{prefix}_{count}" if count else prefix


def reset_names() -> None:
    """Restart the count (`clear_session`)."""
    with _lock:
        _counts.clear()


def name_for(obj: object, name: str | None) -> str:
    """Return the given name, checked, or a new one made from obj's class."""
    if name is None:
        return unique_name(to_snake_case(type(obj).__name__).lstrip("_"))
    if not isinstance(name, str) or "/" in name:
        raise ValueError(f"{type(obj).__name__}: a name is a string without '/', got {name!r}.")
    return name
