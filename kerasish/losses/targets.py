"""What a loss function takes as targets: it says so, and the checks of `fit` ask."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Literal, NamedTuple, TypeVar

Function = TypeVar("Function", bound=Callable[..., object])
Values = Literal["numbers", "binary", "signs", "elements", "one-hot", "classes", "labels", "any"]


class Targets(NamedTuple):
    """The targets that a loss function takes.

    Attributes:
        values: "numbers", measured ones; "binary", from 0 to 1; "signs", -1 or 1 (or 0 or 1);
            "elements", any that are compared one by one with the predictions; "one-hot", a row per
            sample; "classes", the numbers of the classes of the predictions' last axis; "labels",
            numbers of classes that the predictions' shape does not bound; "any": none of these.
        lowest: the lowest value with a meaning; None: there is none.
        zero: whether the loss of a target of 0 is of usual size.
    """

    values: Values
    lowest: float | None = None
    zero: bool = True

    @property
    def elementwise(self) -> bool:
        """Whether targets and predictions are compared one by one: their shapes are equal."""
        return self.values in ("numbers", "binary", "signs", "elements")

    @property
    def integers(self) -> bool:
        """Whether targets stay integers: a float32 does not hold all above 2**24."""
        return self.values in ("classes", "labels")


_TARGETS: dict[FunctionType, Targets] = {}


def takes(
    values: Values, lowest: float | None = None, zero: bool = True
) -> Callable[[Function], Function]:
    """Return a decorator that says which targets a loss function takes.

    Args:
        values, lowest, zero: as for `Targets`.
    """

    def decorate(function: Function) -> Function:
        assert isinstance(function, FunctionType)
        _TARGETS[function] = Targets(values, lowest, zero)
        return function

    return decorate


def targets_of(function: object) -> Targets | None:
    """Return the targets that a loss function takes; None where it does not say."""
    return _TARGETS.get(function) if isinstance(function, FunctionType) else None
