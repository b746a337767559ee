"""Shapes and dtypes of values: specs, unknown sizes, broadcasting, shape rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kerasish.errors import ShapeError
from kerasish.typing import Axis

Shape = tuple[Any, ...]  # sizes; None where a size is not known yet


class Spec(NamedTuple):
    """Shape and dtype of a value."""

    shape: Shape
    dtype: str

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)


class Unknown(int):
    """A number that represents an unknown size while shapes are inferred.

    What is computed from one is unknown, too. It is equal to its number, but hashes otherwise: what
    is kept for a real size is never taken for it.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "None"

    def __hash__(self) -> int:
        return hash((Unknown, int(self)))


def _computed(name: str) -> Callable[..., Any]:
    method = getattr(int, name)

    def compute(self: Unknown, *other: Any) -> int:
        y = method(self, *other)
        return Unknown(y) if type(y) is int else y

    compute.__name__ = name
    return compute


for _name in "add radd sub rsub mul rmul floordiv rfloordiv neg".split():
    setattr(Unknown, f"__{_name}__", _computed(f"__{_name}__"))


def is_unknown(size: int | None) -> bool:
    """Return whether a size is not known yet."""
    return size is None or type(size) is Unknown


def least(sizes: Sequence[Any]) -> Any:
    """Return the smallest size; where one is unknown, so is the smallest."""
    return next(filter(is_unknown, sizes), None) if any(map(is_unknown, sizes)) else min(sizes)


def agree(a: int | None, b: int | None) -> bool:
    """Return whether two sizes are equal, or may be since one of them is unknown.

    Example:
        >>> agree(3, 3), agree(3, None), agree(3, 4)
        (True, True, False)
    """
    return a == b or is_unknown(a) or is_unknown(b)


def no_size(what: str, shape: Shape) -> ShapeError:
    """Return the error of an op that computes numbers of an unknown size."""
    return ShapeError(
        f"{what}: the shape {tuple(shape)} has None, which is no size where numbers are computed. "
        "ops.shape of a model's symbolic tensor has None for the sizes that vary: take the shape "
        "in a layer's call, or add ops.zeros_like(x) to broadcast to the shape of x."
    )


def broadcast_shapes(*shapes: Shape, what: str = "broadcast") -> Shape:
    """Return the shape to which `shapes` broadcast; an unknown size gives way to a known one.

    Example:
        >>> broadcast_shapes((2, 1, None), (3, 1))
        (2, 3, None)
    """
    first = shapes[0]
    if all(s == first for s in shapes):
        return first
    ndim = max(map(len, shapes))
    result: list[Any] = [1] * ndim
    for shape in shapes:
        for axis, size in enumerate(shape, ndim - len(shape)):
            known = result[axis]
            if known == 1 or (known is None and size not in (1, None)):
                result[axis] = size
            elif size not in (1, None, known) and type(size) is not Unknown:
                if type(known) is Unknown:
                    result[axis] = size
                    continue
                raise ShapeError(
                    f"{what}: shapes {' and '.join(map(str, shapes))} do not broadcast: "
                    f"sizes {known} and {size} of axis {axis - ndim} differ."
                )
    return tuple(result)


def broadcast(*specs: Spec, **attrs: Any) -> Spec:
    """Shape rule: the inputs broadcast, the dtype stays."""
    return Spec(broadcast_shapes(*(s.shape for s in specs)), specs[0].dtype)


def broadcast_bool(*specs: Spec, **attrs: Any) -> Spec:
    """Shape rule: the inputs broadcast, the result is bool."""
    return Spec(broadcast_shapes(*(s.shape for s in specs)), "bool")


def same(x: Spec, *others: Spec, **attrs: Any) -> Spec:
    """Shape rule: as the first input."""
    return Spec(x.shape, x.dtype)


def normalize_axis(axis: Any, ndim: int, what: str) -> int:
    """Return `axis` as a number in [0, ndim)."""
    number = int(axis)
    if not -ndim <= number < ndim:
        raise ShapeError(f"{what}: axis {number} is out of range for {ndim} axes.")
    return number % ndim


def normalize_axes(axis: Axis | None, ndim: int, what: str) -> tuple[int, ...]:
    """Return `axis` (None: all, a number, or a sequence) as a sorted tuple in [0, ndim)."""
    if axis is None:
        return tuple(range(ndim))
    many = axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = tuple(sorted(normalize_axis(a, ndim, what) for a in many))
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{what}: axis {axis} names an axis twice.")
    return axes
