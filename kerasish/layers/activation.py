"""Activations as layers."""

from __future__ import annotations

from collections.abc import Sequence

from kerasish import activations, ops
from kerasish.engine.layer.input_spec import InputSpec
from kerasish.engine.layer.layer import Layer
from kerasish.errors import ShapeError
from kerasish.layers.options import LayerOptions, SlopeOptions, activation_of
from kerasish.layers.weighted import WeightedLayer
from kerasish.signatures import Unpack
from kerasish.tensor import Tensor
from kerasish.typing import (
    ActivationLike,
    AnyTensor,
    Axis,
    ConstraintLike,
    InitializerLike,
    RegularizerLike,
    Shape,
)


class Activation(Layer):
    """activation(x), element by element (or over the last axis, as softmax does).

    Args:
        activation: name or function.

    Example:
        >>> Activation(activation='tanh').compute_output_shape((None, 3))
        (None, 3)
    """

    layer_role = "activation"

    weightless = True
    example = {"args": {"activation": "tanh"}, "shape": (2, 3)}

    def __init__(self, activation: ActivationLike, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.activation = activation_of(activation)
        self.supports_masking = True

    def call(self, inputs: Tensor) -> Tensor:
        """Apply the activation."""
        return self.activation(inputs)


class ReLU(Layer):
    """max(x, 0), with an upper bound, a slope below and a threshold.

    Args:
        max_value: upper bound; None: none.
        negative_slope: slope below the threshold, >= 0.
        threshold: below it the slope applies, >= 0.

    Example:
        >>> ReLU(negative_slope=0.1).compute_output_shape((None, 3))
        (None, 3)
    """

    result_activation = "relu"

    weightless = True
    example = {"args": {"negative_slope": 0.1}, "shape": (2, 3)}

    def __init__(
        self,
        max_value: float | None = None,
        negative_slope: float = 0.0,
        threshold: float = 0.0,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        for name, value in (("max_value", max_value), ("negative_slope", negative_slope),
                            ("threshold", threshold)):  # fmt: skip
            if value is not None and value < 0:
                raise ValueError(f"{self.display_name()}: {name} must be >= 0, got {value}.")
        if negative_slope is None or threshold is None:
            raise ValueError(
                f"{self.display_name()}: negative_slope and threshold must be numbers."
            )
        self.max_value, self.negative_slope = max_value, negative_slope
        self.threshold = threshold
        self.supports_masking = True

    def call(self, inputs: Tensor) -> Tensor:
        """Apply it."""
        return activations.relu(
            inputs, negative_slope=self.negative_slope, max_value=self.max_value,
            threshold=self.threshold,
        )  # fmt: skip


class LeakyReLU(Layer):
    """x where x >= 0, negative_slope * x elsewhere.

    Args:
        negative_slope: slope for x < 0, >= 0.

    Example:
        >>> LeakyReLU().compute_output_shape((None, 3))
        (None, 3)
    """

    result_activation = "leaky_relu"

    weightless = True
    example = {"args": {}, "shape": (2, 3)}

    def __init__(self, negative_slope: float = 0.3, **kwargs: Unpack[SlopeOptions]) -> None:
        if "alpha" in kwargs:
            negative_slope = kwargs.pop("alpha")
        super().__init__(**kwargs)
        if negative_slope is None or negative_slope < 0:
            raise ValueError(
                f"{self.display_name()}: negative_slope must be >= 0, got {negative_slope}."
            )
        self.negative_slope = negative_slope
        self.supports_masking = True

    def call(self, inputs: Tensor) -> Tensor:
        """Apply it."""
        return ops.leaky_relu(inputs, negative_slope=self.negative_slope)


class PReLU(WeightedLayer):
    """x where x >= 0, alpha * x elsewhere, with a learnt alpha for each feature.

    Args:
        alpha_initializer: first values of alpha: name, config, object or function.
        alpha_regularizer: penalty of alpha; None: none.
        alpha_constraint: function applied to alpha after each update; None: none.
        shared_axes: the axes (counted from 1) along which alpha is one number; None: none.

    Source: He et al., ICCV 2015.

    Example:
        >>> PReLU(shared_axes=[1]).compute_output_shape((None, 3, 4))
        (None, 3, 4)
    """

    example = {"args": {"shared_axes": [1]}, "shape": (2, 3, 4)}
    weight_kinds = ("alpha",)

    def __init__(
        self,
        alpha_initializer: InitializerLike = "Zeros",
        alpha_regularizer: RegularizerLike | None = None,
        alpha_constraint: ConstraintLike | None = None,
        shared_axes: Sequence[int] | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(
            alpha_initializer=alpha_initializer, alpha_regularizer=alpha_regularizer,
            alpha_constraint=alpha_constraint, **kwargs,
        )  # fmt: skip
        many = shared_axes if isinstance(shared_axes, (list, tuple)) else [shared_axes]
        self.shared_axes = None if shared_axes is None else list(many)
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        """Make alpha, of the shape of an example but for 1 along the shared axes."""
        shared = {a % len(input_shape) for a in self.shared_axes or ()}
        sizes = {i: s for i, s in enumerate(input_shape) if i and i not in shared}
        shape = tuple(sizes.get(i, 1) for i in range(1, len(input_shape)))
        self.alpha = self.add_weight_of("alpha", shape)
        self.input_spec = InputSpec(ndim=len(input_shape), axes=sizes)

    def call(self, inputs: Tensor) -> Tensor:
        """Apply it."""
        below = ops.multiply(ops.minimum(inputs, 0), self.alpha)
        return ops.add(ops.relu(inputs), below)


class ELU(Layer):
    """x where x >= 0, alpha * (exp(x) - 1) elsewhere.

    Args:
        alpha: minus the limit for large negative x.

    Source: Clevert et al., ICLR 2016.

    Example:
        >>> ELU(alpha=0.5).compute_output_shape((None, 3))
        (None, 3)
    """

    result_activation = "elu"

    weightless = True
    example = {"args": {"alpha": 0.5}, "shape": (2, 3)}

    def __init__(self, alpha: float = 1.0, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.alpha = alpha
        self.supports_masking = True

    def call(self, inputs: Tensor) -> Tensor:
        """Apply it."""
        return activations.elu(inputs, self.alpha)


class Softmax(Layer):
    """exp(x) / sum(exp(x)) over an axis; places that a mask leaves out get 0.

    Args:
        axis: the axis or axes that sum to 1.

    Example:
        >>> Softmax().compute_output_shape((None, 3))
        (None, 3)
    """

    result_activation = "softmax"

    weightless = True
    example = {"args": {}, "shape": (2, 3)}

    def __init__(self, axis: Axis = -1, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.axis = axis
        self.supports_masking = True

    def call(self, inputs: Tensor, mask: AnyTensor | None = None) -> Tensor:
        """Apply it."""
        if mask is None:
            return ops.softmax(inputs, axis=self.axis)
        if len(mask.shape) > len(inputs.shape) or any(
            None not in (m, s) and m not in (1, s)
            for m, s in zip(reversed(mask.shape), reversed(inputs.shape))
        ):
            raise ShapeError(
                f"{self.display_name()}: a mask of shape {tuple(mask.shape)} cannot be broadcast "
                f"to inputs of shape {tuple(inputs.shape)}."
            )
        kept = mask if mask.dtype == "bool" else ops.greater(mask, 0.5)
        low = -3e4 if inputs.dtype == "float16" else -1e9
        shares = ops.softmax(ops.where(kept, inputs, low), axis=self.axis)
        return ops.where(kept, shares, 0.0)  # all 0 where nothing is kept
