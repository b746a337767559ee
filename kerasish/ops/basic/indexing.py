"""Ops that pick and put elements by computed positions: take, take_along_axis, scatter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish.errors import ShapeError
from kerasish.ops import dtypes, rows
from kerasish.ops.basic.comparison import select
from kerasish.ops.basic.examples import integers
from kerasish.ops.op import op
from kerasish.ops.shapes import Shape, Spec, broadcast_shapes, normalize_axis
from kerasish.typing import AnyTensor, Array, ArrayModule, Axis, ShapeLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor


def _axis(shapes: list[Shape], attrs: dict[str, Any]) -> dict[str, Any]:
    return {**attrs, "axis": normalize_axis(attrs["axis"], len(shapes[0]), "take")}


def _take_shape(x: Spec, indices: Spec, axis: int) -> Spec:
    return Spec((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)


def _take_grad(g: Any, y: Tensor, x: AnyTensor, indices: Any, axis: Any) -> tuple[Any, ...]:
    return add_rows(g, indices, x.shape[axis], axis), None


@op(
    "indexing",
    _take_shape,
    _take_grad,
    canonical=_axis,
    examples=[
        (((4, 3), integers(0, 4, 2, 2)), {}),
        (((2, 4, 3), integers(-4, 4, 5)), {"axis": 1}),
        (((4,), integers(0, 4, 0)), {}),
    ],
    rows=rows.take_rows,
)
def take_rows(xp: ArrayModule, x: Array, indices: Array, *, axis: Axis = 0) -> Array:
    """x's slices along `axis` at `indices` (negative ones count from the end)."""
    return xp.take(x, indices, axis=axis)


def _add_rows_canonical(shapes: list[Shape], attrs: dict[str, Any]) -> dict[str, Any]:
    ndim = len(shapes[0]) - len(shapes[1]) + 1
    return {"size": int(attrs["size"]), "axis": normalize_axis(attrs["axis"], ndim, "add_rows")}


def _add_rows_shape(x: Spec, indices: Spec, size: int, axis: int) -> Spec:
    after = x.shape[axis + len(indices.shape) :]
    return Spec((*x.shape[:axis], size, *after), x.dtype)


@op(
    "indexing",
    _add_rows_shape,
    lambda g, y, x, indices, size, axis: (take_rows(g, indices, axis), None),
    canonical=_add_rows_canonical,
    adds_rows=True,
    examples=[
        (((2, 2, 3), integers(0, 4, 2, 2)), {"size": 4}),
        (((2, 5, 3), integers(-4, 4, 5)), {"size": 4, "axis": 1}),
    ],
)
def add_rows(xp: ArrayModule, x: Array, indices: Array, *, size: Any, axis: Any = 0) -> Array:
    """Zeros with `size` slices along `axis`, to which x's are added at `indices`.

    The transpose of `take_rows`: slices that meet are summed.
    """
    count = indices.ndim
    order = (*range(axis, axis + count), *range(axis), *range(axis + count, x.ndim))
    shape = (size, *x.shape[:axis], *x.shape[axis + count :])
    return xp.moveaxis(_added(xp, shape, indices, xp.transpose(x, order)), 0, axis)


def _added(xp: ArrayModule, shape: Array, places: Array, x: Array) -> Array:
    """Return zeros with x added at `places`, halves in float32 on the way."""
    wide = dtypes.adding_dtype(dtypes.name_of(x.dtype))
    y = xp.zeros(shape, wide)
    xp.add.at(y, places, x.astype(wide, copy=False))
    return y.astype(x.dtype, copy=False)


def _along_shape(x: Spec, indices: Spec, axis: int) -> Spec:
    if len(x.shape) != len(indices.shape):
        raise ShapeError(
            f"take_along_axis: x of shape {x.shape} and indices of shape {indices.shape} "
            "must have as many axes."
        )
    cut = [1 if i == axis else s for i, s in enumerate(x.shape)]
    picked = [1 if i == axis else s for i, s in enumerate(indices.shape)]
    shape = list(broadcast_shapes(tuple(cut), tuple(picked), what="take_along_axis"))
    shape[axis] = indices.shape[axis]
    return Spec(tuple(shape), x.dtype)


def _grid(xp: ArrayModule, shape: Array, indices: Array, axis: Array) -> Array:
    """Return the index arrays that address `indices` along `axis` in an array of `shape`."""
    ndim = len(shape)
    grid = []
    for i in range(ndim):
        if i == axis:
            grid.append(indices)
            continue
        size = max(shape[i], indices.shape[i]) if shape[i] else 0
        span = xp.arange(size) if shape[i] != 1 else xp.zeros(size, int)
        grid.append(span.reshape([-1 if j == i else 1 for j in range(ndim)]))
    return tuple(grid)


@op(
    "indexing",
    _along_shape,
    lambda g, y, x, indices, axis: (add_along_axis(g, indices, x.shape, axis), None),
    canonical=_axis,
    examples=[
        (((2, 4), integers(0, 4, 2, 3)), {"axis": 1}),
        (((4, 3), integers(-4, 4, 2, 1)), {"axis": 0}),
    ],
    rows=rows.along,
)
def pick_along_axis(xp: ArrayModule, x: Array, indices: Array, *, axis: Axis = -1) -> Array:
    """For each place of `indices`, x's element at that index along `axis`."""
    return x[_grid(xp, x.shape, indices, axis)]


@op(
    "indexing",
    lambda x, indices, shape, axis: Spec(tuple(shape), x.dtype),
    lambda g, y, x, indices, shape, axis: (pick_along_axis(g, indices, axis), None),
    canonical=lambda shapes, attrs: {
        "shape": tuple(attrs["shape"]),
        "axis": normalize_axis(attrs["axis"], len(shapes[0]), "add_along_axis"),
    },
    examples=[(((2, 3), integers(0, 4, 2, 3)), {"shape": (2, 4), "axis": 1})],
)
def add_along_axis(
    xp: ArrayModule, x: Array, indices: Array, *, shape: ShapeLike, axis: Axis = -1
) -> Array:
    """Zeros of `shape` with x added at `indices` along `axis`: pick_along_axis's transpose."""
    return _added(xp, shape, _grid(xp, shape, indices, axis), x)


@op(
    "indexing",
    lambda x, indices: Spec((*indices.shape[:-1], *x.shape[indices.shape[-1] :]), x.dtype),
    lambda g, y, x, indices: (add_at(g, indices, x.shape), None),
    examples=[(((3, 4), integers(0, 3, 5, 2)), {}), (((3, 4), integers(0, 3, 2, 2, 1)), {})],
)
def read_at(xp: ArrayModule, x: Array, indices: Array) -> Array:
    """x's parts at the positions along the last axis of `indices`."""
    return x[tuple(xp.moveaxis(indices, -1, 0))]


@op(
    "indexing",
    lambda x, indices, shape: Spec(tuple(shape), x.dtype),
    lambda g, y, x, indices, shape: (read_at(g, indices), None),
    canonical=lambda shapes, attrs: {"shape": tuple(attrs["shape"])},
    examples=[(((5,), integers(0, 3, 5, 2)), {"shape": (3, 4)})],
)
def add_at(xp: ArrayModule, x: Array, indices: Array, *, shape: ShapeLike) -> Array:
    """Zeros of `shape` with x added at the positions `indices`: the transpose of `read_at`."""
    return _added(xp, shape, tuple(xp.moveaxis(indices, -1, 0)), x)


def _write_shape(x: Spec, indices: Spec, updates: Spec) -> Spec:
    count = indices.shape[-1]
    expected = (*indices.shape[:-1], *x.shape[count:])
    if count > len(x.shape) or len(updates.shape) != len(expected):
        raise ShapeError(
            f"write_at: {count} numbers an index into shape {x.shape} ask for updates of shape "
            f"{expected}, got {updates.shape}."
        )
    broadcast_shapes(expected, updates.shape, what="write_at")
    return Spec(x.shape, x.dtype)


def _write_grad(g: Tensor, y: Tensor, x: Tensor, indices: Any, updates: Any) -> tuple[Any, ...]:
    into = read_at(g, indices)
    return write_at(g, indices, select(False, into, 0)), None, into


def _distinct(rng: Any) -> Any:
    return rng.permutation(12)[:5].reshape(5, 1).astype("int32")


@op(
    "indexing",
    _write_shape,
    _write_grad,
    examples=[(((12, 2), _distinct, (5, 2)), {})],
)
def write_at(xp: ArrayModule, x: Array, indices: Array, updates: Array) -> Array:
    """x with `updates` in place of its parts at the positions along the last axis of `indices`."""
    y = xp.array(x)
    y[tuple(xp.moveaxis(indices, -1, 0))] = updates
    return y
