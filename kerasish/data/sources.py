"""Sources of elements: rows of arrays, numbers, generators, functions of a number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kerasish import tree
from kerasish.data.elements import (
    DataArray,
    TensorSpec,
    list_to_array,
    map_specs,
    path_text,
    row_of,
    stack,
    to_element,
)
from kerasish.data.node import (
    END,
    INFINITE_CARDINALITY,
    Cursor,
    DataNode,
    PlaceCursor,
    named,
    place_error,
)
from kerasish.engine.data.arrays import contents_of
from kerasish.engine.data.rows import Rows, RowsAhead, SparseRows, StoredRows, is_sparse, is_stored
from kerasish.engine.data.tables import is_table
from kerasish.tensor import Tensor, Variable, to_numpy
from kerasish.typing import Array, Structure


class RowsNode(DataNode):
    """The rows of something that reads them by number, many at once.

    Args:
        count: the number of rows.
        part: (start, stop) -> block of these rows.
        take: array of numbers -> block of these rows.
        text: the description.
        rows: how many rows are read at once by those that read one by one.
        facts: a checksum of the contents, or "".
    """

    def __init__(
        self,
        count: int,
        part: Callable[[int, int], Any],
        take: Callable[[Array], Any],
        text: str,
        rows: int = 1,
        facts: str = "",
    ) -> None:
        self.count, self.part, self.take, self._text = count, part, take, text
        self.rows, self._facts = rows, facts

    @property
    def indexed(self) -> bool:
        return True

    def cardinality(self) -> int:
        return self.count

    def open(self, number: int, order: Array | None = None) -> Cursor:
        return _RowsCursor(self, order)

    def describe(self) -> str:
        return self._text

    def contents(self) -> str:
        return self._facts

    def in_memory(self) -> Structure | None:
        """Return the arrays whose rows these are; None where there are none."""
        return None


class _RowsCursor(PlaceCursor):
    columnar = True

    def __init__(self, node: RowsNode, order: Array | None) -> None:
        self._node, self._order = node, order
        self._count = node.count if order is None else len(order)
        self._block: Any = None  # rows that were read at once, for `read`
        self._start = self._stop = 0

    def read(self) -> Any:
        at = self._at
        if at >= self._count:
            return END
        if not self._start <= at < self._stop:
            self._start, self._stop = at, min(at + self._node.rows, self._count)
            self._block = self._rows(self._start, self._stop)
        self._at = at + 1
        return row_of(self._block, at - self._start)

    def read_rows(self, count: int) -> tuple[int, Any]:
        start, stop = self._at, min(self._at + count, self._count)
        if start == stop:
            return 0, None
        self._at = stop
        return stop - start, self._rows(start, stop)

    def rows_ahead(self) -> RowsAhead | None:
        columns, order = self._node.in_memory(), self._order
        if columns is None:
            return None
        if order is None:
            return RowsAhead(columns, np.arange(self._at, self._count, dtype=np.int64))
        return RowsAhead(columns, order[self._at :])

    def _rows(self, start: int, stop: int) -> Any:
        if self._order is None:
            return self._node.part(start, stop)
        return self._node.take(self._order[start:stop])


class Column:
    """Rows of an array in memory: parts are views that cannot be written to."""

    in_memory = True

    def __init__(self, array: np.ndarray) -> None:
        self.array = array.view()
        self.array.flags.writeable = False
        self.shape, self.count = array.shape, array.shape[0]

    def part(self, start: int, stop: int) -> np.ndarray:
        return self.array[start:stop]

    def take(self, indices: np.ndarray) -> np.ndarray:
        return np.take(self.array, indices, axis=0)


def slices(tensors: Structure) -> RowsNode:
    """Return a node of the rows of arrays; see `Dataset.from_tensor_slices`."""
    columns = _map_arrays(tensors, _column, ())
    leaves = tree.flatten(columns)
    if not leaves:
        raise ValueError("from_tensor_slices: expected at least one array, got none.")
    counts = {c.count for c in leaves}
    if len(counts) > 1:
        shown = ", ".join(
            f"{path_text(path) or 'the array'}: {c.count}"
            for path, c in tree.flatten_with_path(columns)
        )
        raise ValueError(
            f"from_tensor_slices: expected arrays with equally many rows, got {shown}. A list of "
            "arrays is one array; for several parts give a tuple or a dict."
        )
    shapes = [f"{_dtype_of(c)}{[*c.shape[1:]]}" for c in leaves]
    text = f"from_tensor_slices({counts.copy().pop()} x {', '.join(shapes)})"
    if isinstance(columns, (Column, StoredRows, SparseRows)):
        return _SlicesNode(columns, columns.part, columns.take, leaves, text)
    if type(columns) is tuple and all(isinstance(c, Column) for c in columns):
        arrays = [c.array for c in columns]

        def part(start: int, stop: int) -> Any:
            return tuple([a[start:stop] for a in arrays])

        def take(rows: Array) -> Any:
            return tuple([np.take(a, rows, axis=0) for a in arrays])

        return _SlicesNode(columns, part, take, leaves, text)
    return _SlicesNode(
        columns,
        lambda start, stop: tree.map_structure(lambda c: c.part(start, stop), columns),
        lambda rows: tree.map_structure(lambda c: c.take(rows), columns),
        leaves,
        text,
    )


class _SlicesNode(RowsNode):
    def __init__(
        self,
        columns: Structure,
        part: Callable[[int, int], Any],
        take: Callable[[Array], Any],
        leaves: list[Rows],
        text: str,
    ) -> None:
        in_memory = all(isinstance(c, Column) for c in leaves)
        super().__init__(leaves[0].count, part, take, text, 1 if in_memory else 32)
        self._columns, self._leaves, self._in_memory = columns, leaves, in_memory

    def in_memory(self) -> Structure | None:
        if not self._in_memory:
            return None
        return tree.map_structure(lambda c: c.array, self._columns)

    def spec(self) -> Any:
        return tree.map_structure(lambda c: TensorSpec(c.shape[1:], _dtype_of(c)), self._columns)

    def contents(self) -> str:
        return contents_of([c.array for c in self._leaves if isinstance(c, Column)])

    def __reduce__(self) -> Any:  # the functions of the rows are made again
        sources = tree.map_structure(
            lambda c: c.array if isinstance(c, Column) else c.source, self._columns
        )
        return slices, (sources,)


def _dtype_of(column: Any) -> str:
    dtype = column.array.dtype if isinstance(column, Column) else column.dtype
    return TensorSpec((), dtype).dtype


def _map_arrays(
    structure: Structure, func: Callable[[Any, str], Any], path: tuple[Any, ...]
) -> Any:
    """Return tuples and dicts with `func(leaf, name)` for all else; lists are leaves."""
    if isinstance(structure, Mapping):
        return {k: _map_arrays(v, func, (*path, k)) for k, v in structure.items()}
    if isinstance(structure, tuple):
        parts = [_map_arrays(v, func, (*path, i)) for i, v in enumerate(structure)]
        return type(structure)(*parts) if hasattr(structure, "_fields") else tuple(parts)
    return func(structure, f"from_tensor_slices{path_text(path)}")


def _column(value: Any, name: str) -> Rows:
    if is_sparse(value):
        return SparseRows(value, name, exact=True)
    if is_stored(value) and not isinstance(value, (Tensor, Variable)) and not is_table(value):
        if not value.shape:
            raise ValueError(f"{name}: expected an array with rows, got shape ().")
        return StoredRows(value, name, strings=True, exact=True)
    array = as_array(value, name)
    if array.ndim == 0:
        raise ValueError(
            f"{name}: expected an array whose first axis counts the elements, got the single value "
            f"{array[()]!r}. from_tensors() makes one element of it."
        )
    return Column(array)


def as_array(value: Any, name: str) -> np.ndarray:
    """Return an array-like of any library, or a nested list, as a NumPy array of the same dtype."""
    if isinstance(value, DataArray):
        return np.asarray(value.numpy())
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, (Tensor, Variable)):
        return np.asarray(to_numpy(value))
    if isinstance(value, list):
        return list_to_array(value, lambda: name)
    result = to_element(value, lambda: name)
    return np.asarray(result)


class RangeNode(RowsNode):
    """The numbers of a range, int64."""

    def __init__(self, numbers: range) -> None:
        self._numbers = numbers
        start, step = numbers.start, numbers.step
        super().__init__(
            len(numbers),
            lambda a, b: np.arange(start + a * step, start + b * step, step, dtype=np.int64),
            lambda rows: (start + rows * step).astype(np.int64, copy=False),
            f"range({numbers.start}, {numbers.stop}, {numbers.step})",
            64,
        )

    def spec(self) -> TensorSpec:
        return TensorSpec((), "int64")

    def __reduce__(self) -> Any:
        return RangeNode, (self._numbers,)


class SingleNode(DataNode):
    """One element."""

    def __init__(self, element: Structure) -> None:
        self._element = element

    @property
    def indexed(self) -> bool:
        return True

    def cardinality(self) -> int:
        return 1

    def open(self, number: int, order: Array | None = None) -> Cursor:
        return _RowsCursor(self._rows(), order)

    def _rows(self) -> RowsNode:
        block = stack([self._element], "from_tensors", 0)
        return RowsNode(
            1, lambda a, b: block, lambda rows: tree.map_structure(lambda p: p[rows], block), ""
        )

    def describe(self) -> str:
        return "from_tensors()"


class GeneratorNode(DataNode):
    """The elements of an iterator that a function makes for each pass.

    Args:
        make: called for each pass; returns an iterable.
        signature: a structure of `TensorSpec`s, or None.
        count: the number of elements where it is known.
        text: the description.
    """

    rereads = True

    def __init__(
        self, make: Callable[[], Iterable[Any]], signature: Structure, count: int, text: str
    ) -> None:
        self.make, self.signature, self._count, self._text = make, signature, count, text

    def cardinality(self) -> int:
        return self._count

    def open(self, number: int, order: Array | None = None) -> Cursor:
        return _GeneratorCursor(self)

    def spec(self) -> Any:
        return super().spec() if self.signature is None else self.signature

    def describe(self) -> str:
        return self._text

    def checked(self, value: Any, number: int) -> Any:
        """Return what the generator gave as an element of the signature."""
        if self.signature is None:
            if isinstance(value, list) and value and all(hasattr(v, "shape") for v in value):
                value = tuple(value)  # [x, y]: what a torch DataLoader gives
            return to_element(value, lambda: f"{self._text}: element {number}")
        signature = self.signature
        if isinstance(value, list) and isinstance(signature, tuple):
            value = tuple(value)
        try:
            pairs = tree.map_structure_up_to(signature, lambda *both: both, signature, value)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(
                f"{self._text}: element {number} is not built like output_signature: {error}"
            ) from error
        return tree.map_structure_up_to(signature, lambda pair: self._cast(pair, number), pairs)

    def _cast(self, pair: tuple[TensorSpec, Any], number: int) -> Any:
        spec, value = pair

        def place() -> str:
            return f"{self._text}: element {number}"

        if spec.dtype == "string":
            array = value if isinstance(value, (str, bytes)) else np.asarray(value, object)[()]
        else:
            array = to_element(value, place)
            if isinstance(array, (str, bytes, tuple, dict)):
                raise ValueError(f"{place()} is {value!r}, the signature says {spec.dtype}.")
            array = np.asarray(array).astype(np.dtype(spec.dtype), copy=False)[()]
        shape = getattr(array, "shape", ())
        fits = (
            spec.shape is None
            or len(shape) == len(spec.shape)
            and all(n is None or size == n for size, n in zip(shape, spec.shape))
        )
        if not fits:
            raise ValueError(f"{place()} has shape {shape}, the signature says {spec.shape}.")
        return array


class _GeneratorCursor(Cursor):
    def __init__(self, node: GeneratorNode) -> None:
        self._node = node
        self._iterator: Iterator[Any] | None = None
        self._at = 0

    def read(self) -> Any:
        value = self._next()
        if value is END:
            return END
        self._at += 1
        return self._node.checked(value, self._at - 1)

    def _next(self) -> Any:
        if self._iterator is None:
            self._iterator = iter(self._node.make())
        return next(self._iterator, END)

    def skip(self, count: int) -> int:
        for number in range(count):
            if self._next() is END:
                return number
            self._at += 1
        return count

    def state(self) -> int:
        return self._at

    def restore(self, state: int) -> None:
        if self.skip(int(state)) != state:
            raise place_error(f"element {state - 1} of {self._node.describe()}")

    def close(self) -> None:
        iterator, self._iterator = self._iterator, None
        close = getattr(iterator, "close", None)
        if close is not None:
            close()


def generator_node(
    make: Any,
    args: Sequence[Any] | None,
    signature: Structure,
    types: Structure,
    shapes: Structure,
) -> GeneratorNode:
    """Return the node of `Dataset.from_generator`."""
    if not callable(make):
        kind = type(make).__name__
        raise TypeError(
            f"from_generator: expected a function that returns an iterator, which is called for "
            f"each epoch, got a {kind}. "
            + ("Pass the generator function itself, without calling it."
               if hasattr(make, "__next__") else "Pass `lambda: iterable`.")
        )  # fmt: skip
    if types is not None:
        if signature is not None:
            raise ValueError("from_generator: give output_signature or output_types, not both.")
        if shapes is None:
            signature = tree.map_structure(lambda t: TensorSpec(None, t), types)
        else:
            signature = tree.map_structure_up_to(
                types, lambda t, s: TensorSpec(s, t), types, shapes
            )
    elif signature is not None:
        signature = tree.map_structure(_spec, signature)
    given = tuple(args or ())
    text = f"from_generator({named(make)})"
    return GeneratorNode(_Call(make, given) if given else make, signature, -2, text)


class _Call:
    def __init__(self, make: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._make, self._args = make, args

    def __call__(self) -> Iterable[Any]:
        return self._make(*self._args)


def _spec(spec: Any) -> TensorSpec:
    if isinstance(spec, TensorSpec):
        return spec
    if hasattr(spec, "shape") and hasattr(spec, "dtype"):  # TensorFlow's, a KerasTensor
        shape = getattr(spec.shape, "as_list", lambda: tuple(spec.shape))()
        return TensorSpec(tuple(shape), spec.dtype)
    raise ValueError(
        f"output_signature: expected a structure of kerasish.data.TensorSpec(shape, dtype), got "
        f"{spec!r}."
    )


def counted(count: int | None) -> int:
    """Return a cardinality for the number of elements, None for an endless source."""
    return INFINITE_CARDINALITY if count is None else count


def unbatched_specs(spec: Structure) -> Any:
    """Return specs without their first axis."""
    return map_specs(lambda s: TensorSpec(s.shape and s.shape[1:], s.dtype), spec)
