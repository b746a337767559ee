"""The quantized kernel of EinsumDense: as a matrix, with the axes of inputs and results turned."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from kerasish import ops
from kerasish.layers.quantized import QuantizedKernelLayer
from kerasish.ops.arrays.einsum import read_letters
from kerasish.tensor import Tensor
from kerasish.typing import Array, Structure


class Letters(NamedTuple):
    """The letters of an equation.

    Attributes:
        inputs, kernel, result: of each axis.
        reduced: those of the kernel that are summed over, in its order.
        free: the others of the kernel, in its order.
        others: those of the result that only the inputs have, in the result's order.
        plain: whether the equation is one product of matrices with axes turned.
    """

    inputs: tuple[str, ...]
    kernel: tuple[str, ...]
    result: tuple[str, ...]
    reduced: tuple[str, ...]
    free: tuple[str, ...]
    others: tuple[str, ...]
    plain: bool


def letters_of(equation: str, rank: int, kernel_rank: int) -> Letters:
    """Return the letters of an equation "inputs,kernel->result".

    Args:
        equation: in the words of einsum.
        rank: number of axes of the inputs.
        kernel_rank: number of axes of the kernel.

    Example:
        >>> letters_of("abc,dc->abd", 3, 2).reduced
        ('c',)
    """
    (inputs, kernel), result = read_letters(equation, [rank, kernel_rank])
    reduced = tuple(c for c in kernel if c not in result)
    free = tuple(c for c in kernel if c in result)
    others = tuple(c for c in result if c not in kernel)
    plain = (
        not any(c in inputs for c in free)
        and set(inputs) == {*others, *reduced}
        and all(len(set(word)) == len(word) for word in (inputs, kernel, result))
    )
    return Letters(inputs, kernel, result, reduced, free, others, plain)


class QuantizedEinsumLayer(QuantizedKernelLayer):
    """A quantized layer whose product is an einsum of the inputs and the kernel."""

    equation: str

    def kernel_letters(self) -> Letters:
        """Return the equation's letters; those of "..." in the inputs do not matter here."""
        left, result = self.equation.replace(" ", "").replace("...", "").split("->")
        inputs, kernel = left.split(",")
        return letters_of(f"{inputs},{kernel}->{result}", len(inputs), len(kernel))

    def reduced_axes(self) -> tuple[int, ...]:
        """Return the kernel's axes over which products are summed."""
        letters = self.kernel_letters()
        return tuple(i for i, c in enumerate(letters.kernel) if c in letters.reduced)

    def matrix_order(self) -> tuple[int, ...]:
        """Return the kernel's axes, those summed over first."""
        reduced = self.reduced_axes()
        rest = tuple(a for a in range(len(self.kernel_letters().kernel)) if a not in reduced)
        return (*reduced, *rest)

    def matrix_sizes(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return (inputs, units) of the kernel of this shape as a matrix."""
        reduced = self.reduced_axes()
        rows = math.prod(shape[a] for a in reduced)
        return rows, math.prod(s for a, s in enumerate(shape) if a not in reduced)

    def as_matrix(self, kernel: Array) -> Array:
        """Return the kernel as a matrix (inputs, units)."""
        sizes = self.matrix_sizes(tuple(kernel.shape))
        if isinstance(kernel, np.ndarray):
            return kernel.transpose(self.matrix_order()).reshape(sizes)
        return ops.reshape(ops.transpose(kernel, self.matrix_order()), sizes)

    def as_kernel(self, matrix: Array) -> Array:
        """Return what `as_matrix` was given."""
        order, shape = self.matrix_order(), self._adapted_shape
        turned = ops.reshape(matrix, tuple(shape[a] for a in order))
        return ops.transpose(turned, tuple(order.index(a) for a in range(len(order))))

    def scale_of_result(self, scale: Array) -> Array:
        """Return the scales of a kernel of 8 bits so that they broadcast to the result."""
        letters = self.kernel_letters()
        kept = [a for a, c in enumerate(letters.kernel) if c in letters.free]
        own = [letters.kernel[a] for a in kept]
        squeezed = scale.reshape([scale.shape[a] for a in kept])
        order = [own.index(c) for c in letters.result if c in own]
        turned = squeezed.transpose(order)
        sizes = iter(turned.shape)
        return turned.reshape([next(sizes) if c in own else 1 for c in letters.result])

    def scales_of_columns(self) -> Array:
        """Return the scales (units,) of a kernel with one scale per column."""
        if self.weight_format != "int8":
            return self.kernel_scale
        letters = self.kernel_letters()
        own = [c for c in letters.result if c in letters.free]
        sizes = [s for s, c in zip(self.kernel_scale.shape, letters.result) if c in own]
        turned = ops.transpose(
            ops.reshape(self.kernel_scale, sizes), [own.index(c) for c in letters.free]
        )
        return ops.reshape(turned, (-1,))

    def rows_of(self, inputs: Array) -> Array:
        """Return inputs as rows (..., inputs of the kernel as a matrix)."""
        letters = letters_of(self.equation, len(inputs.shape), len(self._kernel.shape))
        if not letters.plain:
            raise NotImplementedError(
                f"{self.display_name()}: {self.equation!r} is no product of two matrices."
            )
        order = [letters.inputs.index(c) for c in (*letters.others, *letters.reduced)]
        rows, _ = self.matrix_sizes(tuple(self._kernel.shape))
        return ops.reshape(ops.transpose(inputs, order), (-1, rows))

    def quantized_einsum(self, inputs: Tensor) -> Tensor:
        """Return the product of the inputs and the quantized kernel."""
        letters = letters_of(self.equation, len(inputs.shape), len(self._adapted_shape))
        if not letters.plain or any(not isinstance(s, int) for s in inputs.shape):
            return self._any_einsum(inputs, letters)
        order = [letters.inputs.index(c) for c in (*letters.others, *letters.reduced)]
        turned = ops.transpose(inputs, order)
        count = len(letters.others)
        rows, _ = self.matrix_sizes(self._adapted_shape)
        lead = turned.shape[:count]
        y = self.quantized_product(ops.reshape(turned, (*lead, rows)))
        sizes = dict(zip(letters.kernel, self._adapted_shape))
        y = ops.reshape(y, (*lead, *(sizes[c] for c in letters.free)))
        computed = (*letters.others, *letters.free)
        return ops.transpose(y, [computed.index(c) for c in letters.result])

    def _any_einsum(self, inputs: Tensor, letters: Letters) -> Tensor:
        """Return a product that is not one of two matrices: the result has letters of both.

        The inputs are rounded as in the product of integers, and multiplied as floats.
        """
        quantizer = getattr(self.quantization_config, "activation_quantizer", None)
        kernel = self.float_kernel()
        if quantizer is not None:
            axes = [i for i, c in enumerate(letters.inputs) if c in letters.reduced]
            inputs = rounded(inputs, quantizer, axes)
        return ops.einsum(self.equation, inputs, ops.cast(kernel, inputs.dtype))


def rounded(x: Tensor, quantizer: Structure, axes: list[int]) -> Tensor:
    """Return x rounded as by quantization; the gradient passes straight through.

    Args:
        x: float tensor.
        quantizer: gives the quantized numbers and the scale.
        axes: axes that share a scale.
    """

    @ops.custom_gradient
    def round_trip(x: Tensor) -> Array:
        q, scale = quantizer(x, axis=tuple(axes))

        def gradient(*args: Any, upstream: Structure = None) -> Tensor:
            return args[0] if upstream is None else upstream

        return ops.divide(ops.cast(q, x.dtype), scale), gradient

    return round_trip(x)
