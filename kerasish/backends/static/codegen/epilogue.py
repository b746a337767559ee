"""The ops that a product's loop applies to each vector of its results before it is stored."""

from __future__ import annotations

from kerasish.backends.static.codegen import memory, scalars
from kerasish.backends.static.codegen.description import (
    Kernel,
    LoopNode,
    Output,
    constant_value,
)
from kerasish.backends.static.codegen.plan import plan_loops
from kerasish.backends.static.machine.assembly import STORED, Value, Writer, constant


def is_epilogue(kernel: Kernel) -> bool:
    """Return whether a kernel can follow a product: it has no reductions and stores elements."""
    plan = plan_loops(kernel)
    return len(plan.loops) == 1 and not plan.row_reductions and plan.columns_free


class EpilogueWriter:
    """Writes an epilogue: a kernel whose input 0 is the product.

    Its other inputs are element, row, column or scalar operands, and its outputs are elements. The
    argument block has an address and a row stride for each input after the first, then for each
    output.

    Args:
        w: the writer of the code.
        kernel: the epilogue.
        args: the argument block.
        first: the first word of the operands.
        lanes: of a vector.

    Raises:
        ValueError: the kernel has reductions, or stores values other than elements.
    """

    def __init__(self, w: Writer, kernel: Kernel, args: Value, first: int, lanes: int) -> None:
        self.w, self.kernel, self.lanes = w, kernel, lanes
        self.plan = plan_loops(kernel)
        if not is_epilogue(kernel):
            raise ValueError("a product's epilogue has no reductions and stores elements")
        count = len(kernel.inputs) - 1 + len(kernel.outputs)
        self.bases = [w.load_word(args, first + 2 * i, "ptr") for i in range(count)]
        self.strides = [w.load_word(args, first + 1 + 2 * i) for i in range(count)]

    def columns(self, c: Value, rest: Value | None, mask: Value | None) -> dict[int, Value]:
        """Return the operands that do not depend on the row, loaded once for several rows."""
        values = {}
        for v in range(1, len(self.kernel.inputs)):
            level = self.kernel.inputs[v].level
            if level in ("column", "scalar"):
                values[v] = self._operand(v, constant(0, "int64"), c, rest, mask)
        return values

    def store(
        self, r: Value, c: Value, product: Value, rest: Value | None, mask: Value | None,
        known: dict[int, Value] | None = None,
    ) -> None:  # fmt: skip
        """Compute and store the results of row r from column c.

        Args:
            r, c: the position of the vector.
            product: the vector.
            rest, mask: the number of valid lanes, if not all are valid.
            known: operands that are already loaded (see `columns`).
        """
        w, kernel = self.w, self.kernel
        values = {0: product, **(known or {})}
        for v in range(1, len(kernel.inputs)):
            if v not in values:
                values[v] = self._operand(v, r, c, rest, mask)
        for v in range(len(kernel.inputs), self.plan.count):
            node = self.plan.node(v)
            if node.op == "constant":
                dtype = kernel.dtype_of(v)
                values[v] = constant(constant_value(node), dtype, self.lanes)
            else:
                values[v] = scalars.apply(w, node, [values[a] for a in node.args])
        for n, output in enumerate(kernel.outputs):
            place = len(kernel.inputs) - 1 + n
            at = w.add(w.mul(r, self.strides[place]), c)
            at = w.address(self.bases[place], at, STORED[output.dtype][1])
            result = values[output.value]
            if output.combine == "add":
                result = w.add(self.load(at, output.dtype, rest, mask), result)
            stored = memory.to_storage(w, result, output.dtype)
            if rest is None or mask is None:
                memory.store_full(w, stored, at, output.dtype)
            else:
                memory.store_tail(w, stored, at, output.dtype, rest, mask)

    def load(self, at: Value, dtype: str, rest: Value | None, mask: Value | None) -> Value:
        """Return a vector from memory, with zeros in invalid lanes."""
        if rest is None or mask is None:
            raw = memory.load_full(self.w, at, dtype, self.lanes)
        else:
            raw = memory.load_tail(self.w, at, dtype, self.lanes, rest, mask)
        return memory.from_storage(self.w, raw, dtype)

    def _operand(self, v: int, r: Value, c: Value, rest: Value | None, mask: Value | None) -> Value:
        w, operand = self.w, self.kernel.inputs[v]
        size = STORED[operand.dtype][1]
        offset = w.mul(r, self.strides[v - 1])
        if operand.level in ("row", "scalar"):
            one = memory.load_one(w, w.address(self.bases[v - 1], offset, size), operand.dtype)
            return w.splat(one, self.lanes)
        at = w.address(self.bases[v - 1], w.add(offset, c), size)
        return self.load(at, operand.dtype, rest, mask)


def followed_by(first: Kernel, second: Kernel, place: int) -> Kernel:
    """Return an epilogue that continues with another kernel.

    Args:
        first: an epilogue with one output.
        second: a kernel over the same elements.
        place: the input of `second` that is the output of `first`.
    """
    others = [i for i in range(len(second.inputs)) if i != place]
    inputs = (*first.inputs, *(second.inputs[i] for i in others))
    shift = len(others)
    count = len(first.inputs)

    def own(v: int) -> int:
        return v if v < count else v + shift

    nodes = [LoopNode(n.op, tuple(map(own, n.args)), n.dtype, n.attrs) for n in first.nodes]
    ids = {place: own(first.outputs[0].value)}
    ids.update({i: count + k for k, i in enumerate(others)})
    base = len(inputs) + len(nodes)
    ids.update({len(second.inputs) + k: base + k for k in range(len(second.nodes))})
    nodes += [LoopNode(n.op, tuple(ids[a] for a in n.args), n.dtype, n.attrs) for n in second.nodes]
    outputs = tuple(Output(ids[o.value], o.dtype) for o in second.outputs)
    return Kernel(inputs, tuple(nodes), outputs)
