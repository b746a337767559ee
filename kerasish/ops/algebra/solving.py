"""Linear equations: solve, inverses, determinants, least squares."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kerasish.errors import ShapeError
from kerasish.ops.basic.arithmetic import add, multiply, negative, subtract
from kerasish.ops.basic.comparison import greater
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.product import matmul, swap_last
from kerasish.ops.basic.reshaping import expand_dims, squeeze
from kerasish.ops.basic.selection import where
from kerasish.ops.op import function, op
from kerasish.ops.shapes import Spec, agree, broadcast_shapes
from kerasish.typing import AnyTensor, Array, ArrayModule, ScalarLike, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["det", "inv", "lstsq", "pinv", "solve", "solve_triangular"]

# --- what the kernels share -----------------------------------------------------------------------


def in_single(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Run a kernel on half precision in float32: LAPACK supports no smaller floats."""

    @functools.wraps(kernel)
    def run(xp: ArrayModule, x: Array, *others: Any, **attrs: Any) -> Array:
        if x.dtype.itemsize > 2:
            return kernel(xp, x, *others, **attrs)
        wide = (a.astype(xp.float32) for a in (x, *others))
        result = kernel(xp, *wide, **attrs)
        if not isinstance(result, tuple):
            return result.astype(x.dtype)
        return tuple(y.astype(x.dtype) if y.dtype == xp.float32 else y for y in result)

    return run


def matrix(*shape: int, shift: float = 2.0) -> Callable[..., Any]:
    """Return an example input: matrices of `shape`, far from singular where they are square."""
    import numpy as np

    return lambda rng: rng.normal(size=shape) + shift * np.eye(*shape[-2:])


def check_matrix(x: Spec, what: str) -> None:
    """Raise unless x is a stack of matrices."""
    if len(x.shape) < 2:
        raise ShapeError(f"{what}: expected a matrix or a stack of them, got shape {x.shape}.")


def check_square(x: Spec, what: str) -> None:
    """Raise unless x is a stack of square matrices."""
    check_matrix(x, what)
    rows, columns = x.shape[-2:]
    if not agree(rows, columns):
        raise ShapeError(f"{what}: the last two sizes must be equal, got shape {x.shape}.")


def _square(what: str) -> Callable[[Spec], Spec]:
    def shape(x: Spec) -> Spec:
        check_square(x, what)
        return x

    return shape


# --- ops ------------------------------------------------------------------------------------------


def _solve_shape(a: Spec, b: Spec) -> Spec:
    check_square(a, "solve")
    check_matrix(b, "solve: b")
    if not agree(a.shape[-1], b.shape[-2]):
        raise ShapeError(f"solve: a of shape {a.shape} does not go with b of shape {b.shape}.")
    lead = broadcast_shapes(a.shape[:-2], b.shape[:-2], what="solve")
    return Spec((*lead, a.shape[-1], b.shape[-1]), a.dtype)


def _solve_grad(g: Tensor, y: Tensor, a: Tensor, b: Tensor) -> tuple[Any, ...]:
    into = solve_matrix(swap_last(a), g)
    return negative(matmul(into, swap_last(y))), into


@op(
    "decomposition",
    _solve_shape,
    _solve_grad,
    "float",
    examples=[
        ((matrix(3, 3), (3, 2)), {}),
        ((matrix(2, 3, 3), (2, 3, 1)), {}),
        ((matrix(2, 1, 2, 2), (3, 2, 2)), {}),
    ],
)
@in_single
def solve_matrix(xp: ArrayModule, a: Array, b: Array) -> Array:
    """The x with a @ x = b, column by column.

    Shape: (..., n, n), (..., n, k) -> (..., n, k).
    """
    return xp.linalg.solve(a, b)


def _inv_grad(g: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
    turned = swap_last(y)
    return (negative(matmul(turned, matmul(g, turned))),)


SQUARE = [((matrix(3, 3),), {}), ((matrix(2, 2, 2),), {}), ((matrix(1, 1),), {})]


@op("decomposition", _square("inv"), _inv_grad, "float", examples=SQUARE)
@in_single
def inv(xp: ArrayModule, x: Array) -> Array:
    """The y with x @ y = identity.

    Args:
        x: tensor or array.

    Shape: (..., n, n) -> (..., n, n).

    Example:
        >>> inv([[2.0, 0.0], [0.0, 4.0]]).tolist()
        [[0.5, 0.0], [0.0, 0.25]]
    """
    return xp.linalg.inv(x)


def _without_matrix(x: Spec) -> Spec:
    check_square(x, "det")
    return Spec(x.shape[:-2], x.dtype)


def _per_matrix(x: Tensor) -> Any:
    return expand_dims(x, (-2, -1))


def _det_grad(g: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
    return (multiply(_per_matrix(multiply(g, y)), swap_last(inv(x))),)


@op("decomposition", _without_matrix, _det_grad, "float", examples=SQUARE)
@in_single
def det(xp: ArrayModule, x: Array) -> Array:
    """The determinant; the gradient asks for one that is not zero.

    Args:
        x: tensor or array.

    Shape: (..., n, n) -> (...).

    Example:
        >>> float(det([[2.0, 0.0], [0.0, 3.0]]))
        6.0
    """
    return xp.linalg.det(x)


def _slogdet_grad(g: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
    return (multiply(_per_matrix(g[1]), swap_last(inv(x))),)


@op(
    "decomposition",
    lambda x: (_without_matrix(x), _without_matrix(x)),
    _slogdet_grad,
    "float",
    examples=SQUARE,
    outputs=2,
)
@in_single
def slogdet(xp: ArrayModule, x: Array) -> Array:
    """The sign of the determinant, and log|determinant|.

    Args:
        x: tensor or array.

    Shape: (..., n, n) -> (...), (...).

    Example:
        >>> [float(part) for part in slogdet([[2.0, 0.0], [0.0, 0.5]])]
        [1.0, 0.0]
    """
    sign, size = xp.linalg.slogdet(x)
    return xp.asarray(sign), xp.asarray(size)


def _pinv_shape(x: Spec, rcond: float | None) -> Spec:
    check_matrix(x, "pinv")
    return Spec((*x.shape[:-2], x.shape[-1], x.shape[-2]), x.dtype)


def _pinv_grad(g: Tensor, y: Tensor, x: Tensor, rcond: Any) -> tuple[Any, ...]:
    # Golub & Pereyra, SIAM J. Numer. Anal. 10 (1973), transposed; for x of constant rank.
    turned, back = swap_last(y), swap_last(g)
    lost = subtract(back, matmul(matmul(x, y), back))
    free = subtract(back, matmul(back, matmul(y, x)))
    grown = matmul(matmul(lost, y), turned)
    fallen = matmul(turned, matmul(y, free))
    return (subtract(add(grown, fallen), matmul(turned, matmul(g, turned))),)


@op(
    "decomposition",
    _pinv_shape,
    _pinv_grad,
    "float",
    canonical=lambda shapes, attrs: {
        "rcond": None if attrs["rcond"] is None else float(attrs["rcond"])
    },
    examples=[
        ((matrix(4, 2),), {}),
        ((matrix(2, 2, 3),), {"rcond": 1e-3}),
        ((matrix(3, 3),), {}),
    ],
)
@in_single
def pinv(xp: ArrayModule, x: Array, *, rcond: ScalarLike | None = None) -> Array:
    """The pseudo-inverse of Moore and Penrose.

    Args:
        x: tensor or array.
        rcond: singular values up to rcond * the largest count as zero; None: max(m, n) times the
            dtype's precision.

    Shape: (..., m, n) -> (..., n, m).

    Example:
        >>> pinv([[2.0, 0.0], [0.0, 4.0]]).tolist()
        [[0.5, 0.0], [0.0, 0.25]]
    """
    u, s, vh = xp.linalg.svd(x, full_matrices=False)
    if rcond is None:
        rcond = max(x.shape[-2:]) * float(xp.finfo(x.dtype).eps)
    kept = s > rcond * s[..., :1]  # the largest is first
    inverse = xp.where(kept, 1 / xp.where(kept, s, 1), 0).astype(x.dtype)
    return xp.matmul(xp.swapaxes(vh, -1, -2), inverse[..., None] * xp.swapaxes(u, -1, -2))


# --- Keras's functions ----------------------------------------------------------------------------


def _columns(a: TensorLike, b: TensorLike, solver: Callable[[Any, Any], Any]) -> Tensor:
    """Solve with b, which may be vectors: one axis less than a, or only one."""
    a, b = as_tensor(a), as_tensor(b)
    if len(b.shape) == len(a.shape) - 1 or len(b.shape) == 1:
        return squeeze(solver(a, expand_dims(b, -1)), -1)
    return solver(a, b)


@function
def solve(a: TensorLike, b: TensorLike) -> Tensor:
    """Return the x with a @ x = b.

    Args:
        a: matrices of shape (..., m, n).
        b: right-hand sides of shape (..., m) or (..., m, k).

    Shape: (..., n, n), (..., n, k) or (..., n) -> as b.

    Example:
        >>> solve([[2.0, 0.0], [0.0, 4.0]], [2.0, 2.0]).tolist()
        [1.0, 0.5]
    """
    return _columns(a, b, solve_matrix)


def triangle(x: AnyTensor, lower: bool, strict: bool = False) -> Tensor:
    """Return x with zeros above (lower) or below its diagonal; `strict`: on it, too."""
    rows, columns = x.shape[-2:]
    corner = as_tensor(_corner(rows, columns, lower, strict))
    return where(corner, x, cast(0.0, x.dtype))


@functools.lru_cache(maxsize=64)
def _corner(rows: int, columns: int, lower: bool, strict: bool) -> Array:
    import numpy as np

    full = np.ones((rows, columns), bool)
    return np.tril(full, -int(strict)) if lower else np.triu(full, int(strict))


@function
def solve_triangular(a: TensorLike, b: TensorLike, lower: bool = False) -> Tensor:
    """Return the x with T @ x = b, T being the lower or upper triangle of a.

    Args:
        a: matrices of shape (..., n, n).
        b: right-hand sides of shape (..., m) or (..., m, k).
        lower: whether the lower triangle of a counts, or the upper one.

    Shape: (..., n, n), (..., n, k) or (..., n) -> as b.

    Example:
        >>> solve_triangular([[2.0, 9.0], [0.0, 4.0]], [2.0, 0.0]).tolist()
        [1.0, 0.0]
    """
    return _columns(a, b, lambda a, b: solve_matrix(triangle(a, lower), b))


@function
def logdet(x: TensorLike) -> Tensor:
    """Return log(det(x)); NaN where the determinant is negative.

    Args:
        x: tensor or array.

    Example:
        >>> round(float(logdet([[2.0, 0.0], [0.0, 3.0]])), 4)
        1.7918
    """
    sign, size = slogdet(x)
    return where(greater(0.0, sign), math.nan, size)


@function
def lstsq(a: TensorLike, b: TensorLike, rcond: float | None = None) -> Tensor:
    """Return the shortest x for which |a @ x - b| is least: pinv(a) @ b.

    Args:
        a: matrices of shape (..., m, n).
        b: right-hand sides of shape (..., m) or (..., m, k).
        rcond: singular values below this share of the largest count as 0; None: by the dtype.

    Shape: (..., m, n), (..., m, k) or (..., m) -> (..., n, k) or (..., n).

    Example:
        >>> [round(v, 3) for v in lstsq([[1.0], [1.0]], [1.0, 2.0]).tolist()]
        [1.5]
    """
    return _columns(a, b, lambda a, b: matmul(pinv(a, rcond), b))
