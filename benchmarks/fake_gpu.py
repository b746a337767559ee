"""`KERASISH_GPU=stand-in`: the tests' stand-in for CuPy, to try the measurements without a GPU."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent.parent / "tests" / "shared"


def is_wanted() -> bool:
    """Whether the environment asks for the stand-in."""
    return os.environ.get("KERASISH_GPU") == "stand-in"


def take_stand_in() -> None:
    """Let `import cupy` give the stand-in, if it is wanted; its times mean nothing."""
    if is_wanted() and not hasattr(sys.modules.get("cupy"), "is_stand_in"):
        sys.path.append(str(_FOLDER))
        sys.modules["cupy"] = importlib.import_module("fake_cupy").make()
