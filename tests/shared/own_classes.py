"""Classes that Keras does not have: no facts are recorded, so that a test file of theirs must be.

The file is named after the module: the numbers of a class of `kerasish/losses/pinball.py` are
checked in `tests/losses/test_pinball.py`.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

from package_values import package_values

TESTS = Path(__file__).resolve().parents[1]
KERAS = json.loads((TESTS / "data" / "keras_signatures.json").read_text("utf-8"))


def own_classes(package: Any, base: type) -> dict[str, type]:
    """Return the public classes of a package, derived from `base`, that Keras does not have.

    Args:
        package: `kerasish.losses`, for example.
        base: the class that all are derived from.
    """
    known = KERAS[package.__name__.rpartition(".")[2]]
    return {
        name: cls
        for name, cls in package_values(package).items()
        if inspect.isclass(cls) and issubclass(cls, base) and cls.__name__ == name
        if name not in known and not name.startswith("_")
    }


def own_tests_of(cls: type) -> list[Path]:
    """Return the test files of a class's module that use the class.

    Raises:
        AssertionError: there is none; the message says which file is expected.
    """
    _, package, *_, module = cls.__module__.split(".")
    result = [
        path
        for path in sorted((TESTS / package).rglob(f"test_{module}.py"))
        if cls.__name__ in path.read_text("utf-8")
    ]
    assert result, (
        f"Keras has no {cls.__name__}: compare its numbers with a reference of their own in "
        f"tests/{package}/test_{module}.py."
    )
    return result
