"""Columns of data whose rows are formulas of rows in memory, read from a call for some rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish import tree
from kerasish.data.row_values import NotRowWise, Row
from kerasish.engine.data.rows import RowsAhead
from kerasish.row_formulas import MappedRows, by_row
from kerasish.typing import Array

_COMPARED = 32  # elements that are compared before a formula is used
_COMPARED_BYTES = 2**20  # of these elements, unless the first one has more
_MOST_BATCH_BYTES = 2**22  # of a batch, all of which is computed to read the formula
_MOST_OPS = 64


def rows_to_compare(ahead: RowsAhead) -> Array:
    """Return the numbers of the rows for which the function itself is called too.

    There are none where the formula would not be worth it.
    """
    parts = tree.flatten(ahead.columns)
    row = sum(part.dtype.itemsize * int(np.prod(part.shape[1:])) for part in parts)
    if ahead.size:
        return ahead.order[: ahead.size if row * ahead.size <= _MOST_BATCH_BYTES else 0]
    return ahead.order[: max(1, min(_COMPARED, _COMPARED_BYTES // max(row, 1)))]


def take_rows(column: Any, rows: Array) -> Array:
    """Return rows of an array, or of `MappedRows`."""
    is_mapped = isinstance(column, MappedRows)
    return column.take(rows) if is_mapped else np.take(column, rows, axis=0)


def columns_of(result: Any, size: int) -> Any:
    """Return the columns of a function's results: `MappedRows` in its structure.

    Args:
        result: what the function returned for some rows: tuples and dicts of `Row`.
        size: the rows per element; 0: each is one.

    Raises:
        NotRowWise: a part has no formula.
    """
    if type(result) is tuple:
        return tuple([columns_of(part, size) for part in result])
    if type(result) is dict:
        return {key: columns_of(part, size) for key, part in result.items()}
    if type(result) is not Row or result.formula is None:
        raise NotRowWise("no formula of each number")
    if size and result.shape[:1] != (size,):
        raise NotRowWise("rows that are no rows of the batch")
    formula = by_row(result.formula, size)
    if formula is None:
        raise NotRowWise("batches whose rows are computed differently")
    arrays = formula.inputs()
    if formula.count() > _MOST_OPS or any(len(array) != len(arrays[0]) for array in arrays):
        raise NotRowWise("a formula of too many operations")
    if not all(array.flags.c_contiguous for array in arrays):
        raise NotRowWise("rows that are no neighbors in memory")
    return MappedRows(formula, (len(arrays[0]), *result.shape[1 if size else 0 :]))
