"""A mark of the process: what may change a compiled call leaves a new one.

A compiled call depends on settings, on attributes of layers, on the variables. A caller that saw
all of them in order under a mark need not look again as long as the mark is the same object.
"""

from __future__ import annotations

import os


class Changes:
    """The present mark.

    Attributes:
        mark: an object that is replaced, never changed.
    """

    mark: object = object()


def note_change() -> None:
    """Replace the mark: after a setting, an attribute or a variable has changed.

    Example:
        >>> before = Changes.mark
        >>> note_change()
        >>> Changes.mark is before
        False
    """
    Changes.mark = object()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=note_change)  # a forked process has no threads of a pool
