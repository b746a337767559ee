"""Tables: data frames of pandas and polars, Arrow tables, Hugging Face data sets; by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish.typing import Array


def is_arrow_table(value: object) -> bool:
    """Return whether a value is a pyarrow.Table or RecordBatch, or behaves like one."""
    return hasattr(value, "column_names") and hasattr(value, "schema") and hasattr(value, "column")


def is_hugging_face(value: object) -> bool:
    """Return whether a value is a `datasets.Dataset` of Hugging Face."""
    return hasattr(value, "column_names") and hasattr(value, "with_format")


def is_lazy_frame(value: object) -> bool:
    """Return whether a value is a LazyFrame of polars."""
    return hasattr(value, "collect") and hasattr(value, "collect_schema")


def is_table(value: object) -> bool:
    """Return whether a value is a table with named columns."""
    frame = hasattr(value, "columns") and hasattr(value, "to_numpy")
    return frame or is_arrow_table(value) or is_hugging_face(value) or is_lazy_frame(value)


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
    """Return an Arrow column as an array: (rows,), or (rows, size) for lists of a fixed size.

    Gaps in columns of integers make them floating, with NaN; strings are objects.

    Raises:
        ValueError: the column has a nested type of other kinds.
    """
    if hasattr(column, "combine_chunks"):
        column = column.combine_chunks()
        if hasattr(column, "num_chunks"):  # older releases keep one chunk
            column = column.chunk(0) if column.num_chunks else column
    kind = str(column.type)
    if kind.startswith("dictionary"):
        column = column.dictionary_decode()
        kind = str(column.type)
    if kind.startswith("fixed_size_list") and not column.null_count:
        return arrow_to_numpy(column.flatten(), name).reshape(len(column), -1)
    if kind.startswith(("list", "large_list", "struct", "map", "union", "fixed_size_list")):
        raise ValueError(
            f"column {name!r}: expected numbers or strings, got the nested type {kind}. Give other "
            "columns by columns=[...], or use from_generator()."
        )
    return column.to_numpy(zero_copy_only=False)


class StoredColumn:
    """A column of a Hugging Face data set, read a part at a time; sliceable, with a shape."""

    def __init__(self, table: Any, name: str) -> None:
        self._table = table.select_columns([name]).with_format("numpy")
        self._name = name
        first = np.asarray(self._table[:1][name])
        if first.dtype.kind == "O" and first.size and not isinstance(first.flat[0], (str, bytes)):
            raise ValueError(
                f"column {name!r}: expected numbers, strings or arrays of one shape, got rows of "
                "unequal shapes or of another type."
            )
        self.dtype = first.dtype
        self.shape = (len(table), *first.shape[1:])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Array:
        rows = key.tolist() if isinstance(key, np.ndarray) else key
        return np.asarray(self._table[rows][self._name])
