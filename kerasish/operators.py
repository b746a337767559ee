"""Python's and NumPy's operators, as tensors, variables and symbolic tensors have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish import ops
from kerasish.typing import Axis, DTypeLike, IndexLike, Shape, TensorLike

if TYPE_CHECKING:
    from typing_extensions import Self

    from kerasish.tensor.tensor import Tensor


class Operators:
    """Python's and NumPy's operators, each calling the op of its name."""

    __slots__ = ()
    __array_priority__ = 1000.0
    __hash__ = object.__hash__

    if TYPE_CHECKING:

        @property
        def dtype(self) -> str:
            """The dtype's name."""

        @property
        def shape(self) -> Shape:
            """The sizes of the axes."""

        _keras_mask: Tensor | None

    def __add__(self, other: TensorLike) -> Tensor:
        return ops.add(self, other)

    def __radd__(self, other: TensorLike) -> Tensor:
        return ops.add(other, self)

    def __sub__(self, other: TensorLike) -> Tensor:
        return ops.subtract(self, other)

    def __rsub__(self, other: TensorLike) -> Tensor:
        return ops.subtract(other, self)

    def __mul__(self, other: TensorLike) -> Tensor:
        return ops.multiply(self, other)

    def __rmul__(self, other: TensorLike) -> Tensor:
        return ops.multiply(other, self)

    def __truediv__(self, other: TensorLike) -> Tensor:
        return ops.divide(self, other)

    def __rtruediv__(self, other: TensorLike) -> Tensor:
        return ops.divide(other, self)

    def __floordiv__(self, other: TensorLike) -> Tensor:
        return ops.floor_divide(self, other)

    def __rfloordiv__(self, other: TensorLike) -> Tensor:
        return ops.floor_divide(other, self)

    def __mod__(self, other: TensorLike) -> Tensor:
        return ops.mod(self, other)

    def __rmod__(self, other: TensorLike) -> Tensor:
        return ops.mod(other, self)

    def __pow__(self, other: TensorLike) -> Tensor:
        return ops.power(self, other)

    def __rpow__(self, other: TensorLike) -> Tensor:
        return ops.power(other, self)

    def __matmul__(self, other: TensorLike) -> Tensor:
        return ops.matmul(self, other)

    def __rmatmul__(self, other: TensorLike) -> Tensor:
        return ops.matmul(other, self)

    def __neg__(self) -> Tensor:
        return ops.negative(self)

    def __pos__(self) -> Self:
        return self

    def __abs__(self) -> Tensor:
        return ops.absolute(self)

    def __invert__(self) -> Tensor:
        return ops.logical_not(self) if self.dtype == "bool" else ops.bitwise_not(self)

    # Keras's variables and symbolic tensors are truth values under these, whatever their dtype.

    def __and__(self, other: TensorLike) -> Tensor:
        return ops.logical_and(self, other)

    def __rand__(self, other: TensorLike) -> Tensor:
        return self.__and__(other)

    def __or__(self, other: TensorLike) -> Tensor:
        return ops.logical_or(self, other)

    def __ror__(self, other: TensorLike) -> Tensor:
        return self.__or__(other)

    def __xor__(self, other: TensorLike) -> Tensor:
        return ops.logical_xor(self, other)

    def __rxor__(self, other: TensorLike) -> Tensor:
        return self.__xor__(other)

    def __lshift__(self, other: TensorLike) -> Tensor:
        return ops.left_shift(self, other)

    def __rshift__(self, other: TensorLike) -> Tensor:
        return ops.right_shift(self, other)

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        return False if other is None else ops.equal(self, other)  # type: ignore[return-value]

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return True if other is None else ops.not_equal(self, other)  # type: ignore[return-value]

    def __lt__(self, other: TensorLike) -> Tensor:
        return ops.less(self, other)

    def __le__(self, other: TensorLike) -> Tensor:
        return ops.less_equal(self, other)

    def __gt__(self, other: TensorLike) -> Tensor:
        return ops.greater(self, other)

    def __ge__(self, other: TensorLike) -> Tensor:
        return ops.greater_equal(self, other)

    def __getitem__(self, key: IndexLike) -> Tensor:
        return ops.get_item(self, key)

    def __round__(self, decimals: int | None = None) -> Tensor:
        return ops.round(self, decimals or 0)

    @property
    def T(self) -> Tensor:  # noqa: N802 (NumPy's name)
        """The tensor with its axes reversed."""
        return ops.transpose(self)

    def reshape(self, *shape: Any) -> Tensor:
        """Return the elements in another shape."""
        return ops.reshape(self, shape[0] if len(shape) == 1 else shape)

    def astype(self, dtype: DTypeLike) -> Tensor:
        """Return the elements as `dtype`."""
        return ops.cast(self, dtype)

    # np.sum(x) and similar functions call the method of this name, with keywords such as `out`.

    def print(self, label: str = "") -> Tensor:
        """Print the numbers when they are computed, in compiled steps too; return this tensor.

        Args:
            label: a text in front of the numbers.

        Example:
            >>> import kerasish
            >>> h = kerasish.ops.convert_to_tensor([1.0, 2.0])
            >>> y = h.print("h:") + 1
            h: [1. 2.]
        """
        return ops.print(*([label] if label else []), self)

    def sum(self, axis: Axis | None = None, keepdims: bool = False, **numpy: Any) -> Tensor:
        """Return the sum over `axis`."""
        if numpy:
            return np.sum(np.asarray(self), axis, keepdims=keepdims, **numpy)
        return ops.sum(self, axis, keepdims)

    def mean(self, axis: Axis | None = None, keepdims: bool = False, **numpy: Any) -> Tensor:
        """Return the mean over `axis`."""
        if numpy:
            return np.mean(np.asarray(self), axis, keepdims=keepdims, **numpy)
        return ops.mean(self, axis, keepdims)

    def max(self, axis: Axis | None = None, keepdims: bool = False, **numpy: Any) -> Tensor:
        """Return the largest element over `axis`."""
        if numpy:
            return np.max(np.asarray(self), axis, keepdims=keepdims, **numpy)
        return ops.max(self, axis, keepdims)

    def min(self, axis: Axis | None = None, keepdims: bool = False, **numpy: Any) -> Tensor:
        """Return the smallest element over `axis`."""
        if numpy:
            return np.min(np.asarray(self), axis, keepdims=keepdims, **numpy)
        return ops.min(self, axis, keepdims)


class BitOperators(Operators):
    """The operators of tensors with numbers, whose &, | and ^ work on bits, as NumPy's do."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __and__(self, other: TensorLike) -> Tensor:
        return ops.bitwise_and(self, other)

    def __or__(self, other: TensorLike) -> Tensor:
        return ops.bitwise_or(self, other)

    def __xor__(self, other: TensorLike) -> Tensor:
        return ops.bitwise_xor(self, other)
