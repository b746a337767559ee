"""Element-wise ops and sums of large float32 arrays by compiled loops; by NumPy otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from kerasish.backends.eager.memory import empty
from kerasish.backends.eager.native_loops import FLOAT, CompiledLoop, Frame, fits, frame_of, run
from kerasish.backends.loops import LoopBuilder
from kerasish.typing import Array

LEAST = 1 << 16  # elements; NumPy reads smaller arrays as fast
_LEAST_RELU = 1 << 14  # the same for relu, for which NumPy takes three times as long


@lru_cache(maxsize=256)
def _loop(name: str, *levels: str) -> CompiledLoop:
    """Return the loop of an op whose operands have these levels."""

    def describe(k: LoopBuilder) -> None:
        k.output(k.op(name, *[k.input("float32", level) for level in levels]))

    return CompiledLoop(describe)


class Unary:
    """An op of one array.

    Args:
        name: the op's.
        plain: NumPy's function for it.
    """

    def __init__(self, name: str, plain: Callable[..., Any]) -> None:
        self.name, self.plain = name, plain

    def __call__(self, x: Array) -> Array:
        """Return the op of x."""
        if x.size < self._least() or not fits(x):
            return self.plain(x)
        loop = _loop(self.name, "element").find()
        if loop is None:
            return self.plain(x)
        y = empty(x.shape, FLOAT)
        loop((x, y), 1, x.size)
        return y

    def _least(self) -> int:
        return min(LEAST, _LEAST_RELU) if self.name == "relu" else LEAST


class Binary:
    """An op of two arrays that broadcast.

    Args:
        name: the op's.
        plain: NumPy's function for it.
    """

    def __init__(self, name: str, plain: Callable[..., Any]) -> None:
        self.name, self.plain = name, plain

    def __call__(self, a: Array, b: Array) -> Array:
        """Return the op of a and b."""
        if a.size < LEAST and b.size < LEAST:
            return self.plain(a, b)
        result = self._by_loop(a, b)
        return self.plain(a, b) if result is None else result

    def _by_loop(self, a: Array, b: Array) -> Array | None:
        if a.size >= b.size:
            if not fits(a, b):
                return None
            place = _levels(a.shape, b.shape)
            levels = None if place is None else ("element", place[0])
        else:
            if not fits(b, a):
                return None
            place = _levels(b.shape, a.shape)
            levels = None if place is None else (place[0], "element")
        if place is None or levels is None:
            return None
        loop = _loop(self.name, *levels).find()
        if loop is None:
            return None
        level, frame = place
        y = empty(a.shape if a.size >= b.size else b.shape, FLOAT)
        if level != "element":
            if a.size >= b.size:
                b = frame.spread(np.asarray(b))
            else:
                a = frame.spread(np.asarray(a))
        run(loop, (a, b, y), frame)
        return y


@lru_cache(maxsize=4096)
def _levels(large: tuple[int, ...], small: tuple[int, ...]) -> tuple[str, Frame] | None:
    """Return the level of the smaller operand, and the loop's frame; None if none fits."""
    size = math.prod(large)
    if large == small:
        return "element", Frame(1, size, 1, 1)
    if len(small) > len(large):
        return None
    if math.prod(small) == 1:
        return "scalar", Frame(1, size, 1, 1)
    full = (1,) * (len(large) - len(small)) + small
    same = [i for i, (m, n) in enumerate(zip(large, full)) if m == n]
    first = next(i for i, n in enumerate(full) if n != 1)
    last = max(i for i, n in enumerate(full) if n != 1)
    if any(i not in same for i in range(first, last + 1)):
        return None
    before, behind = math.prod(large[:first]), math.prod(large[last + 1 :])
    if behind == 1:
        return "column", frame_of(before, size // before)
    if before == 1 and behind >= 16:
        return "row", Frame(size // behind, behind, 1, 1)
    return None


def _relu_gradient(k: LoopBuilder) -> None:
    g, y = k.input("float32"), k.input("float32")
    k.output(g * k.op("cast", y > 0.0, dtype="float32"))


_RELU_GRADIENT = CompiledLoop(_relu_gradient)


def through_relu(g: Array, y: Array) -> Array:
    """Return g where y, a result of relu, is above 0, else g * 0."""
    loop = _RELU_GRADIENT.find() if fits(g, y) else None
    if loop is not None:
        result = empty(g.shape, FLOAT)
        loop((g, y, result), 1, g.size)
        return result
    slope = np.greater(y, 0).astype(g.dtype)
    return np.multiply(g, slope, out=slope)


# --- sums -----------------------------------------------------------------------------------------


_COLUMN_SUM, _ROW_SUM, _ROW_MAX = (
    _loop(name, "element") for name in ("column_sum", "row_sum", "row_max")
)


def reduced(x: Array, axis: Sequence[int], largest: bool = False) -> Array | None:
    """Return the sum of a large array along its first axes, or along its last ones.

    None: NumPy must compute it. The result does not have these axes.

    Args:
        x: the array.
        axis: the axes, not negative.
        largest: whether to return the largest elements instead; only along the last axes.
    """
    if not fits(x):
        return None
    count = len(axis)
    if sorted(axis) == list(range(count)) and count < x.ndim and not largest:
        return _sum_of_rows(x, count)
    if sorted(axis) == list(range(x.ndim - count, x.ndim)) and 0 < count < x.ndim:
        columns = math.prod(x.shape[-count:])
        loop = (_ROW_MAX if largest else _ROW_SUM).find() if columns >= 16 else None
        if loop is None:
            return None
        y = np.empty(x.shape[:-count], FLOAT)
        loop((x, y), y.size, columns)
        return y
    return None


def _sum_of_rows(x: Array, count: int) -> Array | None:
    rest = x.shape[count:]
    columns = math.prod(rest)
    loop = _COLUMN_SUM.find()
    if loop is None:
        return None
    frame = frame_of(x.size // columns, columns)
    parts = frame.parts()
    run(loop, (x, parts), frame, reducing=True)
    return frame.total(parts).reshape(rest)


def is_finite(x: Array) -> bool:
    """Return whether all elements are finite; False if their sum overflows."""
    if fits(x) and x.ndim > 1:
        total = reduced(x, (0,))
        if total is not None:
            return bool(np.isfinite(np.add.reduce(total, axis=None)))
    return bool(np.isfinite(np.add.reduce(x, axis=None)))
