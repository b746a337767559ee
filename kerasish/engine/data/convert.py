"""From what users hand over to NumPy arrays: dtypes, nested structures, errors that name the place.

Floats of any width become `floatx`, so that a model meets one dtype, however the file was written
in; integers, booleans and complex numbers stay as they are; strings pass where the caller says so.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kerasish import config
from kerasish.engine.data.structures import Structures
from kerasish.typing import Structure

_TEXT = (str, bytes, np.str_, np.bytes_)
_NUMBER = (numbers.Number, np.number, np.bool_)
_PLAIN = (*_NUMBER, *_TEXT, list, tuple)
_SMALL_FLOATS = ("bfloat16", "float8", "float6", "float4")  # ml_dtypes: NumPy calls their kind "V"


def map_leaves(structure: Structure, func: Callable[[Any, str], Any], name: str) -> Any:
    """Return `structure` with every leaf replaced by `func(leaf, its name)`; None stays None.

    Lists of plain numbers or strings are one leaf, lists of arrays are a structure.

    Example:
        >>> map_leaves({"a": [1, 2], "b": None}, lambda leaf, name: name, "x")
        {'a': "x['a']", 'b': None}
    """
    if structure is None:
        return None
    if isinstance(structure, Mapping):
        return {k: map_leaves(v, func, f"{name}[{k!r}]") for k, v in structure.items()}
    if isinstance(structure, (list, tuple)) and not isinstance(_first_of(structure), _PLAIN):
        parts = [map_leaves(v, func, f"{name}[{i}]") for i, v in enumerate(structure)]
        if hasattr(structure, "_fields"):
            return type(structure)(*parts)
        return tuple(parts) if isinstance(structure, tuple) else parts
    return func(structure, name)


def _first_of(nested: Any) -> Any:
    """Return the first entry of nested lists."""
    while isinstance(nested, (list, tuple)) and len(nested):
        nested = nested[0]
    return nested


def to_array(value: object, name: str, strings: bool = False) -> np.ndarray:
    """Return `value` as a NumPy array of a dtype that a model takes.

    Args:
        value: an array of any library (by `detach`, `to_numpy`, `numpy`, `__array__` or
            `__dlpack__`), a data frame, a sparse matrix, a number, or nested lists of numbers.
        name: how errors call it: "x", "y['a']", "x of batch 3".
        strings: whether arrays of strings may pass.

    Raises:
        ValueError: the entries are no numbers; the message names the first such row and column.

    Example:
        >>> to_array([[0.5, 1]], "x").dtype
        dtype('float32')
    """
    if isinstance(value, Structures):
        return value  # rows of Python objects, which a model packs
    if hasattr(value, "columns") and hasattr(value, "to_numpy"):
        return _from_frame(value, name, strings)
    return cast(_as_numpy(value, name), name, strings)


def cast(array: np.ndarray, name: str, strings: bool = False) -> np.ndarray:
    """Return `array` itself if its dtype is supported, else a copy in one that is."""
    kind = array.dtype.kind
    if kind == "f" or (kind == "V" and array.dtype.name.startswith(_SMALL_FLOATS)):
        return _to_floatx(array)
    if kind in "biuc":
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    if kind == "O":
        return _from_objects(array, name, strings)
    if kind in "UST" and strings:
        return array
    raise ValueError(f"{name}: expected numbers, got dtype {array.dtype}. {_advice(array)}")


def _to_floatx(array: np.ndarray) -> np.ndarray:
    floatx = config.floatx()
    if array.dtype.name == floatx and array.dtype.isnative:
        return array
    if floatx == "bfloat16":
        import ml_dtypes

        floatx = ml_dtypes.bfloat16
    with np.errstate(over="ignore"):
        return array.astype(floatx)


def _advice(example: Any) -> str:
    if isinstance(example, np.ndarray):
        if example.dtype.kind in "mM":
            return "Turn dates into numbers first (for example days since some date)."
        return "Turn strings into numbers first (StringLookup, or np.unique with return_inverse)."
    if isinstance(example, _TEXT):
        return _advice(np.empty(0, "U1"))
    if hasattr(example, "__len__"):
        return "Rows of unequal length must be padded to one length (utils.pad_sequences)."
    return "Fill in or drop missing entries first."


def _from_objects(array: np.ndarray, name: str, strings: bool) -> np.ndarray:
    kinds = set(map(type, array.ravel().tolist()))
    if strings and kinds and all(issubclass(kind, _TEXT) for kind in kinds):
        return array  # as an array of strings all would take as much as the longest
    if all(issubclass(kind, _NUMBER) for kind in kinds):
        plain = np.array(array.tolist()).reshape(array.shape)
        if plain.dtype.kind != "O":
            return cast(plain, name)
        raise ValueError(f"{name}: expected numbers of at most 64 bits, got larger integers.")
    index, entry = next(
        (index, entry) for index, entry in np.ndenumerate(array) if not isinstance(entry, _NUMBER)
    )
    place = f"row {index[0]}" if index else "the scalar"
    if len(index) > 1:
        place += f", column {', '.join(map(str, index[1:]))}"
    raise ValueError(
        f"{name}: expected numbers, got an array of objects: {place} holds "
        f"{_short(entry)} ({type(entry).__name__}). {_advice(entry)}"
    )


def _short(entry: Any) -> str:
    text = repr(entry)
    return text if len(text) <= 40 else text[:37] + "..."


def _from_frame(frame: Any, name: str, strings: bool) -> np.ndarray:
    whole = np.asarray(frame.to_numpy())
    if whole.dtype.kind not in "OUSTmM":
        return cast(whole, name)
    columns = []
    for position, label in enumerate(frame.columns):
        column = frame.iloc[:, position] if hasattr(frame, "iloc") else frame[label]
        columns.append(to_array(column, f"{name}, column {label!r}", strings))
    text = [column.dtype.kind in "OUST" for column in columns]
    if any(text) and not all(text):
        label = list(frame.columns)[text.index(True)]
        raise ValueError(
            f"{name}: expected numbers in every column, got strings in column {label!r}. "
            "Encode them, or pass a dict of columns: dict(frame)."
        )
    return np.stack(columns, axis=1)


def _as_numpy(value: Structure, name: str) -> np.ndarray:
    if isinstance(value, np.ndarray):
        # `np.ma` is imported where it is named: not for plain arrays.
        plain = type(value) is np.ndarray
        if not plain and isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
            raise ValueError(f"{name}: expected plain numbers, got a masked array: fill it first.")
        return np.asarray(value)
    if isinstance(value, (list, tuple)):
        return _from_lists(value, name)
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        # torch: leave the graph and the device; NumPy has no bfloat16
        value = value.detach().cpu()
        value = value.float() if "bfloat16" in str(value.dtype) else value
        return value.numpy()
    if hasattr(value, "__cuda_array_interface__") and hasattr(value, "get"):
        return value.get()
    for method in ("to_numpy", "toarray", "numpy"):
        if hasattr(value, method):
            return np.asarray(getattr(value, method)())
    if hasattr(value, "__array__") or isinstance(value, (*_NUMBER, *_TEXT)):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    raise ValueError(f"{name}: expected an array, got {type(value).__name__} {_short(value)}.")


def _from_lists(value: object, name: str) -> np.ndarray:
    try:
        return np.asarray(value, dtype=object if isinstance(_first_of(value), _TEXT) else None)
    except ValueError as error:
        raise ValueError(
            f"{name}: expected nested lists that form a rectangular array, got lists of unequal "
            "length. Pad them to one length (utils.pad_sequences)."
        ) from error
