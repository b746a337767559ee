"""Complex numbers: their parts, and views of the bits of a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish.errors import ShapeError
from kerasish.ops import dtypes, rows
from kerasish.ops.basic.arithmetic import multiply
from kerasish.ops.basic.comparison import equal
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.reshaping import stack
from kerasish.ops.basic.selection import get_item
from kerasish.ops.basic.trigonometry import arctan2, cos, sin
from kerasish.ops.op import function, op
from kerasish.ops.shapes import Shape, Spec, agree
from kerasish.typing import Array, ArrayModule, DTypeLike, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["angle", "conj", "conjugate", "imag", "isreal", "real", "view"]


def _part_dtype(dtype: str) -> str:
    return {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)


def _complex_dtype(dtype: str) -> str:
    return "complex128" if dtype == "float64" else "complex64"


def _complex_example(rng: Any) -> Array:
    return (rng.normal(size=(2, 3)) + 1j * rng.normal(size=(2, 3))).astype("complex64")


PARTS = [((_complex_example,), {}), (((2, 3),), {})]


@op(
    "complex",
    lambda x: Spec(x.shape, _part_dtype(x.dtype)),
    lambda g, y, x: (cast(g, x.dtype),),
    examples=PARTS,
    rows=rows.elementwise,
)
def real(xp: ArrayModule, x: Array) -> Array:
    """The real part of x.

    Args:
        x: tensor or array.

    Example:
        >>> real([1.0, 2.0]).tolist()
        [1.0, 2.0]
    """
    return xp.real(x)


def _imag_grad(g: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
    if x.dtype not in dtypes.COMPLEXES:
        return (None,)
    return (join_parts(multiply(g, 0), g),)


@op(
    "complex",
    lambda x: Spec(x.shape, _part_dtype(x.dtype)),
    _imag_grad,
    examples=PARTS,
    rows=rows.elementwise,
)
def imag(xp: ArrayModule, x: Array) -> Array:
    """The imaginary part of x, zeros for real x.

    Args:
        x: tensor or array.

    Example:
        >>> imag([1.0, 2.0]).tolist()
        [0.0, 0.0]
    """
    return xp.imag(x)


@op(
    "complex",
    lambda x: Spec(x.shape, x.dtype),
    lambda g, y, x: (conj(g),),
    examples=PARTS,
    rows=rows.elementwise,
)
def conj(xp: ArrayModule, x: Array) -> Array:
    """x with the sign of its imaginary part turned.

    Args:
        x: tensor or array.

    Example:
        >>> conj([1.0, 2.0]).tolist()
        [1.0, 2.0]
    """
    return xp.conj(x) if x.dtype.kind == "c" else x


@op(
    "complex",
    lambda a, b: Spec(a.shape, _complex_dtype(a.dtype)),
    lambda g, y, a, b: (real(g), imag(g)),
    "float",
    examples=[(((2, 3), (2, 3)), {})],
    rows=rows.elementwise,
)
def join_parts(xp: ArrayModule, a: Array, b: Array) -> Array:
    """The complex numbers a + ib, float32 parts giving complex64."""
    name = _complex_dtype(dtypes.name_of(a.dtype))
    return (a + xp.asarray(1j, dtype=name) * b).astype(name)


conjugate = conj


@function
def angle(x: TensorLike) -> Tensor:
    """Return the angle of x in the complex plane, in radians in [-pi, pi].

    Args:
        x: tensor or array.

    Example:
        >>> angle([1.0, -1.0]).tolist()
        [0.0, 3.1415...]
    """
    return arctan2(imag(x), real(x))


@function
def isreal(x: TensorLike) -> Tensor:
    """Return whether the imaginary part of x is 0.

    Args:
        x: tensor or array.

    Example:
        >>> isreal([1.0, 2.0]).tolist()
        [True, True]
    """
    return equal(imag(x), 0)


@function
def polar(abs_: TensorLike, angle: TensorLike) -> Tensor:
    """Return the complex number of the given absolute value and angle (in radians).

    Args:
        abs_: absolute values, >= 0.
        angle: angles in radians.

    Example:
        >>> polar([2.0], [0.0]).tolist()
        [(2+0j)]
    """
    return join_parts(multiply(abs_, cos(angle)), multiply(abs_, sin(angle)))


@function
def view_as_complex(x: TensorLike) -> Tensor:
    """Return x[..., 0] + i * x[..., 1]; the last axis of x has size 2.

    Args:
        x: tensor or array.

    Example:
        >>> view_as_complex([0.5, 1.0]).tolist()
        (0.5+1j)
    """
    x = as_tensor(x)
    if not x.shape or not agree(x.shape[-1], 2):
        raise ShapeError(f"view_as_complex: the last axis must have size 2, got shape {x.shape}.")
    return join_parts(get_item(x, (..., 0)), get_item(x, (..., 1)))


@function
def view_as_real(x: TensorLike) -> Tensor:
    """Return the real and imaginary parts of x along a new last axis.

    Args:
        x: tensor or array.

    Example:
        >>> view_as_real([0.5, 1.0]).tolist()
        [[0.5, 0.0], [1.0, 0.0]]
    """
    return stack([real(x), imag(x)], -1)


def _view_canonical(shapes: list[Shape], attrs: dict[str, Any]) -> dict[str, Any]:
    return {"dtype": dtypes.name_of(attrs["dtype"])}


def _view_shape(x: Spec, dtype: str) -> Spec:
    old, new = (dtypes.array_dtype(d).itemsize for d in (x.dtype, dtype))
    if old == new:
        return Spec(x.shape, dtype)
    if not x.shape or (x.shape[-1] is not None and x.shape[-1] * old % new):
        raise ShapeError(f"view: the last axis of shape {x.shape} does not divide into {dtype}.")
    last = x.shape[-1]
    return Spec((*x.shape[:-1], None if last is None else last * old // new), dtype)


@op(
    "complex",
    _view_shape,
    None,
    canonical=_view_canonical,
    examples=[(((2, 4),), {"dtype": "int32"}), (((2, 4),), {"dtype": "uint8"})],
)
def reinterpret(xp: ArrayModule, x: Array, *, dtype: DTypeLike) -> Array:
    """The bits of x read as another dtype; sizes in bytes that differ scale the last axis."""
    return xp.ascontiguousarray(x).view(dtypes.array_dtype(dtype))


@function
def view(x: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Return the bits of x read as another dtype (None: that of x).

    Args:
        x: tensor or array.
        dtype: dtype of the result; None: chosen by the inputs.

    Example:
        >>> view([1.0], "int32").tolist()
        [1065353216]
    """
    x = as_tensor(x)
    return x if dtype is None else reinterpret(x, dtype)


# Second names, as Keras has them.
conjugate = conj
