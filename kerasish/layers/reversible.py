"""ReversibleEmbedding: a table of rows that also turns rows into scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kerasish import ops
from kerasish.layers.core import Embedding
from kerasish.layers.options import NamedOptions
from kerasish.signatures import Unpack
from kerasish.typing import (
    AnyTensor,
    ConstraintLike,
    DTypeLike,
    InitializerLike,
    RegularizerLike,
    Shape,
    Structure,
)

if TYPE_CHECKING:
    from kerasish.tensor import Tensor


class ReversibleEmbedding(Embedding):
    """Row x of a table for integers x; with `reverse`, the scores x @ table^T of all rows.

    Args:
        input_dim: rows of the table: one more than the largest number.
        output_dim: size of a row.
        tie_weights: whether the same table serves both ways.
        embeddings_initializer: first values of the table: name, config, object or function.
        embeddings_regularizer: penalty of the table; None: none.
        embeddings_constraint: function applied to the table after each update; None: none.
        mask_zero: whether 0 marks padding: the result carries the mask x != 0.
        reverse_dtype: dtype in which the scores are computed; None: that of the layer.
        logit_soft_cap: c, the scores become c * tanh(score / c); None: they stay.

    Shape: (n, ...) -> (n, ..., output_dim); reverse: (..., output_dim) -> (..., input_dim).

    Source: Press & Wolf, EACL 2017.

    Example:
        >>> layer = ReversibleEmbedding(10, 4)
        >>> layer(layer(ops.ones((2, 3), "int32")), reverse=True).shape
        (2, 3, 10)
    """

    example = {"args": {"input_dim": 6, "output_dim": 3}, "shape": (2, 4), "dtype": "int32",
               "high": 6}  # fmt: skip

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        tie_weights: bool = True,
        embeddings_initializer: InitializerLike = "uniform",
        embeddings_regularizer: RegularizerLike | None = None,
        embeddings_constraint: ConstraintLike | None = None,
        mask_zero: bool = False,
        reverse_dtype: DTypeLike | None = None,
        logit_soft_cap: float | None = None,
        **kwargs: Unpack[NamedOptions],
    ) -> None:
        super().__init__(
            input_dim, output_dim, embeddings_initializer, embeddings_regularizer,
            embeddings_constraint, mask_zero, **kwargs,
        )  # fmt: skip
        self.tie_weights, self.reverse_dtype = tie_weights, reverse_dtype
        self.logit_soft_cap = logit_soft_cap

    def build(self, input_shape: Shape | None = None) -> None:
        """Make the table (input_dim, output_dim), and if it is not tied the other one."""
        super().build(input_shape)
        if not self.tie_weights:
            self.reverse_embeddings = self.add_weight(
                name="reverse_embeddings", shape=(self.output_dim, self.input_dim),
                initializer=self.embeddings_initializer,
            )  # fmt: skip

    def call(self, inputs: Tensor, reverse: bool = False) -> Tensor:
        """Pick the rows; or score all of them."""
        if not reverse:
            rows = super().call(inputs)
            mask = Embedding.compute_mask(self, inputs)
            if mask is not None:
                rows._keras_mask = mask  # type: ignore[assignment]
            return rows
        kernel = ops.transpose(self.embeddings) if self.tie_weights else self.reverse_embeddings
        dtype = self.reverse_dtype or self.compute_dtype
        scores = ops.matmul(ops.cast(inputs, dtype), ops.cast(kernel, dtype))
        if self.logit_soft_cap is None:
            return scores
        return ops.tanh(scores / self.logit_soft_cap) * self.logit_soft_cap

    def compute_mask(self, inputs: Tensor, mask: AnyTensor | None = None) -> Structure:
        """Return None: the rows carry their mask already."""
        return None
