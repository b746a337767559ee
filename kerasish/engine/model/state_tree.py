"""A model's variables as nested dicts by their paths, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kerasish.errors import UnknownNameError
from kerasish.optimizers.division import DividedSlot, gathered
from kerasish.tensor import to_numpy

if TYPE_CHECKING:
    from kerasish.engine.model.model import Model

_FORMATS = ("backend_tensor", "numpy_array")


def _groups(model: Model) -> dict[str, list[Any]]:
    optimizer = model.optimizer
    return {
        "trainable_variables": list(model.trainable_variables),
        "non_trainable_variables": list(model.non_trainable_variables),
        "optimizer_variables": optimizer.undivided_variables if optimizer is not None else [],
        "metrics_variables": list(model.metrics_variables),
    }


def read_state(model: Model, value_format: str = "backend_tensor") -> dict[str, Any]:
    """Return group -> nested dicts of the variables' values; see `Model.get_state_tree`.

    Raises:
        UnknownNameError: `value_format` is none of the two.
    """
    if value_format not in _FORMATS:
        raise UnknownNameError.of("value_format", value_format, _FORMATS)
    read: Callable[[Any], Any] = (
        (lambda v: to_numpy(v.value)) if value_format == "numpy_array" else lambda v: v.value
    )
    with gathered(model, "get_state_tree()", everywhere=True):
        return {name: _nest(group, read) for name, group in _groups(model).items()}


def _nest(variables: list[Any], read: Callable[[Any], Any]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for v in variables:
        *folders, last = v.path.split("/")
        place = results
        for folder in folders:
            place = place.setdefault(folder, {})
        if last in place:
            raise ValueError(f"get_state_tree: two variables have the path {v.path!r}.")
        place[last] = read(v)
    return results


def write_state(model: Model, state_tree: dict[str, Any]) -> None:
    """Assign values as `read_state` returned them; all or none.

    Raises:
        UnknownNameError: a group or a path that the model has not.
        ShapeError: a value does not fit.
    """
    groups = _groups(model)
    pairs: list[tuple[Any, Any]] = []
    for name, values in state_tree.items():
        if name not in groups:
            raise UnknownNameError.of("group of the state tree", name, groups)
        known = {v.path: v for v in groups[name]}
        for path, value in _flat(values, ""):
            if path not in known:
                raise UnknownNameError.of(f"path in {name}", path, known)
            pairs.append((known[path], value))
    parts = [v.variable if isinstance(v, DividedSlot) else v for v, _ in pairs]
    before = [(v, v.value) for v in parts]
    try:
        for v, value in pairs:
            v.assign(value)
    except Exception:
        for v, value in before:
            v.assign(value)
        raise


def _flat(values: dict[str, Any], prefix: str) -> list[tuple[str, Any]]:
    results: list[tuple[str, Any]] = []
    for key, value in values.items():
        if isinstance(value, dict):
            results.extend(_flat(value, f"{prefix}{key}/"))
        else:
            results.append((f"{prefix}{key}", value))
    return results
