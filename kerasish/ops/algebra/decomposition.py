"""Decompositions of matrices: Cholesky, LU, QR, eigenvalues, singular values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kerasish.ops.algebra.solving import (
    check_matrix,
    check_square,
    in_single,
    inv,
    matrix,
    solve_matrix,
    triangle,
)
from kerasish.ops.basic.arithmetic import add, divide, multiply, square, subtract
from kerasish.ops.basic.conversion import as_tensor
from kerasish.ops.basic.creation import eye
from kerasish.ops.basic.movement import concatenate
from kerasish.ops.basic.product import matmul, swap_last
from kerasish.ops.basic.reshaping import expand_dims
from kerasish.ops.basic.selection import get_item, where
from kerasish.ops.op import function, op
from kerasish.ops.shapes import Spec, least
from kerasish.typing import AnyTensor, Array, ArrayModule, DTypeLike, Structure, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["cholesky", "cholesky_inverse", "eig", "eigh", "lu_factor", "qr", "svd"]


def _positive(*shape: int) -> Callable[..., Any]:
    """Return an example input: symmetric positive definite matrices."""
    import numpy as np

    def draw(rng: Any) -> Tensor:
        x = rng.normal(size=shape)
        return x @ np.swapaxes(x, -1, -2) + 2 * np.eye(shape[-1])

    return draw


def _symmetric(*shape: int) -> Callable[..., Any]:
    """Return an example input: symmetric matrices with eigenvalues apart."""
    import numpy as np

    def draw(rng: Any) -> Tensor:
        x = rng.normal(size=shape)
        return x + np.swapaxes(x, -1, -2) + 4 * np.diag(np.arange(shape[-1]))

    return draw


def _halved(xp: ArrayModule, x: Array) -> Array:
    return (x + xp.swapaxes(x, -1, -2)) / 2


def _evened(x: Tensor) -> Any:
    """Return the symmetric part of x: the gradient of what sees only that part."""
    return multiply(add(x, swap_last(x)), 0.5)


# --- Cholesky -------------------------------------------------------------------------------------


def _cholesky_shape(x: Spec) -> Spec:
    check_square(x, "cholesky")
    return x


def _half_triangle(x: Tensor) -> Any:
    """Return the lower triangle of x, its diagonal halved."""
    half = multiply(eye(x.shape[-1], dtype=x.dtype), 0.5)
    return subtract(triangle(x, True), multiply(x, half))


def _cholesky_grad(g: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
    # I. Murray, Differentiation of the Cholesky decomposition, 2016.
    turned = swap_last(y)
    inner = _half_triangle(matmul(turned, triangle(g, True)))
    left = solve_matrix(turned, inner)
    return (_evened(swap_last(solve_matrix(turned, swap_last(left)))),)


@op(
    "decomposition",
    _cholesky_shape,
    _cholesky_grad,
    "float",
    examples=[((_positive(3, 3),), {}), ((_positive(2, 2, 2),), {}), ((_positive(1, 1),), {})],
)
@in_single
def cholesky_lower(xp: ArrayModule, x: Array) -> Array:
    """The lower triangular y with y @ transpose(y) = x; only x's symmetric part is seen.

    Shape: (..., n, n) -> (..., n, n).
    """
    return xp.linalg.cholesky(_halved(xp, x))


@function
def cholesky(x: TensorLike, upper: bool = False) -> Tensor:
    """Return the triangular factor of a symmetric positive definite x = L @ transpose(L).

    Args:
        x: tensor or array.
        upper: give transpose(L) instead.

    Example:
        >>> cholesky([[4.0, 2.0], [2.0, 5.0]]).tolist()
        [[2.0, 0.0], [1.0, 2.0]]
    """
    y = cholesky_lower(x)
    return swap_last(y) if upper else y


@function
def cholesky_inverse(x: TensorLike, upper: bool = False) -> Tensor:
    """Return the inverse of L @ transpose(L), x being L (or transpose(L), with `upper`).

    Args:
        x: tensor or array.
        upper: whether x is the upper factor, transpose(L).

    Example:
        >>> cholesky_inverse([[2.0, 0.0], [0.0, 1.0]]).tolist()
        [[0.25, 0.0], [0.0, 1.0]]
    """
    x = as_tensor(x)
    inverse = inv(triangle(x, not upper))
    if upper:
        return matmul(inverse, swap_last(inverse))
    return matmul(swap_last(inverse), inverse)


# --- LU -------------------------------------------------------------------------------------------


def _lu_shape(x: Spec) -> tuple[Spec, Spec]:
    check_matrix(x, "lu_factor")
    sizes = x.shape[-2:]
    count = least(sizes)
    return x, Spec((*x.shape[:-2], count), "int32")


def _lu_grad(g: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
    if x.shape[-2] != x.shape[-1]:
        raise ValueError(f"lu_factor: only square matrices have a gradient, got shape {x.shape}.")
    both, pivots = y
    lower = add(triangle(both, True, True), eye(x.shape[-1], dtype=x.dtype))
    upper, arriving = triangle(both, False), g[0]
    inner = add(
        triangle(matmul(swap_last(lower), triangle(arriving, True, True)), True, True),
        triangle(matmul(triangle(arriving, False), swap_last(upper)), False),
    )
    left = solve_matrix(swap_last(lower), inner)
    spread = swap_last(solve_matrix(upper, swap_last(left)))
    return (matmul(swap_last(swaps(pivots, dtype=x.dtype)), spread),)


@op(
    "decomposition",
    _lu_shape,
    _lu_grad,
    "float",
    examples=[((matrix(3, 3, shift=0.0),), {}), ((matrix(2, 2, 2),), {})],
    outputs=2,
)
@in_single
def lu_factor(xp: ArrayModule, x: Array) -> Array:
    """The triangles of P @ x = L @ U in one matrix (L's unit diagonal left out), and the pivots:
    row i was swapped with row pivots[i], in turn.

    Args:
        x: tensor or array.

    Shape: (..., m, n) -> (..., m, n), (..., min(m, n)) int32.

    Example:
        >>> lu_factor([[2.0, 0.0], [0.0, 3.0]])[0].tolist()
        [[2.0, 0.0], [0.0, 3.0]]
    """
    rows, columns = x.shape[-2:]
    y = xp.array(x).reshape(-1, rows, columns)
    count = least((rows, columns))
    pivots = xp.zeros((len(y), count), xp.int32)
    each = xp.arange(len(y))
    for k in range(count):
        best = xp.argmax(xp.absolute(y[:, k:, k]), axis=1) + k
        pivots[:, k] = best
        first, second = y[each, k], y[each, best]
        y[each, k], y[each, best] = second, first
        divisor = y[:, k : k + 1, k]
        y[:, k + 1 :, k] /= xp.where(divisor == 0, 1, divisor)
        y[:, k + 1 :, k + 1 :] -= y[:, k + 1 :, k : k + 1] * y[:, k : k + 1, k + 1 :]
    return y.reshape(x.shape), pivots.reshape(*x.shape[:-2], count)


@op(
    "decomposition",
    lambda pivots, dtype: Spec((*pivots.shape, pivots.shape[-1]), dtype),
    None,
    examples=[((lambda rng: rng.integers(2, 3, (2, 3)).astype("int32"),), {"dtype": "float32"})],
)
def swaps(xp: ArrayModule, pivots: Array, *, dtype: DTypeLike) -> Array:
    """The permutation matrix of swapping row i with row pivots[i], in turn.

    Shape: (..., n) -> (..., n, n).
    """
    count = pivots.shape[-1]
    flat = pivots.reshape(-1, count)
    order = xp.zeros(flat.shape, xp.int32) + xp.arange(count, dtype=xp.int32)
    each = xp.arange(len(flat))
    for k in range(count):
        first, second = order[each, k], order[each, flat[:, k]]
        order[each, k], order[each, flat[:, k]] = second, first
    result = order[:, :, None] == xp.arange(count)
    return result.reshape(*pivots.shape, count).astype(dtype)


# --- QR -------------------------------------------------------------------------------------------


def _qr_shape(x: Spec, mode: str) -> tuple[Spec, Spec]:
    check_matrix(x, "qr")
    rows, columns = x.shape[-2:]
    inner = least((rows, columns))
    inner = rows if mode == "complete" else inner
    lead = x.shape[:-2]
    return Spec((*lead, rows, inner), x.dtype), Spec((*lead, inner, columns), x.dtype)


def _qr_canonical(shapes: Sequence[Any], attrs: dict[str, Any]) -> dict[str, Any]:
    if attrs["mode"] not in ("reduced", "complete"):
        raise ValueError(f"qr: mode must be 'reduced' or 'complete', got {attrs['mode']!r}.")
    return attrs


def _qr_grad(g: Tensor, y: Tensor, x: Tensor, mode: Any) -> tuple[Any, ...]:
    rows, columns = x.shape[-2:]
    if mode == "complete" and rows > columns:
        raise ValueError(
            f"qr: mode='complete' has no gradient for more rows than columns, got {x.shape}."
        )
    (gq, gr), (q, r) = g, y
    if rows >= columns:
        return (_qr_square_grad(gq, gr, q, r),)
    # Only the first columns make q; the others are r's: x = q [u v], v = q^T x.
    left, right = (..., slice(0, rows)), (..., slice(rows, None))
    after, grown = get_item(x, right), get_item(gr, right)
    gq = add(gq, matmul(after, swap_last(grown)))
    first = _qr_square_grad(gq, get_item(gr, left), q, get_item(r, left))
    return (concatenate([first, matmul(q, grown)], -1),)


def _qr_square_grad(gq: Any, gr: Any, q: Any, r: Any) -> Any:
    # S. Walter & L. Lehmann, Algorithmic differentiation of linear algebra functions, 2018.
    gr = triangle(gr, False)
    inner = subtract(matmul(r, swap_last(gr)), matmul(swap_last(gq), q))
    even = add(triangle(inner, True), swap_last(triangle(inner, True, True)))
    arriving = add(gq, matmul(q, even))
    return swap_last(solve_matrix(r, swap_last(arriving)))


@op(
    "decomposition",
    _qr_shape,
    _qr_grad,
    "float",
    canonical=_qr_canonical,
    examples=[
        ((matrix(3, 3),), {}),
        ((matrix(2, 4, 2),), {}),
        ((matrix(2, 3),), {"mode": "complete"}),
    ],
    outputs=2,
)
@in_single
def qr(xp: ArrayModule, x: Array, *, mode: str = "reduced") -> Array:
    """The (q, r) with x = q @ r, q's columns orthonormal and r upper triangular.

    Args:
        x: tensor or array.
        mode: "reduced" (k = min(m, n)) or "complete" (k = m).

    Shape: (..., m, n) -> (..., m, k), (..., k, n).

    Example:
        >>> [abs(part).tolist() for part in qr([[2.0, 0.0], [0.0, 3.0]])]
        [[[1.0, 0.0], [0.0, 1.0]], [[2.0, 0.0], [0.0, 3.0]]]
    """
    return tuple(xp.linalg.qr(x, mode=mode))


# --- eigenvalues ----------------------------------------------------------------------------------


def _eigh_shape(x: Spec) -> tuple[Spec, Spec]:
    check_square(x, "eigh")
    return Spec(x.shape[:-1], x.dtype), x


def _eigh_grad(g: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
    (gw, gv), (w, v) = g, y
    turned = swap_last(v)
    inner = multiply(reciprocal_gaps(w), matmul(turned, gv))
    inner = add(inner, multiply(eye(w.shape[-1], dtype=w.dtype), expand_dims(gw, -1)))
    return (_evened(matmul(v, matmul(inner, turned))),)


@op(
    "decomposition",
    _eigh_shape,
    _eigh_grad,
    "float",
    examples=[((_symmetric(3, 3),), {}), ((_symmetric(2, 2, 2),), {})],
    outputs=2,
)
@in_single
def eigh(xp: ArrayModule, x: Array) -> Array:
    """The eigenvalues, smallest first, and eigenvectors (columns) of x's symmetric part.

    The gradient by way of the vectors asks for eigenvalues that differ.

    Args:
        x: tensor or array.

    Shape: (..., n, n) -> (..., n), (..., n, n).

    Example:
        >>> eigh([[2.0, 0.0], [0.0, 3.0]])[0].tolist()
        [2.0, 3.0]
    """
    return tuple(xp.linalg.eigh(_halved(xp, x)))


def _eig_shape(x: Spec) -> tuple[Spec, Spec]:
    check_square(x, "eig")
    dtype = "complex128" if x.dtype in ("float64", "complex128") else "complex64"
    return Spec(x.shape[:-1], dtype), Spec(x.shape, dtype)


@op(
    "decomposition",
    _eig_shape,
    None,
    "float",
    examples=[((matrix(3, 3),), {}), ((matrix(2, 2, 2),), {})],
    outputs=2,
)
def eig(xp: ArrayModule, x: Array) -> Array:
    """The eigenvalues and eigenvectors (columns), complex; no gradient.

    Args:
        x: tensor or array.

    Shape: (..., n, n) -> (..., n), (..., n, n).

    Example:
        >>> eig([[2.0, 0.0], [0.0, 3.0]])[0].shape
        (2,)
    """
    wide = x.astype(xp.float32) if x.dtype.itemsize == 2 else x
    dtype = xp.complex128 if wide.dtype in (xp.float64, xp.complex128) else xp.complex64
    values, vectors = xp.linalg.eig(wide)
    return values.astype(dtype), vectors.astype(dtype)


# --- singular values ------------------------------------------------------------------------------


def _values_shape(x: Spec) -> Spec:
    check_matrix(x, "svd")
    sizes = x.shape[-2:]
    return Spec((*x.shape[:-2], least(sizes)), x.dtype)


def _values_grad(g: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
    u, _, vh = svd_reduced(x)
    return (matmul(multiply(u, expand_dims(g, -2)), vh),)


RECTANGLES = [((matrix(3, 3),), {}), ((matrix(2, 4, 2),), {}), ((matrix(2, 3),), {})]


@op("decomposition", _values_shape, _values_grad, "float", examples=RECTANGLES)
@in_single
def singular_values(xp: ArrayModule, x: Array) -> Array:
    """The singular values, largest first.

    Shape: (..., m, n) -> (..., min(m, n)).
    """
    return xp.linalg.svd(x, compute_uv=False)


def _reduced_shape(x: Spec) -> tuple[Spec, Spec, Spec]:
    lead, (m, n) = x.shape[:-2], x.shape[-2:]
    k = _values_shape(x).shape[-1]
    return tuple(Spec((*lead, *s), x.dtype) for s in ((m, k), (k,), (k, n)))  # type: ignore[return-value]


def reciprocal_gaps(values: AnyTensor) -> Tensor:
    """Return 1 / (values[j] - values[i]) at (i, j), zero on the diagonal."""
    gaps = subtract(expand_dims(values, -2), expand_dims(values, -1))
    diagonal = eye(values.shape[-1], dtype="bool")
    return where(diagonal, 0.0, divide(1.0, where(diagonal, 1.0, gaps)))


def _reduced_grad(g: Any, y: Any, x: Tensor) -> tuple[Any, ...]:
    # J. Townsend, Differentiating the singular value decomposition, 2016, for real matrices.
    gu, gs, gvh = g
    u, s, vh = y
    ut, gv = swap_last(u), swap_last(gvh)
    gaps = reciprocal_gaps(square(s))
    row, column = expand_dims(s, -2), expand_dims(s, -1)
    left, right = matmul(ut, gu), matmul(vh, gv)
    inner = add(
        multiply(multiply(gaps, subtract(left, swap_last(left))), row),
        multiply(column, multiply(gaps, subtract(right, swap_last(right)))),
    )
    inner = add(inner, multiply(eye(s.shape[-1], dtype=s.dtype), expand_dims(gs, -1)))
    total = matmul(u, matmul(inner, vh))
    if x.shape[-2] > x.shape[-1]:
        outside = subtract(gu, matmul(u, left))
        total = add(total, matmul(divide(outside, row), vh))
    if x.shape[-2] < x.shape[-1]:
        outside = subtract(swap_last(gv), matmul(swap_last(right), vh))
        total = add(total, matmul(u, divide(outside, column)))
    return (total,)


@op("decomposition", _reduced_shape, _reduced_grad, "float", examples=RECTANGLES, outputs=3)
@in_single
def svd_reduced(xp: ArrayModule, x: Array) -> Array:
    """The (u, s, vh) with x = u @ diag(s) @ vh, the columns of u and the rows of vh orthonormal.

    The gradient asks for singular values that differ.

    Shape: (..., m, n) -> (..., m, k), (..., k), (..., k, n) with k = min(m, n).
    """
    return tuple(xp.linalg.svd(x, full_matrices=False))


def _svd_shape(x: Spec) -> tuple[Spec, Spec, Spec]:
    check_matrix(x, "svd")
    lead, (rows, columns) = x.shape[:-2], x.shape[-2:]
    inner = least((rows, columns))
    return (
        Spec((*lead, rows, rows), x.dtype),
        Spec((*lead, inner), x.dtype),
        Spec((*lead, columns, columns), x.dtype),
    )


def _svd_grad(g: Tensor, y: Tensor, x: Tensor) -> Any:
    # What arrives at the columns that only complete a basis is left out: they are arbitrary.
    inner = least(x.shape[-2:])
    left, right = (..., slice(0, inner)), (..., slice(0, inner), slice(None))
    arriving = (get_item(g[0], left), g[1], get_item(g[2], right))
    result = (get_item(y[0], left), y[1], get_item(y[2], right))
    return _reduced_grad(arriving, result, x)


@op(
    "decomposition",
    _svd_shape,
    _svd_grad,
    "float",
    examples=[((matrix(3, 3),), {}), ((matrix(2, 2, 2),), {})],
    outputs=3,
)
@in_single
def svd_full(xp: ArrayModule, x: Array) -> Array:
    """As `svd_reduced`, with u and vh completed to square matrices.

    Shape: (..., m, n) -> (..., m, m), (..., min(m, n)), (..., n, n).
    """
    return tuple(xp.linalg.svd(x, full_matrices=True))


@function
def svd(x: TensorLike, full_matrices: bool = True, compute_uv: bool = True) -> Structure:
    """Return (u, s, vh) with x = u @ diag(s) @ vh; without `compute_uv` only s, largest first.

    Args:
        x: tensor or array.
        full_matrices: complete u and vh to square matrices (no gradient flows from what that
            adds).
        compute_uv: whether u and vh are computed.

    Example:
        >>> svd([[3.0, 0.0], [0.0, -4.0]], compute_uv=False).tolist()
        [4.0, 3.0]
    """
    if not compute_uv:
        return singular_values(x)
    return svd_full(x) if full_matrices else svd_reduced(x)
