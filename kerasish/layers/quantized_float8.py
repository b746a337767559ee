"""Products whose factors are rounded to 8-bit floats, with scales that follow the training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kerasish import ops, quantizers
from kerasish.engine.layer.layer import Layer
from kerasish.ops.networks.quantized import round_mantissa
from kerasish.quantizers.float8 import largest_float8
from kerasish.tensor import Tensor, Variable
from kerasish.typing import Array, Structure

FORWARD, BACKWARD = "float8_e4m3fn", "float8_e5m2"
PARTS = ("inputs", "kernel", "outputs_grad")


class Float8Layer(Layer):
    """A layer that rounds inputs, kernel and the result's gradient to 8-bit floats.

    Each of the three has a scale and the largest absolute numbers of the last steps. Their
    "gradients" are their new values, which the optimizer puts in their place.
    """

    compute_dtype: str
    inputs_scale: Variable
    inputs_amax_history: Variable
    kernel_scale: Variable
    kernel_amax_history: Variable
    outputs_grad_scale: Variable
    outputs_grad_amax_history: Variable

    def float8_build(self) -> None:
        """Make the scales and the histories."""
        policy = self.own_policy()
        length = getattr(policy, "amax_history_length", 1024)
        for part in PARTS:
            for name, shape, first in (("scale", (), "ones"), ("amax_history", (length,), "zeros")):
                variable = self.add_weight(
                    name=f"{part}_{name}", shape=shape, initializer=first, dtype="float32",
                    autocast=False, overwrite_with_gradient=True,
                )  # fmt: skip
                setattr(self, f"{part}_{name}", variable)

    def float8_product(
        self, inputs: Tensor, kernel: Array, multiply: Callable[[Tensor, Tensor], Tensor],
        training: bool | None,
    ) -> Tensor:  # fmt: skip
        """Return the product of rounded factors.

        Args:
            multiply: (inputs, kernel) -> their product.
            training: whether the scales of the factors follow.
        """
        factors = [
            self._rounded_factor(x, scale, history, bool(training))
            for x, scale, history in (
                (inputs, self.inputs_scale, self.inputs_amax_history),
                (ops.cast(kernel, self.compute_dtype), self.kernel_scale, self.kernel_amax_history),
            )
        ]
        y = multiply(factors[0], factors[1])
        return self._with_rounded_gradient(y)

    def _rounded_factor(
        self, x: Structure, scale: Array, history: Structure, training: bool
    ) -> Tensor:
        dtype = self.compute_dtype

        @ops.custom_gradient
        def rounded(x: Tensor, scale: Tensor, history: Tensor) -> Array:
            def gradient(*args: Any, upstream: Structure = None) -> Array:
                g = args[0] if upstream is None else upstream
                if not training:
                    return g, None, None
                return g, *_next(x, scale, history, FORWARD)

            return quantizers.quantize_and_dequantize(x, scale, FORWARD, dtype), gradient

        return rounded(x, scale, history)

    def _with_rounded_gradient(self, y: Tensor) -> Tensor:
        dtype = self.compute_dtype

        @ops.custom_gradient
        def passed(y: Tensor, scale: Tensor, history: Tensor) -> Array:
            def gradient(*args: Any, upstream: Structure = None) -> Array:
                g = args[0] if upstream is None else upstream
                arriving = quantizers.quantize_and_dequantize(g, scale, BACKWARD, dtype)
                return arriving, *_next(g, scale, history, BACKWARD)

            return ops.multiply(y, 1), gradient

        return passed(y, self.outputs_grad_scale, self.outputs_grad_amax_history)


def _next(x: Tensor, scale: Tensor, history: Tensor, dtype: str) -> tuple[Tensor, Tensor]:
    """Return the new scale and history."""
    most = ops.max(history, axis=0)
    return (
        quantizers.compute_float8_scale(most, scale, largest_float8(dtype)),
        quantizers.compute_float8_amax_history(x, history),
    )


def float8_bias(bias: Structure, compute_dtype: str) -> Array:
    """Return the bias; of float32 layers rounded to bfloat16, as in Keras."""
    if compute_dtype != "float32":
        return bias
    return round_mantissa(bias, bits=7, smallest=-100)
