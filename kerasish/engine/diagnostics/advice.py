"""One line for the user: what is set, why it is hardly meant, what to do instead."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from kerasish.errors import AdviceWarning, levels_to_user

if TYPE_CHECKING:
    from kerasish.engine.layer.interface import LayerLike

_given: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()  # topics, by layer or model


def warn_once(model: LayerLike, text: str, topic: str = "") -> None:
    """Warn of a likely mistake, once for each model, at the user's own line.

    Args:
        topic: of several lines on one topic only the first is issued.
    """
    given = _given.setdefault(model, set())
    if (topic or text) in given:
        return
    given.add(topic or text)
    warnings.warn(f"{model.display_name()}: {text}", AdviceWarning, stacklevel=levels_to_user())
