"""A recurrence on one thread, and the product of its inputs, which helpers compute ahead of it.

The product of all time steps and the kernel is cut into parts of several time steps. The thread
that computes the time steps needs only the first part to start. While it continues, helpers compute
the parts of later time steps. The thread computes a part itself if no helper has started it, and
waits only if a helper is computing it. The parts, and so the bits, do not depend on the number of
threads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from kerasish.backends.static.codegen.driver import Record
from kerasish.backends.static.codegen.team import ahead_records
from kerasish.backends.static.lowering.packed_units import PackedUnit
from kerasish.backends.static.lowering.time_steps import LstmUnit
from kerasish.backends.static.lowering.units import Locate, Unit
from kerasish.graph.ir import Value

MOST_PARTS = 8
LEAST_STEPS = 4  # time steps of a part
# Rows of a time step. With more, the product is a small part of the work, and while other processes
# are busy, waiting for helpers would cost the thread more than it gains.
MOST_ROWS = 4


class AheadUnit(Unit):
    """A product, and the LSTM of one thread that reads it time step by time step.

    Args:
        product: of the inputs of all time steps.
        lstm: what reads it.
    """

    def __init__(self, product: PackedUnit, lstm: LstmUnit) -> None:
        reads = dict.fromkeys([*product.reads, *lstm.reads])
        for v in product.writes:
            reads.pop(v, None)
        super().__init__(
            f"{product.name} ahead of {lstm.name}", list(reads), [*product.writes, *lstm.writes]
        )
        self.product, self.lstm, self.helpers = product, lstm, product.helpers
        self.kept_value, self.kept_bytes = product.kept_value, product.kept_bytes
        self.flops, self.scratch = product.flops + lstm.flops, lstm.scratch
        self.threads = 1
        self.unchecked = lstm.unchecked
        parts = min(MOST_PARTS, lstm.steps // LEAST_STEPS)
        self.cuts = [lstm.steps * i // parts for i in range(parts + 1)]
        self.shares = product.shares_at([lstm.n * cut for cut in self.cuts])

    def kernels(self) -> list[Any]:
        """Return the kernels of the product, of its packing and of the time steps."""
        cut = dict.fromkeys(share.structure for share in self.shares)
        packing = [loop.kernel for loop in self.product.packing]
        return [*cut, *packing, *self.lstm.kernels()]

    def records(self, locate: Locate) -> list[Record]:
        """Return the packing of the weights, and the records of product and time steps."""
        own = {("kept", self.product): ("kept", self), ("stale", self.product): ("stale", self),
               ("scratch", self.lstm): ("scratch", self)}  # fmt: skip

        def find(key: Any) -> Any:
            return locate(own.get(key, key) if isinstance(key, tuple) else key)

        packing, parts = self.product.parts(find, self.shares)
        before, _, after = self.lstm.parts(find)
        pairs = [
            ([part], [self.lstm.some_steps(first, last)])
            for part, first, last in zip(parts, self.cuts, self.cuts[1:])
        ]
        steps = ahead_records(pairs, self.helpers, self.name)
        return [packing, *before, *steps, *after]


def ahead(
    units: Sequence[Unit], root: Callable[[Value], Value], kept: Collection[Value]
) -> list[Unit]:
    """Return the units, with products and the LSTMs that are their only readers joined.

    Args:
        units: in execution order.
        root: value -> the value whose memory it uses.
        kept: roots of the values that are results of the graph.
    """
    readers: dict[Value, int] = {}
    for unit in units:
        for v in dict.fromkeys(map(root, unit.reads)):
            readers[v] = readers.get(v, 0) + 1
    results: list[Unit] = []
    for unit in units:
        product = results[-1] if results else None
        if isinstance(unit, LstmUnit) and isinstance(product, PackedUnit):
            out = root(product.writes[0])
            only_reader = readers[out] == 1 and out not in kept if out in readers else False
            if only_reader and root(unit.given["x"]) is out and _fits(product, unit):
                results[-1] = AheadUnit(product, unit)
                continue
        results.append(unit)
    return results


def _fits(product: PackedUnit, lstm: LstmUnit) -> bool:
    """Return whether the rows of a product are those of the time steps, in order."""
    plain = product.groups == 1 and product.examples == 1 and len(product.writes) == 1
    sizes = product.rows == lstm.steps * lstm.n and product.columns == lstm.width
    long = lstm.steps >= 2 * LEAST_STEPS and lstm.n <= MOST_ROWS and lstm.threads == 1
    return plain and sizes and long and bool(product.helpers) and product.is_divisible
