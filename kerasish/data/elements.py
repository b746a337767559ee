"""Elements of a data set: nested tuples and dicts of NumPy arrays; stacked to rows, cut to rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerasish import config, tree
from kerasish.errors import DTypeError, ShapeError
from kerasish.tensor import Tensor, Variable, to_numpy
from kerasish.typing import Array, Structure

_TEXT = (str, bytes)
_INT32 = np.iinfo(np.int32)


class DataArray(np.ndarray):  # type: ignore[misc]  # NumPy has no types here
    """A NumPy array with a method `numpy`, so that code written for tensors reads it.

    Iteration over a `Dataset` gives such arrays. Everything that NumPy does works on them; an
    element picked by its index is again a `DataArray`, of no axes.

    Example:
        >>> from kerasish.data import Dataset
        >>> row = next(iter(Dataset.from_tensor_slices([[1, 2]])))
        >>> row.numpy().tolist(), int(row[1].numpy())
        ([1, 2], 2)
    """

    def numpy(self) -> Array:
        """Return the same numbers as a plain NumPy array, or scalar; nothing is copied."""
        return self.view(np.ndarray)[()]

    def __getitem__(self, key: Any) -> Any:
        result = super().__getitem__(key)
        if isinstance(result, np.ndarray):
            return result
        return result if isinstance(result, _TEXT) else np.asarray(result).view(DataArray)

    def __hash__(self) -> int:
        return hash(self.numpy())  # of a single value; TypeError for an array

    def __reduce__(self) -> Any:
        return self.view(np.ndarray).__reduce__()


@dataclass(frozen=True)
class TensorSpec:
    """The shape and the dtype of a part of each element of a `Dataset`.

    Args:
        shape: the sizes; None for one that differs between elements, or in place of all of them.
        dtype: the name of the dtype, "string" for strings.
        name: a name, or None; for compatibility with `tf.TensorSpec`.

    Example:
        >>> TensorSpec((None, 3), "float32").shape
        (None, 3)
    """

    shape: tuple[int | None, ...] | None = ()
    dtype: str = "float32"
    name: str | None = None

    def __post_init__(self) -> None:
        if self.shape is not None:
            object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "dtype", dtype_name(self.dtype))


def dtype_name(dtype: Any) -> str:
    """Return the name of a dtype of NumPy, kerasish or TensorFlow; "string" for strings.

    Example:
        >>> dtype_name(np.float32), dtype_name(str), dtype_name(np.dtype("U3"))
        ('float32', 'string', 'string')
    """
    name = getattr(dtype, "name", None)
    if isinstance(dtype, str) and dtype == "string" or name == "string":
        return "string"
    try:
        own = isinstance(dtype, np.dtype) or not isinstance(name, str)
        kind = np.dtype(dtype if own else name)
    except TypeError:
        return str(dtype)
    return "string" if kind.kind in "OUST" else kind.name


def to_element(value: Structure, place: Callable[[], str]) -> Any:
    """Return what user code gave as an element: tuples and dicts of arrays, numbers and strings.

    Python's numbers become NumPy's (`floatx`, int32, or int64 where they need it), tensors of any
    library become arrays, and lists become one array, as in `tf.data`.

    Args:
        value: what a function or a generator returned.
        place: returns its origin, for errors.

    Raises:
        ValueError: a part is None, a ragged list, or cannot become numbers or strings.
    """
    kind = type(value)
    if kind is np.ndarray or isinstance(value, np.generic):
        return value
    if isinstance(value, tuple):
        parts = [to_element(part, place) for part in value]
        return kind(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, Mapping):
        return {key: to_element(part, place) for key, part in value.items()}
    return _to_leaf(value, place)


_PLAIN = frozenset(
    (np.ndarray, np.bool_, np.str_, np.bytes_, str, bytes)
    + tuple(getattr(np, f"{kind}{bits}") for kind in ("int", "uint") for bits in (8, 16, 32, 64))
    + (np.float16, np.float32, np.float64, np.complex64, np.complex128)
)


def to_elements(values: list[Any], place: Callable[[], str]) -> list[Any]:
    """Return what user code gave as elements: `to_element` of each, or all at once if they are."""
    kinds = set(map(type, values))
    if kinds == {tuple} and len(set(map(len, values))) == 1:
        if all(_PLAIN.issuperset(map(type, column)) for column in zip(*values)):
            return values
    elif _PLAIN.issuperset(kinds):
        return values
    return [to_element(value, place) for value in values]


def _to_leaf(value: Any, place: Callable[[], str]) -> Any:
    if isinstance(value, DataArray):
        return value.numpy()
    if isinstance(value, (np.ndarray, *_TEXT)):
        return value
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, int):
        return np.int32(value) if _INT32.min <= value <= _INT32.max else np.int64(value)
    if isinstance(value, float):
        return np.asarray(value, _floatx())[()]
    if isinstance(value, complex):
        return np.complex64(value)
    if isinstance(value, (Tensor, Variable)):
        return np.asarray(to_numpy(value))
    if isinstance(value, list):
        return list_to_array(value, place)
    if value is None:
        raise ValueError(f"{place()} gave None as an element, or in it. Expected arrays: did the "
                         "function end without `return`?")  # fmt: skip
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        return value.detach().cpu().numpy()
    for method in ("numpy", "to_numpy", "toarray"):
        if hasattr(value, method):
            return np.asarray(getattr(value, method)())[()]
    array = np.asarray(value)
    if array.dtype.kind == "O":
        raise ValueError(
            f"{place()} gave {type(value).__name__}, expected arrays, numbers, strings, or tuples "
            "and dicts of these."
        )
    return array


def _floatx() -> Any:
    name = config.floatx()
    if name == "bfloat16":
        import ml_dtypes

        return ml_dtypes.bfloat16
    return name


def list_to_array(values: Sequence[Any], place: Callable[[], str]) -> Array:
    """Return a list of numbers, strings or equally shaped arrays as one array.

    Python's numbers take the dtypes that `to_element` gives them.

    Raises:
        ValueError: the list is ragged.
    """
    first: Any = values
    while isinstance(first, (list, tuple)) and len(first):
        first = first[0]
    if isinstance(first, _TEXT):
        return np.asarray(values, dtype=object)
    if isinstance(first, (Tensor, Variable)):
        values = tree.map_structure(lambda t: np.asarray(to_numpy(t)), values)
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(
            f"{place()} gave lists of unequal length, which are no array. Pad them "
            "(utils.pad_sequences), or give each list as an element and use padded_batch()."
        ) from error
    if isinstance(first, float) and not isinstance(first, np.generic):
        return array.astype(_floatx())
    if isinstance(first, int) and array.dtype == np.int64:
        small = not array.size or _INT32.min <= array.min() <= array.max() <= _INT32.max
        return array.astype(np.int32) if small else array
    return array


def leaf_shape(leaf: Any) -> tuple[int, ...]:
    """Return the shape of a part of an element, () for numbers and strings."""
    return getattr(leaf, "shape", ())


def wrap(element: Structure) -> Any:
    """Return an element whose arrays have a method `numpy`."""
    if isinstance(element, np.ndarray):
        return element.view(DataArray)
    if isinstance(element, tuple):
        parts = [wrap(part) for part in element]
        return type(element)(*parts) if hasattr(element, "_fields") else tuple(parts)
    if isinstance(element, dict):
        return {key: wrap(part) for key, part in element.items()}
    if isinstance(element, _TEXT):
        text = np.empty((), object)
        text[()] = element
        return text.view(DataArray)
    if isinstance(element, (np.generic, int, float)):
        return np.asarray(element).view(DataArray)
    return element  # a data set, of `window`


def read_only(element: Structure) -> Any:
    """Return an element whose arrays are views that cannot be written to."""

    def view(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray):
            return leaf
        result = leaf.view()
        result.flags.writeable = False
        return result

    return view(element) if not tree.is_nested(element) else tree.map_structure(view, element)


def spec_of(element: Structure) -> Any:
    """Return the `TensorSpec`s of an element."""
    if isinstance(element, tuple):
        parts = [spec_of(part) for part in element]
        return type(element)(*parts) if hasattr(element, "_fields") else tuple(parts)
    if isinstance(element, dict):
        return {key: spec_of(part) for key, part in element.items()}
    if isinstance(element, _TEXT):
        return TensorSpec((), "string")
    dtype = getattr(element, "dtype", None)
    return element if dtype is None else TensorSpec(leaf_shape(element), dtype)


def with_rows(spec: Structure, rows: int | None) -> Any:
    """Return specs with one more axis, of `rows`, in front."""
    return map_specs(
        lambda s: TensorSpec(None if s.shape is None else (rows, *s.shape), s.dtype), spec
    )


def map_specs(func: Callable[[TensorSpec], Any], spec: Structure) -> Any:
    """Return the structure of `func(spec)`; what is no TensorSpec stays."""
    return tree.map_structure(lambda s: func(s) if isinstance(s, TensorSpec) else s, spec)


def rows_of(block: Structure, count: int) -> Iterator[Any]:
    """Return the elements whose parts are the rows of a block's arrays."""
    if type(block) is tuple and all(type(part) is np.ndarray for part in block):
        return zip(*block)
    if type(block) is np.ndarray:
        return iter(block)
    return (row_of(block, row) for row in range(count))


def row_of(block: Structure, row: int) -> Any:
    """Return one element of a block."""
    if type(block) is tuple:
        return tuple(row_of(part, row) for part in block)
    if type(block) is dict:
        return {key: row_of(part, row) for key, part in block.items()}
    if isinstance(block, (tuple, Mapping)):
        return tree.map_structure(lambda part: part[row], block)
    return block[row]


def cut(block: Structure, start: int, stop: int) -> Any:
    """Return the rows start .. stop - 1 of a block, as views."""
    return tree.map_structure(lambda part: part[start:stop], block)


def join(blocks: Sequence[Structure]) -> Any:
    """Return the rows of several blocks as one block."""
    if len(blocks) == 1:
        return blocks[0]
    return tree.map_structure(lambda *parts: np.concatenate(parts), *blocks)


def row_count(block: Structure, what: str) -> int:
    """Return the number of rows of a batch.

    Raises:
        ShapeError: it has a part without rows, or parts with unequal numbers of rows.
    """
    shapes = [(path, leaf_shape(leaf)) for path, leaf in tree.flatten_with_path(block)]
    counts = {shape[0] if shape else None for _, shape in shapes}
    if len(counts) != 1 or None in counts:
        shown = ", ".join(f"{path_text(path) or 'the element'}: {shape}" for path, shape in shapes)
        raise ShapeError(f"{what} expected batches, whose first axis counts rows, got {shown}.")
    return int(counts.pop() or 0)


def stack(elements: Sequence[Any], what: str, first: int) -> Any:
    """Return elements of one structure as one block, a new axis in front.

    Args:
        elements: at least one.
        what: the verb, for errors.
        first: the number of the first one in its pass, for errors.

    Raises:
        ShapeError: an element has another structure or shape; the message names it.
        DTypeError: an element has another kind of dtype.
    """
    one = elements[0]
    if type(one) is tuple:
        if any(type(e) is not tuple or len(e) != len(one) for e in elements):
            raise _other_structure(elements, what, first)
        return tuple(
            [_stack_part(column, what, first, i) for i, column in enumerate(zip(*elements))]
        )
    if isinstance(one, (tuple, Mapping)):
        columns: list[list[Any]] = [[] for _ in tree.flatten(one)]
        for element in elements:
            try:
                tree.assert_same_structure(one, element)
            except ValueError:
                raise _other_structure(elements, what, first) from None
            for column, leaf in zip(columns, tree.flatten(element)):
                column.append(leaf)
        paths = [path for path, _ in tree.flatten_with_path(one)]
        leaves = [_stack_leaves(c, what, first, path) for c, path in zip(columns, paths)]
        return tree.pack_sequence_as(one, leaves)
    return _stack_leaves(elements, what, first, ())


def _stack_part(column: Sequence[Any], what: str, first: int, index: int) -> Any:
    if not isinstance(column[0], (tuple, Mapping)):
        return _stack_leaves(column, what, first, (index,))
    return stack(column, what, first)


def _stack_leaves(
    leaves: Sequence[Any], what: str, first: int, path: tuple[Any, ...]
) -> np.ndarray:
    one = leaves[0]
    if isinstance(one, _TEXT):
        result = np.empty(len(leaves), object)
        if not all(isinstance(leaf, _TEXT) for leaf in leaves):
            raise _unequal(leaves, what, first, path)
        result[:] = leaves
        return result
    try:
        result = _joined(leaves) if isinstance(one, np.ndarray) else np.array(leaves)
    except (ValueError, AttributeError):
        raise _unequal(leaves, what, first, path) from None
    if result.shape[1:] != one.shape:
        raise _unequal(leaves, what, first, path)
    if result.dtype != one.dtype and (
        result.dtype.kind != one.dtype.kind
        or any(leaf.dtype.kind != one.dtype.kind for leaf in leaves)
    ):
        raise _unequal(leaves, what, first, path)
    return result


def _joined(arrays: Sequence[Any]) -> np.ndarray:
    """Return arrays of one shape stacked: np.stack without a view of each array."""
    shape = arrays[0].shape
    if not shape:
        return np.array(arrays)
    if any(a.shape != shape for a in arrays):
        raise ValueError
    return np.concatenate(arrays).reshape(len(arrays), *shape)


def _unequal(
    leaves: Sequence[Any], what: str, first: int, path: tuple[Any, ...]
) -> ShapeError | DTypeError:
    """Return the error that names the first part that differs."""
    one = leaves[0]
    shape, kind = leaf_shape(one), _kind(one)
    number = next(
        i for i, leaf in enumerate(leaves) if (leaf_shape(leaf), _kind(leaf)) != (shape, kind)
    )
    other = leaves[number]
    at = f" at {path_text(path)}" if path else ""
    place = f"element {number} of the batch (element {first + number} of the pass)"
    if leaf_shape(other) != shape:
        return ShapeError(
            f"{what}: {place} has shape {leaf_shape(other)}{at}, but element 0 has {shape}. "
            "Elements of one batch have equal shapes: give them one shape in map(), or pad "
            "them with padded_batch()."
        )
    return DTypeError(
        f"{what}: {place} has dtype {_named(other)}{at}, but element 0 has {_named(one)}. "
        "Give all elements one dtype, in map() or by output_signature of from_generator()."
    )


def _other_structure(elements: Sequence[Any], what: str, first: int) -> ShapeError:
    one = elements[0]
    for number, other in enumerate(elements):
        try:
            tree.assert_same_structure(one, other)
        except ValueError as error:
            return ShapeError(
                f"{what}: element {number} of the batch (element {first + number} of the pass) is "
                f"built differently from element 0: {error}"
            )
    return ShapeError(f"{what}: the elements are built differently: {one!r} ...")


def _kind(leaf: Any) -> str:
    return "O" if isinstance(leaf, _TEXT) else leaf.dtype.kind


def _named(leaf: Any) -> str:
    return "string" if isinstance(leaf, _TEXT) else str(leaf.dtype)


def path_text(path: tuple[Any, ...]) -> str:
    """Return where a part of an element is, as messages show it: [0]['key']."""
    return "".join(f"[{key!r}]" for key in path)
