"""The quantized table of Embedding: a scale for each row, or for each block of a row."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish import ops, quantizers
from kerasish.layers.quantized import INT4_RANGE, QuantizedLayer, quantized_along
from kerasish.ops.networks.quantized import dequantize_columns, unpack
from kerasish.tensor import Tensor, to_numpy
from kerasish.typing import Array, Structure


class QuantizedEmbeddingLayer(QuantizedLayer):
    """A layer with a table of rows, which may be quantized."""

    adapted = "embeddings"
    _embeddings: Any
    output_dim: int

    def quantized_build(self, shape: tuple[int, ...], mode: str, config: Structure = None) -> None:
        """Make the variables of a mode.

        Args:
            shape: (rows, size of a row).
            mode: "int8" or "int4".
            config: a `quantizers.QuantizationConfig`; None: as the dtype policy says.
        """
        self._adapted_shape = tuple(shape)
        config = self.config_for(mode) if config is None else config
        rows, size = shape
        packed = size if mode == "int8" else -(-size // 2)
        blocks = mode == "int4" and config.blocks
        scales = (rows, -(-size // config.block_size)) if blocks else (rows,)
        self._embeddings = self.constant("embeddings", (rows, packed), 0.0, "int8")
        self.embeddings_scale = self.constant("embeddings_scale", scales, 1.0, self.variable_dtype)
        if blocks:
            self.embeddings_zero = self.constant("embeddings_zero", scales, 0.0, "int8")
            self.g_idx = self.index_of_groups(size, config.block_size)
        self.quantization_config = config
        self.weight_format = mode

    def quantized_arrays(self, weight: Array, config: Structure) -> dict[str, Array]:
        """Return name -> array of the variables that replace a table of floats."""
        if config.mode == "int4" and config.blocks:
            q, scale, zero = quantizers.abs_max_quantize_grouped_with_zero_point(
                np.ascontiguousarray(weight.T), config.block_size
            )
            more = {"embeddings_scale": to_numpy(scale).T, "embeddings_zero": to_numpy(zero).T}
            q = ops.transpose(q)
        else:
            whole = (-127, 127) if config.mode == "int8" else INT4_RANGE
            q, scale = quantized_along(weight, (-1,), config, whole)
            more = {"embeddings_scale": to_numpy(scale)[:, 0]}
        if config.mode == "int4":
            q, _, _ = quantizers.pack_int4(q, axis=-1)
        return {"embeddings": to_numpy(q), **more}

    # --- rows ----------------------------------------------------------------------------------

    def picked_rows(self, indices: Array) -> Tensor:
        """Return the rows of the table at `indices`, as floats."""
        rows = ops.take(self._embeddings, indices, axis=0)
        if not self.weight_format:
            return rows

        def pick(table: Array) -> Tensor:
            return ops.take(table, indices, axis=0)

        return self._floats(rows, pick(self.embeddings_scale), pick)

    def float_table(self) -> Tensor:
        """Return the quantized table as floats."""
        scale = ops.convert_to_tensor(self.embeddings_scale)
        return self._floats(self._embeddings, scale, ops.convert_to_tensor)

    def _floats(self, rows: Array, scale: Array, pick: Structure) -> Tensor:
        """Return (..., size of a row) of floats.

        Args:
            rows: (..., bytes of a row).
            scale: (...,), or (..., blocks).
            pick: table -> its rows, as `rows` are of the whole table.
        """
        if self.weight_format == "int8":
            return ops.divide(ops.cast(rows, scale.dtype), ops.expand_dims(scale, -1))
        config = self.quantization_config
        if not config.blocks:
            q = ops.cast(unpack(rows, self.output_dim, 4), scale.dtype)
            return ops.divide(q, ops.expand_dims(scale, -1))
        zero = pick(self.embeddings_zero)
        return dequantize_columns(rows, scale, zero, self.output_dim, config.block_size)

    def merged(self) -> Array:
        """Return the table: floats, or integers where it is quantized and LoRA is off."""
        if not self.weight_format:
            return super().merged()
        if not self.lora_enabled:
            table = self._embeddings
            return table if self.weight_format == "int8" else unpack(table, self.output_dim, 4)
        product = ops.multiply(ops.matmul(*self.lora_parts("float32")), self.lora_scale)
        return ops.add(self.float_table(), product)

    @property
    def variable_serialization_spec(self) -> dict[str | None, list[str]]:
        """Names of the variables in the order of files, for each mode; None: not quantized."""
        return {
            None: ["embeddings"],
            "int8": ["embeddings", "embeddings_scale"],
            "int4": ["embeddings", "embeddings_scale", "embeddings_zero", "g_idx"],
        }
