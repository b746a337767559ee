"""Windows of pictures as columns and back, blocks to channels and back, axes by a pattern."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kerasish import config
from kerasish.errors import ShapeError
from kerasish.ops.basic.arithmetic import add, multiply
from kerasish.ops.basic.conversion import as_tensor
from kerasish.ops.basic.creation import arange
from kerasish.ops.basic.indexing import add_rows, take_rows
from kerasish.ops.basic.movement import reshape, strided_slice, transpose
from kerasish.ops.basic.reshaping import expand_dims, pad
from kerasish.ops.op import function
from kerasish.typing import AnyTensor, IntOrTuple, Shape, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["depth_to_space", "fold", "space_to_depth", "unfold"]


def _two(value: Any, what: str) -> tuple[int, int]:
    pair = (value, value) if isinstance(value, int) else tuple(value)
    if len(pair) != 2:
        raise ValueError(f"{what}: expected a number or two, got {value!r}.")
    return int(pair[0]), int(pair[1])


def _places(size: int, kernel: int, dilation: int, stride: int) -> Tensor:
    """Return the positions along an axis, one row for each window."""
    count = (size - dilation * (kernel - 1) - 1) // stride + 1
    if count < 1:
        raise ShapeError(f"unfold: a window of {dilation * (kernel - 1) + 1} exceeds size {size}.")
    starts = multiply(expand_dims(arange(count), -1), stride)
    return add(starts, multiply(arange(kernel), dilation))


@function
def unfold(
    x: TensorLike,
    kernel_size: IntOrTuple,
    dilation: int = 1,
    padding: int | Sequence[Any] = 0,
    stride: int | Sequence[int] = 1,
) -> Tensor:
    """Return the windows of pictures as columns.

    Args:
        x: shape (n, channels, height, width).
        kernel_size: sizes of a window, one number or two.
        dilation: distance of the elements of a window.
        padding: zeros at both sides of each axis.
        stride: distance of the windows.

    Shape: (n, c, h, w) -> (n, c * kernel height * kernel width, windows)

    Example:
        >>> from kerasish import ops
        >>> unfold(ops.ones((1, 1, 4, 4)), 2).shape
        (1, 4, 9)
    """
    x = as_tensor(x)
    if len(x.shape) != 4:
        raise ShapeError(f"unfold: expected (n, channels, height, width), got shape {x.shape}.")
    kernel, step = _two(kernel_size, "kernel_size"), _two(stride, "stride")
    apart, edge = _two(dilation, "dilation"), _two(padding, "padding")
    x = pad(x, ((0, 0), (0, 0), (edge[0], edge[0]), (edge[1], edge[1])))
    n, c, height, width = x.shape
    y = take_rows(x, _places(height, kernel[0], apart[0], step[0]), 2)
    y = take_rows(y, _places(width, kernel[1], apart[1], step[1]), 4)
    count = y.shape[2] * y.shape[4]
    return reshape(transpose(y, (0, 1, 3, 5, 2, 4)), (n, c * math.prod(kernel), count))


@function
def fold(
    x: TensorLike,
    output_size: int | Sequence[Any],
    kernel_size: int | Sequence[int],
    dilation: int = 1,
    padding: int = 0,
    stride: int = 1,
) -> Tensor:
    """Return the pictures to which windows add up: the transpose of `unfold`.

    Args:
        x: shape (n, channels * kernel height * kernel width, windows).
        output_size: (height, width) of the pictures.
        kernel_size: as given to `unfold`.
        dilation: as given to `unfold`.
        padding: as given to `unfold`.
        stride: as given to `unfold`.

    Example:
        >>> import numpy as np
        >>> fold(np.ones((1, 4, 4), "float32"), (3, 3), 2).tolist()
        [[[[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]]]
    """
    x = as_tensor(x)
    size, kernel = _two(output_size, "output_size"), _two(kernel_size, "kernel_size")
    step, apart = _two(stride, "stride"), _two(dilation, "dilation")
    edge = _two(padding, "padding")
    full = tuple(s + 2 * e for s, e in zip(size, edge))
    rows = _places(full[0], kernel[0], apart[0], step[0])
    columns = _places(full[1], kernel[1], apart[1], step[1])
    n, depth, count = x.shape
    if depth % math.prod(kernel) or count != rows.shape[0] * columns.shape[0]:
        raise ShapeError(
            f"fold: shape {x.shape} does not fit windows of {kernel} on pictures of {size}: "
            f"expected (n, channels * {math.prod(kernel)}, {rows.shape[0] * columns.shape[0]})."
        )
    shape = (n, depth // math.prod(kernel), *kernel, rows.shape[0], columns.shape[0])
    y = transpose(reshape(x, shape), (0, 1, 4, 2, 5, 3))
    y = add_rows(y, columns, full[1], 4)
    y = add_rows(y, rows, full[0], 2)
    parts = [slice(e, e + s) for s, e in zip(size, edge)]
    return strided_slice(y, [slice(None), slice(None), *parts])


def _picture_sizes(x: AnyTensor, data_format: str) -> tuple[Any, bool, tuple[int, int, int, int]]:
    """Return (x, whether channels are first, (n, height, width, channels))."""
    x = as_tensor(x)
    if len(x.shape) != 4:
        raise ShapeError(f"expected pictures with 4 axes, got shape {x.shape}.")
    n, a, b, c = x.shape
    if config.standardize_data_format(data_format) == "channels_first":
        return x, True, (n, b, c, a)
    return x, False, (n, a, b, c)


def _block(size: int, what: str) -> int:
    if size < 2:
        raise ValueError(f"{what}: block_size must be at least 2, got {size!r}.")
    return int(size)


@function
def depth_to_space(x: TensorLike, block_size: int, data_format: str = "channels_last") -> Tensor:
    """Return pictures whose blocks of block_size² pixels are made of the channels.

    The place in the block is the slower part of the channel's number with "channels_last", the
    faster one with "channels_first".

    Args:
        x: tensor or array.
        block_size: height and width of a block, >= 1.
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.

    Shape: (n, h, w, c) -> (n, h * block_size, w * block_size, c / block_size²)

    Example:
        >>> depth_to_space([[[[1.0, 2.0, 3.0, 4.0]]]], 2)[0, :, :, 0].tolist()
        [[1.0, 2.0], [3.0, 4.0]]
    """
    x, first, (n, height, width, depth) = _picture_sizes(x, data_format)
    b = _block(block_size, "depth_to_space")
    if depth % (b * b):
        raise ShapeError(f"depth_to_space: {depth} channels are no multiple of {b * b}.")
    c = depth // (b * b)
    if first:
        y = transpose(reshape(x, (n, c, b, b, height, width)), (0, 1, 4, 2, 5, 3))
        return reshape(y, (n, c, height * b, width * b))
    y = transpose(reshape(x, (n, height, width, b, b, c)), (0, 1, 3, 2, 4, 5))
    return reshape(y, (n, height * b, width * b, c))


@function
def space_to_depth(x: TensorLike, block_size: int, data_format: str = "channels_last") -> Tensor:
    """Return pictures whose channels are blocks of block_size² pixels.

    The inverse of `depth_to_space`.

    Args:
        x: tensor or array.
        block_size: height and width of a block, >= 1.
        data_format: "channels_last" or "channels_first"; None: `config.image_data_format()`.

    Shape: (n, h, w, c) -> (n, h / block_size, w / block_size, c * block_size²)

    Example:
        >>> space_to_depth([[[[1.0], [2.0]], [[3.0], [4.0]]]], 2).tolist()
        [[[[1.0, 2.0, 3.0, 4.0]]]]
    """
    x, first, (n, height, width, depth) = _picture_sizes(x, data_format)
    b = _block(block_size, "space_to_depth")
    if height % b or width % b:
        raise ShapeError(f"space_to_depth: blocks of {b} do not divide {height} x {width}.")
    rows, columns = height // b, width // b
    if first:
        y = transpose(reshape(x, (n, depth, rows, b, columns, b)), (0, 1, 3, 5, 2, 4))
        return reshape(y, (n, depth * b * b, rows, columns))
    y = transpose(reshape(x, (n, rows, b, columns, b, depth)), (0, 1, 3, 2, 4, 5))
    return reshape(y, (n, rows, columns, b * b * depth))


# --- axes by a pattern --------------------------------------------------------------------------


def _groups(side: str) -> list[list[str]]:
    parts = re.findall(r"\(([^()]*)\)|(\S+)", side)
    return [inner.split() if not name else [name] for inner, name in parts]


def _solved(groups: list[list[str]], shape: Shape, known: dict[str, int]) -> dict[str, int]:
    """Return the size of each named axis; one of a group may follow from the others."""
    lengths = dict(known)
    for group, size in zip(groups, shape):
        missing = [name for name in group if name not in lengths]
        rest = math.prod(lengths[name] for name in group if name in lengths)
        if len(missing) > 1 or (missing and (not rest or size % rest)):
            raise ShapeError(f"rearrange: {group} does not fit size {size} with {known}.")
        if missing:
            lengths[missing[0]] = size // rest
        elif rest != size:
            raise ShapeError(f"rearrange: {group} gives {rest}, the axis has size {size}.")
    return lengths


@function
def rearrange(tensor: TensorLike, pattern: str, **axes_lengths: int) -> Tensor:
    """Return the tensor with axes moved, split and joined as the pattern says.

    Args:
        tensor: a tensor.
        pattern: "axes -> axes"; axes in brackets are one axis of the tensor.
        axes_lengths: sizes of axes that the shape leaves open.

    Example:
        >>> rearrange([[1, 2], [3, 4]], "a b -> (b a)").tolist()
        [1, 3, 2, 4]
    """
    x = as_tensor(tensor)
    left, arrow, right = pattern.partition("->")
    before, after = _groups(left), _groups(right)
    names = [name for group in before for name in group]
    targets = [name for group in after for name in group]
    if not arrow or sorted(names) != sorted(targets) or len(set(names)) != len(names):
        raise ValueError(f"rearrange: both sides of {pattern!r} must hold the same axes, once.")
    if len(before) != len(x.shape):
        raise ShapeError(f"rearrange: {pattern!r} has {len(before)} axes, the shape is {x.shape}.")
    lengths = _solved(before, x.shape, axes_lengths)
    x = reshape(x, tuple(lengths[name] for name in names))
    x = transpose(x, tuple(names.index(name) for name in targets))
    return reshape(x, tuple(math.prod(lengths[name] for name in group) for group in after))
