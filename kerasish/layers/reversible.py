"""ReversibleEmbedding: a table of rows that also turns rows into scores."""

from __future__ import annotations

import numpy as np

from kerasish import ops
from kerasish.layers.core import Embedding
from kerasish.layers.options import NamedOptions
from kerasish.layers.quantized_einsum import rounded
from kerasish.quantizers.configs import QuantizationConfig
from kerasish.signatures import Unpack
from kerasish.tensor import Tensor, to_numpy
from kerasish.typing import (
    AnyTensor,
    Array,
    ConstraintLike,
    DTypeLike,
    InitializerLike,
    RegularizerLike,
    Shape,
    Structure,
)


class ReversibleEmbedding(Embedding):
    """Row x of a table for integers x; with `reverse`, the scores x @ table^T of all rows.

    Args:
        input_dim: rows of the table: one more than the largest number.
        output_dim: size of a row.
        tie_weights: whether the same table is used both ways.
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

    quantizes = True

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
        if not self.tie_weights and not self.weight_format:
            self.reverse_embeddings = self.add_weight(
                name="reverse_embeddings", shape=(self.output_dim, self.input_dim),
                initializer=self.embeddings_initializer,
            )  # fmt: skip

    # --- quantization --------------------------------------------------------------------------

    def quantized_build(self, shape: tuple[int, ...], mode: str, config: Structure = None) -> None:
        """Make the variables of a mode, also of the other table where it is not tied.

        Args:
            shape: (rows, size of a row).
            mode: "int8" or "int4".
            config: a `quantizers.QuantizationConfig`; None: as the dtype policy says.
        """
        super().quantized_build(shape, mode, config)
        if self.tie_weights:
            return
        rows, size = shape
        blocks = mode == "int4" and self.quantization_config.blocks
        packed = size if mode == "int8" else -(-size // 2)
        scales = (-(-size // self.quantization_config.block_size), rows) if blocks else (rows,)
        self.reverse_embeddings = self.constant("reverse_embeddings", (packed, rows), 0.0, "int8")
        self.reverse_embeddings_scale = self.constant(
            "reverse_embeddings_scale", scales, 1.0, self.variable_dtype
        )
        if blocks:  # floats, as in Keras's files
            self.reverse_embeddings_zero = self.constant(
                "reverse_embeddings_zero", scales, 0.0, self.variable_dtype
            )

    def quantize_weights(self, config: QuantizationConfig) -> None:
        """Replace the tables of floats."""
        old = None if self.tie_weights else self.reverse_embeddings
        super().quantize_weights(config)
        if old is None:
            return
        self.drop_weight(old)
        arrays = self.quantized_arrays(np.ascontiguousarray(to_numpy(old).T), config)
        for name, array in arrays.items():
            getattr(self, f"reverse_{name}").assign(array.T)

    def reverse_table(self) -> Array:
        """Return the table (size of a row, rows) that scores are computed with, as floats."""
        if not self.weight_format:
            return ops.transpose(self.embeddings) if self.tie_weights else self.reverse_embeddings
        if self.tie_weights:
            table = self.merged() if self.lora_enabled else self.float_table()
            return ops.transpose(table)
        zero = getattr(self, "reverse_embeddings_zero", None)
        table, scale = (
            ops.transpose(v) for v in (self.reverse_embeddings, self.reverse_embeddings_scale)
        )
        return ops.transpose(self._floats(table, scale, lambda _: ops.transpose(zero)))

    @property
    def variable_serialization_spec(self) -> dict[str | None, list[str]]:
        """Names of the variables in the order of files, for each mode; None: not quantized."""
        spec = super().variable_serialization_spec
        own = ["reverse_embeddings"]
        more = {
            None: own, "int8": [*own, "reverse_embeddings_scale"],
            "int4": [*own, "reverse_embeddings_scale", "reverse_embeddings_zero"],
        }  # fmt: skip
        if self.tie_weights:
            return spec
        return {mode: [*names, *more[mode]] for mode, names in spec.items()}

    def call(self, inputs: Tensor, reverse: bool = False) -> Tensor:
        """Pick the rows; or score all of them."""
        if not reverse:
            rows = super().call(inputs)
            mask = Embedding.compute_mask(self, inputs)
            if mask is not None:
                rows._keras_mask = mask  # type: ignore[assignment]
            return rows
        dtype = self.reverse_dtype or self.compute_dtype
        x = ops.cast(inputs, dtype)
        quantizer = getattr(self.quantization_config, "activation_quantizer", None)
        if self.weight_format and quantizer is not None:
            x = rounded(x, quantizer, [-1])
        scores = ops.matmul(x, ops.cast(self.reverse_table(), dtype))
        if self.logit_soft_cap is None:
            return scores
        return ops.tanh(scores / self.logit_soft_cap) * self.logit_soft_cap

    def compute_mask(self, inputs: Tensor, mask: AnyTensor | None = None) -> Structure:
        """Return None: the rows carry their mask already."""
        return None
