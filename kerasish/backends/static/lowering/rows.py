"""Sparse updates of a table in native code: distinct rows, sums of their gradients, new rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish.backends.onednn import native
from kerasish.backends.static.codegen import arguments
from kerasish.backends.static.codegen.cost import choose_threads
from kerasish.backends.static.codegen.description import Kernel, KernelBuilder
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

    Where all other rows change, too, the new rows are computed first and kept apart; then a loop
    updates all rows in place, and the new rows are written over its results.
    """

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
        self.scratch = 2 * _round(4 * self.count) + self._new_bytes
        if self.rows.everywhere:
            self.others, self.write = self._others(), self._writing()
            most = native.get_threads()
            self.threads = choose_threads(self.others, self.limit, self.columns, most)
            self.scratch += self._new_bytes * len(self.writes)

    @property
    def _new_bytes(self) -> int:
        """The bytes of as many rows as may have a gradient."""
        return _round(4 * self.count * self.columns)

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
        body = self.rows.body
        results: dict[Value, Any] = {body.inputs[0]: k.input("float32")}
        self._follow_body(k, results, row)
        for place, v in zip(self.rows.changed, body.outputs):
            if self.rows.everywhere:
                k.output(results[v], "float32")
            else:
                old = results[body.inputs[1 + place]]
                k.output(results[v], "float32", in_place=old, scatter=row)
        return k.build()

    def _follow_body(self, k: KernelBuilder, results: dict[Value, Any], row: Any = None) -> None:
        """Add the inputs but the gradient, and the nodes, of the body to a loop."""
        body = self.rows.body
        for v in body.inputs[1 : 1 + self.rows.tables]:
            results[v] = k.input("float32", gather=row)
        for v in body.inputs[1 + self.rows.tables :]:
            results[v] = k.input(v.dtype, level="scalar")
        if body.inputs[0] not in results:
            results[body.inputs[0]] = k.constant(0.0, "float32")
        for node in body.nodes:
            args = [results[v] for v in node.inputs]
            name = node.op.name
            results[node.out] = args[0] if name in ("alias", "cast") else k.op(name, *args)

    def _others(self) -> Kernel:
        """Return the loop over all rows, as for a gradient of 0."""
        k = KernelBuilder()
        results: dict[Value, Any] = {}
        self._follow_body(k, results)
        body = self.rows.body
        for place, v in zip(self.rows.changed, body.outputs):
            k.output(results[v], "float32", in_place=results[body.inputs[1 + place]])
        return k.build()

    def _writing(self) -> Kernel:
        """Return the loop that writes the rows that have a gradient into the tables."""
        k = KernelBuilder()
        row = k.input("int32", level="row")
        rows = [k.input("float32") for _ in self.writes]
        for new in rows:
            k.output(k.op("stop_gradient", new), "float32", scatter=row)
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

    def kernels(self) -> list[Any]:
        """Return the three kernels, and the two for all other rows."""
        more = [self.others, self.write] if self.rows.everywhere else []
        return [self.find, self.add, self.change, *more]

    def records(self, locate: Locate) -> list[Record]:
        """Return copies of tables not updated in place, then the three records of the update."""
        at = locate(("scratch", self)).address
        unique, slots = at, at + _round(4 * self.count)
        sums = Place(slots + _round(4 * self.count), 4 * self.count * self.columns)
        results = []
        for new in self.writes:
            if new not in self._shared:
                results.append(
                    copy_record(locate(self._table_of(new)), locate(new), "copy of a table")
                )
        change = self._change_block(locate, unique, sums.address)
        write = self._write_block(locate, unique, sums.address)
        counted = [change] if write is None else [change, write]
        result, keep = self._find_block(locate, unique, slots, counted)
        operands = [
            arguments.Operand(slots, (1,)),
            *self._source_operands(locate),
            arguments.Operand(sums.address, (self.columns,), limit=self.count),
        ]
        adding = arguments.pack(
            self.add, operands, table=load_runtime().table, columns=self.columns, rows=self.count,
            threads=1,
        )  # fmt: skip
        return [
            *results,
            Record(compile_one(self.find), result, f"distinct rows of {self.limit}", keep),
            *zero_records(sums),
            Record(compile_one(self.add), adding, "sums of rows"),
            Record(compile_one(self.change), change, self.name),
            *self._other_rows(locate, write),
        ]

    def _other_rows(self, locate: Locate, write: Array | None) -> list[Record]:
        """Return the records that update all rows, and then write those that have a gradient."""
        if write is None:
            return []
        operands = [(address, (self.columns,)) for address in self._table_addresses(locate)]
        given = [arguments.Operand(*operand) for operand in operands]
        given += [arguments.Operand(locate(v).address, (0,)) for v in self.numbers]
        given += [arguments.Operand(*operands[place]) for place in self.rows.changed]
        block = arguments.pack(
            self.others, given, table=load_runtime().table, columns=self.columns,
            rows=self.limit, threads=self.threads,
        )  # fmt: skip
        return [
            Record(compile_one(self.others), block, "update of all rows"),
            Record(compile_one(self.write), write, "rows with a gradient"),
        ]

    def _write_block(self, locate: Locate, unique: int, sums: int) -> Array | None:
        """Return the arguments of the loop that writes rows; None where all others stay."""
        if not self.rows.everywhere:
            return None
        operands = [arguments.Operand(unique, (1,))]
        addresses = self._table_addresses(locate)
        columns = (self.columns,)
        operands += [arguments.Operand(at, columns) for at in self._new_rows(sums)]
        for place in self.rows.changed:
            operands.append(arguments.Operand(addresses[place], columns, limit=self.limit))
        return arguments.pack(
            self.write, operands, table=load_runtime().table, rows=0, columns=self.columns,
            threads=1,
        )  # fmt: skip

    def _new_rows(self, sums: int) -> list[int]:
        """Return where the new rows lie before they are written, for each result."""
        return [sums + self._new_bytes * (number + 1) for number in range(len(self.writes))]

    def _table_addresses(self, locate: Locate) -> list[int]:
        """Return where each table is read: one that has a new version, where that lies."""
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

    def _change_block(self, locate: Locate, unique: int, sums: int) -> Array:
        columns, limit = self.columns, self.limit
        operands = [arguments.Operand(unique, (1,)), arguments.Operand(sums, (columns,))]
        addresses = self._table_addresses(locate)
        for address in addresses:
            operands.append(arguments.Operand(address, (columns,), limit=limit))
        operands += [arguments.Operand(locate(v).address, (0,)) for v in self.numbers]
        if self.rows.everywhere:
            operands += [arguments.Operand(at, (columns,)) for at in self._new_rows(sums)]
        else:
            for place in self.rows.changed:
                operands.append(arguments.Operand(addresses[place], (columns,), limit=limit))
        return arguments.pack(
            self.change, operands, table=load_runtime().table, rows=0, columns=columns, threads=1
        )

    def _find_block(
        self, locate: Locate, unique: int, slots: int, counted: Sequence[Array]
    ) -> tuple[Any, ...]:
        marks = filled_array((self.limit,), "int32", -1)
        block, table = unique_rows_block(
            indices=locate(self.reads[1]).address, count=self.count, limit=self.limit,
            marks=marks.ctypes.data, unique=unique, slots=slots,
            counts=[(block, arguments.ROWS) for block in counted],
        )  # fmt: skip
        return block, (table, marks)


def make_rows(node: Node) -> Unit | None:
    """Return the unit of a `sparse_update` node; None for any other."""
    return RowsUnit(node) if node.op.name == "sparse_update" else None
