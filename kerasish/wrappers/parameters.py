"""The parameters of an estimator: those of its constructor, and routed ones."""

from __future__ import annotations

import functools
import inspect
import numbers
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator

from kerasish.errors import UnknownNameError
from kerasish.wrappers.routing import DESTINATIONS, goes_somewhere, named_parameters

if TYPE_CHECKING:
    from typing_extensions import Self

    from kerasish.engine.model.model import Model
    from kerasish.wrappers.classifier import KerasClassifier
    from kerasish.wrappers.regressor import KerasRegressor


class RoutedParameters(BaseEstimator):
    """Parameters of the constructor, and routed parameters such as `model__units`."""

    _routed: dict[str, Any]

    @classmethod
    def _get_param_names(cls) -> list[str]:
        """Return the parameters of the constructor, and those that it passes on to its parents."""
        kind: Any = cls
        return list(_parameter_names(kind))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all parameters, including routed ones."""
        return {**self._own_params(), **self._routed}

    def _own_params(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._get_param_names()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters; routed ones such as `model__units` may be new.

        Raises:
            UnknownNameError: a name is neither a parameter nor routed to a known destination.
        """
        own = self._get_param_names()
        builder = params.get("model", params.get("build_fn", self._builder()))
        for name in params:
            if name not in own and name not in self._routed and not goes_somewhere(name, builder):
                raise self._unknown(name, builder, [f"{d}__" for d in DESTINATIONS])
        for name, value in params.items():
            if name in own:
                setattr(self, name, value)
            else:
                self._routed[name] = value
        return self

    def _check_routed(self, builder: Model | type | Callable[..., Any] | int | None) -> None:
        for name in self._routed:
            if not goes_somewhere(name, builder):
                raise self._unknown(name, builder, [])

    def _unknown(self, name: str, builder: Any, more: list[str]) -> UnknownNameError:
        known = [*self._get_param_names(), *more]
        known += list(named_parameters(builder)) if callable(builder) else []
        return UnknownNameError.of(f"parameter of {type(self).__name__}", name, known)

    def _builder(self) -> Any:
        """Return the source of the model: the parameter `model`, or the old `build_fn`."""
        raise TypeError(f"{type(self).__name__} has no model to build.")


@functools.cache
def _parameter_names(cls: Any) -> tuple[str, ...]:
    names: set[str] = set()
    for kind in cls.__mro__:
        if "__init__" not in vars(kind) or not issubclass(kind, RoutedParameters):
            continue
        parameters = inspect.signature(kind).parameters.values()
        names |= {p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return tuple(sorted(names))


def is_integral(value: str | float, least: int) -> bool:
    """Return whether a value is an integer >= `least`."""
    whole = isinstance(value, numbers.Integral) and not _is_flag(value)
    return whole and int(value) >= least


def is_number(value: str | float, least: float) -> bool:
    """Return whether a value is a number >= `least`."""
    return isinstance(value, numbers.Real) and not _is_flag(value) and float(value) >= least


def _is_flag(value: object) -> bool:
    return isinstance(value, (bool, np.bool_))


# parameter -> (check of a value, description of what is accepted)
ACCEPTED = {
    "warm_start": (_is_flag, "True or False"),
    "run_eagerly": (_is_flag, "True or False"),
    "batch_size": (
        lambda v: v is None or v in (-1, "auto") or is_integral(v, 1),
        'an integer of 1 or more, -1 (all rows), "auto" or None',
    ),
    "validation_batch_size": (
        lambda v: v is None or is_integral(v, 1), "an integer of 1 or more, or None"
    ),
    "epochs": (lambda v: v is None or is_integral(v, 1), "an integer of 1 or more, or None"),
    "validation_split": (
        lambda v: is_number(v, 0) and v < 1, "a share of the rows, from 0 to less than 1"
    ),
    "verbose": (lambda v: _is_flag(v) or v == "auto" or is_integral(v, 0), '0, 1, 2 or "auto"'),
    "shuffle": (lambda v: _is_flag(v) or v == "batch", 'True, False or "batch"'),
    "class_weight": (
        lambda v: v is None or v == "balanced" or isinstance(v, (dict, list)),
        '{label: weight}, "balanced", a list of dicts (one per output), or None',
    ),
}  # fmt: skip


def check_settings(estimator: KerasClassifier | KerasRegressor) -> None:
    """Raise for the first parameter with an invalid value, and name valid ones.

    Raises:
        ValueError: names the parameter, the accepted values and the given one.
    """
    for name, (will_do, words) in ACCEPTED.items():
        value = getattr(estimator, name, None)
        if hasattr(estimator, name) and not (np.ndim(value) == 0 and will_do(value)):
            if name == "class_weight" and isinstance(value, list):
                continue
            raise ValueError(f"{name}: expected {words}, got {value!r}.")
