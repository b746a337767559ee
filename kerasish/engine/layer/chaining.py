"""Layers and ops as methods of symbolic tensors: `x.dense(64).relu()`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from kerasish import ops, registry

# Layers of several inputs: the op of that name joins two tensors without a list.
_OPS_FIRST = frozenset((
    "add", "average", "concatenate", "dot", "maximum", "minimum", "multiply", "subtract",
))  # fmt: skip
# Names that say what a value is, in NumPy's words, or that leave the graph.
_PROPERTIES = frozenset((
    "array", "convert_to_numpy", "copy", "dtype", "is_tensor", "ndim", "shape", "size",
))  # fmt: skip
_NO_LAYERS = frozenset(("Layer", "Input", "InputLayer", "Lambda", "Pipeline"))
_TENSOR_NAMES = frozenset(("x", "x1", "a", "inputs", "images", "query", "tensor"))


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


@functools.lru_cache(maxsize=1)
def _layer_names(count: int) -> dict[str, str]:
    """Return plain name -> name, of kerasish's layers; `count` of them are registered."""
    return {_plain(name): name for name in _layers()}


def _layers() -> list[str]:
    return [name for name in registry.BUILTINS.get("keras.layers", ()) if name not in _NO_LAYERS]


def _takes_tensor(op: Callable[..., Any]) -> bool:
    """Return whether the first argument of an op is the tensor that it computes with."""
    first = next(iter(inspect.signature(op).parameters), "")
    return first in _TENSOR_NAMES


def find_method(name: str) -> Callable[..., Any] | None:
    """Return a function (tensor, *args, **kwargs) for a name; None where there is none.

    Args:
        name: a layer's name in lower case, underscores anywhere ("max_pooling2d"), or
            an op's. Layers are first, but for those that join several tensors.

    Example:
        >>> import kerasish
        >>> find_method("dense")(kerasish.Input((3,)), 5).shape
        (None, 5)
    """
    if name.startswith("_") or name in _PROPERTIES or not name.islower():
        return None
    return _method_of(name, _count())


def _count() -> int:
    """Return how many layers are registered: the cache is valid for this number."""
    return len(registry.BUILTINS.get("keras.layers", ()))


# `hasattr` asks for a method too, several times for each symbolic tensor: answers are kept.
@functools.lru_cache(maxsize=4096)
def _method_of(name: str, count: int) -> Callable[..., Any] | None:
    op = ops.__dict__.get(name)
    if not callable(op) or isinstance(op, type) or not _takes_tensor(op):
        op = None
    if op is not None and name in _OPS_FIRST:
        return op
    layer = _layer_names(count).get(_plain(name))
    if layer is None:
        return op
    kind = registry.BUILTINS["keras.layers"][layer]

    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        return kind(*args, **kwargs)(x)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"Apply a new `layers.{kind.__name__}` with these arguments."
    return call


def names() -> list[str]:
    """Return the names that `find_method` accepts, layers as they are written in Python."""
    every = {*map(_snake, _layers()), *ops.__dict__}
    return sorted(n for n in every if find_method(n) is not None)


def _snake(name: str) -> str:
    """Return a class name as a method's: `PReLU` is `prelu`, where names in files say `p_re_lu`."""
    parts: list[str] = []
    for i, c in enumerate(name):
        begins = c.isupper() and i and not name[i - 1].isupper() and not name[i - 1].isdigit()
        parts.append(f"_{c.lower()}" if begins else c.lower())
    return "".join(parts)


def no_method(tensor: Any, name: str) -> AttributeError:
    """Return the error for an attribute that a symbolic tensor does not have."""
    text = f"{type(tensor).__name__!r} object has no attribute {name!r}"
    near = [] if name.startswith("_") else _near(name, _count())
    if near:
        text += f"; layers and ops of similar names: {', '.join(near)}"
    return AttributeError(f"{text}.")


@functools.lru_cache(maxsize=4096)
def _near(name: str, count: int) -> list[str]:
    import difflib

    return difflib.get_close_matches(name, names(), 3)
