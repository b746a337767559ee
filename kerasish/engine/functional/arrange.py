"""What a user gives a model, arranged as its symbolic inputs are."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from kerasish import ops, tree
from kerasish.engine.layer.operation import KerasTensor
from kerasish.errors import AdviceWarning, DTypeError, ShapeError, levels_to_user
from kerasish.ops import dtypes
from kerasish.tensor import SparseTensor, Tensor, convert


def _fits(shape: Any, target: Any) -> bool:
    return len(shape) == len(target) and all(
        None in (a, b) or a == b for a, b in zip(shape, target)
    )


def arrange_inputs(inputs: Any, struct: Any, who: str, any_sizes: bool = False) -> list[Any]:
    """Return the values for a model's inputs, flat, from what the user gave.

    Dicts are matched by the inputs' names; extra keys are ignored, missing ones are errors.
    `any_sizes`: whether sizes may differ from those of the symbolic inputs.
    """
    kind = type(inputs)
    if type(struct) is KerasTensor and (kind is Tensor or kind is np.ndarray):
        return [_fit(inputs, struct, who, any_sizes)]
    specs, by_key = tree.flatten(struct), isinstance(struct, dict)
    if isinstance(inputs, dict):
        names = list(struct) if by_key else [t._keras_history.operation.name for t in specs]
        taken = sorted(names) if by_key else names
        missing = [n for n in names if n not in inputs]
        if missing:
            raise ValueError(
                f"{who}: the inputs {missing} are missing; the model takes {taken}, got the keys "
                f"{sorted(inputs)}."
            )
        extra = sorted(map(str, set(inputs) - set(names))) if by_key else []
        if extra and not any(isinstance(v, KerasTensor) for v in inputs.values()):
            _warn(f"{who}: it takes the inputs {taken}; {extra} are not used.")
        given = [inputs[n] for n in names]
        values = tree.flatten(dict(zip(names, given))) if by_key else given
    else:
        if by_key and len(struct) > 1:
            _check_order(inputs, struct, who)
        values = tree.flatten(inputs)
    if len(values) != len(specs):
        raise ValueError(f"{who}: the model has {len(specs)} input(s), got {len(values)}.")
    for value, t in zip(values, specs):
        if value is None and not t._keras_history.operation.optional:
            raise ValueError(f"{who}: input {t.name!r} is not optional, got None.")
    return [v if v is None else _fit(v, t, who, any_sizes) for v, t in zip(values, specs)]


def _is_plain(value: Tensor, spec: KerasTensor) -> bool:
    """Return whether a value has the dtype, the rank and the sizes of its symbolic tensor."""
    shape, target = value.value.shape, spec.shape
    return value.dtype == spec.dtype and len(shape) == len(target) and shape[1:] == target[1:]


def _check_order(inputs: Any, struct: dict[str, Any], who: str) -> None:
    """Raise where a list for inputs that have names may be meant in another order; else warn."""
    said = f"{who}: its inputs have the names {list(struct)}, got a {type(inputs).__name__}"
    if list(struct) != sorted(struct):
        raise ValueError(f"{said}; give a dict.")
    _warn(f"{said}, read in the order {sorted(struct)}; give a dict.")


def _warn(text: str) -> None:
    warnings.warn(text, AdviceWarning, stacklevel=levels_to_user())


def _fit(value: Any, spec: KerasTensor, who: str, any_sizes: bool) -> Any:
    """Return an input's value with the rank of its symbolic tensor; check the sizes of a row."""
    if type(value) is Tensor and _is_plain(value, spec):
        return value
    if isinstance(value, SparseTensor):
        if spec.sparse and _fits(value.shape, spec.shape):
            return value
        value = value.todense()
    if spec.dtype == "string" and not isinstance(value, (Tensor, KerasTensor)):
        value = _as_text(value, spec, who)
    elif not isinstance(value, (Tensor, KerasTensor)):
        value = _as_numbers(value, spec, who)
    if isinstance(value, Tensor) and value.dtype != spec.dtype and dtypes.is_float(value.dtype):
        value = ops.cast(value, spec.dtype)  # integers may stay whole, and exact
    shape, target = tuple(value.shape), spec.shape
    if len(shape) == len(target) + 1 and shape[-1] == 1 and target and target[-1] != 1:
        value = value.reshape(tuple(-1 if s is None else s for s in shape[:-1]))
    elif len(shape) == len(target) - 1 and target and target[-1] == 1:
        value = value.reshape((*(-1 if s is None else s for s in shape), 1))
    shape = tuple(value.shape)
    if len(shape) != len(target) or not any_sizes and not _fits(shape[1:], target[1:]):
        raise ShapeError(
            f"{who}: input {spec.name!r} must have shape {target}, got {shape}."
            f"{_likely_cause(target, shape)}"
        )
    return value


def _as_numbers(value: Any, spec: KerasTensor, who: str) -> Any:
    try:
        return convert(value)
    except DTypeError as error:
        raise DTypeError(f"{who}: input {spec.name!r} takes {spec.dtype}. {error}") from None


def _as_text(value: Any, spec: KerasTensor, who: str) -> Any:
    """Return strings as a NumPy array: no engine holds them as a tensor."""
    array = np.asarray(value)
    if array.dtype.kind not in "OUST":
        raise ShapeError(
            f"{who}: input {spec.name!r} takes strings, got numbers of dtype {array.dtype}."
        )
    return array


def _likely_cause(target: Any, shape: tuple[Any, ...]) -> str:
    if len(shape) == len(target) - 1 and _agree(target[1:], shape):
        return " A single example needs a batch axis: x[None]."
    if len(shape) == len(target) - 1 and _agree(target[2:], shape[1:]):
        return " The shape given to Input leaves the batch axis out."
    if len(shape) == len(target) - 1 and target[-1] in (1, None):
        return " An axis of channels is missing: x[..., None]."
    return f" Give rows of shape {target[1:]}, or make the model with Input({shape[1:]})."


def _agree(target: Any, sizes: Any) -> bool:
    return len(target) == len(sizes) and all(a in (None, b) for a, b in zip(target, sizes))
