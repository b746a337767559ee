"""A plugin for pytest: runs only those cases of parametrized tests that have given words in them.

`pytest -p only_new_cases --new-cases="gaussian"` runs `test_gradient[gaussian-0]` and all tests
without parameters, and leaves out `test_gradient[exp-0]`.
"""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--new-cases", default="", help="words in the names of cases")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the other cases out.

    Raises:
        pytest.UsageError: no case has such a word in its name.
    """
    words = config.getoption("--new-cases").split()
    kept, left_out = [], []
    for item in items:
        case = "[" in item.name and not has_word(item.nodeid, words)
        (left_out if case else kept).append(item)
    if not any("[" in item.name for item in kept):
        raise pytest.UsageError(f"no case has one of {words} in its name")
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


def has_word(name: str, words: list[str]) -> bool:
    """Return whether a name has one of the words in it.

    Example:
        >>> has_word("tests/test_every_op.py::test_gradient[gaussian-0]", ["gaussian"])
        True
    """
    return any(word in name for word in words)
