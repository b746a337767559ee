"""Tensors in and out, slices by computed starts, casts that saturate: Keras's core functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish.ops import dtypes
from kerasish.ops.basic.arithmetic import maximum, minimum
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.op import function
from kerasish.typing import Array, DTypeLike, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = [
    "convert_to_numpy", "convert_to_tensor", "custom_gradient", "dtype", "is_tensor",
    "saturate_cast",
]  # fmt: skip

# What `autodiff`, a package above, registers when it is imported: "backward", "custom_gradient",
# "jvp", "vjp". `Tensor.backward`, the functions below and a few gradient rules call these.
derivatives: dict[str, Callable[..., Any]] = {}


def convert_to_tensor(
    x: TensorLike,
    dtype: DTypeLike | None = None,
    sparse: bool | None = None,
    ragged: bool | None = None,
) -> Tensor:
    """Return x (tensor, variable, array, list, number) as a tensor, of `dtype` if one is given.

    Texts are returned as a NumPy array, which text layers take: no tensor holds texts.

    Args:
        x: tensor or array.
        dtype: dtype of the result; None: chosen by the inputs.
        sparse: must be False: sparse tensors are made from SciPy's matrices; None: False.
        ragged: must be False: kerasish has no ragged tensors; None: False.

    Example:
        >>> convert_to_tensor([1, 2], "float32")
        Tensor([1., 2.], shape=(2,), dtype=float32)
    """
    if sparse or ragged:
        raise ValueError("convert_to_tensor: sparse and ragged tensors are not supported.")
    if hasattr(type(x), "__kerasish_function__"):
        return x if dtype is None else cast(x, dtype)  # type: ignore[return-value]
    if dtype in (None, "string") and _is_text(x):
        return np.array(x)
    x = as_tensor(x)
    return x if dtype is None or x.dtype == dtypes.name_of(dtype) else cast(x, dtype)


def _is_text(x: Any) -> bool:
    """Return whether the first of nested values is a text, or x an array of texts."""
    while isinstance(x, (list, tuple)) and len(x):
        x = x[0]
    return isinstance(x, (str, bytes)) or isinstance(x, np.ndarray) and x.dtype.kind in "USO"


def convert_to_numpy(x: TensorLike) -> Array:
    """Return x as a NumPy array, which may be written to: that changes no tensor.

    Args:
        x: tensor or array.

    Example:
        >>> convert_to_numpy([1.0]).shape
        (1,)
    """
    array = as_tensor(x).numpy()
    return array if array.flags.writeable else array.copy()


def is_tensor(x: TensorLike) -> bool:
    """Return whether x is a tensor of kerasish (a variable is not one).

    Args:
        x: tensor or array.

    Example:
        >>> is_tensor(convert_to_tensor(1.0)), is_tensor(1.0)
        (True, False)
    """
    return hasattr(x, "maker") or hasattr(type(x), "__kerasish_function__")


def dtype(x: TensorLike) -> str:
    """Return the name of x's dtype.

    Args:
        x: tensor or array.

    Example:
        >>> dtype([1.0])
        'float32'
    """
    return dtypes.name_of(x.dtype) if hasattr(x, "dtype") else as_tensor(x).dtype


def custom_gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    """Make `f`, which returns (result, gradient function), an op with that gradient.

    Args:
        f: function that returns (result, gradient function).

    Example:
        >>> from kerasish.tensor import Variable
        >>> @custom_gradient
        ... def twice_as_steep(x):
        ...     return x * 1.0, lambda g: g * 2.0
        >>> v = Variable(3.0)
        >>> twice_as_steep(v).backward()
        >>> float(v.grad)
        2.0
    """
    return derivatives["custom_gradient"](f)


def jvp(
    fun: Callable[..., Any],
    primals: Sequence[float],
    tangents: Sequence[float],
    has_aux: bool = False,
) -> tuple[Tensor, ...]:
    """Return (fun(*primals), its derivative along `tangents`).

    Args:
        fun: function of tensors.
        primals: sequence of its arguments.
        tangents: the direction, in the shapes of `primals`.
        has_aux: whether `fun` returns (result, more) and `more` is passed on.

    Example:
        >>> from kerasish import ops
        >>> [float(part) for part in ops.jvp(lambda x: x * x, (3.0,), (1.0,))]
        [9.0, 6.0]
    """
    return derivatives["jvp"](fun, primals, tangents, has_aux)


@function
def saturate_cast(x: TensorLike, dtype: DTypeLike) -> Tensor:
    """Return x as `dtype`, held within what that can express.

    Args:
        x: tensor or array.
        dtype: dtype of the result; None: chosen by the inputs.

    Example:
        >>> saturate_cast([-1.0, 300.0], "uint8").tolist()
        [0, 255]
    """
    x, name = as_tensor(x), dtypes.name_of(dtype)
    source, target = dtypes.limits(x.dtype), dtypes.limits(name)
    if x.dtype == name or source is None or target is None:
        return cast(x, name)
    if dtypes.is_integer(name) and not dtypes.is_integer(x.dtype):
        # The largest float that is not above the integer's limit: the limit itself may round up.
        target = dtypes.limits_within(name, x.dtype)
    if source[0] < target[0]:
        x = maximum(x, target[0])
    if source[1] > target[1]:
        x = minimum(x, target[1])
    return cast(x, name)
