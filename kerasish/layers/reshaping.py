"""Layers that rearrange: Flatten, Reshape, Permute, RepeatVector."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kerasish import config, ops
from kerasish.engine.layer.input_spec import InputSpec
from kerasish.engine.layer.layer import Layer
from kerasish.engine.layer.operation import KerasTensor, to_specs
from kerasish.errors import ShapeError
from kerasish.layers.options import LayerOptions
from kerasish.signatures import Unpack
from kerasish.tensor import Tensor


class Flatten(Layer):
    """All axes but the batch's in one.

    Args:
        data_format: "channels_first" moves the channels to the end before;
            None: `config.image_data_format()`.

    Shape: (n, ...) -> (n, product of the rest).

    Example:
        >>> Flatten().compute_output_shape((None, 3, 4))
        (None, 12)
    """

    layer_role = "pass"

    example = {"args": {}, "shape": (2, 3, 4)}

    def __init__(self, data_format: str | None = None, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.data_format = config.standardize_data_format(data_format)
        self.input_spec = InputSpec(min_ndim=1)

    def call(self, inputs: Tensor) -> Tensor:
        """Reshape."""
        shape = inputs.shape
        if self.data_format == "channels_first" and len(shape) > 2:
            inputs = ops.transpose(inputs, (0, *range(2, len(shape)), 1))
        return ops.reshape(inputs, (shape[0], math.prod(shape[1:])))


class Reshape(Layer):
    """The elements of each example in another shape.

    Args:
        target_shape: without the batch axis; one size may be -1.

    Example:
        >>> Reshape(target_shape=(4, -1)).compute_output_shape((None, 3, 4))
        (None, 4, 3)
    """

    layer_role = "pass"

    weightless = True
    example = {"args": {"target_shape": (4, -1)}, "shape": (2, 3, 4)}

    _mixes_steps = True

    def __init__(self, target_shape: Sequence[int], **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        many = target_shape if isinstance(target_shape, (tuple, list)) else (target_shape,)
        self.target_shape = tuple(int(s) for s in many)
        if min(self.target_shape, default=0) < -1 or self.target_shape.count(-1) > 1:
            raise ValueError(
                f"{self.display_name()}: target_shape is made of sizes >= 0, one of which may be "
                f"-1; got {self.target_shape}."
            )

    def compute_output_spec(self, inputs: Tensor) -> KerasTensor:
        """Return a symbolic tensor of the result's shape."""
        if -1 in self.target_shape or None not in inputs.shape[1:]:
            return super().compute_output_spec(inputs)
        spec = self._cast_specs(to_specs(inputs))  # sizes that are not known yet will fit
        return KerasTensor((spec.shape[0], *self.target_shape), spec.dtype)

    def call(self, inputs: Tensor) -> Tensor:
        """Reshape."""
        size = math.prod(inputs.shape[1:])
        rest = math.prod(s for s in self.target_shape if s != -1)
        fits = rest and size % rest == 0 if -1 in self.target_shape else rest == size
        if not fits:
            raise ShapeError(
                f"{self.display_name()}: {size} elements of shape {tuple(inputs.shape[1:])} do not "
                f"fit into {self.target_shape}."
            )
        shape = tuple(size // rest if s == -1 else s for s in self.target_shape)
        return ops.reshape(inputs, (inputs.shape[0], *shape))


class Permute(Layer):
    """The axes of each example in another order.

    Args:
        dims: the order; axes count from 1, the batch axis stays first.

    Example:
        >>> Permute(dims=(2, 1)).compute_output_shape((None, 3, 4))
        (None, 4, 3)
    """

    layer_role = "pass"

    example = {"args": {"dims": (2, 1)}, "shape": (2, 3, 4)}

    _mixes_steps = True

    def __init__(self, dims: Sequence[int], **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.dims = tuple(dims)
        if sorted(self.dims) != list(range(1, len(self.dims) + 1)):
            raise ValueError(f"{self.display_name()}: dims must be an order of 1..n, got {dims}.")
        self.input_spec = InputSpec(ndim=len(self.dims) + 1)

    def call(self, inputs: Tensor) -> Tensor:
        """Transpose."""
        return ops.transpose(inputs, (0, *self.dims))


class RepeatVector(Layer):
    """Each row n times in a new time axis.

    Args:
        n: how often, >= 1.

    Shape: (batch, features) -> (batch, n, features).

    Example:
        >>> RepeatVector(n=3).compute_output_shape((None, 4))
        (None, 3, 4)
    """

    layer_role = "pass"

    example = {"args": {"n": 3}, "shape": (2, 4)}

    def __init__(self, n: int, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        if not isinstance(n, int):
            raise TypeError(f"{self.display_name()}: n is an integer, got {n!r}.")
        if n < 1:
            raise ValueError(f"{self.display_name()}: n is an integer >= 1, got {n}.")
        self.n = n
        self.input_spec = InputSpec(ndim=2)

    def call(self, inputs: Tensor) -> Tensor:
        """Repeat."""
        return ops.repeat(ops.expand_dims(inputs, 1), self.n, axis=1)
