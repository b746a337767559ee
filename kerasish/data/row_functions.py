"""The functions of NumPy that work on rows of a block, by the names that users call them by."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from kerasish.data.row_values import (
    NUMBERS,
    UFUNCS,
    NotRowWise,
    Row,
    Table,
    axis_of,
    clip,
    numbers,
    where,
)
from kerasish.typing import Array


def shared(value: Any) -> Any:
    """Return a result that all rows share; its rows can be taken by a Row's numbers."""
    if type(value) is np.ndarray:
        return numbers(value).view(Table)
    return value


def _has_row(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_row, value))
    return type(value) is Row


def _either(plain: Callable[..., Any], by_rows: Callable[..., Row]) -> Callable[..., Any]:
    """Return what calls `by_rows` where an argument is a Row, else NumPy's function."""

    def call(*args: Any, **options: Any) -> Any:
        if any(map(_has_row, args)) or any(map(_has_row, options.values())):
            return by_rows(*args, **options)
        return shared(plain(*args, **options))

    return call


def _method(name: str) -> Callable[..., Row]:
    def call(a: Any, *args: Any, **options: Any) -> Row:
        if type(a) is not Row:
            raise NotRowWise(f"{name} of a list")
        return getattr(a, name)(*args, **options)

    return call


def _blocks(arrays: Any) -> list[Array]:
    """Return the blocks of several arrays, some of which all rows share."""
    if type(arrays) not in (list, tuple) or not arrays:
        raise NotRowWise("no list of arrays")
    count = next(len(a.block) for a in arrays if type(a) is Row)
    blocks = []
    for array in arrays:
        if type(array) is Row:
            blocks.append(numbers(array.block))
        elif isinstance(array, (np.ndarray, np.generic)):
            blocks.append(np.broadcast_to(numbers(array), (count, *array.shape)))
        else:
            raise NotRowWise("a list in a list of arrays")
    return blocks


def _concatenate(arrays: Any, axis: int = 0) -> Row:
    blocks = _blocks(arrays)
    return Row(np.concatenate(blocks, axis=axis_of(axis, blocks[0].ndim - 1)))


def _stack(arrays: Any, axis: int = 0) -> Row:
    blocks = _blocks(arrays)
    return Row(np.stack(blocks, axis=axis_of(axis, blocks[0].ndim)))


def _expand_dims(a: Any, axis: int) -> Row:
    row = _row(a)
    return Row(np.expand_dims(row.block, axis_of(axis, row.ndim + 1)), row.formula)


def _flip(m: Any, axis: int | None = None) -> Row:
    row = _row(m)
    axes = range(1, row.ndim + 1) if axis is None else (axis_of(axis, row.ndim),)
    return Row(np.flip(row.block, tuple(axes)))


def _moveaxis(a: Any, source: int, destination: int) -> Row:
    row = _row(a)
    return Row(np.moveaxis(row.block, axis_of(source, row.ndim), axis_of(destination, row.ndim)))


def _asarray(a: Any, dtype: Any = None) -> Row:
    row = _row(a)
    return row if dtype is None else row.astype(dtype)


def _zeros_like(a: Any, dtype: Any = None) -> Any:
    return shared(np.zeros(_row(a).shape, a.dtype if dtype is None else dtype))


def _ones_like(a: Any, dtype: Any = None) -> Any:
    return shared(np.ones(_row(a).shape, a.dtype if dtype is None else dtype))


def _row(value: Any) -> Row:
    if type(value) is not Row:
        raise NotRowWise("a list")
    return value


_METHODS = {
    name: name
    for name in ("reshape", "ravel", "transpose", "swapaxes", "squeeze", "copy", "sum", "prod",
                 "mean", "std", "var", "max", "min", "any", "all", "argmax", "argmin", "round")
} | {"amax": "max", "amin": "min", "around": "round"}  # fmt: skip
_OWN: dict[str, Callable[..., Any]] = {
    "clip": clip, "where": where, "concatenate": _concatenate, "stack": _stack,
    "expand_dims": _expand_dims, "flip": _flip, "moveaxis": _moveaxis, "asarray": _asarray,
    "array": _asarray, "zeros_like": _zeros_like, "ones_like": _ones_like,
}  # fmt: skip
_OF_CONSTANTS = ("eye", "identity", "zeros", "ones", "full", "arange", "linspace")
_VALUES = ("pi", "e", "inf", "nan", "newaxis")

_by_name: dict[str, Any] = {name: getattr(np, name) for name in _VALUES}
_by_name |= {kind.type.__name__: kind.type for kind in NUMBERS} | {"bool_": np.bool_}
_by_name |= {ufunc.__name__: _either(ufunc, by_rows) for ufunc, by_rows in UFUNCS.items()}
_by_name |= {"abs": _by_name["absolute"], "true_divide": _by_name["divide"],
             "mod": _by_name["remainder"]}  # fmt: skip
_by_name |= {name: _either(getattr(np, name), _method(m)) for name, m in _METHODS.items()}
_by_name |= {name: _either(getattr(np, name), own) for name, own in _OWN.items()}


def _of_constants(plain: Callable[..., Any]) -> Callable[..., Any]:
    def by_rows(*args: Any, **options: Any) -> Row:
        raise NotRowWise(f"{plain.__name__} of an element's array")

    return _either(plain, by_rows)


_by_name |= {name: _of_constants(getattr(np, name)) for name in _OF_CONSTANTS}

NUMPY = SimpleNamespace(**_by_name)
"""The replacement of the module `numpy` in a function that is called with rows."""

FUNCTIONS: dict[int, Any] = {
    id(getattr(np, name)): value for name, value in _by_name.items() if callable(value)
}
"""`id` of a function of NumPy -> its replacement."""

ATTRIBUTES = frozenset(
    {name for name in (*_by_name, *vars(Row), *vars(math)) if not name.startswith("_")} - {"block"}
    | {"get", "items", "keys", "values", "append", "extend", "pop", "update", "join", "format"}
)
"""The names of attributes that a function that is called with rows may read."""
