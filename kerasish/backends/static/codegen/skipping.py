"""Sums of many terms of which those with a factor of zero are left out, with the same bits.

After ReLU about half of the numbers are 0, and of an image often more. A product of one row takes
as long as it takes to read the weights, so the weights of these terms are not read. A term that is
0 changes no sum of finite numbers but a sum of -0, and what is added here is added to one that
begins with +0 (see `direct`). By weights that are not finite such a term is NaN, so nothing is left
out then: a number behind the packed weights says so (`finite_note`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kerasish.backends.static.codegen.description import Kernel, KernelBuilder
from kerasish.backends.static.machine.assembly import Value, Writer, constant
from kerasish.typing import Array

NOTE = 16  # numbers behind packed weights, the first of which is the note
_WORD = 64  # terms whose bits are in one number
# With fewer terms of 0 among 128, the loop over all is faster: it reads from end to end.
_LEAST_ZEROS = 16


def finite_note(weights: Array) -> Array:
    """Return what stands behind packed weights: 0 where all of them are finite, else NaN."""
    note = np.zeros(NOTE, weights.dtype)
    note[0] = 0.0 if np.isfinite(weights).all() else np.nan
    return note


def note_kernel() -> Kernel:
    """Return the loop that makes the note of one row of weights."""
    k = KernelBuilder()
    x = k.input("float32")
    k.output(k.op("row_sum", x - x))
    return k.build()


def add_terms(
    w: Writer, data: Value, note: Value | None, first: Value, sizes: tuple[int, int],
    zeros: list[Value], some: Callable[[Value, list[Value]], list[Value]],
    term: Callable[[Value, int, list[Value]], list[Value]],
) -> list[Value]:  # fmt: skip
    """Write the sums of some terms, without those of zero where there are enough of these.

    Args:
        data: the address of the factor of term 0.
        note: see `finite_note`; None: all terms are added.
        first: the first term.
        sizes: how many terms, with a note a multiple of 64, and how many `some` adds.
        zeros: the sums before.
        some: adds terms from a number on.
        term: adds one term: a constant number of terms after a number.
    """
    size, step = sizes
    if note is None:
        return w.loop(first, w.add(first, _int(size)), step, zeros, some)
    start = w.address(data, first, 4)
    masks = [_mask(w, w.address(start, _int(at), 4)) for at in range(0, size, _WORD)]
    counts = [w.call("llvm.ctpop", mask) for mask in masks]
    total = counts[0]
    for count in counts[1:]:
        total = w.add(total, count)
    worth = w.compare("sle", total, _int(size - _LEAST_ZEROS))
    finite = w.compare("oeq", note, constant(0.0, "float32"))
    skips = w.bits_and(worth, finite)
    last = w.select(skips, first, w.add(first, _int(size)))
    sums = w.loop(first, last, step, zeros, some)
    for number, (mask, count) in enumerate(zip(masks, counts)):

        def next_term(_: Value, carried: list[Value], number: int = number) -> list[Value]:
            *sums, mask = carried
            place = w.call("llvm.cttz", mask, constant(0, "bool"))
            rest = w.bits_and(mask, w.sub(mask, _int(1)))
            return [*term(w.add(first, place), number * _WORD, sums), rest]

        left = w.select(skips, count, _int(0))
        *sums, _ = w.loop(_int(0), left, 1, [*sums, mask], next_term)
    return sums


def _mask(w: Writer, data: Value) -> Value:
    """Return a number whose bit i says whether factor i is not 0."""
    lanes = w.target.lanes
    mask: Any = None
    for at in range(0, _WORD, lanes):
        x = w.load_value(w.address(data, _int(at), 4), "float32", lanes)
        other = w.compare("une", x, constant(0.0, "float32", lanes))
        if lanes > 1:
            other = w.let(f"bitcast {other.typed} to i{lanes}", "int64")
        bits = w.let(f"zext i{lanes} {other.text} to i64", "int64")
        bits = w.shift_left(bits, at) if at else bits
        mask = bits if mask is None else w.bits_or(mask, bits)
    result: Value = mask
    return result


def _int(number: int) -> Value:
    return constant(number, "int64")
