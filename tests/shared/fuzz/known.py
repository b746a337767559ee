"""Findings that are not fixed yet: programs left out, each with its reason. Empty in the end."""

from __future__ import annotations

import re

from .programs import Program

# A pattern of a program's source -> why programs with it are left out.
KNOWN: dict[str, str] = {}


def reason(program: Program) -> str:
    """Return why a program is left out, "" where it is not."""
    if not KNOWN:
        return ""
    source = program.source()
    return next((why for pattern, why in KNOWN.items() if re.search(pattern, source)), "")
