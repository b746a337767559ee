"""Quantizers: numbers as small integers, each group of them with a scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish import ops
from kerasish.ops.basic.conversion import as_tensor
from kerasish.reprs import arguments_repr
from kerasish.tensor import Tensor, to_numpy
from kerasish.typing import Array, Config, TensorLike

if TYPE_CHECKING:
    from typing_extensions import Self


EPSILON = 1e-7


class Quantizer:
    """What turns a tensor into a quantized one; this class returns it as it is.

    Args:
        output_dtype: dtype of the quantized tensor.

    Example:
        >>> Quantizer()(3.0)
        3.0
    """

    def __init__(self, output_dtype: str = "int8") -> None:
        self.output_dtype = output_dtype

    def __call__(self, x: Any) -> Any:
        """Return the quantized tensor."""
        return x

    def get_config(self) -> Config:
        """Return the constructor's arguments."""
        raise NotImplementedError(
            f"{type(self).__name__} has no get_config(); write one to put it into files."
        )

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Return the quantizer that `get_config` describes."""
        return cls(**config)

    __repr__ = arguments_repr


def abs_max_quantize(
    inputs: TensorLike,
    axis: int | Sequence[int],
    value_range: Sequence[float] = (-127, 127),
    dtype: str = "int8",
    epsilon: float = EPSILON,
    to_numpy: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return (round(inputs * scale), scale) with scale = value_range[1] / (max |inputs| + epsilon).

    Args:
        inputs: float tensor.
        axis: axis or axes that share a scale.
        value_range: lowest and highest result.
        dtype: dtype of the quantized tensor.
        epsilon: keeps the scale finite where all inputs are 0.
        to_numpy: whether to compute with NumPy on the host, without memory of a device.

    Returns:
        The quantized tensor, and the scale with sizes of 1 along `axis`. Divide by it to get the
        numbers back.

    Example:
        >>> q, scale = abs_max_quantize([[1.0, -2.0]], axis=-1)
        >>> q.tolist(), round(float(scale[0, 0]), 4)
        ([[64, -127]], 63.5)
    """
    low, high = value_range
    axes = axis if isinstance(axis, int) else tuple(axis)
    if to_numpy:
        x = _host(inputs)
        largest = np.max(np.abs(x), axis=axes, keepdims=True) + np.asarray(epsilon, x.dtype)
        factor = np.asarray(high, x.dtype) / largest
        q = np.clip(np.rint(x * factor), low, high).astype(dtype)
        return as_tensor(q), as_tensor(factor.astype(x.dtype))
    tensor = as_tensor(inputs)
    largest = ops.add(ops.max(ops.abs(tensor), axis=axes, keepdims=True), epsilon)
    scale = ops.cast(ops.divide(high, largest), tensor.dtype)
    q = ops.clip(ops.round(ops.multiply(tensor, scale)), low, high)
    return ops.cast(q, dtype), scale


def abs_max_quantize_grouped_with_zero_point(
    inputs: TensorLike,
    block_size: int,
    value_range: Sequence[int] = (-8, 7),
    dtype: str = "int8",
    epsilon: float = EPSILON,
    to_numpy: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (quantized, scale, zero point) of a matrix, with a scale for each block of a column.

    inputs = (quantized - zero point) * scale, rounded.

    Args:
        inputs: float tensor (rows, columns).
        block_size: rows that share a scale, >= 1; the last block may have fewer.
        value_range: lowest and highest quantized number.
        dtype: dtype of the quantized tensor.
        epsilon: keeps the scale above 0 where a block is constant.
        to_numpy: accepted as in Keras, without effect: the work is always done on the host.

    Returns:
        The quantized tensor, the scales and the int8 zero points (both (blocks, columns)).

    Example:
        >>> q, scale, zero = abs_max_quantize_grouped_with_zero_point([[0.0], [1.5]], 2)
        >>> q.tolist(), round(float(scale[0, 0]), 4), zero.tolist()
        ([[-8], [7]], 0.1, [[-8]])
    """
    if not isinstance(block_size, (int, np.integer)) or block_size < 1:
        raise ValueError(
            "abs_max_quantize_grouped_with_zero_point: block_size is an integer >= 1, got "
            f"{block_size!r}."
        )
    x = _host(inputs)
    low, high = value_range
    rows, columns = x.shape
    groups = math.ceil(rows / block_size)
    # Rows of zeros fill the last block, as in Keras: 0 is always within its range.
    padded = np.zeros((groups * block_size, columns), x.dtype)
    padded[:rows] = x
    blocks = padded.reshape(groups, block_size, columns)
    least, most = blocks.min(axis=1, keepdims=True), blocks.max(axis=1, keepdims=True)
    scale = ((most - least) + np.asarray(epsilon, x.dtype)) / np.asarray(high - low, x.dtype)
    zero = np.clip(np.rint(-least / scale) + low, low, high)
    q = np.clip(np.rint(blocks / scale) + zero, low, high).astype(dtype)
    q = q.reshape(groups * block_size, columns)[:rows]
    return as_tensor(q), as_tensor(scale[:, 0]), as_tensor(zero[:, 0].astype("int8"))


def _host(inputs: TensorLike) -> Array:
    return np.asarray(to_numpy(as_tensor(inputs)))


class AbsMaxQuantizer(Quantizer):
    """Scales so that the largest absolute number becomes the largest integer, and rounds.

    Args:
        axis: axis or axes that share a scale, where a call gives none; None: the last one.
        value_range: lowest and highest result.
        epsilon: keeps the scale finite where all numbers are 0.
        output_dtype: dtype of the quantized tensor.

    Raises:
        ValueError: int8 cannot hold `value_range`.

    Example:
        >>> q, scale = AbsMaxQuantizer(axis=0)([[1.0], [-2.0]])
        >>> q.tolist()
        [[64], [-127]]
    """

    def __init__(
        self,
        axis: int | Sequence[int] | None = None,
        value_range: Sequence[float] = (-127, 127),
        epsilon: float = EPSILON,
        output_dtype: str = "int8",
    ) -> None:
        super().__init__(output_dtype)
        self.axis = (axis,) if isinstance(axis, int) else None if axis is None else tuple(axis)
        self.value_range, self.epsilon = tuple(value_range), epsilon
        if output_dtype == "int8" and not -128 <= value_range[0] <= value_range[1] <= 127:
            raise ValueError(
                "AbsMaxQuantizer: value_range must be within (-128, 127) for int8, got "
                f"{self.value_range}."
            )

    def __call__(
        self, x: TensorLike, axis: int | Sequence[int] | None = None, to_numpy: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return the quantized tensor and its scale; see `abs_max_quantize`.

        Args:
            x: float tensor.
            axis: axis or axes that share a scale; None: those of the constructor, or the last one.
            to_numpy: whether to compute with NumPy on the host.
        """
        chosen: Any = self.axis if axis is None else axis
        return abs_max_quantize(
            x, -1 if chosen is None else chosen, self.value_range, self.output_dtype, self.epsilon,
            to_numpy,
        )  # fmt: skip

    def get_config(self) -> Config:
        """Return the constructor's arguments."""
        config: dict[str, Any] = {
            "value_range": self.value_range, "epsilon": self.epsilon,
            "output_dtype": self.output_dtype,
        }  # fmt: skip
        return config if self.axis is None else {**config, "axis": self.axis}
