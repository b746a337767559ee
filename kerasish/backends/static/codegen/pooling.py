"""Maximum pooling and its gradient: loops over windows and vectors of channels.

Arrays are (n, *spatial, channels). A `Pooling` loops over *targets* and reads *sources*:

    kind        target                      sources, in the order of the window's places
    "max"       a window                    the places of x inside it: the largest, and its place
    "gradient"  a place of x                the windows over it: the sum of the chosen ones' g
    "select"    a window                    the places of h inside it: the one that was chosen

The place of an element in its window is its index in C order. NaN is larger than all numbers, the
first of equals is chosen, and the padding is never chosen. One thread writes each target once, and
sums are in the order of the places, so results do not depend on the number of threads.

The sources of a target are computed for each spatial axis separately (`window_ranges.py`). The
chosen places are integers, in rows of channels padded to whole vectors.

All sizes except that of the batch are part of the structure: the work per target is so small that
sizes in registers and on the stack would cost more.

Argument block (int64 words): 0 table, 1 threads, 2 rows (targets without the last spatial axis), 3
address of the sources, 4 of the targets, 5 of the chosen places, then of each axis' ranges.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish.backends.static.codegen import memory, scalars
from kerasish.backends.static.codegen.part import word
from kerasish.backends.static.codegen.window_ranges import Axis, WindowSteps
from kerasish.backends.static.machine.assembly import (
    STORED,
    Target,
    Value,
    Writer,
    computed,
    constant,
    entry_function,
    is_float,
    is_signed,
)

VECTORS = (4, 3, 2)  # possible numbers of vectors of channels in registers
MOST_PLACES = 9  # the largest window whose places are unrolled
RANGES = 6  # the first word of the axes' ranges
DTYPES = frozenset(STORED) - {"bool"}


class Pooling(NamedTuple):
    """Structure of a pooling (see the module).

    Args:
        kind: "max", "gradient" or "select".
        dtype: of sources and targets, one of `DTYPES`; 16-bit floats are computed in float32.
        channels: the number of channels, >= 1.
        axes: the spatial axes.
        sample: the number of sources per sample.
        places: dtype of the chosen places, "uint8" or "int32"; "" if "max" keeps none.
        values: whether "max" stores the largest elements; otherwise it only finds the places.
        single: whether each target has one source (windows that do not overlap, see
            `cover_ranges`).
        size: the window's sizes if its places are unrolled, else (): for "max" and windows of at
            most `MOST_PLACES` places.
        full: whether no window overlaps the padding.
        run: for a "gradient" with one source per target, the number of adjacent targets along the
            last axis with the same source: their places follow each other.
    """

    kind: str
    dtype: str
    channels: int
    axes: tuple[WindowSteps, ...]
    sample: int
    places: str = ""
    values: bool = True
    single: bool = False
    size: tuple[int, ...] = ()
    full: bool = False
    run: int = 1

    @property
    def rank(self) -> int:
        """The number of spatial axes."""
        return len(self.axes)


def places_dtype(size: Sequence[int]) -> str:
    """Return the dtype of the indices of the places of a window."""
    return "uint8" if math.prod(size) <= 256 else "int32"


def padded_channels(channels: int, target: Target) -> int:
    """Return the number of channels, with padding, of a row of chosen places."""
    return -(-channels // target.lanes) * target.lanes


def pack(
    *,
    table: int,
    threads: int,
    samples: int,
    sources: int,
    targets: int,
    places: int,
    axes: Sequence[Axis],
) -> Any:
    """Return the argument block; `axes` must be kept alive with it.

    Args:
        samples: n, at least 1.
        sources, targets, places: addresses; 0 if the structure does not have them.
        axes: the result of `inside_ranges` or, for the gradient, of `cover_ranges`.
    """
    rows = samples * math.prod(axis.steps.targets for axis in axes[:-1])
    words = [table, threads, rows, sources, targets, places]
    words += [axis.ranges.ctypes.data for axis in axes]
    return np.array(words, dtype=np.int64)


def generate(pooling: Pooling, symbol: str, target: Target) -> tuple[str, set[str]]:
    """Return the LLVM IR of `i32 symbol(ptr arguments)`, and what it declares."""
    share = _Share(pooling, target)
    text = f"define internal void @{symbol}.worker(ptr %args, i64 %t, i64 %n) #0 {{\n"
    text += f"{share.write()}\n}}\n" + entry_function(symbol)
    return text, share.w.declared


class _Sources(NamedTuple):
    """The sources of a target along one axis: the first one among the values and among the places
    of windows (offsets of elements), their number, and the place of the first in the window.
    """

    value: Value
    window: Value
    many: Value
    place: Value


class _Share:
    """One thread's share: rows of targets."""

    def __init__(self, pooling: Pooling, target: Target) -> None:
        self.pooling, self.w = pooling, Writer(target)
        self.dtype = computed(pooling.dtype)
        self.size = STORED[pooling.dtype][1]
        self.lanes = target.lanes // 2 if self.size == 8 else target.lanes
        # Of the width of the values, so that both are chosen by one mask.
        self.number = "int64" if self.size == 8 else "int32"
        w, args = self.w, Value("%args", "ptr")
        self.rows = w.load_word(args, 2)
        self.sources, self.targets, self.places = (w.load_word(args, i, "ptr") for i in (3, 4, 5))
        self.ranges = [w.load_word(args, RANGES + i, "ptr") for i in range(pooling.rank)]
        channels, padded = pooling.channels, padded_channels(pooling.channels, target)
        self.channels, self.padded = word(channels), word(padded)
        self.value_steps = [axis.source * channels for axis in pooling.axes]
        self.window_steps = [axis.source * padded for axis in pooling.axes]

    def write(self) -> str:
        w = self.w
        t, n = Value("%t", "int64"), Value("%n", "int64")
        first = w.two("sdiv", w.mul(self.rows, t), n)
        last = w.two("sdiv", w.mul(self.rows, w.add(t, word(1))), n)
        w.loop(first, last, 1, [], lambda r, _: self._row(r))
        w.do("ret void")
        return w.body()

    # --- targets ----------------------------------------------------------------------------------

    def _row(self, r: Value) -> list[Value]:
        """Compute the targets along the last axis."""
        w = self.w
        rest, outer = r, []
        for axis in reversed(range(self.pooling.rank - 1)):
            size = word(self.pooling.axes[axis].targets)
            outer.insert(0, self._range(axis, w.two("srem", rest, size)))
            rest = w.two("sdiv", rest, size)
        pixel = w.mul(rest, word(self.pooling.sample))
        value, window = w.mul(pixel, self.channels), w.mul(pixel, self.padded)
        for part in outer:
            value, window = w.add(value, part.value), w.add(window, part.window)
        count, run = self.pooling.axes[-1].targets, self.pooling.run
        start = w.mul(r, word(count))

        def targets(i: Value, many: int) -> list[Value]:
            last = self._range(self.pooling.rank - 1, i)
            begin = [w.add(value, last.value), w.add(window, last.window)]
            self._channels(w.add(start, i), begin, [*outer, last], many)
            return []

        whole = count // run * run if run > 1 else 0
        if whole:
            w.loop(word(0), word(whole), run, [], lambda i, _: targets(i, run))
        return w.loop(word(whole), word(count), 1, [], lambda i, _: targets(i, 1))

    def _range(self, axis: int, at: Value) -> _Sources:
        w = self.w
        entry = w.address(self.ranges[axis], w.mul(at, word(3)), 8)
        first, count, place = (
            w.load_value(w.address(entry, word(i), 8), "int64") for i in range(3)
        )
        return _Sources(w.mul(first, self.channels), w.mul(first, self.padded), count, place)

    def _channels(self, target: Value, begin: list[Value], parts: list[_Sources], run: int) -> None:
        """Compute all channels of one target, or of a run of them, a few vectors at a time."""
        w = self.w
        to = w.address(self.targets, w.mul(target, self.channels), self.size)
        chosen = w.mul(target, self.padded)
        whole, rest = divmod(self.pooling.channels, self.lanes)
        many = next((v for v in VECTORS if whole and whole % v == 0), min(whole, VECTORS[0]))
        wide = whole - whole % many if many else 0

        def block(vectors: int, rest: int = 0) -> Callable[[Value, list[Value]], list[Value]]:
            def at(c: Value, _: list[Value]) -> list[Value]:
                _Block(self, c, vectors, rest).write(to, chosen, begin, parts, run)
                return []

            return at

        for first, last, vectors in ((0, wide, many), (wide, whole, 1)):
            step = vectors * self.lanes
            if last - first <= vectors:
                if last > first:
                    block(vectors)(word(first * self.lanes), [])
            else:
                w.loop(word(first * self.lanes), word(last * self.lanes), step, [], block(vectors))
        if rest:
            block(1, rest)(word(whole * self.lanes), [])


class _Block:
    """A few vectors of channels of one target, or of a run of them.

    Args:
        c: the first channel.
        rest: the number of lanes that are channels, 0 for all.
    """

    def __init__(self, share: _Share, c: Value, vectors: int, rest: int) -> None:
        self.share, self.pooling, self.w = share, share.pooling, share.w
        self.c, self.vectors, self.lanes = c, vectors, share.lanes
        self.rest = word(rest) if rest else None
        self.chosen: list[Value] = []

    def write(
        self, to: Value, chosen: Value, begin: list[Value], parts: list[_Sources], run: int
    ) -> None:
        """Store the result of the sources of a target, or of each target of a run.

        Args:
            to: address of the target's channel 0. chosen: the target's first element among the
                chosen places. begin: the first of its sources, among the values and among the
                places of windows.
        """
        w, kind = self.w, self.pooling.kind
        if kind == "select":
            self.chosen = self._numbers(chosen)
        place = parts[0].place
        for part in parts[1:]:
            place = w.add(place, part.place)
        if run > 1:
            self._spread(to, begin, place, run)
            return
        at = [*begin, place]
        state = self._fold(parts, at)
        if kind != "max" or self.pooling.values:
            self._store(to, state[: self.vectors])
        if kind == "max" and self.pooling.places:
            self._keep(chosen, state[self.vectors :])

    def _spread(self, to: Value, begin: list[Value], place: Value, run: int) -> None:
        """Store a source at the target that was chosen, and 0 at the others of a run."""
        w, source, chosen = self.w, self._load_raw(begin[0]), self._numbers(begin[1])
        for k in range(run):
            here = self._splat(w.add(place, word(k)))
            hits = [w.compare("eq", number, here) for number in chosen]
            kept = [w.select(hit, x, w.like(x, 0)) for hit, x in zip(hits, source, strict=True)]
            self._store_raw(w.address(to, word(k * self.pooling.channels), self.share.size), kept)

    def _fold(self, parts: list[_Sources], at: list[Value]) -> list[Value]:
        """Return the state after all sources of a target."""
        w, size = self.w, self.pooling.size
        if self.pooling.full and size:
            return self._written_out(at)
        if not size:
            return self._taps(0, parts, at, self._start(at[2]))
        whole = constant(1, "bool")
        for part, number in zip(parts, size, strict=True):
            whole = w.bits_and(whole, w.compare("eq", part.many, word(number)))
        return w.branch(
            whole,
            lambda: self._written_out(at),
            lambda: self._taps(0, parts, at, self._start(at[2])),
        )

    def _written_out(self, at: list[Value]) -> list[Value]:
        """Return the state after all places of a window inside x."""
        w, steps, size = self.w, self.share.value_steps, self.pooling.size
        offsets = []
        for place in itertools.product(*map(range, size)):
            shift = sum(step * k for step, k in zip(steps, place, strict=True))
            offsets.append(w.add(at[0], word(shift)))
        if not self.pooling.places:
            return [self._largest(v) for v in zip(*map(self._load, offsets))]
        state = self._load(offsets[0]) + [self._splat(word(0))] * self.vectors
        for number, offset in enumerate(offsets[1:], 1):
            state = self._tap([offset, at[1], word(number)], state)
        return state

    def _largest(self, values: Sequence[Value]) -> Value:
        """Return the largest elements, NaN if any is NaN: one comparison checks two."""
        w, best = self.w, values[0]
        for value in values[1:]:
            larger = "ogt" if is_float(value.dtype) else "sgt" if is_signed(value.dtype) else "ugt"
            best = w.select(w.compare(larger, value, best), value, best)
        if not is_float(best.dtype):
            return best
        pairs = itertools.zip_longest(values[::2], values[1::2], fillvalue=values[0])
        known = functools.reduce(w.bits_and, [w.compare("ord", *pair) for pair in pairs])
        return w.select(known, best, w.like(best, math.nan))

    def _start(self, place: Value) -> list[Value]:
        if self.pooling.kind != "max":
            return [constant(0, self.share.dtype, self.lanes)] * self.vectors
        lowest = scalars.neutral("row_max", self.share.dtype, self.lanes)
        # In a window with nothing larger, the first place inside x is chosen.
        first = [self._splat(place)] * self.vectors if self.pooling.places else []
        return [lowest] * self.vectors + first

    def _splat(self, place: Value) -> Value:
        if not place.text.startswith("%"):
            return constant(int(place.text), self.share.number, self.lanes)
        number = self.w.convert("trunc", place, self.share.number)
        return self.w.splat(number, self.lanes)

    def _taps(
        self, axis: int, parts: list[_Sources], at: list[Value], state: list[Value]
    ) -> list[Value]:
        """Fold the sources along this axis and those after it into the state."""
        w, share, pooling = self.w, self.share, self.pooling
        if axis == pooling.rank or pooling.single:
            return self._tap(at, state)
        steps = (share.value_steps[axis], share.window_steps[axis], pooling.axes[axis].place)

        def one(_: Value, carried: list[Value]) -> list[Value]:
            here = carried[:3]
            folded = self._taps(axis + 1, parts, here, carried[3:])
            return [*(w.add(a, word(s)) for a, s in zip(here, steps, strict=True)), *folded]

        return w.loop(word(0), parts[axis].many, 1, [*at, *state], one)[3:]

    def _tap(self, at: list[Value], state: list[Value]) -> list[Value]:
        """Fold one source into the state."""
        w, (value, window, place) = self.w, at
        values = self._load(value)
        if self.pooling.kind == "max" and not self.pooling.places:
            return [scalars.maximum(w, b, a) for a, b in zip(state, values, strict=True)]
        here = self._splat(place)
        if self.pooling.kind == "max":
            return self._larger(values, here, state)
        chosen = self.chosen if self.pooling.kind == "select" else self._numbers(window)
        results = []
        for old, new, number in zip(state, values, chosen, strict=True):
            hit = w.compare("eq", number, here)
            if self.pooling.kind == "select":
                results.append(w.select(hit, new, old))
            else:
                one = w.select(hit, new, w.like(new, 0))
                results.append(one if self.pooling.single else w.add(old, one))
        return results

    def _larger(self, values: list[Value], here: Value, state: list[Value]) -> list[Value]:
        """Return the largest elements, the first of equals or of NaNs, and their places."""
        w, best, places = self.w, [], []
        for n, value in enumerate(values):
            old, place = state[n], state[self.vectors + n]
            if is_float(value.dtype):
                # Choose the new one if it is larger, or if it is NaN and the old one is not.
                hit = w.bits_and(w.compare("ugt", value, old), w.compare("ord", old, old))
            else:
                hit = w.compare("sgt" if is_signed(value.dtype) else "ugt", value, old)
            best.append(w.select(hit, value, old))
            places.append(w.select(hit, here, place))
        return best + places

    # --- memory -----------------------------------------------------------------------------------

    def _at(self, offset: Value, vector: int) -> Value:
        """Return the number of the element `offset` of channel 0 in one of the vectors."""
        return self.w.add(self.w.add(offset, self.c), word(vector * self.lanes))

    def _load(self, offset: Value) -> list[Value]:
        dtype = self.pooling.dtype
        return [memory.from_storage(self.w, raw, dtype) for raw in self._load_raw(offset)]

    def _load_raw(self, offset: Value) -> list[Value]:
        w, dtype = self.w, self.pooling.dtype
        results = []
        for n in range(self.vectors):
            at = w.address(self.share.sources, self._at(offset, n), self.share.size)
            if self.rest is None:
                raw = memory.load_full(w, at, dtype, self.lanes)
            else:
                mask = memory.tail_mask(w, self.rest, self.lanes)
                raw = memory.load_tail(w, at, dtype, self.lanes, self.rest, mask)
            results.append(raw)
        return results

    def _store(self, to: Value, values: list[Value]) -> None:
        dtype = self.pooling.dtype
        self._store_raw(to, [memory.to_storage(self.w, value, dtype) for value in values])

    def _store_raw(self, to: Value, values: list[Value]) -> None:
        w, dtype = self.w, self.pooling.dtype
        for n, raw in enumerate(values):
            at = w.address(to, self._at(word(0), n), self.share.size)
            if self.rest is None:
                memory.store_full(w, raw, at, dtype)
            else:
                mask = memory.tail_mask(w, self.rest, self.lanes)
                memory.store_tail(w, raw, at, dtype, self.rest, mask)

    def _numbers(self, offset: Value) -> list[Value]:
        """Return the chosen places of vectors of channels."""
        w, dtype = self.w, self.pooling.places
        results = []
        for n in range(self.vectors):
            at = w.address(self.share.places, self._at(offset, n), STORED[dtype][1])
            raw = memory.load_full(w, at, dtype, self.lanes)
            results.append(w.convert("zext", raw, self.share.number))
        return results

    def _keep(self, chosen: Value, numbers: list[Value]) -> None:
        w, dtype = self.w, self.pooling.places
        for n, number in enumerate(numbers):
            at = w.address(self.share.places, self._at(chosen, n), STORED[dtype][1])
            memory.store_full(w, w.convert("trunc", number, dtype), at, dtype)
