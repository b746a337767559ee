"""Random graphs of ops with every special number, to try passes on: traced, never compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from kerasish import ops
from kerasish.autodiff import grad
from kerasish.graph.ir import Graph
from kerasish.graph.trace import trace
from kerasish.ops import dtypes

SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 5e-324, -2.2e-308, 1e-40, 1e308, -1e154, 1e20)
SCALARS = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.0, 1e30, 1e-30, 1e200, 1e-200, np.inf, np.nan, -2.5)
SIZES = (0, 1, 1, 2, 3, 4, 5)


class Drawn(NamedTuple):
    """A traced graph with arrays for its inputs, and how it was drawn."""

    graph: Graph
    arrays: list[np.ndarray]
    lines: list[str]


Make = Callable[["_Pen"], Any]


class _Pen:
    """Draws one function: a list of choices that are the same whenever it is called."""

    def __init__(self, seed: int, values: list[Any], frame: tuple[int, ...]) -> None:
        self.rng = np.random.default_rng(seed)
        self.values, self.inputs, self.frame = values, list(values), frame
        self.lines: list[str] = []

    def any(self) -> Any:
        if self.rng.random() < 0.6:
            return self.values[-1 - int(self.rng.integers(min(3, len(self.values))))]
        return self.values[int(self.rng.integers(len(self.values)))]

    def like(self, x: Any) -> Any:
        """Return a value that broadcasts with x."""
        fits = [v for v in self.values if _broadcast(v.shape, x.shape)]
        return fits[int(self.rng.integers(len(fits)))]

    def scalar(self) -> float:
        return SCALARS[int(self.rng.integers(len(SCALARS)))]

    def pick(self, many: Any) -> Any:
        return many[int(self.rng.integers(len(many)))]

    def axis(self, x: Any) -> int:
        return int(self.rng.integers(len(x.shape)))

    def axes(self, x: Any) -> tuple[int, ...]:
        many = [i for i in range(len(x.shape)) if self.rng.random() < 0.5]
        return tuple(many) or (self.axis(x),)

    def flag(self) -> bool:
        return bool(self.rng.random() < 0.5)


def _broadcast(a: Any, b: Any) -> bool:
    try:
        return len(np.broadcast_shapes(tuple(a), tuple(b))) < 6
    except ValueError:
        return False


def _arith(pen: _Pen) -> Any:
    x = pen.any()
    f = pen.pick((ops.add, ops.subtract, ops.multiply, ops.divide, ops.maximum, ops.minimum))
    pair = (x, pen.like(x)) if pen.flag() else (x, pen.scalar())
    return f(*(pair if pen.flag() else pair[::-1]))


def _scalings(pen: _Pen) -> Any:
    x = pen.any()
    for _ in range(int(pen.rng.integers(2, 4))):
        x = pen.pick((ops.multiply, ops.divide, ops.add, ops.subtract))(x, pen.scalar())
    return x


UNARY = (
    ops.negative, ops.absolute, ops.exp, ops.log, ops.sqrt, ops.rsqrt, ops.reciprocal, ops.square,
    ops.tanh, ops.relu, ops.sigmoid, ops.sign, ops.stop_gradient, ops.isnan, ops.expm1,
)  # fmt: skip


def _unary(pen: _Pen) -> Any:
    y = pen.pick(UNARY)(pen.any())
    return ops.cast(y, "float64") if str(y.dtype) == "bool" else y


def _power(pen: _Pen) -> Any:
    return ops.power(pen.any(), pen.pick((0.0, 1.0, 2.0, 3.0, 0.5, -1.0, -0.5, -2.0)))


def _reduce(pen: _Pen) -> Any:
    x = pen.any()
    f = pen.pick((ops.sum, ops.mean, ops.max, ops.min, ops.prod))
    axes = pen.axes(x)
    if f in (ops.max, ops.min) and any(x.shape[a] == 0 for a in axes):
        f = ops.sum
    if f in (ops.sum, ops.mean) and all(x.shape[a] == 1 for a in axes):
        x = ops.absolute(x)  # NumPy adds 0.0 to one -0.0, the pass leaves it: either is a sum
    return f(x, axes, keepdims=pen.flag())


def _choose(pen: _Pen) -> Any:
    x, exact = pen.any(), pen.pick(pen.inputs)  # what decides is exact
    if not _broadcast(exact.shape, x.shape):
        return ops.where(ops.isnan(x), ops.zeros_like(x), x)
    return ops.where(ops.greater(exact, pen.scalar()), x, pen.scalar())


def _move(pen: _Pen) -> Any:
    x, kind = pen.any(), int(pen.rng.integers(9))
    if kind == 0:
        return ops.transpose(x, pen.rng.permutation(len(x.shape)).tolist())
    if kind == 1:
        return ops.reshape(x, (*x.shape[1:], x.shape[0]))
    if kind == 2:
        return ops.expand_dims(x, pen.axis(x)) if len(x.shape) < 5 else ops.flip(x, 0)
    if kind == 3:
        return ops.concatenate([x, pen.scalar() * x], pen.axis(x))
    if kind == 4:
        return ops.flip(x, pen.axis(x))
    if kind == 5:
        pads = [(int(pen.rng.integers(0, 2)), int(pen.rng.integers(0, 3))) for _ in x.shape]
        return ops.pad(x, pads, constant_values=pen.scalar())
    if kind == 6:
        slices = [
            slice(int(pen.rng.integers(0, 2)), None, pen.pick((1, 1, 2, None))) for _ in x.shape
        ]
        return x[tuple(slices)]
    if kind == 7:
        return ops.broadcast_to(x, (2, *x.shape)) if len(x.shape) < 5 else ops.negative(x)
    return ops.reshape(x, (1, *x.shape)) if len(x.shape) < 5 else ops.reshape(x, (-1,))


def _product(pen: _Pen) -> Any:
    x = pen.any()
    if len(x.shape) < 2:
        return ops.negative(x)
    w = ops.reshape(ops.cast(ops.arange(x.shape[-1] * 3) % 5, str(x.dtype)), (x.shape[-1], 3))
    y = ops.matmul(x, w) if pen.flag() else ops.matmul(ops.tanh(x), ops.transpose(ops.transpose(w)))
    if pen.flag():
        y = y + ops.cast([1.0, -1.0, 0.5], str(x.dtype))
    if pen.flag():
        y = ops.relu(y)
    return ops.sum(y, tuple(range(len(y.shape) - 1))) if pen.flag() else y


def _rows(pen: _Pen) -> Any:
    x = pen.any()
    if x.shape[0] == 0:
        return ops.absolute(x)
    return ops.take(x, [0, x.shape[0] - 1, 0], axis=0)


def _again(pen: _Pen) -> Any:
    x = pen.any()
    f = pen.pick((ops.exp, ops.tanh, ops.square))
    return f(x) + f(x) * pen.pick((1.0, 2.0, -1.0))


def _constant(pen: _Pen) -> Any:
    shape = tuple(pen.frame)
    created = ops.full(shape, pen.scalar(), dtype=str(pen.inputs[0].dtype))
    return ops.add(created, pen.scalar()) if pen.flag() else created


KINDS: tuple[Make, ...] = (
    _arith, _arith, _scalings, _unary, _unary, _power, _reduce, _choose, _move, _move, _product,
    _rows, _again, _constant,
)  # fmt: skip


def draw(seed: int, dtype: str = "float64", special: bool = True) -> Drawn:
    """Return a random graph: values of a small frame, half of the time with their gradients."""
    rng = np.random.default_rng(seed)
    frame = tuple(int(rng.choice(SIZES)) for _ in range(rng.integers(1, 4)))
    shapes = [frame, tuple(s if rng.random() < 0.6 else 1 for s in frame), frame[-1:]]
    arrays = [_numbers(rng, s, dtype, special) for s in shapes[: rng.integers(1, 4)]]
    count, slopes = int(rng.integers(2, 10)), bool(rng.random() < 0.4)
    lines: list[str] = []

    def function(*inputs: Any) -> Any:
        pen = _Pen(seed, list(inputs), frame)
        results = []
        lines.clear()
        for _ in range(count):
            make = pen.pick(KINDS)
            value = make(pen)
            if 0 < len(value.shape) < 6 and int(np.prod(value.shape)) < 2000:
                pen.values.append(value)
            if pen.flag():
                results.append(value)
            lines.append(f"{make.__name__}: {tuple(value.shape)} {value.dtype}")
        return (*results, value)

    def both(*inputs: Any) -> Any:
        total = lambda x, *more: sum(ops.sum(y) for y in function(x, *more))  # noqa: E731
        return (*function(*inputs), grad(total)(*inputs))

    graph = trace(both if slopes else function, *arrays).graph
    return Drawn(graph, arrays, list(lines))


def _numbers(rng: Any, shape: tuple[int, ...], dtype: str, special: bool) -> np.ndarray:
    x = rng.normal(size=shape)
    if special:
        chosen = rng.random(shape) < 0.25
        x[chosen] = rng.choice(SPECIAL, size=int(chosen.sum()))
    with np.errstate(all="ignore"):
        return x.astype(dtypes.array_dtype(dtype))


def differences(before: list[Any], after: list[Any], relative: float = 1e-9) -> list[str]:
    """Return where two lists of arrays differ: kinds of numbers, signs of zeros, then values."""
    result = []
    for k, (a, b) in enumerate(zip(before, after, strict=True)):
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape or a.dtype != b.dtype:
            result.append(f"{k}: {a.shape} {a.dtype} and {b.shape} {b.dtype}")
            continue
        if a.dtype.kind in "biu":
            wrong = a != b
        else:
            x, y = a.astype("float64"), b.astype("float64")
            with np.errstate(all="ignore"):
                near = np.abs(x - y) <= relative * np.abs(x) + 2e-323
                zeros = (x != 0) | (y != 0) | (np.signbit(x) == np.signbit(y))
            wrong = ~(((x == y) | near | (np.isnan(x) & np.isnan(y))) & zeros)
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            result.append(f"{k}{list(at)}: {a[at]!r} and {b[at]!r}")
    return result
