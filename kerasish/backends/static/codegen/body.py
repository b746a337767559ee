"""One vector of columns of one row: its loads, its nodes, its stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kerasish.backends.static.codegen import memory, scalars
from kerasish.backends.static.codegen.description import LoopNode
from kerasish.backends.static.codegen.part import Share, word
from kerasish.backends.static.codegen.plan import Loop
from kerasish.backends.static.machine.assembly import STORED, Value, constant, lane_numbers


class RowPlace(NamedTuple):
    """A row: its index, the addresses of its operands, the addresses of its kept values."""

    r: Value
    address: Callable[[int], Value]
    kept: dict[int, Value]


class Body:
    """One vector of columns: its loads, its nodes, its stores."""

    def __init__(
        self,
        share: Share,
        row: RowPlace,
        loop: Loop,
        c: Value,
        end: Value,
        values: dict[int, Value],
        masked: bool,
    ) -> None:
        self.share, self.row, self.loop, self.c, self.masked = share, row, loop, c, masked
        self.w, self.plan, self.kernel, self.lanes = share.w, share.plan, share.kernel, share.lanes
        self.values = values
        self.rest = self.w.sub(end, c)
        self.full = self.w.compare("sge", self.rest, word(self.lanes))
        self.mask: Value | None = None
        self.added: dict[int, Value] = {}

    def value(self, number: int) -> Value:
        return self.w.splat(self.values[number], self.lanes)

    def run(self) -> None:
        """Loads and nodes."""
        self._load()
        for v in sorted(self.loop.restored):
            self.values[v] = self._restore(v)
        for v in sorted(self.loop.nodes):
            self.values[v] = self._node(v)
            if v in self.loop.spilled:
                self._keep(v)

    # --- loads ------------------------------------------------------------------------------------
    def _load(self) -> None:
        w = self.w
        operands = sorted(v for v in self.loop.loads if v not in self.values)
        inputs = len(self.kernel.inputs)
        added = [n for n in self.loop.stores if self.kernel.outputs[n].combine == "add"]
        items = [(v, self.kernel.inputs[v].dtype, self.kernel.inputs[v].strided) for v in operands]
        items += [
            (inputs + n, self.kernel.outputs[n].dtype, self.kernel.outputs[n].strided)
            for n in added
        ]
        if not items and not self.masked:
            return

        def all_lanes() -> list[Value]:
            loaded = [self._load_item(*item, count=word(self.lanes), mask=None) for item in items]
            ones = constant(-1, "int32", self.lanes)
            return loaded + ([ones] if self.masked else [])

        def some_lanes() -> list[Value]:
            mask = memory.tail_mask(w, self.rest, self.lanes)
            loaded = [self._load_item(*item, count=self.rest, mask=mask) for item in items]
            return loaded + ([w.convert("sext", mask, "int32")] if self.masked else [])

        loaded = w.branch(self.full, all_lanes, some_lanes)
        if self.masked:
            bits = loaded.pop()
            self.mask = w.compare("slt", bits, w.like(bits, 0))
        for (number, dtype, _), raw in zip(items, loaded, strict=True):
            value = memory.from_storage(w, raw, dtype)
            if number < inputs:
                self.values[number] = value
            else:
                self.added[number - inputs] = value

    def _load_item(
        self, number: int, dtype: str, strided: bool, count: Value, mask: Value | None
    ) -> Value:
        w = self.w
        size = STORED[dtype][1]
        if strided:
            stride = self.share.column_strides[number]
            at = w.address(self.row.address(number), w.mul(self.c, stride), size)
            if mask is None:
                return memory.load_apart(w, at, dtype, self.lanes, stride)
            return memory.load_lanes(w, at, dtype, self.lanes, count, stride)
        at = w.address(self.row.address(number), self.c, size)
        if mask is None:
            return memory.load_full(w, at, dtype, self.lanes)
        return memory.load_tail(w, at, dtype, self.lanes, count, mask)

    # --- nodes ------------------------------------------------------------------------------------
    def _node(self, v: int) -> Value:
        node = self.plan.node(v)
        if node.op == "column_index":
            return self.column_numbers(node.dtype)
        if node.op == "random_bits":
            return self._random_bits(node)
        if node.op == "add":
            for a, other in (node.args, node.args[::-1]):
                if a in self.loop.nodes and self.plan.is_rank_one(a):
                    x, y = map(self.value, self.plan.node(a).args)
                    return self.w.fma(x, y, self.value(other))
        return scalars.apply(self.w, node, [self.value(a) for a in node.args])

    def column_numbers(self, dtype: str) -> Value:
        w = self.w
        start = w.splat(scalars.cast(w, self.c, "int32"), self.lanes)
        numbers = w.add(start, lane_numbers("int32", self.lanes))
        return scalars.cast(w, numbers, dtype)

    def _random_bits(self, node: LoopNode) -> Value:
        """The word of element i: word i % 4 of Philox's block i // 4."""
        w = self.w
        element = w.add(w.mul(self.row.r, self.share.columns), self.c)
        count = self.lanes // 4 if node.attr("aligned") else self.lanes
        if node.attr("aligned"):
            first = w.splat(w.shift_right(element, 2), count)
            block = w.add(first, lane_numbers("int64", count))
        else:
            index = w.add(w.splat(element, count), lane_numbers("int64", count))
            block = w.shift_right(index, 2)
        low = w.convert("trunc", block, "uint32")
        high = w.convert("trunc", w.shift_right(block, 32), "uint32")
        keys = [w.splat(w.extract(self.value(a), 0), count) for a in node.args]
        results = scalars.philox(w, [low, high, keys[2], keys[3]], keys[:2])
        if node.attr("aligned"):
            return self._interleave(results)
        which = w.bits_and(w.convert("trunc", index, "uint32"), constant(3, "uint32", count))
        result = results[3]
        for k in (2, 1, 0):
            result = w.select(w.compare("eq", which, w.like(which, k)), results[k], result)
        return result

    def _interleave(self, four: list[Value]) -> Value:
        w, n = self.w, four[0].lanes
        pairs = [w.shuffle(four[k], four[k + 1], range(2 * n)) for k in (0, 2)]
        order = [(k % 4 % 2) * n + k // 4 + (2 * n if k % 4 >= 2 else 0) for k in range(4 * n)]
        return w.shuffle(pairs[0], pairs[1], order)

    def only_inside(self, x: Value, otherwise: Value) -> Value:
        """x in lanes that are columns, `otherwise` beyond the last."""
        assert self.mask is not None
        return self.w.select(self.mask, x, otherwise)

    # --- values kept between loops ----------------------------------------------------------------
    def _kept_at(self, v: int) -> tuple[Value, str]:
        dtype = self.kernel.dtype_of(v)
        return self.w.address(self.row.kept[v], self.c, memory.computed_size(dtype)), dtype

    def _keep(self, v: int) -> None:
        at, dtype = self._kept_at(v)
        stored = memory.to_storage(self.w, self.value(v), dtype)
        self.w.store_value(stored, at, memory.computed_size(dtype))

    def _restore(self, v: int) -> Value:
        at, dtype = self._kept_at(v)
        return memory.from_storage(self.w, memory.load_full(self.w, at, dtype, self.lanes), dtype)

    # --- stores -----------------------------------------------------------------------------------
    def store(self) -> None:
        """Write the loop's outputs."""
        if not self.loop.stores:
            return
        w = self.w
        ready = []
        for n in self.loop.stores:
            output = self.kernel.outputs[n]
            value = self.value(output.value)
            if n in self.added:
                value = w.add(self.added[n], value)
            ready.append((n, memory.to_storage(w, value, output.dtype)))

        def all_lanes() -> list[Value]:
            for n, value in ready:
                self._store_item(n, value, word(self.lanes), None)
            return []

        def some_lanes() -> list[Value]:
            mask = memory.tail_mask(w, self.rest, self.lanes)
            for n, value in ready:
                self._store_item(n, value, self.rest, mask)
            return []

        w.branch(self.full, all_lanes, some_lanes)

    def _store_item(self, n: int, value: Value, count: Value, mask: Value | None) -> None:
        w, output = self.w, self.kernel.outputs[n]
        number = len(self.kernel.inputs) + n
        size = STORED[output.dtype][1]
        if output.strided:
            stride = self.share.column_strides[number]
            at = w.address(self.row.address(number), w.mul(self.c, stride), size)
            if mask is None:
                memory.store_apart(w, value, at, output.dtype, stride)
            else:
                memory.store_lanes(w, value, at, output.dtype, count, stride)
            return
        at = w.address(self.row.address(number), self.c, size)
        if mask is None:
            memory.store_full(w, value, at, output.dtype)
        else:
            memory.store_tail(w, value, at, output.dtype, count, mask)
