"""The product of a sparse matrix, given by its entries, and a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish.errors import ShapeError
from kerasish.ops import dtypes
from kerasish.ops.basic.arithmetic import multiply
from kerasish.ops.basic.examples import integers
from kerasish.ops.basic.indexing import take_rows
from kerasish.ops.basic.reduce import reduce_sum
from kerasish.ops.op import op
from kerasish.ops.shapes import Spec
from kerasish.typing import Array, ArrayModule

if TYPE_CHECKING:
    from kerasish.tensor import Tensor


def _scaled_shape(indices: Spec, places: Spec, factors: Spec, table: Spec, size: int) -> Spec:
    if not len(indices.shape) == len(places.shape) == len(factors.shape) == 1:
        raise ShapeError(
            "add_scaled_rows: indices, places and factors must have one axis, got the shapes "
            f"{indices.shape}, {places.shape} and {factors.shape}."
        )
    if len(table.shape) != 2:
        raise ShapeError(f"add_scaled_rows: a table has two axes, got the shape {table.shape}.")
    for what, other in (("places", places), ("factors", factors)):
        if None not in (*indices.shape, *other.shape) and indices.shape != other.shape:
            raise ShapeError(
                f"add_scaled_rows: expected one of the {what} for each index, got "
                f"{other.shape[0]} for {indices.shape[0]}."
            )
    return Spec((size, table.shape[1]), table.dtype)


def _grad_of_factors(
    g: Any, y: Tensor, indices: Any, places: Any, factors: Any, table: Any, size: int
) -> Tensor:
    return reduce_sum(multiply(take_rows(g, places), take_rows(table, indices)), 1)


def _grad_of_table(
    g: Any, y: Tensor, indices: Any, places: Any, factors: Any, table: Any, size: int
) -> Tensor:
    return add_scaled_rows(places, indices, factors, g, table.shape[0])


@op(
    "indexing",
    _scaled_shape,
    (lambda *_, **__: None, lambda *_, **__: None, _grad_of_factors, _grad_of_table),
    "float",
    promoted=2,
    canonical=lambda shapes, attrs: {"size": int(attrs["size"])},
    examples=[
        ((integers(0, 5, 6), integers(0, 3, 6), (6,), (5, 4)), {"size": 3}),
        ((integers(0, 5, 4), integers(0, 2, 4), (4,), (5, 1)), {"size": 4}),
    ],
    adds_rows=True,
    flops=lambda inputs, results: 2 * inputs[2][0] * inputs[3][1],
)
def add_scaled_rows(
    xp: ArrayModule, indices: Array, places: Array, factors: Array, table: Array, *, size: Any
) -> Array:
    """y[places[k]] += factors[k] table[indices[k]], for all k in turn, from zeros.

    The product of a sparse matrix, given by the rows, columns and values of its entries, and a
    table: no row is written that no entry names. The gradient of the table is the same op with
    indices and places exchanged, so that it is a sum of few rows, too.

    Args:
        indices: (entries,), rows of the table: the columns of the sparse matrix.
        places: (entries,), rows of the result: the rows of the sparse matrix.
        factors: (entries,), its values.
        table: (n, columns).
        size: the rows of the result.

    Shape: (entries,), (entries,), (entries,), (n, columns) -> (size, columns)
    """
    rows = factors[:, None] * xp.take(table, indices, axis=0)
    wide = dtypes.adding_dtype(dtypes.name_of(rows.dtype))
    y = xp.zeros((size, table.shape[1]), wide)
    xp.add.at(y, places, rows.astype(wide, copy=False))
    return y.astype(rows.dtype, copy=False)
