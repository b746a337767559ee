"""`KERASISH_GPU=fake`: the tests' fake CuPy, to try the measurements without a GPU."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent.parent / "tests" / "shared"


def is_wanted() -> bool:
    """Whether the environment asks for the fake."""
    return os.environ.get("KERASISH_GPU") == "fake"


def install() -> None:
    """Let `import cupy` return the fake, if it is requested; its times mean nothing."""
    if is_wanted() and not hasattr(sys.modules.get("cupy"), "is_fake"):
        sys.path.append(str(_FOLDER))
        sys.modules["cupy"] = importlib.import_module("fake_cupy").make()
