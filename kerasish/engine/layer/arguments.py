"""What layers are given: constructor arguments by name, shapes, specs and masks of inputs."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish import registry, tree
from kerasish.engine.layer.operation import KerasTensor
from kerasish.ops.shapes import Spec
from kerasish.tensor import SparseTensor, Tensor, Variable
from kerasish.tracebacks import did_you_mean
from kerasish.typing import Shape, Structure, TensorLike

if TYPE_CHECKING:
    from kerasish.engine.layer.layer import Layer

_BASE_ARGUMENTS = ("activity_regularizer", "trainable", "dtype", "autocast", "name")


def _bind(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the constructor's arguments by name, defaults filled in."""
    signature = _signature(cls)
    try:
        bound = signature.bind(None, *args, **kwargs)
    except TypeError:
        return {}  # the constructor itself will say what is wrong
    bound.apply_defaults()
    results: dict[str, Any] = {}
    for name, value in list(bound.arguments.items())[1:]:
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            results.update(value)
        elif kind is not inspect.Parameter.VAR_POSITIONAL:
            results[name] = value
    return results


def described_arguments(layer: Layer) -> tuple[dict[str, Any], bool]:
    """Return the arguments for a layer's config, and whether they are a kerasish constructor's."""
    kinds = type(layer).__mro__
    first = next(i for i, k in enumerate(kinds) if _is_ours(k))
    if not any("get_config" in vars(k) for k in kinds[:first]):
        return layer._arguments, _is_ours(_owner(type(layer), "__init__"))
    results = {
        name: p.default
        for name, p in list(_signature(kinds[first]).parameters.items())[1:]
        if p.kind is not p.VAR_KEYWORD and p.kind is not p.VAR_POSITIONAL and hasattr(layer, name)
    }
    return results, True


def _is_ours(kind: type) -> bool:
    return kind.__module__.split(".")[0] == __name__.split(".")[0]


def _owner(cls: type, name: str) -> Any:
    """Return the class that defines an attribute of `cls`."""
    return next(c for c in cls.__mro__ if name in c.__dict__)


@functools.cache
def _signature(cls: type) -> inspect.Signature:
    return inspect.signature(cls.__init__)  # type: ignore[misc]


def _legacy_shape(layer: Any, kwargs: dict[str, Any]) -> Any:
    """Return the batch shape from the arguments with which older code names the input's shape."""
    if not kwargs:
        return None
    batch_size = kwargs.pop("batch_size", None)
    shape = kwargs.pop("batch_input_shape", None) or kwargs.pop("batch_shape", None)
    if shape is None and "input_shape" in kwargs:
        shape = (batch_size, *kwargs.pop("input_shape"))
    if shape is None and "input_dim" in kwargs:
        shape = (batch_size, kwargs.pop("input_dim"))
    if kwargs:
        taken = [n for n in _signature(layer.__class__).parameters if n not in ("self", "kwargs")]
        hint = did_you_mean(kwargs, [*taken, *_BASE_ARGUMENTS])
        raise TypeError(
            f"{type(layer).__name__}: unexpected argument(s) {sorted(kwargs)}"
            + (f".{hint}" if hint else f"; it takes {taken} and {list(_BASE_ARGUMENTS)}.")
        )
    return None if shape is None else tuple(shape)


def _described(value: object) -> Structure:
    """Return an argument as what JSON can hold; as it is where nothing describes it (a lambda)."""
    try:
        return registry.serialize_keras_object(value)
    except TypeError:
        return value


def _revived(value: Structure) -> Structure:
    """Return an argument of a config with the objects that it describes, at any depth."""
    if isinstance(value, dict):
        if "class_name" in value:
            return registry.deserialize_keras_object(value)
        return {name: _revived(part) for name, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_revived(part) for part in value)
    return value


def _is_array(x: Structure) -> bool:
    return isinstance(x, (Tensor, Variable, np.ndarray)) or (
        hasattr(x, "__array__") and hasattr(x, "shape") and not isinstance(x, type)
    )


def _is_part_array(x: TensorLike) -> bool:
    if isinstance(x, (list, tuple)):
        return any(map(_is_part_array, x))
    return isinstance(x, (dict, SparseTensor)) or _is_array(x)


def _shapes_of(x: TensorLike | None) -> Any:
    return tree.map_structure(lambda t: None if t is None else tuple(getattr(t, "shape", ())), x)


def _to_spec(x: Structure) -> Any:
    def spec(x: Any) -> Any:
        known = isinstance(x, (Tensor, KerasTensor, Variable))
        return Spec(tuple(x.shape), x.dtype) if known else x

    return tree.map_plain(spec, x)


def _tuples(shape: Shape) -> Any:
    if tree.is_shape(shape):
        return tuple(shape)
    if isinstance(shape, dict):
        return {k: _tuples(v) for k, v in shape.items()}
    if isinstance(shape, (list, tuple)):
        return [_tuples(s) for s in shape]
    return shape


def _masks_of(x: Structure) -> Structure | None:
    if isinstance(x, (list, tuple)):
        masks = [_masks_of(part) for part in x]
        if all(m is None for m in masks):
            return None
        return tuple(masks) if isinstance(x, tuple) else masks
    if isinstance(x, dict):
        results = {k: _masks_of(part) for k, part in x.items()}
        return None if all(m is None for m in results.values()) else results
    return getattr(x, "_keras_mask", None)
