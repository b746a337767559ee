"""Weights of GPTQ and AWQ: integers in bytes, or two per byte, with scales for groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish import dtype_policies, ops, quantizers
from kerasish.engine.layer.layer import Layer
from kerasish.ops.networks.quantized import dequantize_rows
from kerasish.tensor import Tensor, Variable
from kerasish.typing import Structure


class CalibratedLayer(Layer):
    """A layer whose kernel GPTQ or AWQ may replace."""

    _kernel: Any
    _weight_bits = 4
    _adapted_shape: tuple[int, ...]
    weight_format: str
    quantized_kernel: Variable
    kernel_scale: Variable
    kernel_zero: Variable
    g_idx: Variable
    awq_scales: Variable

    if TYPE_CHECKING:

        def matrix_sizes(self, shape: tuple[int, ...]) -> tuple[int, int]:
            """Return (inputs, units) of the kernel of this shape."""

        def constant(self, name: str, shape: tuple[int, ...], value: float, dtype: str) -> Variable:
            """Return a new variable that is not trained."""

        def drop_weight(self, variable: Variable) -> None:
            """Drop a variable that quantized ones replace."""

    def build_calibrated(self, mode: str, rows: int, columns: int, policy: Structure) -> None:
        """Create the variables of GPTQ and AWQ, of the layout (units, inputs)."""
        packed = -(-columns // 2) if policy.weight_bits == 4 else columns
        groups = 1 if policy.group_size == -1 else -(-rows // policy.group_size)
        self._kernel = None
        self._weight_bits = policy.weight_bits
        self.quantized_kernel = self.constant("kernel", (packed, rows), 0.0, "uint8")
        self.kernel_scale = self.constant("kernel_scale", (columns, groups), 1.0, "float32")
        self.kernel_zero = self.constant("kernel_zero", (columns, groups), 0.0, "uint8")
        if mode == "awq":
            self.awq_scales = self.constant("awq_scales", (rows,), 1.0, "float32")
        self.g_idx = self.constant("g_idx", (rows,), 0.0, "float32")

    def calibrated_matrix(self) -> Tensor:
        """Return the floats of GPTQ's or AWQ's weights, as a matrix (inputs, units)."""
        _, columns = self.matrix_sizes(self._adapted_shape)
        bits = 4 if self._weight_bits == 4 else 8
        packed, scale, zero = (
            ops.transpose(v) for v in (self.quantized_kernel, self.kernel_scale, self.kernel_zero)
        )
        w = dequantize_rows(packed, scale, zero, ops.cast(self.g_idx, "int32"), columns, bits)
        if self.weight_format == "awq":
            w = ops.divide(w, ops.expand_dims(self.awq_scales, -1))
        return w

    def take_rounded(self, config: Structure, rounded: Structure) -> None:
        """Replace the float kernel by what GPTQ or AWQ made of it.

        Args:
            config: a `quantizers.GPTQConfig` or `AWQConfig`.
            rounded: the quantized matrix.
        """
        old = self._kernel
        with self.adding_weights():
            self.drop_weight(old)
            self.quantized_build(tuple(old.shape), config.mode, config)
        q = rounded.q.T.astype("uint8")
        if config.weight_bits == 4:
            q = quantizers.pack_int4(q, axis=0, dtype="uint8")[0]
        self.quantized_kernel.assign(q)
        self.kernel_scale.assign(rounded.scale.T.astype("float32"))
        self.kernel_zero.assign(rounded.zero.T.astype("uint8"))
        self.g_idx.assign(rounded.group.astype("float32"))
        if rounded.factors is not None:
            self.awq_scales.assign(rounded.factors.astype("float32"))
        name = f"{config.dtype_policy_string()}_from_{self.own_policy().name}"
        self.dtype_policy = dtype_policies.get(name)
