"""Python's and NumPy's operators, as tensors, variables and symbolic tensors have them."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish import ops


class Operators:
    """Python's and NumPy's operators, each calling the op of its name."""

    __slots__ = ()
    __array_priority__ = 1000.0
    __hash__ = object.__hash__
    dtype: Any
    shape: Any

    def __add__(self, other: Any) -> Any:
        return ops.add(self, other)

    def __radd__(self, other: Any) -> Any:
        return ops.add(other, self)

    def __sub__(self, other: Any) -> Any:
        return ops.subtract(self, other)

    def __rsub__(self, other: Any) -> Any:
        return ops.subtract(other, self)

    def __mul__(self, other: Any) -> Any:
        return ops.multiply(self, other)

    def __rmul__(self, other: Any) -> Any:
        return ops.multiply(other, self)

    def __truediv__(self, other: Any) -> Any:
        return ops.divide(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return ops.divide(other, self)

    def __floordiv__(self, other: Any) -> Any:
        return ops.floor_divide(self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return ops.floor_divide(other, self)

    def __mod__(self, other: Any) -> Any:
        return ops.mod(self, other)

    def __rmod__(self, other: Any) -> Any:
        return ops.mod(other, self)

    def __pow__(self, other: Any) -> Any:
        return ops.power(self, other)

    def __rpow__(self, other: Any) -> Any:
        return ops.power(other, self)

    def __matmul__(self, other: Any) -> Any:
        return ops.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return ops.matmul(other, self)

    def __neg__(self) -> Any:
        return ops.negative(self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return ops.absolute(self)

    def __invert__(self) -> Any:
        return ops.logical_not(self) if self.dtype == "bool" else ops.bitwise_not(self)

    # Keras's variables and symbolic tensors are truth values under these, whatever their dtype.

    def __and__(self, other: Any) -> Any:
        return ops.logical_and(self, other)

    def __rand__(self, other: Any) -> Any:
        return self.__and__(other)

    def __or__(self, other: Any) -> Any:
        return ops.logical_or(self, other)

    def __ror__(self, other: Any) -> Any:
        return self.__or__(other)

    def __xor__(self, other: Any) -> Any:
        return ops.logical_xor(self, other)

    def __rxor__(self, other: Any) -> Any:
        return self.__xor__(other)

    def __lshift__(self, other: Any) -> Any:
        return ops.left_shift(self, other)

    def __rshift__(self, other: Any) -> Any:
        return ops.right_shift(self, other)

    def __eq__(self, other: Any) -> Any:
        return False if other is None else ops.equal(self, other)

    def __ne__(self, other: Any) -> Any:
        return True if other is None else ops.not_equal(self, other)

    def __lt__(self, other: Any) -> Any:
        return ops.less(self, other)

    def __le__(self, other: Any) -> Any:
        return ops.less_equal(self, other)

    def __gt__(self, other: Any) -> Any:
        return ops.greater(self, other)

    def __ge__(self, other: Any) -> Any:
        return ops.greater_equal(self, other)

    def __getitem__(self, key: Any) -> Any:
        return ops.get_item(self, key)

    def __round__(self, decimals: int | None = None) -> Any:
        return ops.round(self, decimals or 0)

    @property
    def T(self) -> Any:  # noqa: N802 (NumPy's name)
        """The tensor with its axes reversed."""
        return ops.transpose(self)

    def reshape(self, *shape: Any) -> Any:
        """Return the elements in another shape."""
        return ops.reshape(self, shape[0] if len(shape) == 1 else shape)

    def astype(self, dtype: Any) -> Any:
        """Return the elements as `dtype`."""
        return ops.cast(self, dtype)

    # np.sum(x) and the like call the method of the name, with words of their own such as `out`.

    def sum(self, axis: Any = None, keepdims: bool = False, **numpy: Any) -> Any:
        """Return the sum over `axis`."""
        if numpy:
            return np.sum(np.asarray(self), axis, keepdims=keepdims, **numpy)
        return ops.sum(self, axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False, **numpy: Any) -> Any:
        """Return the mean over `axis`."""
        if numpy:
            return np.mean(np.asarray(self), axis, keepdims=keepdims, **numpy)
        return ops.mean(self, axis, keepdims)

    def max(self, axis: Any = None, keepdims: bool = False, **numpy: Any) -> Any:
        """Return the largest element over `axis`."""
        if numpy:
            return np.max(np.asarray(self), axis, keepdims=keepdims, **numpy)
        return ops.max(self, axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False, **numpy: Any) -> Any:
        """Return the smallest element over `axis`."""
        if numpy:
            return np.min(np.asarray(self), axis, keepdims=keepdims, **numpy)
        return ops.min(self, axis, keepdims)


class BitOperators(Operators):
    """The operators of tensors with numbers, whose &, | and ^ work on bits, as NumPy's do."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __and__(self, other: Any) -> Any:
        return ops.bitwise_and(self, other)

    def __or__(self, other: Any) -> Any:
        return ops.bitwise_or(self, other)

    def __xor__(self, other: Any) -> Any:
        return ops.bitwise_xor(self, other)
