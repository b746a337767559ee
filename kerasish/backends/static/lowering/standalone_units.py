"""Units that need no library: products of two values, and mean pooling, in generated loops.

A `StandaloneStep` calls a kernel with an argument block, once or several times with some words
advanced; a `Repeat` is a loop over several steps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from kerasish.backends.static.codegen import matmul as products
from kerasish.backends.static.codegen.driver import Record, load_runtime
from kerasish.backends.static.codegen.kernels import compile_many
from kerasish.backends.static.lowering.columns import taps
from kerasish.backends.static.lowering.convolutions import geometry_of
from kerasish.backends.static.lowering.library import View, contiguous, epilogue_kernel
from kerasish.backends.static.lowering.moves import (
    BlockLoop,
    Piece,
    _fill_piece,
)
from kerasish.backends.static.lowering.units import Locate, Unit
from kerasish.graph.ir import Node, Value

COPY = "copy"  # the kernel of a step that copies bytes
_A, _B, _OPERANDS = 7, 10, 12  # words of a product's argument block
_DENSE = {"dilation": (), "groups": 1}
MOST_STEPS = 512  # products of one unit


class UnsupportedStep(ValueError):  # noqa: N818 (the message is for the exporter to complete)
    """An op has no code that needs no library."""


class StandaloneStep(NamedTuple):
    """A call of a kernel.

    Attributes:
        kernel: its description, or `COPY` (then the words are to, from, bytes).
        words: the argument block.
        times: the number of calls.
        moves: word -> bytes that are added to it after each call.
        name: for messages.
        tables: (word, array): words that are addresses of tables of integers.
    """

    kernel: Any
    words: tuple[int, ...]
    times: int = 1
    moves: tuple[tuple[int, int], ...] = ()
    name: str = ""
    tables: tuple[tuple[int, Any], ...] = ()


class Repeat(NamedTuple):
    """Steps that run one after the other, `times` times.

    Attributes:
        times: the number of turns.
        steps: each is called once per turn; `moves` are added to its words after each turn.
        name: for messages.
    """

    times: int
    steps: tuple[StandaloneStep, ...]
    name: str = ""


class StandaloneUnit(Unit):
    """A unit that creates its own steps."""

    def steps(self, locate: Locate) -> Iterator[StandaloneStep | Repeat]:
        """Yield the calls."""
        raise NotImplementedError


def steps_of(unit: Unit, locate: Locate) -> list[StandaloneStep | Repeat]:
    """Return the calls of a unit."""
    if isinstance(unit, StandaloneUnit):
        return list(unit.steps(locate))
    runtime = load_runtime()
    kernels = unit.kernels()
    by_address = dict(zip(compile_many(kernels), kernels))
    results: list[StandaloneStep | Repeat] = []
    for record in unit.records(locate):
        words = tuple(int(w) for w in record.block)
        if record.function == runtime.call_copy:
            results.append(StandaloneStep(COPY, words[1:4], name=unit.name))
        elif record.function in by_address:
            kernel = by_address[record.function]
            results.append(
                StandaloneStep(kernel, words, name=unit.name, tables=_tables(record, words))
            )
        else:
            raise UnsupportedStep(f"{unit.name} is computed by a library")
    return results


def _tables(record: Record, words: tuple[int, ...]) -> tuple[tuple[int, Any], ...]:
    """Return (word, array) of the tables that a pooling's block points to."""
    if not isinstance(record.keep, list):
        return ()
    arrays = {axis.ranges.ctypes.data: axis.ranges for axis in record.keep}
    return tuple((i, arrays[w]) for i, w in enumerate(words) if w in arrays)


class ProductUnit(StandaloneUnit):
    """A product of matrices, or of several pairs of matrices, in a generated loop.

    Args:
        a, b: the factors; b's columns or rows are adjacent.
        out: the result.
        bias: added to each row, or None.
        activation: "relu" or "".
    """

    def __init__(self, a: View, b: View, out: Value, bias: Value | None, activation: str) -> None:
        reads = [a.root, b.root, *([bias] if bias is not None else [])]
        super().__init__("product", reads, [out])
        self.a, self.b, self.out, self.bias = a, b, out, bias
        self.transposed = b.strides[-1] != 1
        self.matmul = products.Matmul(epilogue_kernel(bias, activation), self.transposed)
        self.sizes = (a.shape[-2], b.shape[-1], a.shape[-1])
        self.scratch = products.scratch_size(self.matmul, *self.sizes[1:])

    def kernels(self) -> list[Any]:
        """Return the one kernel."""
        return [self.matmul]

    def steps(self, locate: Locate) -> Iterator[StandaloneStep]:
        """Yield one call for each pair; the pairs of the last batch axis are one step."""
        n = self.sizes[1]
        scratch = locate(("scratch", self)).address if self.scratch else 0
        at = locate(self.a.root).address
        to = locate(self.out).address
        bias = [] if self.bias is None else [locate(self.bias).address]
        b_row = self.b.strides[-1] if self.transposed else self.b.strides[-2]
        source = locate(self.b.root).address
        lead = self.out.shape[:-2]
        if math.prod(lead[:-1]) > MOST_STEPS:
            raise UnsupportedStep(f"a product of {math.prod(lead)} pairs of matrices")
        out_steps = contiguous(self.out.shape)[:-2]
        a_steps, b_steps = (_aligned(v, len(lead)) for v in (self.a, self.b))
        inner = lead[-1] if lead else 1
        for index in itertools.product(*map(range, lead[:-1])):
            starts = [
                base + 4 * sum(i * s for i, s in zip(index, steps))
                for base, steps in ((at, a_steps), (source, b_steps), (to, out_steps))
            ]
            words = self._block(
                self.sizes, starts[0], (starts[1], b_row), bias, starts[2], n, scratch
            )
            moves = []
            if lead:
                places = (_A, _B, _OPERANDS + 2 * len(bias))
                lasts = (a_steps[-1], b_steps[-1], out_steps[-1])
                moves = [(place, 4 * step) for place, step in zip(places, lasts)]
            yield StandaloneStep(self.matmul, words, inner, tuple(moves), "product")

    def _block(
        self, sizes: tuple[int, int, int], a: int, b: tuple[int, int], bias: list[int], out: int,
        row: int, scratch: int,
    ) -> tuple[int, ...]:  # fmt: skip
        block = products.pack(
            self.matmul, table=load_runtime().table, sizes=sizes,
            a=(a, self.a.strides[-2], self.a.strides[-1]), b=b,
            operands=[*((address, 0) for address in bias), (out, row)], scratch=scratch,
        )  # fmt: skip
        return tuple(int(w) for w in block)


def _aligned(view: View, count: int) -> tuple[int, ...]:
    """Return the strides of `count` leading axes; 0 where a factor has none, or one of size 1."""
    sizes, steps = view.shape[:-2], view.strides[:-2]
    own = [0 if n == 1 else s for n, s in zip(sizes, steps)]
    return (*[0] * (count - len(own)), *own)


class WindowSumUnit(StandaloneUnit):
    """The sums of the elements in each window of a pooling; the padding counts as 0.

    Args:
        node: the mean pooling.
        out: the value of the sums.
    """

    def __init__(self, node: Node, out: Value) -> None:
        (x,) = node.inputs
        super().__init__("window sums", [x], [out])
        size, channels = tuple(node.attrs["size"]), x.shape[-1]
        g = geometry_of(x.shape, (*size, channels, channels), {**node.attrs, **_DENSE})
        self.counts = np.zeros(g.y_shape[1:-1], "float32")
        data, steps = contiguous(x.shape), contiguous(out.shape)
        along = tuple(s * stride for s, stride in zip(data[1:-1], g.strides))
        pieces = [_fill_piece(out, 0.0)]
        for _, first, counts, starts in taps(g):
            self.counts[tuple(slice(f, f + c) for f, c in zip(first, counts))] += 1
            pieces.append(
                Piece(
                    x, (x.shape[0], *counts, channels),
                    (data[0], *along, 1), sum(s * at for s, at in zip(data[1:], starts)),
                    steps, sum(s * at for s, at in zip(steps[1:], first)),
                )
            )  # fmt: skip
        self.loops = [BlockLoop(p, out, adds=i > 0) for i, p in enumerate(pieces)]

    def kernels(self) -> list[Any]:
        """Return the kernels of the moves."""
        return [loop.kernel for loop in self.loops]

    def steps(self, locate: Locate) -> Iterator[StandaloneStep]:
        """Yield a fill by 0, and an addition for each place of the window."""
        for loop in self.loops:
            record = loop.record(locate, self.writes[0], self.name)
            yield StandaloneStep(loop.kernel, tuple(int(w) for w in record.block), name=self.name)
