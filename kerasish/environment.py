"""Settings of the process read from environment variables, each refused by name where unknown."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

IMPORTED = time.time()  # the code of this process may differ from sources that changed later

_ON = ("1", "true", "yes", "on")
_OFF = ("", "0", "false", "no", "off")


def choice(name: str, allowed: Iterable[str], default: str = "") -> str:
    """Return the value of an environment variable that is one of a few words.

    Args:
        name: the variable.
        allowed: the words.
        default: what is returned where the variable is unset or empty.

    Raises:
        ValueError: it is set to something else; the message names variable and words.

    Example:
        >>> choice("KERASISH_AN_UNSET_VARIABLE", ("a", "b"), "a")
        'a'
    """
    value = os.environ.get(name, "")
    words = list(allowed)
    if value and value not in words:
        raise ValueError(
            f"The environment variable {name}={value!r}: expected one of {words}. Set one of "
            "these, or unset it."
        )
    return value or default


def switch(name: str, default: bool = False) -> bool:
    """Return whether an environment variable is switched on: "1" or "0", or words for these.

    Args:
        name: the variable.
        default: what is returned where the variable is unset.

    Raises:
        ValueError: it is set to neither.

    Example:
        >>> switch("KERASISH_AN_UNSET_VARIABLE", True)
        True
    """
    value = os.environ.get(name)
    if value is None:
        return default
    word = value.strip().lower()
    if word not in (*_ON, *_OFF):
        raise ValueError(
            f"The environment variable {name}={value!r}: expected '1' (on) or '0' (off)."
        )
    return word in _ON
