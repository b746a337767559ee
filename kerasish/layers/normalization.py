"""Layers that normalize: over the batch, an example, groups of features, or by length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kerasish import initializers, ops
from kerasish.engine.layer.input_spec import InputSpec
from kerasish.engine.layer.layer import Layer
from kerasish.errors import ShapeError
from kerasish.layers.options import NORMALIZATION, LayerOptions, NormalizationOptions
from kerasish.layers.renormalization import check_clipping, corrections
from kerasish.layers.weighted import WeightedLayer
from kerasish.losses.shares import current_shares
from kerasish.ops.networks.normalization import group_normalization, standardize, standardize_batch
from kerasish.ops.shapes import normalize_axes
from kerasish.ranks import current_sharding
from kerasish.signatures import Unpack, with_options
from kerasish.tensor import Tensor
from kerasish.typing import AnyTensor, Axis, DTypeLike, InitializerLike, Shape


def _floating(x: Tensor) -> Tensor:
    """Return x in a dtype that the ops below take: they compute with 16-bit floats in float32."""
    return x if x.dtype in ("float64", "float16", "bfloat16") else ops.cast(x, "float32")


def _as_axes(axis: Any, who: str) -> int | list[int]:
    """Return a number, or a list of several, as configs hold them."""
    if not isinstance(axis, (int, list, tuple)):
        raise TypeError(f"{who}: axis is a number or a list of them, got {axis!r}.")
    return list(axis) if isinstance(axis, (list, tuple)) else axis


class NormalizationLayer(WeightedLayer):
    """What layers with a factor gamma and a term beta share.

    Args:
        epsilon: added to the variance.
        center, scale: whether there are beta and gamma.
        options: what `WeightedLayer` takes.
    """

    weight_kinds = ("beta", "gamma")

    def __init__(self, epsilon: float, center: bool, scale: bool, **options: Any) -> None:
        super().__init__(**options)
        self.epsilon, self.center, self.scale = float(epsilon), center, scale
        self.supports_masking = True
        self.gamma: Any = None
        self.beta: Any = None

    def _add_factors(self, shape: tuple[Any, ...], center: bool) -> None:
        """Make gamma if there is one, and beta if `center`."""
        if self.scale:
            self.gamma = self.add_weight_of("gamma", shape, autocast=False)
        if center:
            self.beta = self.add_weight_of("beta", shape, autocast=False)


class BatchNormalization(NormalizationLayer):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, the moments taken over the batch.

    In training they are the batch's own, and running means of them are kept:
    moving = moving * momentum + batch's * (1 - momentum). Otherwise the running ones count.

    Args:
        axis: the axis of the features.
        momentum: of the running means, 0 <= momentum < 1.
        epsilon: added to the variance.
        center, scale: whether there are beta and gamma.
        beta_initializer: first values of beta: name, config, object or function.
        gamma_initializer: first values of gamma: name, config, object or function.
        moving_mean_initializer: first values of the running mean.
        moving_variance_initializer: first values of the running variance.
        beta_regularizer: penalty of beta; None: none.
        gamma_regularizer: penalty of gamma; None: none.
        beta_constraint: function applied to beta after each update; None: none.
        gamma_constraint: function applied to gamma after each update; None: none.
        renorm: whether training uses the running moments as well (`BatchRenormalization`).
        renorm_clipping: bounds "rmin", "rmax" and "dmax" of the correction; None: none.
        renorm_momentum: the share of themselves that the moments of `renorm` keep per step.
        synchronized: in data-parallel training, whether the moments are those of the whole batch,
            on all ranks; else of each shard. It needs one shard per rank.

    Source: Ioffe & Szegedy, ICML 2015.

    Example:
        >>> BatchNormalization().compute_output_shape((None, 3))
        (None, 3)
    """

    layer_role = "batch normalization"

    example = {"args": {}, "shape": (4, 3)}

    @with_options(
        NormalizationOptions, NORMALIZATION, moving_mean_initializer="gamma_initializer",
        moving_variance_initializer="moving_mean_initializer",
    )  # fmt: skip
    def __init__(
        self,
        axis: int = -1,
        momentum: float = 0.99,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        *,
        moving_mean_initializer: InitializerLike = "zeros",
        moving_variance_initializer: InitializerLike = "ones",
        renorm: bool = False,
        renorm_clipping: dict[str, Any] | None = None,
        renorm_momentum: float = 0.99,
        synchronized: bool = False,
        **options: Unpack[NormalizationOptions],
    ) -> None:
        super().__init__(epsilon, center, scale, **options)
        axis = axis[0] if isinstance(axis, (list, tuple)) and len(axis) == 1 else axis
        if not isinstance(axis, int):
            raise ValueError(f"{self.display_name()}: axis is one number, got {axis!r}.")
        self.axis, self.momentum, self.synchronized = axis, float(momentum), synchronized
        self.renorm, self.renorm_momentum = renorm, float(renorm_momentum)
        self.renorm_clipping = (
            check_clipping(renorm_clipping, self.display_name()) if renorm else None
        )
        self.moving_mean_initializer = initializers.get(moving_mean_initializer)
        self.moving_variance_initializer = initializers.get(moving_variance_initializer)

    def build(self, input_shape: Shape) -> None:
        """Make gamma, beta and the running moments."""
        size = (input_shape[self.axis],)
        self._add_factors(size, self.center)
        self.moving_mean, self.moving_variance = self._add_moving(
            size,
            moving_mean=self.moving_mean_initializer,
            moving_variance=self.moving_variance_initializer,
        )
        if self.renorm:
            self._build_renorm(size)
        self.input_spec = InputSpec(
            ndim=len(input_shape), axes={self.axis % len(input_shape): input_shape[self.axis]}
        )

    def _build_renorm(self, size: tuple[int, ...]) -> None:
        def roots(shape: Shape, dtype: DTypeLike | None = None) -> Tensor:
            return ops.sqrt(self.moving_variance_initializer(shape, dtype=dtype))

        self.moving_stddev, self.renorm_mean, self.renorm_stddev = self._add_moving(
            size, moving_stddev=roots, renorm_mean=self.moving_mean_initializer, renorm_stddev=roots
        )

    def _add_moving(self, size: tuple[int, ...], **starts: Any) -> list[Any]:
        return [
            self.add_weight(
                shape=size, name=name, initializer=start, trainable=False, autocast=False
            )
            for name, start in starts.items()
        ]

    def call(self, inputs: Tensor, training: bool = False, mask: AnyTensor | None = None) -> Tensor:
        """Normalize."""
        axis = self.axis % len(inputs.shape)
        gamma, beta = self.gamma, self.beta
        plain = mask is None and not self.renorm and self._total() is None
        if training and self.trainable and plain:
            y, mean, variance = standardize_batch(
                _floating(inputs), gamma, beta, self.moving_mean, self.moving_variance, axis,
                self.momentum, self.epsilon,
            )  # fmt: skip
            self.moving_variance.assign(variance)
            self.moving_mean.assign(mean)
            return ops.cast(y, inputs.dtype)
        x = _floating(inputs)
        if training and self.trainable:
            x = x if x.dtype == "float64" else ops.cast(x, "float32")
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
        """Move a running number towards that of the batch; return the new one."""
        fixed = ops.stop_gradient(batch)
        moved = ops.add(ops.multiply(moving, momentum), ops.multiply(fixed, 1.0 - momentum))
        moving.assign(moved)
        return moved


class LayerNormalization(NormalizationLayer):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, the moments of each example.

    Args:
        axis: the axis or axes over which the moments are taken.
        epsilon: added to the variance.
        center, scale: whether there are beta and gamma.
        beta_initializer: first values of beta: name, config, object or function.
        gamma_initializer: first values of gamma: name, config, object or function.
        beta_regularizer: penalty of beta; None: none.
        gamma_regularizer: penalty of gamma; None: none.
        beta_constraint: function applied to beta after each update; None: none.
        gamma_constraint: function applied to gamma after each update; None: none.
        rms_scaling: of older files: no mean is taken off x (though off x for its variance), and
            no beta is added.

    Source: Ba, Kiros & Hinton, arXiv 1607.06450.

    Example:
        >>> LayerNormalization().compute_output_shape((None, 3, 4))
        (None, 3, 4)
    """

    layer_role = "normalization"

    example = {"args": {}, "shape": (2, 3, 4)}

    @with_options(NormalizationOptions, NORMALIZATION)
    def __init__(
        self,
        axis: dict[str, Any] | int | Sequence[int] = -1,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        **options: Unpack[NormalizationOptions],
    ) -> None:
        self.rms_scaling = bool(options.pop("rms_scaling", False))
        super().__init__(epsilon, center, scale, **options)
        self.axis = _as_axes(axis, self.display_name())

    def build(self, input_shape: Shape) -> None:
        """Make gamma and beta, of the sizes of the axes."""
        axes = normalize_axes(self.axis, len(input_shape), self.display_name())
        shape = tuple(input_shape[a] for a in axes)
        self._add_factors(shape, self.center and not self.rms_scaling)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, and `rms_scaling`, which Keras's files name."""
        return {**super().get_config(), "rms_scaling": self.rms_scaling}

    def call(self, inputs: Tensor) -> Tensor:
        """Normalize."""
        x = _floating(inputs)
        axes = normalize_axes(self.axis, len(x.shape), self.display_name())
        if self.rms_scaling:
            y = ops.layer_normalization(x, self.gamma, None, axes, self.epsilon, rms_scaling=True)
        else:
            y = ops.layer_normalization(x, self.gamma, self.beta, axes, self.epsilon)
        return ops.cast(y, inputs.dtype)


class GroupNormalization(NormalizationLayer):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, the moments of groups of features.

    Args:
        groups: their number, a divisor of the number of features; -1: each feature is one.
        axis: the axis of the features.
        epsilon: added to the variance.
        center, scale: whether there are beta and gamma.
        beta_initializer: first values of beta: name, config, object or function.
        gamma_initializer: first values of gamma: name, config, object or function.
        beta_regularizer: penalty of beta; None: none.
        gamma_regularizer: penalty of gamma; None: none.
        beta_constraint: function applied to beta after each update; None: none.
        gamma_constraint: function applied to gamma after each update; None: none.

    Source: Wu & He, ECCV 2018.

    Example:
        >>> GroupNormalization(groups=2).compute_output_shape((None, 3, 4))
        (None, 3, 4)
    """

    example = {"args": {"groups": 2}, "shape": (2, 3, 4)}

    @with_options(NormalizationOptions, NORMALIZATION)
    def __init__(
        self,
        groups: int = 32,
        axis: int = -1,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        **options: Unpack[NormalizationOptions],
    ) -> None:
        super().__init__(epsilon, center, scale, **options)
        if not isinstance(groups, int) or isinstance(groups, bool) or groups < 1 and groups != -1:
            raise ValueError(
                f"{self.display_name()}: groups is an integer >= 1, or -1 for a group of each "
                f"feature; got {groups!r}."
            )
        self.groups, self.axis = groups, axis
        self.autocast = False  # what overflows float16 may still be normalized

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
        self._add_factors((size,), self.center)
        self.input_spec = InputSpec(ndim=len(input_shape), axes={self.axis: size})

    def call(self, inputs: Tensor) -> Tensor:
        """Normalize."""
        x = _floating(inputs)
        y = group_normalization(x, self.groups, self.gamma, self.beta, self.axis, self.epsilon)
        return ops.cast(y, self.compute_dtype)


class UnitNormalization(Layer):
    """x / sqrt(sum x^2), the sum over an axis or several.

    Args:
        axis: the axis or axes along which the length becomes 1.

    Example:
        >>> UnitNormalization().compute_output_shape((None, 3))
        (None, 3)
    """

    weightless = True
    example = {"args": {}, "shape": (2, 3)}

    def __init__(self, axis: Axis = -1, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.axis = _as_axes(axis, self.display_name())
        self.supports_masking = True

    def call(self, inputs: Tensor) -> Tensor:
        """Normalize."""
        axes = normalize_axes(self.axis, len(inputs.shape), self.display_name())
        square = ops.sum(ops.square(inputs), axes, keepdims=True)
        # float16 has no number as small as 1e-12.
        least = 1e-7 if inputs.dtype == "float16" else 1e-12
        return ops.multiply(inputs, ops.rsqrt(ops.maximum(square, least)))


class RMSNormalization(Layer):
    """x / sqrt(mean x^2 + epsilon) * scale, the mean of each example.

    Args:
        axis: the axis or axes over which the mean is taken.
        epsilon: added to the mean square.

    Source: Zhang & Sennrich, NeurIPS 2019.

    Example:
        >>> RMSNormalization().compute_output_shape((None, 3, 4))
        (None, 3, 4)
    """

    example = {"args": {}, "shape": (2, 3, 4)}

    def __init__(
        self, axis: Axis = -1, epsilon: float = 1e-6, **kwargs: Unpack[LayerOptions]
    ) -> None:
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
        """Normalize."""
        x = _floating(inputs)
        axes = normalize_axes(self.axis, len(x.shape), self.display_name())
        y = ops.rms_normalization(x, self.scale, axes, self.epsilon)
        return ops.cast(y, inputs.dtype)
