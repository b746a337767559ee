"""Layers that normalise: over the batch, an example, groups of features, or by length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kerasish import constraints, initializers, ops, regularizers
from kerasish.engine.layer.input_spec import InputSpec
from kerasish.engine.layer.layer import Layer
from kerasish.errors import ShapeError
from kerasish.layers.renormalization import check_clipping, corrections
from kerasish.losses.shares import current_shares
from kerasish.ops.networks.normalization import group_normalization, standardize
from kerasish.ops.shapes import normalize_axes
from kerasish.ranks import current_sharding
from kerasish.typing import (
    AnyTensor,
    Axis,
    ConstraintLike,
    DTypeLike,
    InitializerLike,
    RegularizerLike,
    Shape,
)

if TYPE_CHECKING:
    from kerasish.tensor import Tensor


class BatchNormalization(Layer):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, the moments taken over the batch.

    In training they are the batch's own, and running means of them are kept:
    moving = moving * momentum + batch's * (1 - momentum). Otherwise the running ones count.

    Args:
        axis: the axis of the features.
        momentum: of the running means, 0 <= momentum < 1.
        epsilon: added to the variance.
        center, scale: whether there are beta and gamma.
        synchronized: in data-parallel training, whether the moments are those of the whole batch,
            on all ranks; else of each shard. It needs one shard per rank.

    Source: Ioffe & Szegedy, ICML 2015.
    """

    layer_role = "batch normalization"

    example = {"args": {}, "shape": (4, 3)}

    def __init__(
        self,
        axis: int = -1,
        momentum: float = 0.99,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: InitializerLike = "zeros",
        gamma_initializer: InitializerLike = "ones",
        moving_mean_initializer: InitializerLike = "zeros",
        moving_variance_initializer: InitializerLike = "ones",
        beta_regularizer: RegularizerLike | None = None,
        gamma_regularizer: RegularizerLike | None = None,
        beta_constraint: ConstraintLike | None = None,
        gamma_constraint: ConstraintLike | None = None,
        renorm: bool = False,
        renorm_clipping: dict[str, Any] | None = None,
        renorm_momentum: float = 0.99,
        synchronized: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        axis = axis[0] if isinstance(axis, (list, tuple)) and len(axis) == 1 else axis
        if not isinstance(axis, int):
            raise ValueError(f"{self.display_name()}: axis is one number, got {axis!r}.")
        self.axis, self.momentum, self.epsilon = axis, float(momentum), float(epsilon)
        self.center, self.scale, self.synchronized = center, scale, synchronized
        self.renorm, self.renorm_momentum = renorm, float(renorm_momentum)
        self.renorm_clipping = (
            check_clipping(renorm_clipping, self.display_name()) if renorm else None
        )
        self.beta_initializer = initializers.get(beta_initializer)
        self.gamma_initializer = initializers.get(gamma_initializer)
        self.moving_mean_initializer = initializers.get(moving_mean_initializer)
        self.moving_variance_initializer = initializers.get(moving_variance_initializer)
        self.beta_regularizer = regularizers.get(beta_regularizer)
        self.gamma_regularizer = regularizers.get(gamma_regularizer)
        self.beta_constraint = constraints.get(beta_constraint)
        self.gamma_constraint = constraints.get(gamma_constraint)
        self.supports_masking = True
        self.gamma: Any = None
        self.beta: Any = None

    def build(self, input_shape: Shape) -> None:
        """Make gamma, beta and the running moments."""
        size = (input_shape[self.axis],)
        if self.scale:
            self.gamma = self.add_weight(
                shape=size, name="gamma", initializer=self.gamma_initializer,
                regularizer=self.gamma_regularizer, constraint=self.gamma_constraint,
                autocast=False,
            )  # fmt: skip
        if self.center:
            self.beta = self.add_weight(
                shape=size, name="beta", initializer=self.beta_initializer,
                regularizer=self.beta_regularizer, constraint=self.beta_constraint,
                autocast=False,
            )  # fmt: skip
        self.moving_mean = self.add_weight(
            shape=size, name="moving_mean", initializer=self.moving_mean_initializer,
            trainable=False, autocast=False,
        )  # fmt: skip
        self.moving_variance = self.add_weight(
            shape=size, name="moving_variance", initializer=self.moving_variance_initializer,
            trainable=False, autocast=False,
        )  # fmt: skip
        if self.renorm:
            self._build_renorm(size)
        self.input_spec = InputSpec(
            ndim=len(input_shape), axes={self.axis % len(input_shape): input_shape[self.axis]}
        )

    def _build_renorm(self, size: tuple[int, ...]) -> None:
        def roots(shape: Shape, dtype: DTypeLike | None = None) -> Tensor:
            return ops.sqrt(self.moving_variance_initializer(shape, dtype=dtype))

        self.moving_stddev, self.renorm_mean, self.renorm_stddev = (
            self.add_weight(
                shape=size, name=name, initializer=first, trainable=False, autocast=False
            )
            for name, first in (
                ("moving_stddev", roots), ("renorm_mean", self.moving_mean_initializer),
                ("renorm_stddev", roots),
            )
        )  # fmt: skip

    def call(self, inputs: Tensor, training: bool = False, mask: AnyTensor | None = None) -> Tensor:
        """Normalise."""
        x = inputs if inputs.dtype == "float64" else ops.cast(inputs, "float32")
        rank = len(x.shape)
        axis = self.axis % rank
        gamma, beta = self.gamma, self.beta
        if training and self.trainable:
            mean, variance = self._moments(x, axis, mask)
            if self.renorm:
                gamma, beta = self._renormalize(mean, variance)
            else:
                self._move(self.moving_variance, variance, self.momentum)
            self._move(self.moving_mean, mean, self.momentum)
        else:
            mean, variance = self.moving_mean.value, self.moving_variance.value
        y = standardize(x, mean, variance, gamma, beta, axis, self.epsilon)
        return ops.cast(y, inputs.dtype)

    def _moments(self, x: Tensor, axis: int, mask: AnyTensor | None) -> tuple[Any, Any]:
        axes = tuple(i for i in range(len(x.shape)) if i != axis)
        total = self._total()
        if mask is None and total is None:
            return ops.moments(x, axes)
        weights = ops.ones((), x.dtype) if mask is None else ops.cast(mask, x.dtype)
        while mask is not None and len(weights.shape) < len(x.shape):
            weights = ops.expand_dims(weights, -1)
        spread = ops.multiply(weights, ops.ones(x.shape, x.dtype))

        def summed(values: Tensor) -> Tensor:
            here = ops.sum(values, axes, keepdims=True)
            return here if total is None else total(here)

        count = ops.maximum(summed(spread), 1e-7)
        mean = ops.divide(summed(ops.multiply(x, spread)), count)
        away = ops.multiply(ops.square(ops.subtract(x, mean)), spread)
        variance = ops.divide(summed(away), count)
        size = (x.shape[axis],)
        return ops.reshape(mean, size), ops.reshape(variance, size)

    def _total(self) -> Callable[[Tensor], Tensor] | None:
        """Return what adds a shard's sums up over the batch; None: moments are those of a shard."""
        sharding = current_sharding()
        if not self.synchronized or sharding is None or current_shares() is None:
            return None
        if sharding.count > 1:
            raise ValueError(
                f"{self.name}: synchronized=True needs the moments of a whole batch before its "
                f"second half is computed, but each rank has {sharding.count} shards. Use "
                f"DataParallel(shards={sharding.group.size}), or synchronized=False."
            )
        return ops.all_sum

    def _renormalize(self, mean: Tensor, variance: Tensor) -> tuple[Any, Any]:
        """Return gamma and beta with the corrections in them; move the running moments."""
        stddev = ops.sqrt(ops.add(variance, self.epsilon))
        running = (self.renorm_mean.value, self.renorm_stddev.value)
        r, d = corrections(mean, stddev, running, self.epsilon, self.renorm_clipping or {})
        gamma = r if self.gamma is None else ops.multiply(r, self.gamma)
        beta = d if self.gamma is None else ops.multiply(d, self.gamma)
        if self.beta is not None:
            beta = ops.add(beta, self.beta)
        self._move(self.renorm_mean, mean, self.renorm_momentum)
        self._move(self.renorm_stddev, stddev, self.renorm_momentum)
        moved = self._move(self.moving_stddev, stddev, self.momentum)
        self.moving_variance.assign(ops.subtract(ops.square(moved), self.epsilon))
        return gamma, beta

    def _move(self, moving: Any, batch: Tensor, momentum: float) -> Tensor:
        """Let a running number come nearer to the batch's; return what it becomes."""
        fixed = ops.stop_gradient(batch)
        moved = ops.add(ops.multiply(moving, momentum), ops.multiply(fixed, 1.0 - momentum))
        moving.assign(moved)
        return moved


class LayerNormalization(Layer):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, the moments of each example.

    Args:
        axis: the axis or axes over which the moments are taken.
        epsilon: added to the variance.
        center, scale: whether there are beta and gamma.
        rms_scaling: of older files: no mean is taken off x (though off x for its variance), and
            no beta is added.

    Source: Ba, Kiros & Hinton, arXiv 1607.06450.
    """

    layer_role = "normalization"

    example = {"args": {}, "shape": (2, 3, 4)}

    def __init__(
        self,
        axis: dict[str, Any] | int | Sequence[int] = -1,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: InitializerLike = "zeros",
        gamma_initializer: InitializerLike = "ones",
        beta_regularizer: RegularizerLike | None = None,
        gamma_regularizer: RegularizerLike | None = None,
        beta_constraint: ConstraintLike | None = None,
        gamma_constraint: ConstraintLike | None = None,
        **kwargs: Any,
    ) -> None:
        self.rms_scaling = bool(kwargs.pop("rms_scaling", False))
        super().__init__(**kwargs)
        if not isinstance(axis, (int, list, tuple)):
            raise TypeError(
                f"{self.display_name()}: axis is a number or a list of them, got {axis!r}."
            )
        self.axis = list(axis) if isinstance(axis, (list, tuple)) else axis
        self.epsilon, self.center, self.scale = float(epsilon), center, scale
        self.beta_initializer = initializers.get(beta_initializer)
        self.gamma_initializer = initializers.get(gamma_initializer)
        self.beta_regularizer = regularizers.get(beta_regularizer)
        self.gamma_regularizer = regularizers.get(gamma_regularizer)
        self.beta_constraint = constraints.get(beta_constraint)
        self.gamma_constraint = constraints.get(gamma_constraint)
        self.supports_masking = True
        self.gamma: Any = None
        self.beta: Any = None

    def build(self, input_shape: Shape) -> None:
        """Make gamma and beta, of the sizes of the axes."""
        axes = normalize_axes(self.axis, len(input_shape), self.display_name())
        shape = tuple(input_shape[a] for a in axes)
        if self.scale:
            self.gamma = self.add_weight(
                shape=shape, name="gamma", initializer=self.gamma_initializer,
                regularizer=self.gamma_regularizer, constraint=self.gamma_constraint,
                autocast=False,
            )  # fmt: skip
        if self.center and not self.rms_scaling:
            self.beta = self.add_weight(
                shape=shape, name="beta", initializer=self.beta_initializer,
                regularizer=self.beta_regularizer, constraint=self.beta_constraint,
                autocast=False,
            )  # fmt: skip

    def call(self, inputs: Tensor) -> Tensor:
        """Normalise."""
        x = inputs if inputs.dtype == "float64" else ops.cast(inputs, "float32")
        axes = normalize_axes(self.axis, len(x.shape), self.display_name())
        if self.rms_scaling:
            y = ops.layer_normalization(x, self.gamma, None, axes, self.epsilon, rms_scaling=True)
        else:
            y = ops.layer_normalization(x, self.gamma, self.beta, axes, self.epsilon)
        return ops.cast(y, inputs.dtype)


class GroupNormalization(Layer):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, the moments of groups of features.

    Args:
        groups: their number, a divisor of the number of features; -1: each feature is one.
        axis: the axis of the features.
        epsilon: added to the variance.
        center, scale: whether there are beta and gamma.

    Source: Wu & He, ECCV 2018.
    """

    example = {"args": {"groups": 2}, "shape": (2, 3, 4)}

    def __init__(
        self,
        groups: int = 32,
        axis: int = -1,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: InitializerLike = "zeros",
        gamma_initializer: InitializerLike = "ones",
        beta_regularizer: RegularizerLike | None = None,
        gamma_regularizer: RegularizerLike | None = None,
        beta_constraint: ConstraintLike | None = None,
        gamma_constraint: ConstraintLike | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not isinstance(groups, int) or isinstance(groups, bool) or groups < 1 and groups != -1:
            raise ValueError(
                f"{self.display_name()}: groups is a whole number >= 1, or -1 for a group of each "
                f"feature; got {groups!r}."
            )
        self.groups, self.axis, self.epsilon = groups, axis, float(epsilon)
        self.center, self.scale = center, scale
        self.beta_initializer = initializers.get(beta_initializer)
        self.gamma_initializer = initializers.get(gamma_initializer)
        self.beta_regularizer = regularizers.get(beta_regularizer)
        self.gamma_regularizer = regularizers.get(gamma_regularizer)
        self.beta_constraint = constraints.get(beta_constraint)
        self.gamma_constraint = constraints.get(gamma_constraint)
        self.supports_masking = True
        self.autocast = False  # what overflows float16 may still be normalised
        self.gamma: Any = None
        self.beta: Any = None

    def build(self, input_shape: Shape) -> None:
        """Make gamma and beta, one number for each feature."""
        size = input_shape[self.axis]
        if size is None:
            raise ShapeError(
                f"{self.display_name()}: the size of axis {self.axis} must be known, got "
                f"{input_shape}."
            )
        self.groups = size if self.groups == -1 else self.groups
        if size % self.groups:
            raise ShapeError(
                f"{self.display_name()}: {self.groups} groups do not divide {size} features, axis "
                f"{self.axis} of {tuple(input_shape)}."
            )
        if self.scale:
            self.gamma = self.add_weight(
                shape=(size,), name="gamma", initializer=self.gamma_initializer,
                regularizer=self.gamma_regularizer, constraint=self.gamma_constraint,
                autocast=False,
            )  # fmt: skip
        if self.center:
            self.beta = self.add_weight(
                shape=(size,), name="beta", initializer=self.beta_initializer,
                regularizer=self.beta_regularizer, constraint=self.beta_constraint,
                autocast=False,
            )  # fmt: skip
        self.input_spec = InputSpec(ndim=len(input_shape), axes={self.axis: size})

    def call(self, inputs: Tensor) -> Tensor:
        """Normalise."""
        x = inputs if inputs.dtype == "float64" else ops.cast(inputs, "float32")
        y = group_normalization(x, self.groups, self.gamma, self.beta, self.axis, self.epsilon)
        return ops.cast(y, self.compute_dtype)


class UnitNormalization(Layer):
    """x / sqrt(sum x^2), the sum over an axis or several.

    Args:
        axis: the axis or axes along which the length becomes 1.
    """

    weightless = True
    example = {"args": {}, "shape": (2, 3)}

    def __init__(self, axis: Axis = -1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not isinstance(axis, (int, list, tuple)):
            raise TypeError(
                f"{self.display_name()}: axis is a number or a list of them, got {axis!r}."
            )
        self.axis = list(axis) if isinstance(axis, (list, tuple)) else axis
        self.supports_masking = True

    def call(self, inputs: Tensor) -> Tensor:
        """Normalise."""
        axes = normalize_axes(self.axis, len(inputs.shape), self.display_name())
        square = ops.sum(ops.square(inputs), axes, keepdims=True)
        # float16 knows no number as small as 1e-12.
        least = 1e-7 if inputs.dtype == "float16" else 1e-12
        return ops.multiply(inputs, ops.rsqrt(ops.maximum(square, least)))


class RMSNormalization(Layer):
    """x / sqrt(mean x^2 + epsilon) * scale, the mean of each example.

    Args:
        axis: the axis or axes over which the mean is taken.
        epsilon: added to the mean square.

    Source: Zhang & Sennrich, NeurIPS 2019.
    """

    example = {"args": {}, "shape": (2, 3, 4)}

    def __init__(self, axis: Axis = -1, epsilon: float = 1e-6, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axis = list(axis) if isinstance(axis, (list, tuple)) else axis
        self.epsilon = float(epsilon)
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        """Make scale, of the sizes of the axes."""
        axes = normalize_axes(self.axis, len(input_shape), self.display_name())
        self.scale = self.add_weight(
            name="scale", shape=tuple(input_shape[a] for a in axes), initializer="ones",
            autocast=False,
        )  # fmt: skip

    def call(self, inputs: Tensor) -> Tensor:
        """Normalise."""
        x = inputs if inputs.dtype == "float64" else ops.cast(inputs, "float32")
        axes = normalize_axes(self.axis, len(x.shape), self.display_name())
        y = ops.rms_normalization(x, self.scale, axes, self.epsilon)
        return ops.cast(y, inputs.dtype)
