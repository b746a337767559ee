"""benchmarks/ is not part of the installed package: its tests take it from the checkout."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

# Last in the list, so that `import kerasish` stays the installed package.
sys.path.append(str(Path(__file__).resolve().parents[2]))


@pytest.fixture
def load() -> Callable[[str], ModuleType]:
    """Imports a module of benchmarks/ when a test asks for it: some need what is not installed."""
    return lambda name: importlib.import_module(f"benchmarks.{name}")
