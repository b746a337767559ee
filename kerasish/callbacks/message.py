"""Lines for the user that do not break a progress bar."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Print `text` on its own line, above a progress bar that is being drawn."""
    tqdm = sys.modules.get("tqdm")
    if tqdm is None:  # then no bar is open either
        print(text, flush=True)
    else:
        tqdm.tqdm.write(text, file=sys.stdout)
        sys.stdout.flush()
