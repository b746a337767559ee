"""Layers that merge several inputs into one, and functions that do the same."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from kerasish import ops
from kerasish.engine.layer.layer import Layer
from kerasish.errors import ShapeError
from kerasish.layers.options import LayerOptions
from kerasish.losses.reduction import broadcasts
from kerasish.signatures import Unpack
from kerasish.tensor import Tensor
from kerasish.typing import AnyTensor, Axis, Shape, Structure, TensorLike


class _Merge(Layer):
    """Meets inputs element by element; lower ranks get axes of size 1 after the batch's."""

    example: Any = {"args": {}, "shape": [(2, 3), (2, 3)]}
    _broadcasts = True  # whether inputs meet number by number
    _merges_masks = True

    def __init__(self, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def build(self, input_shape: Structure) -> None:
        """Check the number of inputs."""
        if not isinstance(input_shape, (list, tuple)) or not all(
            isinstance(s, (list, tuple)) for s in input_shape
        ):
            raise ValueError(
                f"{self.display_name()}: give a list of inputs, got shape {input_shape}."
            )
        if len(input_shape) < 1:
            raise ValueError(f"{self.display_name()}: expected at least one input, got none.")
        if not self._broadcasts:
            return
        for shape in input_shape[1:]:
            if len(shape) == len(input_shape[0]) and not broadcasts(input_shape[0][1:], shape[1:]):
                raise ShapeError(
                    f"{self.display_name()}: inputs of shapes {tuple(input_shape[0])} and "
                    f"{tuple(shape)} "
                    "do not fit number by number; give them one shape (a Dense layer on one of "
                    "them), or use Concatenate."
                )

    def call(self, inputs: Sequence[Tensor], mask: Sequence[Any] | None = None) -> Tensor:
        """Merge."""
        if not isinstance(inputs, (list, tuple)):
            raise ValueError(f"{self.display_name()}: give a list of inputs.")
        rank = max(len(x.shape) for x in inputs)
        aligned = [self._align(x, rank) for x in inputs]
        if mask is None or not self._minds_masks:
            return self._merge(aligned)
        return self._merge_masked(aligned, [_fit_mask(m, x) for m, x in zip(mask, inputs)])

    def _align(self, x: Tensor, rank: int) -> Tensor:
        missing = rank - len(x.shape)
        if not missing:
            return x
        return ops.reshape(x, (x.shape[0], *(1,) * missing, *x.shape[1:]))

    def _merge(self, inputs: list[Any]) -> Any:
        raise NotImplementedError(f"{type(self).__name__} defines no merge.")

    def _check_masks(self, inputs: Any, mask: Structure) -> None:
        listed = isinstance(mask, (list, tuple)) and isinstance(inputs, (list, tuple))
        if not listed or len(mask) != len(inputs):
            raise ValueError(
                f"{self.display_name()}: give a list of inputs, and a list of as many masks (None "
                f"for none), got {inputs} and {mask}."
            )

    _minds_masks = False  # whether what a mask leaves out must not count

    def _merge_masked(self, inputs: list[Any], masks: list[Any]) -> Any:
        raise NotImplementedError(f"{type(self).__name__} defines no merge of masked inputs.")

    def compute_mask(self, inputs: TensorLike, mask: Structure = None) -> Tensor | None:
        """Return the places at which any input is real; None if one has no mask."""
        if mask is None:
            return None
        self._check_masks(inputs, mask)
        if any(m is None for m in mask):
            return None
        return functools.reduce(ops.logical_or, list(mask))


def _fit_mask(mask: AnyTensor | None, x: Tensor) -> Tensor | None:
    """Return a mask of steps with axes of size 1 for all further axes of x."""
    if mask is None:
        return None
    return ops.reshape(mask, (*mask.shape, *(1,) * (len(x.shape) - len(mask.shape))))


def _extreme(choose: Callable[..., Tensor], inputs: list[Any], masks: list[Any]) -> Tensor:
    """Return the extreme of what the masks keep; where they keep nothing, of all."""
    result, kept = inputs[0], masks[0]
    for x, mask in zip(inputs[1:], masks[1:]):
        own = x if mask is None else ops.where(mask, x, result)
        if kept is not None:
            result = ops.where(kept, result, own)
        kept = None if None in (kept, mask) else ops.logical_or(kept, mask)
        result = choose(result, own)
    return result


class Add(_Merge):
    """The sum of the inputs.

    Example:
        >>> Add().compute_output_shape([(None, 3), (None, 3)])
        (None, 3)
    """

    def _merge(self, inputs: list[Any]) -> Tensor:
        return functools.reduce(ops.add, inputs)


class Subtract(_Merge):
    """The first input less the second.

    Example:
        >>> Subtract().compute_output_shape([(None, 3), (None, 3)])
        (None, 3)
    """

    def build(self, input_shape: Structure) -> None:
        """Check that there are two inputs."""
        super().build(input_shape)
        if len(input_shape) != 2:
            raise ValueError(f"{self.display_name()}: takes two inputs, got {len(input_shape)}.")

    def _merge(self, inputs: list[Any]) -> Tensor:
        return ops.subtract(inputs[0], inputs[1])


class Multiply(_Merge):
    """The product of the inputs.

    Example:
        >>> Multiply().compute_output_shape([(None, 3), (None, 3)])
        (None, 3)
    """

    def _merge(self, inputs: list[Any]) -> Tensor:
        return functools.reduce(ops.multiply, inputs)

    _minds_masks = True

    def _merge_masked(self, inputs: list[Any], masks: list[Any]) -> Tensor:
        kept = [x if m is None else ops.where(m, x, 1) for x, m in zip(inputs, masks)]
        product = functools.reduce(ops.multiply, kept)
        if any(m is None for m in masks):
            return product
        return ops.where(functools.reduce(ops.logical_or, masks), product, 0)


class Average(_Merge):
    """The mean of the inputs.

    Example:
        >>> Average().compute_output_shape([(None, 3), (None, 3)])
        (None, 3)
    """

    def _merge(self, inputs: list[Any]) -> Tensor:
        return ops.divide(functools.reduce(ops.add, inputs), float(len(inputs)))


class Maximum(_Merge):
    """The largest of the inputs.

    Example:
        >>> Maximum().compute_output_shape([(None, 3), (None, 3)])
        (None, 3)
    """

    def _merge(self, inputs: list[Any]) -> Tensor:
        return functools.reduce(ops.maximum, inputs)

    _minds_masks = True

    def _merge_masked(self, inputs: list[Any], masks: list[Any]) -> Tensor:
        return _extreme(ops.maximum, inputs, masks)


class Minimum(_Merge):
    """The smallest of the inputs.

    Example:
        >>> Minimum().compute_output_shape([(None, 3), (None, 3)])
        (None, 3)
    """

    def _merge(self, inputs: list[Any]) -> Tensor:
        return functools.reduce(ops.minimum, inputs)

    _minds_masks = True

    def _merge_masked(self, inputs: list[Any], masks: list[Any]) -> Tensor:
        return _extreme(ops.minimum, inputs, masks)


class Concatenate(_Merge):
    """The inputs side by side along an axis.

    Args:
        axis: along which they may differ in size.

    Example:
        >>> Concatenate().compute_output_shape([(None, 3), (None, 3)])
        (None, 6)
    """

    _broadcasts = False

    def __init__(self, axis: int = -1, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.axis = axis

    def build(self, input_shape: Structure) -> None:
        """Check that the shapes agree but for the axis."""
        super().build(input_shape)
        first = [s for i, s in enumerate(input_shape[0]) if i != self.axis % len(input_shape[0])]
        for shape in input_shape[1:]:
            other = [s for i, s in enumerate(shape) if i != self.axis % len(shape)]
            if len(shape) != len(input_shape[0]) or any(
                a != b and None not in (a, b) for a, b in zip(first, other)
            ):
                raise ShapeError(
                    f"{self.display_name()}: shapes may differ along axis {self.axis} only, got "
                    f"{[tuple(s) for s in input_shape]}."
                )

    def call(self, inputs: Sequence[Tensor]) -> Tensor:
        """Join."""
        return ops.concatenate(list(inputs), axis=self.axis)

    def compute_mask(self, inputs: Structure, mask: Structure = None) -> Tensor | None:
        """Return the masks joined likewise."""
        if mask is None:
            return None
        self._check_masks(inputs, mask)
        if all(m is None for m in mask):
            return None
        full = []
        for x, m in zip(inputs, mask):
            if m is None:
                m = ops.cast(ops.ones_like(x), "bool")
            elif len(m.shape) < len(x.shape):
                m = ops.logical_or(ops.expand_dims(m, -1), ops.cast(ops.zeros_like(x), "bool"))
            full.append(m)
        return ops.any(ops.concatenate(full, axis=self.axis), axis=-1)


class Dot(_Merge):
    """Sums of products over an axis of each of two inputs, example by example.

    Args:
        axes: the axis of both, or one for each.
        normalize: whether each is divided by its length along the axis first (cosine).

    Example:
        >>> Dot(axes=1).compute_output_shape([(None, 3), (None, 3)])
        (None, 1)
    """

    example = {"args": {"axes": 1}, "shape": [(2, 3), (2, 3)]}
    _broadcasts = False

    def __init__(self, axes: Axis, normalize: bool = False, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.axes = tuple(axes) if isinstance(axes, (list, tuple)) else axes
        self.normalize = normalize

    def _pair(self, x: Shape, y: Shape) -> tuple[int, int]:
        a, b = self.axes if isinstance(self.axes, tuple) else (self.axes, self.axes)
        return a % len(x), b % len(y)

    def build(self, input_shape: Structure) -> None:
        """Check that the axes have one size."""
        super().build(input_shape)
        if len(input_shape) != 2:
            raise ValueError(f"{self.display_name()}: takes two inputs, got {len(input_shape)}.")
        x, y = input_shape
        a, b = self._pair(x, y)
        if x[a] != y[b]:
            raise ShapeError(
                f"{self.display_name()}: axis {a} of {tuple(x)} and axis {b} of {tuple(y)} must "
                "have one size."
            )

    def call(self, inputs: Sequence[Tensor]) -> Tensor:
        """Multiply and sum."""
        x, y = inputs
        a, b = self._pair(x.shape, y.shape)
        if self.normalize:
            x, y = ops.normalize(x, axis=a), ops.normalize(y, axis=b)
        left = [i for i in range(1, len(x.shape)) if i != a]
        right = [i for i in range(1, len(y.shape)) if i != b]
        n, size = x.shape[0], x.shape[a]
        rows = ops.reshape(ops.transpose(x, (0, *left, a)), (n, -1, size))
        columns = ops.reshape(ops.transpose(y, (0, b, *right)), (n, size, -1))
        product = ops.matmul(rows, columns)
        shape = (n, *(x.shape[i] for i in left), *(y.shape[i] for i in right))
        return ops.reshape(product, shape if len(shape) > 1 else (n, 1))

    def compute_mask(self, inputs: Sequence[Tensor], mask: AnyTensor | None = None) -> None:
        """Return None: a sum over an axis has no padding left."""
        return


def add(inputs: Sequence[AnyTensor], **kwargs: Any) -> Tensor:
    """Return the sum of the inputs.

    Args:
        inputs: list of tensors.

    Example:
        >>> add([ops.ones((1, 2)), ops.ones((1, 2))]).tolist()
        [[2.0, 2.0]]
    """
    return Add(**kwargs)(inputs)


def subtract(inputs: Sequence[AnyTensor], **kwargs: Any) -> Tensor:
    """Return the first input less the second.

    Args:
        inputs: list of tensors.

    Example:
        >>> subtract([ops.ones((1, 2)), ops.ones((1, 2))]).tolist()
        [[0.0, 0.0]]
    """
    return Subtract(**kwargs)(inputs)


def multiply(inputs: Sequence[AnyTensor], **kwargs: Any) -> Tensor:
    """Return the product of the inputs.

    Args:
        inputs: list of tensors.

    Example:
        >>> multiply([ops.ones((1, 2)), ops.zeros((1, 2))]).tolist()
        [[0.0, 0.0]]
    """
    return Multiply(**kwargs)(inputs)


def average(inputs: Sequence[AnyTensor], **kwargs: Any) -> Tensor:
    """Return the mean of the inputs.

    Args:
        inputs: list of tensors.

    Example:
        >>> average([ops.ones((1, 2)), ops.zeros((1, 2))]).tolist()
        [[0.5, 0.5]]
    """
    return Average(**kwargs)(inputs)


def maximum(inputs: Sequence[AnyTensor], **kwargs: Any) -> Tensor:
    """Return the largest of the inputs.

    Args:
        inputs: list of tensors.

    Example:
        >>> maximum([ops.ones((1, 2)), ops.zeros((1, 2))]).tolist()
        [[1.0, 1.0]]
    """
    return Maximum(**kwargs)(inputs)


def minimum(inputs: Sequence[AnyTensor], **kwargs: Any) -> Tensor:
    """Return the smallest of the inputs.

    Args:
        inputs: list of tensors.

    Example:
        >>> minimum([ops.ones((1, 2)), ops.zeros((1, 2))]).tolist()
        [[0.0, 0.0]]
    """
    return Minimum(**kwargs)(inputs)


def concatenate(inputs: Sequence[AnyTensor], axis: int = -1, **kwargs: Any) -> Tensor:
    """Return the inputs side by side along an axis.

    Args:
        inputs: list of tensors.
        axis: the axis along which inputs are joined.

    Example:
        >>> concatenate([ops.ones((1, 2)), ops.zeros((1, 1))]).tolist()
        [[1.0, 1.0, 0.0]]
    """
    return Concatenate(axis, **kwargs)(inputs)


def dot(inputs: Sequence[AnyTensor], axes: Axis = -1, **kwargs: Any) -> Tensor:
    """Return sums of products over an axis of each of two inputs.

    Args:
        inputs: list of tensors.
        axes: the axis, or one of each input, that is summed over.

    Example:
        >>> dot([ops.ones((1, 2)), ops.ones((1, 2))], axes=1).tolist()
        [[2.0]]
    """
    return Dot(axes, **kwargs)(inputs)
