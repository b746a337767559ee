"""SparseTensor: a matrix that stores only some entries, as layers get it in a step."""

from __future__ import annotations

from kerasish.errors import ShapeError
from kerasish.ops.basic.conversion import cast
from kerasish.ops.basic.indexing import add_at
from kerasish.ops.basic.reshaping import stack
from kerasish.ops.basic.sparse import add_scaled_rows
from kerasish.tensor.tensor import Tensor, convert
from kerasish.typing import TensorLike


class SparseTensor:
    """A matrix given by its entries: the input of a layer for an `Input(sparse=True)`.

    `Dense` multiplies it by its kernel without making it dense, and so does `x @ kernel`. Other
    layers of kerasish make it dense, batch by batch, and warn once. Ops take `x.todense()`.

    Args:
        values: (entries,), numbers; entries at the same position are added up.
        columns: (entries,), integers.
        rows: (entries,), integers.
        shape: (n, width).

    Attributes:
        values, columns, rows: tensors.
        shape: (n, width).
        sparse: True, as for symbolic tensors that represent one.

    Example:
        >>> x = SparseTensor([2.0, 3.0], [0, 2], [0, 1], (2, 3))
        >>> x.todense().tolist()
        [[2.0, 0.0, 0.0], [0.0, 0.0, 3.0]]
        >>> (x @ [[1.0], [10.0], [100.0]]).tolist()
        [[2.0], [300.0]]
    """

    sparse = True

    def __init__(
        self, values: TensorLike, columns: TensorLike, rows: TensorLike, shape: tuple[int, int]
    ) -> None:
        self.values, self.columns, self.rows = convert(values), convert(columns), convert(rows)
        self.shape = shape

    @property
    def dtype(self) -> str:
        """The dtype of the entries."""
        return self.values.dtype

    @property
    def ndim(self) -> int:
        """The number of axes: 2."""
        return len(self.shape)

    def __repr__(self) -> str:
        entries = self.values.shape[0]
        return f"<SparseTensor {self.dtype}{[*self.shape]} of {entries} entries>"

    def __matmul__(self, table: TensorLike) -> Tensor:
        """Return the product with a matrix (width, columns); it is dense."""
        table = convert(table)
        if len(table.shape) != 2 or table.shape[0] != self.shape[1]:
            raise ShapeError(
                f"A sparse matrix of shape {self.shape} is multiplied by one of shape "
                f"({self.shape[1]}, columns), got {tuple(table.shape)}."
            )
        values = cast(self.values, table.dtype)
        return add_scaled_rows(self.columns, self.rows, values, table, self.shape[0])

    def astype(self, dtype: str) -> SparseTensor:
        """Return the same entries in another dtype.

        Args:
            dtype: its name.
        """
        return SparseTensor(cast(self.values, dtype), self.columns, self.rows, self.shape)

    def todense(self) -> Tensor:
        """Return all entries as a tensor (n, width)."""
        places = stack([self.rows, self.columns], 1)
        return add_at(self.values, places, self.shape)
