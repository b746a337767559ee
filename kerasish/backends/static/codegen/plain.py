"""Ops of one thread in loops over single elements, for programs that need no library.

All sizes are part of the structure, so an argument block has only addresses: 0 table, then one word
for each input and each output, then scratch memory if any. Functions return 2 if an index is out of
range, else 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kerasish.backends.static.codegen import memory, scalars
from kerasish.backends.static.codegen.memory import load_one, store_one
from kerasish.backends.static.machine.assembly import (
    STORED,
    Target,
    Value,
    Writer,
    constant,
    is_float,
    is_signed,
)

OUT_OF_RANGE = 2


class Term(NamedTuple):
    """A table of indices that choose along one axis of an indexed array.

    Attributes:
        steps: elements between its numbers, for each axis of the places.
        offset: its first number.
        size: of the indexed axis; negative indices count from its end.
        stride: elements between neighbors along this axis.
    """

    steps: tuple[int, ...]
    offset: int
    size: int
    stride: int


class Indexed(NamedTuple):
    """Elements picked from, or written to, an array at places given by tables of indices.

    Words: x, indices, y. Picking: y[place] = x[at(place)]; else y[at(place)] is combined with
    x[place].

    Attributes:
        dtype: of x and y.
        indices: the dtype of the indices.
        combine: "pick", "set", "add", "max", "min" or "mul".
        shape: of the places.
        near: strides, along the places, of the array that is read or written in their order.
        far: strides of the indexed array along the places.
        terms: of the indices.
    """

    dtype: str
    indices: str
    combine: str
    shape: tuple[int, ...]
    near: tuple[int, ...]
    far: tuple[int, ...]
    terms: tuple[Term, ...]


class Lines(NamedTuple):
    """An op along one axis, for each of `outer * inner` lines. Words: x, y, scratch.

    Attributes:
        kind: "argsort", "argmax", "argmin" or "running_sum".
        dtype: of x.
        out: of y.
        outer, size, inner: x is (outer, size, inner).
    """

    kind: str
    dtype: str
    out: str
    outer: int
    size: int
    inner: int


class Search(NamedTuple):
    """The places of values in one increasing sequence. Words: sequence, values, y.

    Attributes:
        dtype: of sequence and values.
        side: "left" or "right".
        size: of the sequence.
        values: how many there are.
    """

    dtype: str
    side: str
    size: int
    values: int


class PlainProduct(NamedTuple):
    """A product of matrices of any dtype and strides. Words: a, b, y.

    Attributes:
        dtype: of all three.
        lead: the axes before the last two of y, which is contiguous.
        sizes: rows, columns, and terms of each sum.
        a, b: strides of the axes of `lead`, then of the two others.
    """

    dtype: str
    lead: tuple[int, ...]
    sizes: tuple[int, int, int]
    a: tuple[int, ...]
    b: tuple[int, ...]


Plain = Indexed | Lines | Search | PlainProduct


def scratch_size(kernel: Plain) -> int:
    """Return the bytes of scratch memory."""
    sorts = isinstance(kernel, Lines) and kernel.kind == "argsort"
    return 8 * kernel.size if isinstance(kernel, Lines) and sorts else 0


def generate(kernel: Plain, symbol: str, target: Target) -> tuple[str, set[str]]:
    """Return the LLVM IR of `i32 symbol(ptr arguments)`, and what it declares."""
    w = Writer(target)
    if isinstance(kernel, Indexed):
        _write_indexed(w, kernel)
    elif isinstance(kernel, Lines):
        _write_lines(w, kernel)
    elif isinstance(kernel, Search):
        _write_search(w, kernel)
    else:
        _write_product(w, kernel)
    w.do("ret i32 0")
    if isinstance(kernel, Indexed):
        w.label("outside")
        w.do(f"ret i32 {OUT_OF_RANGE}")
    return f"define i32 @{symbol}(ptr %args) #0 {{\n{w.body()}\n}}", w.declared


def _word(number: int) -> Value:
    return constant(number, "int64")


def _addresses(w: Writer, count: int) -> list[Value]:
    args = Value("%args", "ptr")
    return [w.load_word(args, 1 + i, "ptr") for i in range(count)]


def _nest(
    w: Writer, shape: Sequence[int], steps: Sequence[Sequence[int]], starts: Sequence[Value],
    body: Callable[[list[Value]], None],
) -> None:  # fmt: skip
    """Write loops over all places of a shape.

    Args:
        shape: of the places.
        steps: for each offset, its increment along each axis.
        starts: the offsets of the first place.
        body: gets the offsets.
    """
    if not shape:
        body(list(starts))
        return

    def one(i: Value, _: list[Value]) -> list[Value]:
        here = [_moved(w, at, i, own[0]) for at, own in zip(starts, steps)]
        _nest(w, shape[1:], [strides[1:] for strides in steps], here, body)
        return []

    w.loop(_word(0), _word(shape[0]), 1, [], one)


def _moved(w: Writer, at: Value, i: Value, step: int) -> Value:
    if not step:
        return at
    return w.add(at, i if step == 1 else w.mul(i, _word(step)))


def _load(w: Writer, base: Value, at: Value, dtype: str) -> Value:
    return load_one(w, w.address(base, at, STORED[dtype][1]), dtype)


def _store(w: Writer, value: Value, base: Value, at: Value, dtype: str) -> None:
    store_one(w, value, w.address(base, at, STORED[dtype][1]), dtype)


def _less(w: Writer, a: Value, b: Value) -> Value:
    """Return whether a is before b; NaN is last."""
    if not is_float(a.dtype):
        return w.compare("slt" if is_signed(a.dtype) else "ult", a, b)
    last = w.bits_and(w.compare("uno", b, b), w.compare("ord", a, a))
    return w.bits_or(w.compare("olt", a, b), last)


# --- indices --------------------------------------------------------------------------------------


def _write_indexed(w: Writer, kernel: Indexed) -> None:
    x, indices, y = _addresses(w, 3)
    varying = [i for t in kernel.terms for i, step in enumerate(t.steps) if step]
    split = 1 + max(varying, default=-1)  # later axes have the same indices
    tables = [t.steps for t in kernel.terms]
    outer = [kernel.near, kernel.far, *tables]
    starts = [_word(0), _word(0), *(_word(t.offset) for t in kernel.terms)]

    def place(at: list[Value]) -> None:
        far = at[1]
        for term, own in zip(kernel.terms, at[2:]):
            index = _index(w, _load(w, indices, own, kernel.indices), term.size)
            far = w.add(far, w.mul(index, _word(term.stride)))
        rest = [kernel.near[split:], kernel.far[split:]]
        _nest(w, kernel.shape[split:], rest, [at[0], far], element)

    def element(at: list[Value]) -> None:
        near, far = at
        if kernel.combine == "pick":
            _store(w, _load(w, x, far, kernel.dtype), y, near, kernel.dtype)
            return
        value = _load(w, x, near, kernel.dtype)
        if kernel.combine != "set":
            value = _COMBINE[kernel.combine](w, _load(w, y, far, kernel.dtype), value)
        _store(w, value, y, far, kernel.dtype)

    _nest(w, kernel.shape[:split], [strides[:split] for strides in outer], starts, place)


_COMBINE: dict[str, Callable[[Writer, Value, Value], Value]] = {
    "add": Writer.add,
    "mul": Writer.mul,
    "max": scalars.maximum,
    "min": scalars.minimum,
}


def _index(w: Writer, raw: Value, size: int) -> Value:
    """Return a nonnegative index; the function ends if it is out of range."""
    number = w.convert("sext" if is_signed(raw.dtype) else "zext", raw, "int64")
    low = w.compare("slt", number, _word(0))
    index = w.select(low, w.add(number, _word(size)), number)
    inside, name = w.compare("ult", index, _word(size)), w.fresh("inside")
    w.do(f"br i1 {inside.text}, label %{name}, label %outside")
    w.label(name)
    return index


# --- lines ----------------------------------------------------------------------------------------


def _write_lines(w: Writer, kernel: Lines) -> None:
    x, y, *scratch = _addresses(w, 3 if scratch_size(kernel) else 2)
    reduced = kernel.kind.startswith("argm")
    per_line = 1 if reduced else kernel.size
    steps = [(kernel.size * kernel.inner, 1), (per_line * kernel.inner, 1)]

    def line(at: list[Value]) -> None:
        def load(i: Value) -> Value:
            return _load(w, x, _moved(w, at[0], i, kernel.inner), kernel.dtype)

        def store(i: Value, value: Value) -> None:
            _store(w, value, y, _moved(w, at[1], i, kernel.inner), kernel.out)

        if reduced:
            _write_extreme(w, kernel, load, store)
        elif kernel.kind == "running_sum":
            _write_sums(w, kernel, load, store)
        else:
            _write_order(w, kernel.size, scratch[0], load, store)

    _nest(w, (kernel.outer, kernel.inner), steps, [_word(0), _word(0)], line)


Load = Callable[[Value], Value]
Store = Callable[[Value, Value], None]


def _write_extreme(w: Writer, kernel: Lines, load: Load, store: Store) -> None:
    """Store the first place of the largest or smallest element, or of the first NaN."""
    largest = kernel.kind == "argmax"

    def one(i: Value, carried: list[Value]) -> list[Value]:
        best, place = carried
        value = load(i)
        if is_float(value.dtype):
            better = w.compare("ugt" if largest else "ult", value, best)
            better = w.bits_and(better, w.compare("ord", best, best))
        else:
            better = _less(w, best, value) if largest else _less(w, value, best)
        return [w.select(better, value, best), w.select(better, i, place)]

    first = [load(_word(0)), _word(0)]
    place = w.loop(_word(1), _word(kernel.size), 1, first, one)[1]
    store(_word(0), w.convert("trunc", place, kernel.out))


def _write_sums(w: Writer, kernel: Lines, load: Load, store: Store) -> None:
    dtype = memory.computed(kernel.out)

    def one(i: Value, carried: list[Value]) -> list[Value]:
        value = load(i)
        if value.dtype == "bool":
            value = w.convert("zext", value, dtype)
        total = w.add(carried[0], value)
        store(i, total)
        return [total]

    # -0.0 is neutral: the first sum is the first element, bit for bit.
    start = constant(-0.0, dtype) if is_float(dtype) else constant(0, dtype)
    w.loop(_word(0), _word(kernel.size), 1, [start], one)


def _write_order(w: Writer, size: int, scratch: Value, load: Load, store: Store) -> None:
    """Store the places in increasing order: runs are merged, from one buffer to the other."""
    buffers = [scratch, w.address(scratch, _word(size), 4)]

    def begin(i: Value, _: list[Value]) -> list[Value]:
        for buffer in buffers:
            _store(w, w.convert("trunc", i, "int32"), buffer, i, "int32")
        return []

    w.loop(_word(0), _word(size), 1, [], begin)
    width = 1
    while width < size:
        _merge(w, size, width, buffers[0], buffers[1], load)
        buffers.reverse()
        width *= 2

    def end(i: Value, _: list[Value]) -> list[Value]:
        store(i, _load(w, buffers[0], i, "int32"))
        return []

    w.loop(_word(0), _word(size), 1, [], end)


def _merge(w: Writer, size: int, width: int, source: Value, to: Value, load: Load) -> None:
    """Merge neighboring runs of `width` places."""

    def smaller(a: Value, b: Value) -> Value:
        return w.select(w.compare("slt", a, b), a, b)

    def place(i: Value) -> Value:
        # A place of a run that has ended is read, within the buffer, and not used.
        inside = smaller(i, _word(size - 1))
        return w.convert("sext", _load(w, source, inside, "int32"), "int64")

    def runs(first: Value, _: list[Value]) -> list[Value]:
        middle = smaller(w.add(first, _word(width)), _word(size))
        last = smaller(w.add(first, _word(2 * width)), _word(size))

        def one(k: Value, carried: list[Value]) -> list[Value]:
            i, j = carried
            left, right = place(i), place(j)
            has_right = w.compare("slt", j, last)
            before = w.bits_and(has_right, _less(w, load(right), load(left)))
            ended = w.compare("sge", i, middle)
            takes = w.bits_or(ended, before)
            chosen = w.select(takes, right, left)
            _store(w, w.convert("trunc", chosen, "int32"), to, k, "int32")
            by = w.convert("zext", takes, "int64")
            return [w.add(i, w.sub(_word(1), by)), w.add(j, by)]

        w.loop(first, last, 1, [first, middle], one)
        return []

    w.loop(_word(0), _word(size), 2 * width, [], runs)


# --- searches and products ------------------------------------------------------------------------


def _write_search(w: Writer, kernel: Search) -> None:
    sequence, values, y = _addresses(w, 3)

    def one(i: Value, _: list[Value]) -> list[Value]:
        value = _load(w, values, i, kernel.dtype)

        def halve(_: Value, carried: list[Value]) -> list[Value]:
            low, high = carried
            more = w.compare("slt", low, high)
            half = w.shift_right(w.add(low, high), 1)
            middle = w.select(more, half, _word(0))
            element = _load(w, sequence, middle, kernel.dtype)
            if kernel.side == "left":
                after = _less(w, element, value)
            else:
                after = w.bits_xor(_less(w, value, element), constant(1, "bool"))
            up = w.bits_and(more, after)
            down = w.bits_and(more, w.bits_xor(after, constant(1, "bool")))
            return [
                w.select(up, w.add(middle, _word(1)), low), w.select(down, middle, high)
            ]  # fmt: skip

        bounds = [_word(0), _word(kernel.size)]
        rounds = math.ceil(math.log2(kernel.size + 1)) if kernel.size else 0
        low = w.loop(_word(0), _word(rounds), 1, bounds, halve)[0]
        _store(w, w.convert("trunc", low, "int32"), y, i, "int32")
        return []

    w.loop(_word(0), _word(kernel.values), 1, [], one)


def _write_product(w: Writer, kernel: PlainProduct) -> None:
    a, b, y = _addresses(w, 3)
    m, n, terms = kernel.sizes
    shape = (*kernel.lead, m, n)
    steps = [
        (*kernel.a[:-1], 0),
        (*kernel.b[:-2], 0, kernel.b[-1]),
        tuple(math.prod(shape[i + 1 :]) for i in range(len(shape))),
    ]
    dtype = memory.computed(kernel.dtype)

    def element(at: list[Value]) -> None:
        def one(k: Value, carried: list[Value]) -> list[Value]:
            left = _load(w, a, _moved(w, at[0], k, kernel.a[-1]), kernel.dtype)
            right = _load(w, b, _moved(w, at[1], k, kernel.b[-2]), kernel.dtype)
            if dtype == "bool":
                return [w.bits_or(carried[0], w.bits_and(left, right))]
            if is_float(dtype):
                return [w.fma(left, right, carried[0])]
            return [w.add(carried[0], w.mul(left, right))]

        total = w.loop(_word(0), _word(terms), 1, [constant(0, dtype)], one)[0]
        _store(w, total, y, at[2], kernel.dtype)

    _nest(w, shape, steps, [_word(0)] * 3, element)
