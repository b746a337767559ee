"""Attention heads: products, softmax and products in caches, forward and backward.

    out = softmax(scale q k^T) v        for each matrix of a batch with two axes

A thread takes whole matrices. It packs keys and values, then loops over blocks of rows of q and
computes the logits of a block, their softmax, and its product with v. The gradient recomputes the
weights of a block from the maximum and the sum of each row. Gradients by keys and values are sums
over the blocks, in order. So results do not depend on the number of threads.

Argument block (int64 words): 0 table, 1 threads, 2 and 3 sizes of the batch, 4 targets, 5 sources,
6 size of queries and keys, 7 size of values, 8 rows of a block, 9 scratch memory, 10 bytes of it
per thread, 11 the value of masked logits and 12 the scale, as float32; then for each operand
(`Heads.names`) its address and its strides, in elements: both of the batch, row, column. Columns
are adjacent, except those of q and g.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from kerasish.backends.static.codegen import memory, small_products, vector_math
from kerasish.backends.static.codegen.small_products import TURN_SLACK, padded
from kerasish.backends.static.codegen.tiles import Columns, least, share, word
from kerasish.backends.static.machine.assembly import (
    STORED,
    Target,
    Value,
    Writer,
    constant,
    entry_function,
)
from kerasish.typing import Array

BLOCK_BYTES = 128 * 1024  # of a block of logits, so that it stays in the second-level cache
_LEAST_ROWS = 8  # of a block
_LOW, _SCALE = 11, 12  # words
_FIRST = 13  # word of the first operand
_STRIDES = 4
PRODUCTS = {False: (1, 1), True: (3, 2)}  # with the sizes of keys, and of values; by `backward`
State = list[Value]


class Heads(NamedTuple):
    """The structure of the loop; sizes are arguments.

    Attributes:
        backward: whether it computes the gradients by q, k and v.
        masked: whether a mask selects the logits that count.
        twice: whether the mask also sets weights to 0.
        scaled: whether the products of q and k are multiplied by the scale.
    """

    backward: bool = False
    masked: bool = False
    twice: bool = False
    scaled: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The operands, in the order of their addresses."""
        mask = ("mask",) if self.masked else ()
        if self.backward:
            return ("q", "k", "v", "maxima", "sums", "g", *mask, "dq", "dk", "dv")
        return ("q", "k", "v", *mask, "out", "maxima", "sums")


class HeadsOperand(NamedTuple):
    """A batch of matrices.

    Attributes:
        address: of the first element.
        strides: in elements: both of the batch, row, column.
    """

    address: int
    strides: tuple[int, ...]


class Sizes(NamedTuple):
    """The sizes of a batch of heads.

    Attributes:
        batch: its two axes.
        targets, sources: rows of q; rows of k and v.
        size: columns of q and k.
        values: columns of v.
    """

    batch: tuple[int, int]
    targets: int
    sources: int
    size: int
    values: int


def block_rows(sizes: Sizes) -> int:
    """Return the number of rows of a block."""
    most = max(_LEAST_ROWS, BLOCK_BYTES // (4 * padded(sizes.sources)))
    return min(sizes.targets, most // _LEAST_ROWS * _LEAST_ROWS)


def scratch_size(kernel: Heads, sizes: Sizes) -> int:
    """Return the bytes of scratch memory of one thread, a multiple of 64."""
    return 4 * sum(_parts(kernel, sizes, block_rows(sizes)).values())


def _parts(kernel: Heads, sizes: Sizes, rows: int) -> dict[str, int]:
    """Return the numbers of elements of the parts of a thread's scratch memory."""
    wide, size, values = padded(sizes.sources), padded(sizes.size), padded(sizes.values)
    parts = {"kt": wide * size + TURN_SLACK, "weights": rows * wide}
    if not kernel.backward:
        return {**parts, "v": wide * values}
    return {
        **parts, "vt": wide * values + TURN_SLACK, "k": wide * size, "q": padded(rows) * size,
        "g": padded(rows) * values, "dweights": rows * wide,
    }  # fmt: skip


def pack(
    kernel: Heads, *, table: int, threads: int, sizes: Sizes, scratch: int, low: float,
    operands: Sequence[HeadsOperand], scale: float = 1.0,
) -> Array:  # fmt: skip
    """Return the argument block.

    Args:
        scratch: the address of `threads` times `scratch_size` bytes.
        low: the value of masked logits.
        operands: those of `kernel.names`.
        scale: of the products, if `kernel.scaled`.
    """
    if len(operands) != len(kernel.names):
        raise ValueError(f"pack: expected {len(kernel.names)} operands, got {len(operands)}")
    bits = struct.unpack("<ii", struct.pack("<ff", low, scale))
    words = [table, threads, *sizes.batch, *sizes[1:], block_rows(sizes), scratch]
    words += [scratch_size(kernel, sizes), *bits]
    for operand in operands:
        if len(operand.strides) != _STRIDES:
            raise ValueError(f"pack: expected {_STRIDES} strides, got {operand.strides}")
        words += [operand.address, *operand.strides]
    return np.array(words, np.int64)


def generate(kernel: Heads, symbol: str, target: Target) -> tuple[str, set[str]]:
    """Return the LLVM IR of `i32 symbol(ptr arguments)`, and the intrinsics to declare."""
    kind = _Backward if kernel.backward else _Forward
    writer = kind(kernel, symbol, target)
    head = f"define internal void @{symbol}.worker(ptr %args, i64 %t, i64 %n) #0"
    worker = f"{head} {{\n{writer.write()}\n}}"
    products, declared = small_products.functions(symbol, target)
    return f"{products}\n{worker}\n{entry_function(symbol)}", declared | writer.w.declared


class _Heads:
    """The base of the forward and the backward loop."""

    def __init__(self, kernel: Heads, symbol: str, target: Target) -> None:
        self.w = w = Writer(target)
        self.kernel, self.symbol, self.lanes = kernel, symbol, target.lanes
        args = Value("%args", "ptr")
        self.batch = w.load_word(args, 2), w.load_word(args, 3)
        self.targets, self.sources, self.size, self.values, self.block = (
            w.load_word(args, i) for i in range(4, 9)
        )
        index = w.mul(Value("%t", "int64"), w.load_word(args, 10))
        self.scratch = w.address(w.load_word(args, 9, "ptr"), index, 1)
        self.low, self.scale = (
            w.load_value(w.let(f"getelementptr i64, ptr {args.text}, i64 {i}", "ptr"), "float32")
            for i in (_LOW, _SCALE)
        )
        self.bases: dict[str, Value] = {}
        self.strides: dict[str, list[Value]] = {}
        for i, name in enumerate(kernel.names):
            at = _FIRST + i * (1 + _STRIDES)
            self.bases[name] = w.load_word(args, at, "ptr")
            self.strides[name] = [w.load_word(args, at + 1 + j) for j in range(_STRIDES)]
        self.wide = self._padded(self.sources)
        self.at: dict[str, Value] = {}  # of the current matrix, and of the parts of the scratch

    def _padded(self, count: Value) -> Value:
        w = self.w
        up = w.add(count, word(small_products.WIDEST - 1))
        return w.bits_and(up, word(-small_products.WIDEST))

    def reserve(self, **sizes: Value) -> None:
        """Place parts of these numbers of elements in the scratch memory."""
        end = self.scratch
        for name, size in sizes.items():
            self.at[name] = end
            end = self.w.address(end, size, 4)

    def write(self) -> str:
        """Return the function's body."""
        w = self.w
        self.prepare()
        first, last = share(w, w.mul(*self.batch))

        def matrix(m: Value, _: State) -> State:
            i, j = w.two("sdiv", m, self.batch[1]), w.two("srem", m, self.batch[1])
            for name, base in self.bases.items():
                outer, inner = self.strides[name][:2]
                offset = w.add(w.mul(i, outer), w.mul(j, inner))
                self.at[name] = w.address(base, offset, 1 if name == "mask" else 4)
            self.pack()

            def block(b: Value, _: State) -> State:
                start = w.mul(b, self.block)
                self.rows(start, least(w, w.sub(self.targets, start), self.block))
                return []

            count = w.two("sdiv", w.add(self.targets, w.sub(self.block, word(1))), self.block)
            w.loop(word(0), count, 1, [], block)
            return []

        w.loop(first, last, 1, [], matrix)
        w.do("ret void")
        return w.body()

    def prepare(self) -> None:
        """Place the parts of the scratch memory."""
        raise NotImplementedError

    def pack(self) -> None:
        """Pack keys and values of a matrix."""
        raise NotImplementedError

    def rows(self, start: Value, count: Value) -> None:
        """Compute a block of rows."""
        raise NotImplementedError

    # --- pieces ---------------------------------------------------------------------------------

    def call(self, name: str, *arguments: Value) -> None:
        """Write a call of a function of `small_products`."""
        small_products.call(self.w, self.symbol, name, *arguments)

    def row_of(self, name: str, r: Value) -> Value:
        """Return the address of a row of an operand of the current matrix."""
        offset = self.w.mul(r, self.strides[name][2])
        return self.w.address(self.at[name], offset, 1 if name == "mask" else 4)

    def products(self, name: str, packed: str, columns: Value, terms: Value, start: Value,
                 count: Value, out: str) -> None:  # fmt: skip
        """Write rows of an operand times a packed matrix to a part of the scratch memory."""
        _, _, row, column = self.strides[name]
        self.call("multiply", self.row_of(name, start), row, column, self.at[packed], count, terms,
                  columns, self.at[out], self.wide, word(0))  # fmt: skip

    def weighted(self, part: str, packed: str, columns: Value, start: Value, count: Value,
                 out: str) -> None:  # fmt: skip
        """Write rows of a part times a packed matrix of `sources` rows to rows of an operand."""
        end, row = self.row_of(out, start), self.strides[out][2]
        self.call("multiply", self.at[part], self.wide, word(1), self.at[packed], count,
                  self.sources, columns, end, row, word(0))  # fmt: skip

    def sweep(self, state: State, body: Callable[[Value, Columns, State], State]) -> State:
        """Write body(column, columns, state) for each vector of the sources; return the state."""
        w, lanes = self.w, self.lanes
        full = w.bits_and(self.sources, word(-lanes))
        state = w.loop(word(0), full, lanes, state, lambda c, s: body(c, Columns(w, lanes), s))

        def part(c: Value, s: State) -> State:
            return body(c, Columns(w, lanes, w.sub(self.sources, c)), s)

        return w.loop(full, self.sources, lanes, state, part)

    def only(self, columns: Columns, x: Value, other: float) -> Value:
        """Return x with another number in the lanes beyond the last column."""
        return x if columns.mask is None else self.w.select(columns.mask, x, self.w.like(x, other))

    def flags(self, columns: Columns, row: Value, c: Value) -> Value:
        """Return a vector of the mask."""
        w, at = self.w, self.w.address(row, c, STORED["bool"][1])
        if columns.rest is None or columns.mask is None:
            raw = memory.load_full(w, at, "bool", self.lanes)
        else:
            raw = memory.load_tail(w, at, "bool", self.lanes, columns.rest, columns.mask)
        return memory.from_storage(w, raw, "bool")

    def over(self, start: Value, count: Value, body: Callable[[Value, Value], None]) -> None:
        """Write body(row of the block, row of the matrix) for each row of a block."""

        def row(r: Value, _: State) -> State:
            body(r, self.w.add(start, r))
            return []

        self.w.loop(word(0), count, 1, [], row)

    def line(self, part: str, r: Value) -> Value:
        """Return the address of a row of a part of the scratch memory."""
        return self.w.address(self.at[part], self.w.mul(r, self.wide), 4)

    def scaled(self, x: Value) -> Value:
        """Return a vector times the scale, if there is one."""
        return self.w.mul(x, self.w.splat(self.scale, self.lanes)) if self.kernel.scaled else x

    def inverse(self, total: Value) -> Value:
        """Return a vector of 1 / total."""
        return self.w.splat(self.w.div(constant(1.0, "float32"), total), self.lanes)


class _Forward(_Heads):
    def prepare(self) -> None:
        w, slack = self.w, word(TURN_SLACK)
        self.reserve(
            kt=w.add(w.mul(self.wide, self._padded(self.size)), slack),
            weights=w.mul(self.block, self.wide),
            v=w.mul(self.wide, self._padded(self.values)),
        )
        self.packed_v = self.at["v"]

    def pack(self) -> None:
        self.call("turn", self.at["k"], self.strides["k"][2], self.sources, self.size,
                  self.at["kt"])  # fmt: skip
        self.call("pack", self.at["v"], self.strides["v"][2], self.sources, self.values,
                  self.packed_v)  # fmt: skip
        self.at["packed v"] = self.packed_v

    def rows(self, start: Value, count: Value) -> None:
        self.products("q", "kt", self.sources, self.size, start, count, "weights")
        self.over(start, count, self._softmax)
        self.weighted("weights", "packed v", self.values, start, count, "out")

    def _softmax(self, r: Value, t: Value) -> None:
        """Convert a row of logits to weights."""
        w, lanes, row = self.w, self.lanes, self.line("weights", r)
        masks = self.row_of("mask", t) if self.kernel.masked else None
        lowest = constant(float("-inf"), "float32", lanes)

        def largest(c: Value, columns: Columns, state: State) -> State:
            at = w.address(row, c, 4)
            x = self.scaled(columns.load(at))
            if masks is not None:
                x = w.select(self.flags(columns, masks, c), x, w.splat(self.low, lanes))
            if masks is not None or self.kernel.scaled:
                columns.store(x, at)
            return [vector_math.maximum(w, state[0], self.only(columns, x, float("-inf")))]

        maximum = w.fold(
            self.sweep([lowest], largest)[0], lambda a, b: vector_math.maximum(w, a, b)
        )

        def power(c: Value, columns: Columns, state: State) -> State:
            at = w.address(row, c, 4)
            x = vector_math.exp(w, w.sub(columns.load(at), w.splat(maximum, lanes)))
            columns.store(x, at)
            return [w.add(state[0], self.only(columns, x, 0.0))]

        zeros = constant(0.0, "float32", lanes)
        total = w.fold(self.sweep([zeros], power)[0], w.add)
        inverse = self.inverse(total)

        def divide(c: Value, columns: Columns, _: State) -> State:
            at = w.address(row, c, 4)
            x = w.mul(columns.load(at), inverse)
            if masks is not None and self.kernel.twice:
                x = w.select(self.flags(columns, masks, c), x, zeros)
            columns.store(x, at)
            return []

        self.sweep([], divide)
        w.store_value(maximum, self.row_of("maxima", t))
        w.store_value(total, self.row_of("sums", t))


class _Backward(_Heads):
    def prepare(self) -> None:
        w, slack = self.w, word(TURN_SLACK)
        size, values = self._padded(self.size), self._padded(self.values)
        rows, block = self._padded(self.block), w.mul(self.block, self.wide)
        self.reserve(**{
            "kt": w.add(w.mul(self.wide, size), slack), "weights": block,
            "vt": w.add(w.mul(self.wide, values), slack), "packed k": w.mul(self.wide, size),
            "packed q": w.mul(rows, size), "packed g": w.mul(rows, values), "dweights": block,
        })  # fmt: skip

    def pack(self) -> None:
        k, v = self.strides["k"][2], self.strides["v"][2]
        self.call("turn", self.at["k"], k, self.sources, self.size, self.at["kt"])
        self.call("turn", self.at["v"], v, self.sources, self.values, self.at["vt"])
        self.call("pack", self.at["k"], k, self.sources, self.size, self.at["packed k"])

    def rows(self, start: Value, count: Value) -> None:
        w = self.w
        self.products("q", "kt", self.sources, self.size, start, count, "weights")
        self.products("g", "vt", self.sources, self.values, start, count, "dweights")
        self.over(start, count, self._row)
        self.weighted("dweights", "packed k", self.size, start, count, "dq")
        later = w.convert("zext", w.compare("ne", start, word(0)), "int64")
        for name, part, columns, out in (
            ("g", "weights", self.values, "dv"), ("q", "dweights", self.size, "dk")
        ):  # fmt: skip
            packed = self.at[f"packed {name}"]
            self.call("pack", self.row_of(name, start), self.strides[name][2], count, columns,
                      packed)  # fmt: skip
            self.call("multiply", self.at[part], word(1), self.wide, packed, self.sources, count,
                      columns, self.at[out], self.strides[out][2], later)  # fmt: skip

    def _row(self, r: Value, t: Value) -> None:
        """Convert a row of logits to weights, and their gradients to those of the logits."""
        w, lanes = self.w, self.lanes
        row, gradients = self.line("weights", r), self.line("dweights", r)
        masks = self.row_of("mask", t) if self.kernel.masked else None
        zeros = constant(0.0, "float32", lanes)
        maximum = w.splat(w.load_value(self.row_of("maxima", t), "float32"), lanes)
        inverse = self.inverse(w.load_value(self.row_of("sums", t), "float32"))

        def weigh(c: Value, columns: Columns, state: State) -> State:
            at, gradient_at = w.address(row, c, 4), w.address(gradients, c, 4)
            x, g = self.scaled(columns.load(at)), columns.load(gradient_at)
            if masks is None:
                p = w.mul(vector_math.exp(w, w.sub(x, maximum)), inverse)
            else:
                counts = self.flags(columns, masks, c)
                x = w.select(counts, x, w.splat(self.low, lanes))
                p = w.mul(vector_math.exp(w, w.sub(x, maximum)), inverse)
                if self.kernel.twice:
                    p, g = w.select(counts, p, zeros), w.select(counts, g, zeros)
                    columns.store(g, gradient_at)
            columns.store(p, at)
            return [w.add(state[0], self.only(columns, w.mul(p, g), 0.0))]

        middle = w.splat(w.fold(self.sweep([zeros], weigh)[0], w.add), lanes)

        def differ(c: Value, columns: Columns, _: State) -> State:
            at = w.address(gradients, c, 4)
            p = columns.load(w.address(row, c, 4))
            x = self.scaled(w.mul(p, w.sub(columns.load(at), middle)))
            if masks is not None:
                x = w.select(self.flags(columns, masks, c), x, zeros)
            columns.store(x, at)
            return []

        self.sweep([], differ)
