"""Sparse updates of a table in native code: distinct rows, sums of their gradients, new rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish.backends.onednn import native
from kerasish.backends.static.codegen import arguments
from kerasish.backends.static.codegen.cost import choose_threads
from kerasish.backends.static.codegen.description import Kernel, KernelBuilder, Symbol
from kerasish.backends.static.codegen.driver import Record, load_runtime
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.lowering.unique_rows import unique_rows, unique_rows_block
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

    If all other rows change, too, the new values of the few rows are computed first, into scratch
    memory. Then one loop updates the tables in place as if all gradients were 0: it knows no rows,
    so tables of few columns take full vectors. At last the few rows are written.
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
        self.find = unique_rows(indices.dtype)
        self.add = self._adding()
        self.change = self._changing()
        self._few = _round(4 * self.count * self.columns)  # bytes of the rows with a gradient
        self.scratch = 2 * _round(4 * self.count) + self._few
        most = native.get_threads()
        self._add_threads = choose_threads(self.add, self.count, self.columns, most)
        self.threads = self._add_threads
        if self.rows.everywhere:
            self.change_all, self.write_rows = self._changing_all(), self._writing()
            self.scratch += len(self.writes) * self._few
            self._change_threads = choose_threads(self.change, self.count, self.columns, most)
            self._all_threads = choose_threads(self.change_all, self.limit, self.columns, most)
            self.threads = max(self.threads, self._change_threads, self._all_threads)

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
        """Return the loop over the rows that have a gradient."""
        k = KernelBuilder()
        row = k.input("int32", level="row")
        sums = k.input("float32")
        tables = [k.input("float32", gather=row) for _ in self.tables]
        for new, place in zip(self._new_rows(k, sums, tables), self.rows.changed, strict=True):
            if self.rows.everywhere:
                k.output(new, "float32")
            else:
                k.output(new, "float32", in_place=tables[place], scatter=row)
        return k.build()

    def _changing_all(self) -> Kernel:
        """Return the loop over all elements, as for gradients of 0."""
        k = KernelBuilder()
        tables = [k.input("float32") for _ in self.tables]
        for new, place in zip(self._new_rows(k, None, tables), self.rows.changed, strict=True):
            k.output(new, "float32", in_place=tables[place])
        return k.build()

    def _writing(self) -> Kernel:
        """Return the loop that writes the new rows with a gradient."""
        k = KernelBuilder()
        row = k.input("int32", level="row")
        for new in [k.input("float32") for _ in self.writes]:
            k.output(k.op("stop_gradient", new), "float32", scatter=row)
        return k.build()

    def _new_rows(
        self, k: KernelBuilder, sums: Symbol | None, tables: Sequence[Symbol]
    ) -> list[Symbol]:
        """Add the ops of the update; return the new rows.

        Args:
            sums: the sums of gradients; None: 0.
        """
        first, *others = self.rows.body.inputs
        numbers = others[self.rows.tables :]
        results: dict[Value, Symbol] = dict(zip(others, tables))
        results |= {v: k.input(v.dtype, level="scalar") for v in numbers}
        results[first] = k.constant(0.0, "float32") if sums is None else sums
        for node in self.rows.body.nodes:
            args = [results[v] for v in node.inputs]
            name = node.op.name
            results[node.out] = args[0] if name in ("alias", "cast") else k.op(name, *args)
        return [results[v] for v in self.rows.body.outputs]

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
        more = [self.change_all, self.write_rows] if self.rows.everywhere else []
        return [self.find, self.add, self.change, *more]

    def records(self, locate: Locate) -> list[Record]:
        """Return copies of tables not updated in place, then the records of the update."""
        at = locate(("scratch", self)).address
        unique, slots = at, at + _round(4 * self.count)
        sums = Place(slots + _round(4 * self.count), 4 * self.count * self.columns)
        results = []
        for new in self.writes:
            if new not in self._shared:
                results.append(
                    copy_record(locate(self._table_of(new)), locate(new), "copy of a table")
                )
        marks = filled_array((self.limit,), "int32", -1)
        new_rows = [sums.address + (1 + i) * self._few for i in range(len(self.writes))]
        change = self._change_block(locate, unique, sums.address, new_rows)
        counted = [(change, arguments.ROWS)]
        last = [Record(compile_one(self.change), change, self.name)]
        if self.rows.everywhere:
            write = self._write_block(locate, unique, new_rows)
            counted.append((write, arguments.ROWS))
            last += [
                Record(compile_one(self.change_all), self._all_block(locate), "update of all rows"),
                Record(compile_one(self.write_rows), write, self.name),
            ]
        block, table = unique_rows_block(
            indices=locate(self.reads[1]).address, count=self.count, limit=self.limit,
            marks=marks.ctypes.data, unique=unique, slots=slots, counts=counted,
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
        return [
            *results,
            Record(compile_one(self.find), block, f"distinct rows of {self.limit}", (table, marks)),
            *zero_records(sums),
            Record(compile_one(self.add), adding, "sums of rows"),
            *last,
        ]

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

    def _change_block(
        self, locate: Locate, unique: int, sums: int, new_rows: Sequence[int]
    ) -> Array:
        """Return the arguments of the loop over the rows that have a gradient.

        Args:
            unique: the place of their numbers.
            sums: the place of the sums of gradients.
            new_rows: the places of the new rows, if all rows change.
        """
        operands = [arguments.Operand(unique, (1,)), arguments.Operand(sums, (self.columns,))]
        tables = [
            arguments.Operand(address, (self.columns,), limit=self.limit)
            for address in self._table_addresses(locate)
        ]
        operands += [*tables, *self._number_operands(locate)]
        if self.rows.everywhere:
            operands += [arguments.Operand(at, (self.columns,)) for at in new_rows]
        else:
            operands += [tables[place] for place in self.rows.changed]
        return arguments.pack(
            self.change, operands, table=load_runtime().table, columns=self.columns, rows=0,
            threads=self._change_threads if self.rows.everywhere else 1,
        )  # fmt: skip

    def _all_block(self, locate: Locate) -> Array:
        """Return the arguments of the loop over all elements of the tables."""
        size = self.limit * self.columns
        tables = [arguments.Operand(at, (size,)) for at in self._table_addresses(locate)]
        changed = [tables[place] for place in self.rows.changed]
        return arguments.pack(
            self.change_all, [*tables, *self._number_operands(locate), *changed],
            table=load_runtime().table, columns=size, threads=self._all_threads,
        )  # fmt: skip

    def _write_block(self, locate: Locate, unique: int, new_rows: Sequence[int]) -> Array:
        """Return the arguments of the loop that writes the new rows."""
        operands = [arguments.Operand(unique, (1,))]
        operands += [arguments.Operand(at, (self.columns,)) for at in new_rows]
        operands += [
            arguments.Operand(locate(new).address, (self.columns,), limit=self.limit)
            for new in self.writes
        ]
        return arguments.pack(
            self.write_rows, operands, table=load_runtime().table, columns=self.columns, rows=0
        )

    def _number_operands(self, locate: Locate) -> list[arguments.Operand]:
        return [arguments.Operand(locate(v).address, (0,)) for v in self.numbers]


def make_rows(node: Node) -> Unit | None:
    """Return the unit of a `sparse_update` node; None for any other."""
    return RowsUnit(node) if node.op.name == "sparse_update" else None
