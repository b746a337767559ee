"""Sparse updates of a table in native code: distinct rows, sums of their gradients, new rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish.backends.onednn import native
from kerasish.backends.static.codegen import arguments
from kerasish.backends.static.codegen.cost import choose_threads
from kerasish.backends.static.codegen.description import Kernel, KernelBuilder
from kerasish.backends.static.codegen.driver import Record, load_runtime
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.lowering.unique_rows import (
    CLEAR_COUNT,
    CLEAR_MARKS,
    unique_rows,
    unique_rows_block,
)
from kerasish.backends.static.lowering.units import (
    Locate,
    Place,
    Unit,
    copy_record,
    filled_array,
    zero_records,
)
from kerasish.graph.ir import Node, Value
from kerasish.graph.passes.sparse_update import SparseUpdate
from kerasish.typing import Array


def _round(nbytes: int) -> int:
    return -(-nbytes // 64) * 64


class RowsUnit(Unit):
    """A `sparse_update` node: distinct rows, the sums of their gradients, their update.

    If all other rows change, too, one loop updates all rows in place. It gathers the sum of a row's
    gradients by the row's mark; the mark of a row without a gradient refers to a row of zeros.
    """

    checks_first = True

    def __init__(self, node: Node) -> None:
        self.rows: SparseUpdate = node.attrs["rows"]
        count = self.rows.arity
        self.sources, others = node.inputs[:count], node.inputs[count:]
        indices = self.sources[1]
        super().__init__("update of rows", node.inputs, node.outputs)
        self.tables, self.numbers = others[: self.rows.tables], others[self.rows.tables :]
        self.count, self.columns = indices.size, others[0].shape[-1]
        self.limit = self.tables[0].shape[0]
        self._shared: dict[Value, Value] = {}
        self.find = unique_rows(indices.dtype, clears=not self.rows.everywhere)
        self.add = self._adding()
        self.change = self._changing()
        # One row for each row that may have a gradient, and one of zeros.
        self.scratch = 2 * _round(4 * self.count) + _round(4 * (self.count + 1) * self.columns)
        most = native.get_threads()
        self._add_threads = choose_threads(self.add, self.count, self.columns, most)
        self.threads = self._add_threads
        if self.rows.everywhere:
            self._all_threads = choose_threads(self.change, self.limit, self.columns, most)
            self.threads = max(self.threads, self._all_threads)

    def _adding(self) -> Kernel:
        k = KernelBuilder()
        slot = k.input("int32", level="row")
        if len(self.sources) == 2:
            rows = k.op("stop_gradient", k.input("float32"))
        else:
            index = k.input(self.sources[0].dtype, level="row")
            factor = k.input("float32", level="row")
            rows = factor * k.input("float32", gather=index)
        k.output(rows, "float32", scatter=slot, combine="add")
        return k.build()

    def _changing(self) -> Kernel:
        """Return the loop over the rows that have a gradient, or over all rows."""
        k = KernelBuilder()
        row = k.input("int32", level="row")
        body, everywhere = self.rows.body, self.rows.everywhere
        gather = None if everywhere else row
        results: dict[Value, Any] = {}
        results[body.inputs[0]] = k.input("float32", gather=row if everywhere else None)
        for v in body.inputs[1 : 1 + self.rows.tables]:
            results[v] = k.input("float32", gather=gather)
        for v in body.inputs[1 + self.rows.tables :]:
            results[v] = k.input(v.dtype, level="scalar")
        for node in body.nodes:
            args = [results[v] for v in node.inputs]
            name = node.op.name
            results[node.out] = args[0] if name in ("alias", "cast") else k.op(name, *args)
        for place, v in zip(self.rows.changed, body.outputs):
            old = results[body.inputs[1 + place]]
            k.output(results[v], "float32", in_place=old, scatter=gather)
        return k.build()

    def may_share(self, written: Value, read: Value) -> bool:
        """Return whether `read` is the table that `written` is a new version of."""
        return self._table_of(written) is read

    def share(self, written: Value, read: Value) -> None:
        """Update the table in place."""
        self._shared[written] = read

    def in_place_of(self, written: Value) -> Value | None:
        """Return the table that is updated in place."""
        return self._shared.get(written)

    def _table_of(self, written: Value) -> Value:
        return self.tables[self.rows.changed[self.writes.index(written)]]

    def indices(self) -> Sequence[tuple[Value, int]]:
        """Return the rows that change, and those of the table of a sparse product."""
        pairs = [(self.sources[1], self.limit)]
        if len(self.sources) > 2:
            pairs.append((self.sources[0], self.sources[3].shape[0]))
        return pairs

    def kernels(self) -> list[Any]:
        """Return the kernels of all records."""
        more = [CLEAR_MARKS] if self.rows.everywhere else []
        return [self.find, self.add, self.change, *more]

    def records(self, locate: Locate) -> list[Record]:
        """Return copies of tables not updated in place, then the records of the update."""
        at = locate(("scratch", self)).address
        unique, slots = at, at + _round(4 * self.count)
        zeros = self.columns if self.rows.everywhere else 0
        sums = Place(slots + _round(4 * self.count), 4 * (self.count * self.columns + zeros))
        results = []
        for new in self.writes:
            if new not in self._shared:
                results.append(
                    copy_record(locate(self._table_of(new)), locate(new), "copy of a table")
                )
        marks = filled_array((self.limit,), "int32", -1)
        by_row = marks.ctypes.data if self.rows.everywhere else unique
        change = self._change_block(locate, by_row, sums.address)
        clear = np.array([marks.ctypes.data, unique, 0], np.int64)
        counted = (clear, CLEAR_COUNT) if self.rows.everywhere else (change, arguments.ROWS)
        block, table = unique_rows_block(
            indices=locate(self.reads[1]).address, count=self.count, limit=self.limit,
            marks=marks.ctypes.data, unique=unique, slots=slots, counts=[counted],
        )  # fmt: skip
        operands = [
            arguments.Operand(slots, (1,)),
            *self._source_operands(locate),
            arguments.Operand(sums.address, (self.columns,), limit=self.count),
        ]
        adding = arguments.pack(
            self.add, operands, table=load_runtime().table, columns=self.columns, rows=self.count,
            threads=self._add_threads,
        )  # fmt: skip
        name = "update of all rows" if self.rows.everywhere else self.name
        results += [
            Record(compile_one(self.find), block, f"distinct rows of {self.limit}", (table, marks)),
            *zero_records(sums),
            Record(compile_one(self.add), adding, "sums of rows"),
            Record(compile_one(self.change), change, name),
        ]
        if self.rows.everywhere:
            results.append(Record(compile_one(CLEAR_MARKS), clear, "marks of rows"))
        return results

    def _table_addresses(self, locate: Locate) -> list[int]:
        """Return the place where each table is read: that of its new version, if it has one."""
        where = {
            self.rows.changed[i]: locate(new).address for i, new in enumerate(self.writes)
        }  # fmt: skip
        return [where.get(i, locate(table).address) for i, table in enumerate(self.tables)]

    def _source_operands(self, locate: Locate) -> list[arguments.Operand]:
        """Return the operands for the rows that are added."""
        if len(self.sources) == 2:
            return [arguments.Operand(locate(self.sources[0]).address, (self.columns,))]
        index, _, factors, table = self.sources
        return [
            arguments.Operand(locate(index).address, (1,)),
            arguments.Operand(locate(factors).address, (1,)),
            arguments.Operand(locate(table).address, (self.columns,), limit=table.shape[0]),
        ]

    def _change_block(self, locate: Locate, by_row: int, sums: int) -> Array:
        """Return the arguments of the loop that updates rows.

        Args:
            by_row: the place of the row to update for each sum; everywhere: of the sum of each row.
            sums: the place of the sums of gradients.
        """
        columns, limit, everywhere = (self.columns,), self.limit, self.rows.everywhere
        tables = [
            arguments.Operand(address, columns, limit=0 if everywhere else limit)
            for address in self._table_addresses(locate)
        ]
        operands = [arguments.Operand(by_row, (1,))]
        operands.append(arguments.Operand(sums, columns, limit=self.count + 1 if everywhere else 0))
        operands += tables
        operands += [arguments.Operand(locate(v).address, (0,)) for v in self.numbers]
        operands += [tables[place] for place in self.rows.changed]
        return arguments.pack(
            self.change, operands, table=load_runtime().table, columns=self.columns,
            rows=limit if everywhere else 0, threads=self._all_threads if everywhere else 1,
        )  # fmt: skip


def make_rows(node: Node) -> Unit | None:
    """Return the unit of a `sparse_update` node; None for any other."""
    return RowsUnit(node) if node.op.name == "sparse_update" else None
