"""Rules of ops for the rows of a batch: where the rows of a result are, and on what they depend.

`graph/by_rows.py` proves with them that row i of a result depends only on row i of the inputs. The
trait `rows` of an op is such a rule; an op without one (and not element-wise) is assumed to mix
rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class NotByRows(Exception):  # noqa: N818 (a signal, not an error)
    """Nothing proves that the rows of a result depend only on the same rows of the inputs."""


class RowPlace(NamedTuple):
    """The place of a batch's rows in a value.

    Attributes:
        axis: of the value. Its size is before * rows * after, and its index is
            (i * rows + row) * after + j.
        before: the number of values i.
        after: the number of values j.
    """

    axis: int
    before: int = 1
    after: int = 1


class RowCall:
    """A call of an op on values of which some hold the rows of a batch.

    Args:
        shapes: of the inputs.
        results: the shapes of the results.
        attrs: of the op, canonical.
        places: the place of the rows in each input; None: it holds none.
        rows: how many there are.
        block: how many there are in what the call is rewritten to.

    Attributes:
        shrunk: (input, axis) -> the size that this axis must be given: an input without rows is
            read along the rows, so it must repeat itself there.
    """

    def __init__(
        self, shapes: Sequence[tuple[int, ...]], results: Sequence[tuple[int, ...]],
        attrs: dict[str, Any], places: Sequence[RowPlace | None], rows: int, block: int,
    ) -> None:  # fmt: skip
        self.shapes, self.results, self.attrs = list(shapes), list(results), attrs
        self.places, self.rows, self.block = list(places), rows, block
        self.shrunk: dict[tuple[int, int], int] = {}

    def resized(self, shape: Sequence[int], place: RowPlace) -> tuple[int, ...]:
        """Return a shape with as many rows as a block has."""
        at, before, after = place
        return (*shape[:at], before * self.block * after, *shape[at + 1 :])

    def only(self, *inputs: int) -> list[RowPlace]:
        """Return the places of the rows in these inputs; all of them hold rows, no other one does.

        Raises:
            NotByRows: it is not so.
        """
        for i, place in enumerate(self.places):
            if (place is not None) != (i in inputs):
                raise NotByRows
        return [place for i in inputs if (place := self.places[i]) is not None]

    def shrink(self, number: int, axis: int, place: RowPlace) -> None:
        """Ask for an input without rows that is read along the rows, at `axis`."""
        self.shrunk[number, axis] = place.before * self.block * place.after


Rule = Callable[[RowCall], tuple[Sequence[RowPlace], dict[str, Any]]]


def elementwise(call: RowCall) -> tuple[Sequence[RowPlace], dict[str, Any]]:
    """Inputs broadcast: all that hold rows hold them at one axis, counted from the last."""
    places = list(zip(call.places, call.shapes))
    common = {(p.axis - len(shape), p.before, p.after) for p, shape in places if p is not None}
    if len(common) != 1:
        raise NotByRows
    ((offset, before, after),) = common
    for i, (own, shape) in enumerate(places):
        if own is None and len(shape) >= -offset and shape[offset] != 1:
            call.shrink(i, len(shape) + offset, RowPlace(0, before, after))
    return [RowPlace(len(result) + offset, before, after) for result in call.results], call.attrs


def same(call: RowCall) -> tuple[Sequence[RowPlace], dict[str, Any]]:
    """One input, whose axes the results have."""
    (place,) = call.only(0)
    return [place] * len(call.results), call.attrs


def reshape(call: RowCall) -> tuple[Sequence[RowPlace], dict[str, Any]]:
    """The elements keep their order: the rows must be in one axis of the result."""
    (place,), (shape,), (result,) = call.only(0), call.shapes, call.results
    first = math.prod(shape[: place.axis]) * place.before
    for axis, size in enumerate(result):
        ahead = math.prod(result[:axis])
        if ahead and ahead * size >= first * call.rows:
            before = first // ahead
            after = size // (before * call.rows) if before else 0
            if before * ahead != first or before * call.rows * after != size:
                raise NotByRows
            common = RowPlace(axis, before, after)
            return [common], {**call.attrs, "newshape": call.resized(result, common)}
    raise NotByRows


def transpose(call: RowCall) -> tuple[Sequence[RowPlace], dict[str, Any]]:
    """The axes are permuted."""
    (place,) = call.only(0)
    return [place._replace(axis=call.attrs["axes"].index(place.axis))], call.attrs


def broadcast(call: RowCall) -> tuple[Sequence[RowPlace], dict[str, Any]]:
    """New axes are first, and axes of size 1 are repeated."""
    (place,) = call.only(0)
    (result,) = call.results
    common = place._replace(axis=place.axis + len(result) - len(call.shapes[0]))
    return [common], {**call.attrs, "shape": call.resized(result, common)}


def strided_slice(call: RowCall) -> tuple[Sequence[RowPlace], dict[str, Any]]:
    """All rows, in order, are taken."""
    (place,) = call.only(0)
    slices, size = list(call.attrs["slices"]), call.shapes[0][place.axis]
    if tuple(slices[place.axis]) != (0, size, 1):
        raise NotByRows
    slices[place.axis] = (0, call.resized(call.shapes[0], place)[place.axis], 1)
    return [place], {**call.attrs, "slices": tuple(slices)}


def constant_pad(call: RowCall) -> tuple[Sequence[RowPlace], dict[str, Any]]:
    """Other axes are padded."""
    (place,) = call.only(0)
    if tuple(call.attrs["pad_width"][place.axis]) != (0, 0):
        raise NotByRows
    return [place], call.attrs


def concatenate(call: RowCall) -> tuple[Sequence[RowPlace], dict[str, Any]]:
    """Inputs are joined along another axis."""
    common = {place for place in call.places if place is not None}
    if len(common) != 1:
        raise NotByRows
    (place,) = common
    if call.attrs["axis"] % len(call.shapes[0]) == place.axis:
        raise NotByRows
    for i, own in enumerate(call.places):
        if own is None:
            call.shrink(i, place.axis, place)
    return [place], call.attrs


def reduce(call: RowCall) -> tuple[Sequence[RowPlace], dict[str, Any]]:
    """Other axes are reduced."""
    (place,) = call.only(0)
    axes = _axes(call.attrs["axis"], len(call.shapes[0]))
    if place.axis in axes:
        raise NotByRows
    kept = call.attrs["keepdims"]
    return [place._replace(axis=place.axis - (0 if kept else _below(axes, place)))], call.attrs


def along(call: RowCall) -> tuple[Sequence[RowPlace], dict[str, Any]]:
    """Each line along an axis by itself: an order, running sums. All inputs have as many axes."""
    common = {place for place in call.places if place is not None}
    ndim = len(call.shapes[0])
    if len(common) != 1 or any(len(shape) != ndim for shape in call.shapes):
        raise NotByRows
    (place,) = common
    for i, own in enumerate(call.places):
        if own is None and call.shapes[i][place.axis] != 1:
            call.shrink(i, place.axis, place)
    name = "axes" if "axes" in call.attrs else "axis"
    if place.axis in _axes(call.attrs[name], ndim):
        raise NotByRows
    return [place] * len(call.results), call.attrs


def _axes(axis: Any, ndim: int) -> set[int]:
    if axis is None:
        return set(range(ndim))
    numbers = axis if isinstance(axis, (tuple, list)) else (axis,)
    return {a % ndim for a in numbers}


def _below(axes: set[int], place: RowPlace) -> int:
    return sum(axis < place.axis for axis in axes)


def examples(call: RowCall) -> tuple[Sequence[RowPlace], dict[str, Any]]:
    """The first axis of the first input, and of the results, counts what is apart (images)."""
    (place,) = call.only(0)
    if place.axis != 0:
        raise NotByRows
    return [place], call.attrs


def packed(call: RowCall) -> tuple[Sequence[RowPlace], dict[str, Any]]:
    """The last axis of the first input is multiplied by weights."""
    (place,) = call.only(0)
    if place.axis == len(call.shapes[0]) - 1:
        raise NotByRows
    return [place], call.attrs


def matmul(call: RowCall) -> tuple[Sequence[RowPlace], dict[str, Any]]:
    """Rows are rows of the left matrix, columns of the right one, or pairs of matrices."""
    (a, b), (result,) = call.shapes, call.results
    ndim = len(result)
    if len(a) < 2 or len(b) < 2:
        raise NotByRows
    ends = [p and p._replace(axis=p.axis - len(s)) for p, s in zip(call.places, call.shapes)]
    left, right = ends
    place = left or right
    assert place is not None
    if left and right:
        if left != right or place.axis >= -2:
            raise NotByRows  # a sum over rows, or pairs of rows
    elif place.axis >= -2:
        if place.axis != (-2 if left else -1):
            raise NotByRows  # a sum over rows
    else:
        other = b if left else a
        if len(other) >= -place.axis and other[place.axis] != 1:
            call.shrink(1 if left else 0, len(other) + place.axis, place)
    return [place._replace(axis=ndim + place.axis)], call.attrs


def take_rows(call: RowCall) -> tuple[Sequence[RowPlace], dict[str, Any]]:
    """Rows of indices, or rows of which each is a table."""
    axis, (table, indices) = call.attrs["axis"] % len(call.shapes[0]), call.places
    if table is None and indices is not None:
        return [indices._replace(axis=axis + indices.axis)], call.attrs
    (place,) = call.only(0)
    if place.axis == axis:
        raise NotByRows
    more = len(call.shapes[1]) - 1 if place.axis > axis else 0
    return [place._replace(axis=place.axis + more)], call.attrs


def searchsorted(call: RowCall) -> tuple[Sequence[RowPlace], dict[str, Any]]:
    """Values in one sorted sequence."""
    return call.only(1), call.attrs


def sequences(first: int, count: int) -> Rule:
    """Return the rule of a recurrence: (time, row, ...), weights, states of (row, ...), a mask.

    Args:
        first: the number of the first state among the inputs.
        count: how many states; the mask, (time, row, ...), may follow.
    """

    def rule(call: RowCall) -> tuple[Sequence[RowPlace], dict[str, Any]]:
        for i, place in enumerate(call.places):
            weights = 0 < i < first
            expected = RowPlace(0 if first <= i < first + count else 1)
            if place is None and not weights:
                call.shrink(i, expected.axis, expected)
            elif place is not None and (weights or place != expected):
                raise NotByRows
        return [RowPlace(1)] * len(call.results), call.attrs

    return rule
