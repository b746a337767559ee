"""Where in the user's program a warning belongs."""

from __future__ import annotations

import sys
from typing import Any


def levels_to_user() -> int:
    """Return the stacklevel at which `warnings.warn` shows the line that called into kerasish."""
    package = __name__.partition(".")[0]
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and _room(frame) == package:
        frame, level = frame.f_back, level + 1
    return level


def _room(frame: Any) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
