"""One line for the user: what is set, why it is hardly meant, what to do instead."""

from __future__ import annotations

import warnings
from typing import Any

from kerasish.engine.diagnostics.user_line import levels_to_user
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
    warnings.warn(f"{model._who()}: {text}", AdviceWarning, stacklevel=levels_to_user())
