"""Tables: data frames of pandas and polars, Arrow tables, Hugging Face data sets; by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish.engine.data.convert import to_array
from kerasish.typing import Array


def is_arrow_table(value: object) -> bool:
    """Return whether a value is a pyarrow.Table or RecordBatch, or behaves like one."""
    return hasattr(value, "column_names") and hasattr(value, "schema") and hasattr(value, "column")


def is_hugging_face(value: object) -> bool:
    """Return whether a value is a `datasets.Dataset` of Hugging Face."""
    return hasattr(value, "column_names") and hasattr(value, "with_format")


def is_lazy_frame(value: object) -> bool:
    """Return whether a value is a LazyFrame of polars."""
    return hasattr(value, "collect_schema") and hasattr(value, "collect")


def is_table(value: object) -> bool:
    """Return whether a value is a table with named columns."""
    if is_lazy_frame(value) or is_arrow_table(value) or is_hugging_face(value):
        return True
    return hasattr(value, "columns") and hasattr(value, "to_numpy")


def column_names(table: Any) -> list[str]:
    """Return the names of a table's columns."""
    if is_lazy_frame(table):
        return list(table.collect_schema().names())
    return [str(name) for name in getattr(table, "column_names", None) or table.columns]


def columns_of(table: Any, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Return name -> column of a table: a NumPy array, or rows that are read when needed.

    Columns of numbers without gaps are not copied where the library can share them.

    Args:
        table: the table.
        names: the columns; None: all.

    Raises:
        ValueError: a column is missing or has a nested type.

    Example:
        >>> import pandas
        >>> columns_of(pandas.DataFrame({"a": [1, 2], "b": [0.5, 1.5]}), ["b"])
        {'b': array([0.5, 1.5])}
    """
    known = column_names(table)
    names = known if names is None else list(names)
    missing = [name for name in names if name not in known]
    if missing:
        raise ValueError(f"There is no column {missing[0]!r}; the columns are {known}.")
    if is_hugging_face(table):
        return {name: StoredColumn(table, name) for name in names}
    if is_lazy_frame(table):
        table = table.select(names).collect()
    if is_arrow_table(table):
        return {name: arrow_to_numpy(table.column(name), name) for name in names}
    return {name: frame_column(table, known.index(name), name) for name in names}


def frame_column(frame: Any, position: int, name: str) -> Array:
    """Return a column of a data frame of pandas or polars as an array."""
    column = frame.iloc[:, position] if hasattr(frame, "iloc") else frame[name]
    return np.asarray(column.to_numpy())


def arrow_to_numpy(column: Any, name: str) -> Array:
    """Return an Arrow column as an array: (rows,), or (rows, size) for lists of one size.

    Gaps in columns of integers make them floating, with NaN; strings are objects. Columns of
    numbers without gaps, in one piece, are not copied.

    Raises:
        ValueError: the column has a nested type of other kinds, or lists of unequal sizes.
    """
    if hasattr(column, "num_chunks"):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if hasattr(column, "num_chunks"):  # what older releases of pyarrow return
            column = column.chunk(0)
    column = getattr(column, "storage", column)  # of an extension type
    kind = str(column.type)
    if kind.startswith("dictionary"):
        column = column.dictionary_decode()
        kind = str(column.type)
    if kind.startswith(("fixed_size_list", "list", "large_list")) and not column.null_count:
        sizes = np.unique(column.value_lengths().to_numpy(zero_copy_only=False))
        if len(sizes) <= 1:
            inner = arrow_to_numpy(column.flatten(), name)
            return inner.reshape(len(column), int(sizes[0]) if len(sizes) else 0, *inner.shape[1:])
    if kind.startswith(("list", "large_list", "struct", "map", "union", "fixed_size_list")):
        raise ValueError(
            f"column {name!r}: expected numbers, strings or lists of one size, got the nested type "
            f"{kind}. Give other columns by columns=[...], or use from_generator()."
        )
    return column.to_numpy(zero_copy_only=False)


class StoredColumn:
    """A column of a Hugging Face data set, read a part at a time; sliceable, with a shape."""

    def __init__(self, table: Any, name: str) -> None:
        self._table = table.select_columns([name]).with_format("arrow")
        self._name = name
        first = self[:1]
        self.dtype, self.shape = first.dtype, (len(table), *first.shape[1:])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Array:
        rows = key.tolist() if isinstance(key, np.ndarray) else key
        if isinstance(rows, (int, np.integer)):
            return self[[int(rows)]][0]
        return arrow_to_numpy(self._table[rows].column(self._name), self._name)


def is_hugging_face_column(value: object) -> bool:
    """Return whether a value is a column of a Hugging Face data set, which it reads when needed."""
    return hasattr(value, "source") and hasattr(value, "column_name")


def as_inputs(x: Any, names: Sequence[str] = ()) -> Any:
    """Return data with tables in it as what the data adapters take.

    Args:
        x: what the user gave as x, y or sample_weight.
        names: the names of a model's inputs; a table that has columns of all these names becomes a
            dict of these columns, which is not copied where types fit. Others become matrices.

    Raises:
        ValueError: a column has a nested type, or a Hugging Face data set has not these columns.

    Example:
        >>> import pandas
        >>> frame = pandas.DataFrame({"a": [1, 2], "b": [3, 4]})
        >>> as_inputs(frame, ["b", "a"])
        {'b': array([3, 4]), 'a': array([1, 2])}
        >>> as_inputs(frame) is frame
        True
    """
    if isinstance(x, dict):
        return {key: as_inputs(part) for key, part in x.items()}
    if isinstance(x, tuple):
        return type(x)(*map(as_inputs, x)) if hasattr(x, "_fields") else tuple(map(as_inputs, x))
    if is_hugging_face_column(x):
        return StoredColumn(x.source, x.column_name)
    if not is_table(x):
        return x
    if names and set(names) <= set(column_names(x)):
        return columns_of(x, names)
    if is_hugging_face(x):
        raise ValueError(
            f"x: a datasets.Dataset with the columns {column_names(x)} is a table, but the model's "
            f"inputs are {list(names)}. Give single columns, x=data['pixels'], y=data['label'], or "
            "a kerasish.data.Dataset.from_table(data, label='label')."
        )
    if is_lazy_frame(x):
        return x.collect()
    if is_arrow_table(x):
        columns = columns_of(x)
        return np.stack([to_array(c, f"x, column {n!r}") for n, c in columns.items()], axis=1)
    return x
