"""Sparse updates of a table in native code: distinct rows, sums of their gradients, new rows."""

from __future__ import annotations

from typing import Any

from kerasish.backends.static.codegen import arguments
from kerasish.backends.static.codegen.description import Kernel, KernelBuilder
from kerasish.backends.static.codegen.driver import Record, load_runtime
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.lowering.unique_rows import unique_rows, unique_rows_block
from kerasish.backends.static.lowering.units import Locate, Place, Unit, copy_record, filled_array
from kerasish.graph.ir import Node, Value
from kerasish.graph.passes.sparse_update import SparseUpdate
from kerasish.typing import Array


def _round(nbytes: int) -> int:
    return -(-nbytes // 64) * 64


class RowsUnit(Unit):
    """A `sparse_update` node: distinct rows, the sums of their gradients, their update."""

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
        self.scratch = 2 * _round(4 * self.count) + _round(4 * self.count * self.columns)

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
        k = KernelBuilder()
        row = k.input("int32", level="row")
        body = self.rows.body
        results: dict[Value, Any] = {body.inputs[0]: k.input("float32")}
        for v in body.inputs[1 : 1 + self.rows.tables]:
            results[v] = k.input("float32", gather=row)
        for v in body.inputs[1 + self.rows.tables :]:
            results[v] = k.input(v.dtype, level="scalar")
        for node in body.nodes:
            args = [results[v] for v in node.inputs]
            name = node.op.name
            results[node.out] = args[0] if name in ("alias", "cast") else k.op(name, *args)
        for place, v in zip(self.rows.changed, body.outputs):
            k.output(results[v], "float32", in_place=results[body.inputs[1 + place]], scatter=row)
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
        """Return the three kernels."""
        return [self.find, self.add, self.change]

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
        result, keep = self._find_block(locate, unique, slots, change)
        zeros = filled_array((sums.nbytes,), "uint8", 0)
        clear = copy_record(Place(zeros.ctypes.data, sums.nbytes), sums, "zeros")
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
            Record(clear.function, clear.block, clear.name, zeros),
            Record(compile_one(self.add), adding, "sums of rows"),
            Record(compile_one(self.change), change, self.name),
        ]

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
        where = {
            self.rows.changed[i]: locate(new).address for i, new in enumerate(self.writes)
        }  # a table is read where its new version lies
        for i, table in enumerate(self.tables):
            address = where.get(i, locate(table).address)
            operands.append(arguments.Operand(address, (columns,), limit=limit))
        operands += [arguments.Operand(locate(v).address, (0,)) for v in self.numbers]
        for place in self.rows.changed:
            operands.append(arguments.Operand(where[place], (columns,), limit=limit))
        return arguments.pack(
            self.change, operands, table=load_runtime().table, rows=0, columns=columns, threads=1
        )

    def _find_block(
        self, locate: Locate, unique: int, slots: int, change: Array
    ) -> tuple[Any, ...]:
        marks = filled_array((self.limit,), "int32", -1)
        block, table = unique_rows_block(
            indices=locate(self.reads[1]).address, count=self.count, limit=self.limit,
            marks=marks.ctypes.data, unique=unique, slots=slots,
            counts=[(change, arguments.ROWS)],
        )  # fmt: skip
        return block, (table, marks)


def make_rows(node: Node) -> Unit | None:
    """Return the unit of a `sparse_update` node; None for any other."""
    return RowsUnit(node) if node.op.name == "sparse_update" else None
