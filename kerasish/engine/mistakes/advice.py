"""One line for the user: what is set, why it is hardly meant, what to do instead."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from kerasish.errors import AdviceWarning


def advise(model: Any, text: str, topic: str = "") -> None:
    """Warn of a likely mistake, once for each model, at the user's own line.

    Args:
        topic: of several lines on one topic only the first is said.
    """
    said = model.__dict__.setdefault("_advised", set())
    if (topic or text) in said:
        return
    said.add(topic or text)
    warnings.warn(f"{model._who()}: {text}", AdviceWarning, stacklevel=_levels_to_user())


def _levels_to_user() -> int:
    """Return the stacklevel at which `warnings.warn` shows the line that called into kerasish."""
    package = __name__.partition(".")[0]
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and _room(frame) == package:
        frame, level = frame.f_back, level + 1
    return level


def _room(frame: Any) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
