"""What an optimizer is handed: errors and warnings that name the variable."""

from __future__ import annotations

import warnings
from collections.abc import Container, Sequence
from typing import Any

from kerasish.errors import ShapeError
from kerasish.tensor import Tensor, Variable


def check_variables(
    who: str, grads: Sequence[Any], variables: Sequence[Variable], known: Container[Variable]
) -> None:
    """Raise unless there is one gradient for each variable, and each variable is a known one.

    Args:
        who: the optimizer's class.
        grads: gradients, or None.
        variables: as many variables.
        known: those that the optimizer was built for.

    Raises:
        ValueError: another number of gradients, or a variable that is not known.
    """
    if len(grads) != len(variables):
        raise ValueError(f"{who}: {len(grads)} gradients for {len(variables)} variables.")
    for v in variables:
        if v not in known:
            raise ValueError(
                f"{who}: variable {getattr(v, 'path', v)!r} is not among those that the "
                "optimizer was built for; make a new optimizer for other variables."
            )


def check_gradients(
    who: str,
    pairs: Sequence[tuple[Tensor, Variable]],
    missing: Sequence[str],
    others: bool,
    warn: bool,
) -> None:
    """Raise unless there is a gradient, and each has its variable's shape; warn of missing ones.

    Args:
        who: the optimizer's class.
        pairs: gradients and their variables.
        missing: paths of the variables that have no gradient.
        others: whether variables were replaced by their gradients.
        warn: whether to warn of missing gradients.

    Raises:
        ValueError: no gradient at all.
        ShapeError: a gradient of another shape.
    """
    if missing and not pairs and not others:
        raise ValueError(f"{who}: no gradient for any of the variables {missing[:5]}.")
    if missing and warn:
        warnings.warn(
            f"{who}: no gradient for the variables {missing}; they stay as they are. Does the "
            "loss depend on them?",
            stacklevel=5,
        )
    for g, v in pairs:
        if g.shape != v.shape:
            raise ShapeError(
                f"{who}: the gradient of {v.path!r} must have the shape {v.shape}, got {g.shape}."
            )


def fit_as_they_are(grads: Sequence[Any], variables: Sequence[Variable]) -> bool:
    """Return whether there is a tensor of each variable's shape, to be used as a gradient.

    Args:
        grads: gradients, or None.
        variables: as many variables.
    """
    for g, v in zip(grads, variables):
        if type(g) is not Tensor or v.overwrite_with_gradient or g.value.shape != v.shape:
            return False
    return bool(grads)
