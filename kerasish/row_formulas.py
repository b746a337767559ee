"""Element-wise formulas of rows of arrays, which an engine may compute while it gathers the rows.

A `RowFormula` is a tree of operations on numbers at the same place: each is exact or correctly
rounded, so that every engine computes the same bits. NumPy's warnings are not part of it: where a
result is not finite, NumPy may have one, and the function that the formula was read from must be
called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from kerasish.typing import Array

OPS = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.true_divide,
    "negative": np.negative, "absolute": np.absolute, "sqrt": np.sqrt, "square": np.square,
}  # fmt: skip
"""Name of an operation -> NumPy's function. There are also "input", "value" and "cast"."""


class RowFormula:
    """One operation of a formula. Equal parts of a formula are the same object.

    Args:
        op: "input" (a number of a row), "value" (one that does not depend on the row), "cast", or a
            name in `OPS`, whose arguments have the dtype of the result.
        dtype: of the result.
        args: the operands.
        content: the array, or `MappedRows`, of an input; the array of a value, without axes where
            all places have the same one.
    """

    __slots__ = ("args", "content", "dtype", "op")

    def __init__(
        self, op: str, dtype: Any, args: tuple[RowFormula, ...] = (), content: Any = None
    ) -> None:
        self.op, self.dtype, self.args, self.content = op, np.dtype(dtype), args, content

    def cast(self, dtype: Any) -> RowFormula:
        """Return the formula of the same numbers in a dtype."""
        return self if self.dtype == dtype else RowFormula("cast", dtype, (self,))

    def fold(
        self, leaf: Callable[[RowFormula], Any], node: Callable[[RowFormula, list[Any]], Any]
    ) -> Any:
        """Return the result of `node(formula, results of its operands)`, `leaf(formula)` first.

        Args:
            leaf: called once for each input and value.
            node: called once for each other operation.
        """
        results: dict[int, Any] = {}

        def visit(formula: RowFormula) -> Any:
            key = id(formula)
            if key not in results:
                parts = [visit(part) for part in formula.args]
                results[key] = node(formula, parts) if parts else leaf(formula)
            return results[key]

        return visit(self)

    def inputs(self) -> list[Any]:
        """Return the arrays or `MappedRows` of all inputs."""
        arrays: list[Any] = []

        def leaf(part: RowFormula) -> None:
            if part.op == "input":
                arrays.append(part.content)

        self.fold(leaf, lambda part, parts: None)
        return arrays

    def key(self) -> tuple[Any, ...]:
        """Return what is equal for formulas of the same arrays and values."""
        lines: list[tuple[Any, ...]] = []

        def note(*line: Any) -> int:
            lines.append(line)
            return len(lines)

        def leaf(part: RowFormula) -> int:
            content = part.content
            is_value = part.op == "value"
            return note(part.op, part.dtype.str, content.tobytes() if is_value else id(content))

        self.fold(leaf, lambda part, parts: note(part.op, part.dtype.str, *parts))
        return tuple(lines)

    def count(self) -> int:
        """Return the number of different operations."""
        ops: list[str] = []
        self.fold(lambda part: None, lambda part, parts: ops.append(part.op))
        return len(ops)


class MappedRows:
    """Rows that are an element-wise formula of the rows of arrays in memory.

    Args:
        formula: of numbers in the order of memory. Its inputs are arrays, its values have no axes,
            or one: a number for each place of a row.
        shape: the number of rows, and the shape of each.
    """

    def __init__(self, formula: RowFormula, shape: tuple[int, ...]) -> None:
        self.formula, self.shape, self.dtype = formula, shape, formula.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def like(self, count: int) -> Array:
        """Return an array with the shape and dtype of some rows; its numbers are all 0."""
        return np.broadcast_to(np.zeros((), self.dtype), (count, *self.shape[1:]))

    def take(self, indices: Array) -> Array:
        """Return the rows at `indices`, as NumPy computes them."""

        def leaf(formula: RowFormula) -> Array:
            content = formula.content
            if formula.op == "value":
                return content
            return content.take(indices, axis=0).reshape(len(indices), -1)

        def node(formula: RowFormula, parts: list[Array]) -> Array:
            if formula.op == "cast":
                return parts[0].astype(formula.dtype)
            return OPS[formula.op](*parts)

        with np.errstate(all="ignore"):
            rows = self.formula.fold(leaf, node)
        return rows.reshape(len(indices), *self.shape[1:])

    def astype(self, dtype: Any) -> MappedRows:
        """Return the same rows in another dtype."""
        return MappedRows(self.formula.cast(dtype), self.shape)


def is_any_mapped(arrays: Iterable[Any]) -> bool:
    """Return whether `MappedRows` are among arrays: a run of these may end before a batch."""
    return any(isinstance(a, MappedRows) for a in arrays)


def first_rows(array: Any, count: int) -> Array:
    """Return the first rows of an array; of `MappedRows` only an array of their kind."""
    return array.like(count) if isinstance(array, MappedRows) else array[:count]


def by_row(formula: RowFormula, size: int) -> RowFormula | None:
    """Return the formula of a row for that of an element.

    Args:
        formula: its inputs may be `MappedRows`; its values have no axes, or those of the element.
        size: the number of rows that an element is: those of its first axis; 0: it is one row.

    Returns:
        The formula as `MappedRows` takes it; None if its values differ between rows.
    """

    def leaf(part: RowFormula) -> RowFormula | None:
        content = part.content
        if part.op == "input":
            return content.formula if isinstance(content, MappedRows) else part
        if not content.ndim:
            return part
        rows = content.reshape(size or 1, -1)
        if len(rows) > 1 and any(row.tobytes() != rows[0].tobytes() for row in rows[1:]):
            return None
        return RowFormula("value", part.dtype, content=np.array(rows[0]))

    def node(part: RowFormula, parts: list[RowFormula | None]) -> RowFormula | None:
        args = tuple([one for one in parts if one is not None])
        return RowFormula(part.op, part.dtype, args) if len(args) == len(parts) else None

    result: RowFormula | None = formula.fold(leaf, node)
    return result
