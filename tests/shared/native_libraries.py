"""Native libraries, called by ctypes."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kerasish.export.native import link

HERE = link.runs_here(link.targets_named("native")["native"]) and bool(shutil.which("cc"))
needs_linker = pytest.mark.skipif(not HERE, reason="there is no C compiler cc on this machine")


class Library:
    """A library by ctypes."""

    def __init__(self, path: Path, prefix: str) -> None:
        self.library = ctypes.CDLL(str(path))
        self.call = getattr(self.library, f"{prefix}_predict")
        self.arena = getattr(self.library, f"{prefix}_arena_size")
        self.weights = getattr(self.library, f"{prefix}_weights_size")
        self.message = getattr(self.library, f"{prefix}_message")
        self.target = getattr(self.library, f"{prefix}_target")
        self.target.restype = ctypes.c_char_p
        self.arena.restype = self.weights.restype = ctypes.c_int64
        self.message.restype = ctypes.c_char_p

    def predict(self, x: Any, width: int, *first: Any, arena: Any = None) -> Any:
        y = np.full((len(x), width), 77.0, "float32")
        given = [*first, x.ctypes.data, y.ctypes.data]
        pointers = [ctypes.c_void_p(p) for p in given]
        code = self.call(*pointers, ctypes.c_int64(len(x)), ctypes.c_void_p(arena))
        assert code == 0, self.message(code)
        return y
