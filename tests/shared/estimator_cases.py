"""scikit-learn's checks, one test each, under names that every process of a run finds the same."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator


def identify(value: Any) -> str:
    """Name an estimator or a check; never by a repr, which may tell a function's address."""
    if isinstance(value, functools.partial):
        given = ",".join(f"{name}={value.keywords[name]}" for name in sorted(value.keywords))
        return f"{value.func.__name__}({given})" if given else value.func.__name__
    return type(value).__name__


def parametrize_with_checks(estimators: list[Any]) -> Any:
    """Give `estimator` and `check` of a test every check of scikit-learn for every estimator."""
    pairs = [pair for estimator in estimators for pair in estimator_checks_generator(estimator)]
    return pytest.mark.parametrize(("estimator", "check"), pairs, ids=identify)
