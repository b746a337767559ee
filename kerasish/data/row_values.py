"""Stand-ins for the arrays of one element that hold the arrays of many: one NumPy call for all.

A function that `map` calls for each element is a function of NumPy arrays. Called with a `Row` in
place of each array, it computes all rows of a block at once, as long as it only does what gives
each row the same bits as a call for only that row. All else raises `NotRowWise`, and `map` calls
the function for each element.

What gives the same bits: operations whose result for one number depends only on that number and is
exact or correctly rounded (arithmetic, comparisons, square roots, casts), operations that only move
numbers, sums of integers, and sums of all numbers of a row that is stored without gaps, which
NumPy adds in the same order. Not: exponentials, logarithms and other functions whose last bit may
depend on the place in a vector register; products of matrices; sums of floats along some axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from kerasish.row_formulas import OPS, RowFormula
from kerasish.typing import Array

NUMBERS = frozenset(
    np.dtype(name)
    for name in ("bool", "float32", "float64")
    + tuple(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))
)


class NotRowWise(Exception):  # noqa: N818 - says what a function is; no error of a user's
    """A function does something that is not certain to give each row the same bits."""


class Row:
    """The array of each element, for all rows of a block. Its truth value and number are refused.

    Args:
        block: an array whose first axis counts the rows.
        formula: of the numbers of a row in C order, where it is known.
    """

    __slots__ = ("block", "formula")
    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 1000.0

    def __init__(self, block: Array, formula: RowFormula | None = None) -> None:
        self.block, self.formula = block, formula

    # --- facts that all rows share ----------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        return self.block.shape[1:]

    @property
    def ndim(self) -> int:
        return self.block.ndim - 1

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def dtype(self) -> Any:
        return self.block.dtype

    @property
    def T(self) -> Row:  # noqa: N802 - NumPy's name
        return self.transpose()

    def __len__(self) -> int:
        if not self.ndim:
            raise NotRowWise("len() of a number")
        return self.shape[0]

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Row:
        if method != "__call__" or options or ufunc not in UFUNCS:
            raise NotRowWise(f"{ufunc.__name__}.{method}")
        return UFUNCS[ufunc](*inputs)

    # --- parts and shapes -------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Row:
        keys = key if type(key) is tuple else (key,)
        for part in keys:
            if not (part is None or part is Ellipsis or type(part) in (int, slice)):
                raise NotRowWise(f"index {type(part).__name__}")
        block, old = self.block[(slice(None), *keys)], self.block
        whole = block.flags.c_contiguous and old.flags.c_contiguous and block.size == old.size
        return Row(block, self.formula if whole and block.ctypes.data == old.ctypes.data else None)

    def reshape(self, *shape: Any) -> Row:
        sizes = tuple(shape[0]) if len(shape) == 1 and type(shape[0]) in (tuple, list) else shape
        if not all(type(size) is int for size in sizes) or not self.size:
            raise NotRowWise("reshape")
        return Row(self.block.reshape(len(self.block), *sizes), self.formula)

    def flatten(self) -> Row:
        return self.ravel().copy()

    def ravel(self) -> Row:
        return Row(self.block.reshape(len(self.block), -1), self.formula)

    def transpose(self, *axes: Any) -> Row:
        order = axes[0] if len(axes) == 1 and type(axes[0]) in (tuple, list) else axes
        order = tuple(order or ()) or tuple(reversed(range(self.ndim)))
        return Row(self.block.transpose(0, *(axis_of(axis, self.ndim) for axis in order)))

    def swapaxes(self, axis1: int, axis2: int) -> Row:
        one, other = axis_of(axis1, self.ndim), axis_of(axis2, self.ndim)
        return Row(self.block.swapaxes(one, other))

    def squeeze(self, axis: int | None = None) -> Row:
        if axis is not None:
            return Row(self.block.squeeze(axis_of(axis, self.ndim)), self.formula)
        return self.reshape(*(size for size in self.shape if size != 1))

    def copy(self) -> Row:
        return Row(self.block.copy(), self.formula)

    def astype(self, dtype: Any, copy: bool = True) -> Row:
        block, target = numbers(self.block), np.dtype(dtype)
        if target not in NUMBERS:
            raise NotRowWise(f"astype({target})")
        if block.dtype.kind == "f" and target.kind in "iu":
            limits = np.iinfo(target)  # beyond them the result depends on the processor
            least, most = float(block.min()), float(block.max())
            if not limits.min <= least <= most < float(limits.max):
                raise NotRowWise("a float beyond the integers of a dtype")
        exact = target.kind == "f" or target.kind != "b" and block.dtype.kind != "f"
        formula = self.formula.cast(target) if exact and self.formula is not None else None
        return Row(block.astype(target, copy=copy), formula)

    # --- reductions -------------------------------------------------------------------------------

    def sum(self, axis: Any = None, keepdims: bool = False) -> Row:
        return _reduce(np.sum, self, axis, keepdims, exact=self.dtype.kind != "f")

    def prod(self, axis: Any = None, keepdims: bool = False) -> Row:
        return _reduce(np.prod, self, axis, keepdims, exact=self.dtype.kind != "f")

    def mean(self, axis: Any = None, keepdims: bool = False) -> Row:
        return _reduce(np.mean, self, axis, keepdims)

    def std(self, axis: Any = None, keepdims: bool = False) -> Row:
        return _reduce(np.std, self, axis, keepdims)

    def var(self, axis: Any = None, keepdims: bool = False) -> Row:
        return _reduce(np.var, self, axis, keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Row:
        return _reduce(np.max, _without_signed_zeros(self), axis, keepdims, exact=True)

    def min(self, axis: Any = None, keepdims: bool = False) -> Row:
        return _reduce(np.min, _without_signed_zeros(self), axis, keepdims, exact=True)

    def any(self, axis: Any = None, keepdims: bool = False) -> Row:
        return _reduce(np.any, self, axis, keepdims, exact=True)

    def all(self, axis: Any = None, keepdims: bool = False) -> Row:
        return _reduce(np.all, self, axis, keepdims, exact=True)

    def argmax(self, axis: int | None = None) -> Row:
        return _position(np.argmax, self, axis)

    def argmin(self, axis: int | None = None) -> Row:
        return _position(np.argmin, self, axis)

    def clip(self, min: Any = None, max: Any = None) -> Row:
        return clip(self, min, max)

    def round(self, decimals: int = 0) -> Row:
        if decimals != 0 or type(decimals) is not int or self.dtype.kind != "f":
            raise NotRowWise("round")
        return UFUNCS[np.rint](self)


def axis_of(axis: Any, rank: int) -> int:
    """Return the axis of a block that is an axis of its rows."""
    if type(axis) is not int or not -rank <= axis < rank:
        raise NotRowWise(f"axis {axis!r}")
    return axis % rank + 1


def numbers(array: Array) -> Array:
    """Return an array if its dtype has exact operations."""
    if array.dtype not in NUMBERS:
        raise NotRowWise(f"dtype {array.dtype}")
    return array


def aligned(values: tuple[Any, ...]) -> tuple[list[Any], int]:
    """Return values that broadcast as the rows of a block do, and the rank of a result's rows.

    Python's numbers stay, since they take the dtype of an array next to them.
    """
    parts: list[Any] = []
    for value in values:
        if type(value) is Row:
            numbers(value.block)
        elif isinstance(value, (list, tuple)):
            value = numbers(np.asarray(value))
        elif isinstance(value, (np.ndarray, np.generic)):
            numbers(value)
        elif type(value) not in (int, float, bool):
            raise NotRowWise(f"an operand {type(value).__name__}")
        parts.append(value)
    rank = max(part.ndim for part in parts if hasattr(part, "ndim"))
    return [_raised(part, rank) if type(part) is Row else part for part in parts], rank


def _raised(row: Row, rank: int) -> Array:
    block = row.block
    if row.ndim == rank:
        return block
    return block.reshape(len(block), *(1,) * (rank - row.ndim), *row.shape)


def _ufunc(ufunc: Any, check: Callable[[Any, list[Any], int], None] | None = None) -> Any:
    """Return what applies a ufunc to rows; `check` raises for operands that are not exact."""

    def applied(*values: Any) -> Row:
        operands, rank = aligned(values)
        if check is not None:
            check(ufunc, operands, rank)
        result = ufunc(*operands)
        if result.ndim != rank + 1:
            raise NotRowWise(f"{ufunc.__name__} of these shapes")
        return Row(numbers(result), _formula(ufunc, values, result))

    return applied


def _formula(ufunc: Any, values: tuple[Any, ...], result: Array) -> RowFormula | None:
    """Return the formula of a ufunc's result; None where not all that it needs is known."""
    op, shape, dtype = _OPS.get(ufunc), result.shape[1:], result.dtype
    if op is None or any(type(v) is Row and (not v.formula or v.shape != shape) for v in values):
        return None
    if dtype.kind == "b" or dtype.kind in "iu" and not shape:
        return None  # NumPy warns of single integers that overflow
    return RowFormula(op, dtype, tuple([_operand(value, dtype, shape) for value in values]))


def _operand(value: Any, dtype: Any, shape: tuple[int, ...]) -> RowFormula:
    known = value.formula if type(value) is Row else None
    if known is not None:
        return known.cast(dtype)
    content = np.array(value, dtype)  # a copy: the array may change
    return RowFormula(
        "value", dtype, content=np.broadcast_to(content, shape if content.ndim else ())
    )


_OPS = {ufunc: op for op, ufunc in OPS.items()}


def _wraps(ufunc: Any, operands: list[Any], rank: int) -> None:
    """Raise where single integers may overflow: NumPy warns of it, but not in arrays."""
    if rank or not all(np.result_type(value).kind in "iub" for value in operands):
        return
    ends = [(int(np.min(value)), int(np.max(value))) for value in operands]
    limits = np.iinfo(np.result_type(*operands, np.int8(0)))
    if len(ends) == 1:
        ends = [(0, 0), *ends]
    (a, b), (c, d) = ends
    corners = [a * c, a * d, b * c, b * d, a + c, b + d, a - d, b - c]
    if not limits.min <= min(corners) <= max(corners) <= limits.max:
        raise NotRowWise("an integer that may overflow")


def _signed_zeros(ufunc: Any, operands: list[Any], rank: int) -> None:
    """Raise where the result may be -0.0 or 0.0, depending on the place in a vector register."""
    for value in operands:
        if np.any(np.signbit(value) & (np.asarray(value) == 0)):
            raise NotRowWise("-0.0")


def _without_signed_zeros(row: Row) -> Row:
    if row.dtype.kind == "f":
        _signed_zeros(None, [row.block], row.ndim)
    return row


def _maximum(ufunc: Any, operands: list[Any], rank: int) -> None:
    if any(np.result_type(value).kind == "f" for value in operands):
        _signed_zeros(ufunc, operands, rank)


def _integers(ufunc: Any, operands: list[Any], rank: int) -> None:
    """Raise unless integers are divided by a positive integer: else signs and zeros matter."""
    dividend, divisor = operands
    if type(divisor) is not int or divisor < 1 or np.result_type(dividend).kind not in "iu":
        raise NotRowWise(f"{ufunc.__name__} of these operands")


def _squares(ufunc: Any, operands: list[Any], rank: int) -> None:
    base, exponent = operands
    if type(exponent) not in (int, float) or exponent != 2 or not rank or base.dtype.kind != "f":
        raise NotRowWise("a power that is no square")


_EXACT = (
    "true_divide", "positive", "sqrt", "square", "sign", "floor", "ceil", "rint", "trunc",
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and",
    "logical_or", "logical_not", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor",
    "invert", "isnan", "isfinite", "isinf", "signbit",
)  # fmt: skip
_CHECKED: dict[str, Callable[[Any, list[Any], int], None]] = {
    "add": _wraps, "subtract": _wraps, "multiply": _wraps, "negative": _wraps, "absolute": _wraps,
    "maximum": _maximum, "minimum": _maximum, "floor_divide": _integers, "remainder": _integers,
}  # fmt: skip
UFUNCS: dict[Any, Callable[..., Row]] = {
    getattr(np, name): _ufunc(getattr(np, name), _CHECKED.get(name))
    for name in (*_EXACT, *_CHECKED)
}


def _power(base: Any, exponent: Any) -> Row:
    _squares(np.power, [base, exponent], getattr(base, "ndim", 0))
    block = numbers(base.block) ** exponent  # not by the ufunc: NumPy squares here
    return Row(block, _formula(np.square, (base,), block))


def _reduce(
    function: Callable[..., Any], row: Row, axis: Any, keepdims: bool, exact: bool = False
) -> Row:
    block, rank = numbers(row.block), row.ndim
    if not row.size or not rank:
        raise NotRowWise("a reduction of one number or of none")
    axes = range(rank) if axis is None else axis if type(axis) is tuple else (axis,)
    over = tuple(sorted({axis_of(a, rank) for a in axes}))
    if not exact:
        whole = len(over) == rank and block.flags.c_contiguous
        if not whole or block.dtype.kind in "iu" and block.dtype.itemsize == 8:
            raise NotRowWise("a sum of floats in an order that may differ")
        result = function(block.reshape(len(block), -1), axis=1)
        kept = (1,) * rank if keepdims else ()
        return Row(result.reshape(len(block), *kept))
    return Row(function(block, axis=over, keepdims=bool(keepdims)))


def _position(function: Callable[..., Any], row: Row, axis: int | None) -> Row:
    block = numbers(row.block)
    if not row.size or not row.ndim:
        raise NotRowWise("the position of one number or of none")
    if axis is None:
        return Row(function(block.reshape(len(block), -1), axis=1))
    return Row(function(block, axis=axis_of(axis, row.ndim)))


def clip(value: Any, least: Any, most: Any) -> Row:
    """Return `np.clip` of rows, without -0.0 among the operands."""
    given = [part for part in (value, least, most) if part is not None]
    operands, rank = aligned(tuple(given))
    _maximum(np.clip, operands, rank)
    places = iter(operands[1:])
    low, high = (None if part is None else next(places) for part in (least, most))
    return Row(numbers(np.clip(operands[0], low, high)))


def where(condition: Any, chosen: Any, other: Any) -> Row:
    """Return `np.where` of rows."""
    operands, _ = aligned((condition, chosen, other))
    return Row(numbers(np.where(*operands)))


class Table(np.ndarray):  # type: ignore[misc]  # NumPy has no types here
    """An array that all rows share: rows can be taken from it by the numbers that a Row holds."""

    def __getitem__(self, key: Any) -> Any:
        if type(key) is not Row:
            return super().__getitem__(key)
        index, count = key.block, len(self)
        if index.dtype.kind not in "iu" or not count:
            raise NotRowWise("an index that is no integer")
        if not -count <= int(index.min()) <= int(index.max()) < count:
            raise NotRowWise("an index out of range")  # the call for that row says which
        return Row(np.take(np.asarray(self), index.astype(np.intp), axis=0))


def _refused(name: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **options: Any) -> NoReturn:
        raise NotRowWise(f"{name} of an array, which differs between rows")

    return refuse


_BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide,
    "floordiv": np.floor_divide, "mod": np.remainder, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip
_COMPARED = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal,
}  # fmt: skip
_REFUSED = (
    "bool", "int", "float", "complex", "index", "round", "trunc", "floor", "ceil", "iter",
    "reversed", "contains", "setitem", "delitem", "format", "repr", "str", "array", "matmul",
    "rmatmul", "imatmul", "divmod", "rdivmod", "lshift", "rshift", "rlshift", "rrshift", "rpow",
    "ipow", "ilshift", "irshift", "copy", "deepcopy", "reduce", "reduce_ex",
)  # fmt: skip


def _operators() -> dict[str, Any]:
    """Return the methods of Row for Python's operators."""

    def forward(function: Any) -> Any:
        return lambda self, other: function(self, other)

    def reflected(function: Any) -> Any:
        return lambda self, other: function(other, self)

    methods: dict[str, Any] = {
        "pow": _power,
        "neg": UFUNCS[np.negative],
        "pos": UFUNCS[np.positive],
        "abs": UFUNCS[np.absolute],
        "invert": UFUNCS[np.invert],
    }
    for name, ufunc in _BINARY.items():
        methods[name] = forward(UFUNCS[ufunc])
        methods[f"r{name}"] = reflected(UFUNCS[ufunc])
        methods[f"i{name}"] = _refused("a change")
    methods |= {name: forward(UFUNCS[ufunc]) for name, ufunc in _COMPARED.items()}
    methods |= {name: _refused(name) for name in _REFUSED}
    return methods


for _name, _method in _operators().items():
    setattr(Row, f"__{_name}__", _method)
