"""EinsumDense: a product with a kernel in the words of einsum."""

from __future__ import annotations

import functools
import re
from typing import Any

from kerasish import activations, initializers, ops
from kerasish.errors import ShapeError
from kerasish.initializers.initializer import Initializer
from kerasish.layers.lora import LowRankKernel
from kerasish.layers.options import KernelOptions, activation_of, of_weights
from kerasish.layers.quantized_einsum import QuantizedEinsumLayer
from kerasish.layers.quantized_float8 import float8_bias
from kerasish.layers.weighted import KernelLayer
from kerasish.ops.arrays.einsum import einsum_affine
from kerasish.quantizers.configs import QuantizationConfig
from kerasish.signatures import Unpack, with_options
from kerasish.tensor import Tensor
from kerasish.typing import ActivationLike, Config, Shape


class EinsumDense(QuantizedEinsumLayer, LowRankKernel, KernelLayer):
    """activation(einsum(equation, x, kernel) + bias).

    Args:
        equation: "ab,bc->ac": the input's letters, the kernel's, the result's; "..." may lead.
        output_shape: the result's sizes without the batch axis; None where the input determines it.
        activation: name or function; None: none.
        bias_axes: the result's letters along which a bias varies; None: no bias.
        kernel_initializer: first values of the kernel: name, config, object or function.
        bias_initializer: first values of the bias: name, config, object or function.
        kernel_regularizer: penalty of the kernel that is added to the loss; None: none.
        bias_regularizer: penalty of the bias that is added to the loss; None: none.
        kernel_constraint: function applied to the kernel after each update; None: none.
        bias_constraint: function applied to the bias after each update; None: none.
        lora_rank: rank of LoRA, >= 1: the kernel is frozen, and a product of two small weights is
            trained next to it (see `enable_lora`); None: no LoRA.
        lora_alpha: factor of that product, divided by the rank; None: the rank.
        gptq_unpacked_column_size: units of the kernel as a matrix, which files of GPTQ name; None:
            as the shapes say.
        quantization_config: how the weights are quantized where `dtype` is a quantized policy, such
            as "int8_from_float32" (see `quantize`); None: as the policy says.

    Example:
        >>> layer = EinsumDense(equation='abc,cd->abd', output_shape=(None, 4), bias_axes='d')
        >>> layer.compute_output_shape((None, 3, 5))
        (None, 3, 4)
    """

    names_activity = True

    layer_role = "dense"
    quantizes = True

    example = {
        "args": {"equation": "abc,cd->abd", "output_shape": (None, 4), "bias_axes": "d"},
        "shape": (2, 3, 5),
    }

    @with_options(KernelOptions, of_weights("kernel", "bias", activity=False))
    def __init__(
        self,
        equation: str,
        output_shape: int | Shape,
        activation: ActivationLike | None = None,
        bias_axes: str | None = None,
        *,
        lora_rank: int | None = None,
        lora_alpha: float | None = None,
        gptq_unpacked_column_size: int | None = None,
        quantization_config: QuantizationConfig | Config | None = None,
        **options: Unpack[KernelOptions],
    ) -> None:
        super().__init__(**options)
        self.quantization_config = quantization_config
        self.equation = equation
        self.gptq_unpacked_column_size = gptq_unpacked_column_size
        sizes = (output_shape,) if isinstance(output_shape, int) else tuple(output_shape)
        self.partial_output_shape = sizes
        self.activation, self.bias_axes = activation_of(activation), bias_axes
        self.plan_lora(lora_rank, lora_alpha)

    def build(self, input_shape: Shape) -> None:
        """Make the kernel, the bias, and LoRA's weights where a rank is given."""
        kernel, bias = self._shapes(input_shape)
        mode = self.quantization_mode
        if mode in (None, "float8"):
            self.kernel = self.add_weight_of("kernel", kernel, initializer=self._initializer())
        if mode is not None:
            self.quantized_build(kernel, mode, self.quantization_config)
        self.bias = None if bias is None else self.add_weight_of("bias", bias)
        self.start_lora()

    def _initializer(self) -> Initializer:
        """Return the kernel's initializer: those that scale learn which axes are inputs."""
        created = self.kernel_initializer
        if not isinstance(created, initializers.VarianceScaling) or None not in (
            created.input_axes, created.output_axes,
        ):  # fmt: skip
            return created
        _, kernel, result = re.split(",|->", self.equation.replace(" ", ""))
        summed = [axis for axis, letter in enumerate(kernel) if letter not in result]
        return created.along(summed, [a for a in range(len(kernel)) if a not in summed])

    def _shapes(self, input_shape: Shape) -> tuple[Any, Any]:
        try:
            left, result = self.equation.replace(" ", "").split("->")
            first, second = left.split(",")
        except ValueError:
            raise ValueError(
                f"{self.display_name()}: equation must read like 'ab,bc->ac', got "
                f"{self.equation!r}."
            ) from None
        size: dict[str, Any] = {}
        letters = first.replace("...", "")
        shape = tuple(input_shape)[len(input_shape) - len(letters) :]
        if first.startswith("...") is False and first.endswith("..."):
            shape = tuple(input_shape)[: len(letters)]
        if "..." not in first and len(letters) != len(input_shape):
            raise ShapeError(
                f"{self.display_name()}: {first!r} names {len(letters)} axes, the input has shape "
                f"{tuple(input_shape)}."
            )
        size.update(zip(letters, shape))
        out = result.replace("...", "")
        given = self.partial_output_shape
        # The given sizes are those of the last letters of the result.
        for letter, s in zip(reversed(out), reversed(given)):
            if s is not None and size.get(letter) is None:
                size[letter] = s
        missing = [c for c in second if size.get(c) is None]
        if missing:
            raise ShapeError(
                f"{self.display_name()}: the size of {missing} in {self.equation!r} is not known "
                f"from input {tuple(input_shape)} and output_shape {given}."
            )
        bias = None
        if self.bias_axes:
            unknown = [c for c in self.bias_axes if c not in out]
            if unknown:
                raise ValueError(
                    f"{self.display_name()}: bias_axes {self.bias_axes!r} are not all in "
                    f"{result!r}."
                )
            first_bias = min(result.index(c) for c in self.bias_axes)
            unnamed = "." * (len(input_shape) - len(letters))  # the axes of '...'
            bias = tuple(
                size[c] if c in self.bias_axes else 1
                for c in result[first_bias:].replace("...", unnamed)
            )
        return tuple(size[c] for c in second), bias

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Compute the result."""
        if self.weight_format:
            return self.quantized_call(inputs, training)
        rectified = self.activation is activations.relu and not self.lora_enabled
        x = einsum_affine(self.equation, inputs, self._kernel, self.bias, rectified)
        if self.lora_enabled:
            x = ops.add(x, ops.multiply(self._low_rank(inputs, x.dtype), self.lora_scale))
        return x if rectified or self.activation is None else self.activation(x)

    def quantized_call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Compute the result with quantized weights."""
        bias = self.bias
        if self.weight_format == "float8":
            multiply = functools.partial(ops.einsum, self.equation)
            x = self.float8_product(inputs, self._kernel, multiply, training)
            bias = None if bias is None else float8_bias(bias, self.compute_dtype)
        else:
            x = self.quantized_einsum(inputs)
        if self.lora_enabled:
            x = ops.add(x, ops.multiply(self._low_rank(inputs, x.dtype), self.lora_scale))
        if bias is not None:
            x = ops.add(x, bias)
        return x if self.activation is None else self.activation(x)

    def _low_rank(self, inputs: Tensor, dtype: str) -> Tensor:
        """Return the result with LoRA's product in the place of the kernel.

        The two small weights are applied one after the other: the one that shares letters with the
        input is first.
        """
        a, b = self.lora_parts(dtype)
        left, result = self.equation.replace(" ", "").split("->")
        first, kernel = left.split(",")
        last = kernel[-1]
        rank = next(c for c in "zyxwvutsrqponmlkjihgfedcba" if c not in self.equation)
        small = kernel[:-1] + rank
        if last not in first:
            between = result.replace(last, rank)
            low = ops.einsum(f"{first},{small}->{between}", inputs, a)
            return ops.einsum(f"{between},{rank}{last}->{result}", low, b)
        if last not in result:
            between = first.replace(last, rank)
            low = ops.einsum(f"{first},{rank}{last}->{between}", inputs, b)
            return ops.einsum(f"{between},{small}->{result}", low, a)
        return ops.einsum(self.equation, inputs, ops.matmul(a, b))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        config = super().get_config()
        config["output_shape"] = self.partial_output_shape
        if self.gptq_unpacked_column_size is None:
            config.pop("gptq_unpacked_column_size", None)
        return config
