"""x @ kernel + bias in the epilogue of the product, and relu of it; see `fused_functions`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kerasish.backends.eager import loop_elements, onednn_product
from kerasish.backends.eager.cuda import blas
from kerasish.backends.eager.cuda.activation import bias_activation_gradient
from kerasish.backends.eager.cuda.arrays import cast as cast_array
from kerasish.backends.eager.cuda.arrays import compact
from kerasish.backends.eager.cuda.fused import Call, again, make_op
from kerasish.backends.eager.cuda.kernels import SCALARS
from kerasish.backends.eager.cuda.norm import column_sums
from kerasish.ops.arrays.einsum import read_letters
from kerasish.ops.basic.arithmetic import add, multiply
from kerasish.ops.basic.comparison import greater
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.movement import reshape
from kerasish.ops.basic.product import matmul, swap_last
from kerasish.ops.basic.reduce import reduce_sum
from kerasish.ops.op import REGISTRY
from kerasish.typing import Array, ArrayModule


def _products(xp: ArrayModule) -> Any:
    return onednn_product if xp is np else blas


def _rows(xp: ArrayModule, x: Array) -> Array:
    """Return x as a matrix in C order."""
    rows = np.ascontiguousarray(x) if xp is np else compact(x)
    return rows if rows.ndim == 2 else rows.reshape(-1, x.shape[-1])


def _affine_kernel(
    xp: ArrayModule, x: Array, kernel: Array, *bias: Any, kind: str | None, units: tuple[int, ...]
) -> Array:
    rows = x if x.ndim == 2 else _rows(xp, x)
    y = _products(xp).affine(rows, kernel, bias[0] if bias else None, kind)
    return y if x.ndim == 2 and len(units) == 1 else y.reshape(*x.shape[:-1], *units)


def _through_relu_kernel(xp: ArrayModule, g: Array, y: Array) -> Array:
    if xp is np:
        return loop_elements.through_relu(g, y)
    return bias_activation_gradient(g, y, None, "relu")[0]


def _bias_kernel(xp: ArrayModule, g: Array) -> Array:
    if xp is np:
        return onednn_product.column_sums(g)
    return cast_array(column_sums(g), g.dtype)


def _weights_kernel(xp: ArrayModule, g: Array, x: Array) -> Array:
    return _products(xp).kernel_gradient(_rows(xp, x), _rows(xp, g))


def _rows_kernel(xp: ArrayModule, g: Array, kernel: Array) -> Array:
    return _onto_kernel(xp, None, g, kernel)


def _onto_kernel(xp: ArrayModule, onto: Array, g: Array, kernel: Array) -> Array:
    shape = (*g.shape[:-1], kernel.shape[0])
    before = None if onto is None else _rows(xp, onto)
    dx = _products(xp).rows_gradient(_rows(xp, g), kernel, before)
    return dx if g.ndim == 2 else dx.reshape(shape)


def _rows_rule(h: Array, dx: Array, g: Array, kernel: Array) -> list[Any]:
    return again(lambda g, k: matmul(g, swap_last(k)), [g, kernel], [h])


def _weights_rule(h: Array, y: Array, g: Array, x: Array) -> list[Any]:
    by_kernel, by_bias = h
    return [
        add(REGISTRY["matmul"](x, by_kernel), by_bias),
        REGISTRY["matmul"](g, REGISTRY["transpose"](by_kernel, (1, 0))),
    ]


# relu's slope is computed from its result: both are above 0 at the same places.
THROUGH_RELU = make_op(
    _through_relu_kernel,
    lambda h, dx, g, y: (multiply(h, cast(greater(y, 0), g.dtype)), None),
)
BIAS_GRADIENT = make_op(
    _bias_kernel,
    lambda h, db, g: again(lambda g: reduce_sum(g, tuple(range(len(g.shape) - 1))), [g], [h]),
)


def _gradient(
    g: Array, y: Array, *inputs: Any, onto: Array, kind: str | None, units: tuple[int, ...]
) -> list[Any]:
    x, kernel, *bias = inputs
    if onto is None and len(units) == 1 and bias and kernel.tracked and bias[0].tracked:
        gradients = _ALL_GRADIENTS if x.tracked else _OF_WEIGHTS
        if isinstance(g.value, np.ndarray):
            results = gradients(g, y, x, kernel, kind=kind, by_x=x.tracked)
            return list(results) if x.tracked else [None, *results]
    if kind == "relu":
        g = THROUGH_RELU(g, y)
    if len(units) > 1:
        g = reshape(g, (*x.shape[:-1], kernel.shape[-1]))
    by_right = REGISTRY["matmul"].grad[1]  # type: ignore[index]
    by_x = None
    if x.tracked:
        by_x = _ROWS_GRADIENT(g, kernel) if onto is None else _ROWS_ONTO(onto, g, kernel)
    if kernel.tracked and bias and bias[0].tracked:
        return [by_x, *_WEIGHTS_GRADIENT(g, x)]
    by_kernel = by_right(g, y, x, kernel) if kernel.tracked else None
    return [by_x, by_kernel, *(BIAS_GRADIENT(g) if b.tracked else None for b in bias)]


def _together_kernel(
    xp: ArrayModule, g: Array, y: Array, x: Array, kernel: Array, *, kind: str | None, by_x: bool
) -> tuple[Array, ...]:
    return onednn_product.gradients(g, y if kind else None, x, kernel, by_x)


def _together_rule(
    h: Array, dx: Array, g: Array, y: Array, x: Array, kernel: Array, kind: str | None, by_x: bool
) -> list[Any]:
    def back(g: Array, x: Array, kernel: Array) -> Any:
        g = THROUGH_RELU(g, y) if kind == "relu" else g
        return [*([_ROWS_GRADIENT(g, kernel)] if by_x else []), *_WEIGHTS_GRADIENT(g, x)]

    slope_g, slope_x, slope_kernel = again(back, [g, x, kernel], h)
    return [slope_g, None, slope_x, slope_kernel]


def _flops(of_rows: int, of_columns: int, in_results: bool = False) -> Any:
    """Return the function that counts the FLOPs of a product: two per number and per sum's term.

    Args:
        of_rows: the input whose numbers are counted.
        of_columns: the input whose last axis is the number of products of each of these.
        in_results: whether the numbers counted are those of the first result instead.
    """

    def count(inputs: Any, results: Any) -> int:
        numbers = results[0] if in_results else inputs[of_rows]
        return 2 * math.prod(numbers) * inputs[of_columns][-1]

    return count


def _flops_of_all(inputs: Any, results: Any) -> int:
    return 4 * math.prod(inputs[0]) * inputs[2][-1]


# Of x: an earlier incoming gradient is added as the product is written.
_ROWS_GRADIENT = make_op(_rows_kernel, _rows_rule, flops=_flops(0, 1, in_results=True))
_ROWS_ONTO = make_op(
    _onto_kernel, lambda h, dx, onto, g, kernel: (h, *_rows_rule(h, dx, g, kernel)),
    flops=_flops(0, 1, in_results=True),
)  # fmt: skip
# Of the kernel and of the bias: incoming gradients are summed as the product reads them.
_WEIGHTS_GRADIENT = make_op(_weights_kernel, _weights_rule, outputs=2, flops=_flops(0, 1))
# All of them together on the CPU, where an op's Python takes as long as a small product.
_ALL_GRADIENTS = make_op(_together_kernel, _together_rule, outputs=3, flops=_flops_of_all)
_OF_WEIGHTS = make_op(_together_kernel, _together_rule, outputs=2, flops=_flops(0, 2))
_AFFINE = make_op(_affine_kernel, _gradient, accumulates=True, flops=_flops(0, 1))


def fused_affine(
    x: Array, kernel: Array, bias: Array = None, rectified: bool = False
) -> Call | None:
    """Return the fused op of `affine`: for a bias, relu, or both."""
    if bias is None and not rectified:
        return None
    given = [as_tensor(x), as_tensor(kernel)] + ([] if bias is None else [as_tensor(bias)])
    values = [t.value for t in given]
    left, right = values[0].shape, values[1].shape
    if len(left) < 2 or len(right) != 2 or left[-1] != right[0] or 0 in left or 0 in right:
        return None
    if bias is not None and values[2].shape != right[1:]:
        return None
    dtype = values[0].dtype
    for value in values[1:]:
        if value.dtype is not dtype and value.dtype != dtype:
            return None
    if given[0].dtype not in SCALARS:
        return None
    return _AFFINE, given, {"kind": "relu" if rectified else None, "units": right[1:]}


def fused_einsum_affine(
    subscripts: str, x: Array, kernel: Array, bias: Array = None, rectified: bool = False
) -> Call | None:
    """Return the fused op of `einsum_affine`, if it is a product of matrices without copies.

    That is: x's last axes are the kernel's first ones, and are summed; the bias varies along all of
    the kernel's other axes. The projections of attention have this form.
    """
    if bias is None and not rectified:
        return None
    x, kernel = as_tensor(x), as_tensor(kernel)
    (left, right), result = read_letters(subscripts, [len(x.shape), len(kernel.shape)])
    n = sum(letter in right and letter not in result for letter in left)
    if not n or left[-n:] != right[:n] or result != left[:-n] + right[n:]:
        return None
    units = kernel.shape[n:]
    if x.shape[-n:] != kernel.shape[:n] or not units:
        return None
    size, each = math.prod(kernel.shape[:n]), math.prod(units)
    if bias is not None:
        bias = as_tensor(bias)
        if bias.shape != units:
            return None
        bias = reshape(bias, (each,))
    # Other users of x add their gradients to the same tensor: no view if none is needed.
    rows = x if n == 1 else reshape(x, (*x.shape[:-n], size))
    call = fused_affine(rows, reshape(kernel, (size, each)), bias, rectified)
    return None if call is None else (*call[:2], {**call[2], "units": units})
