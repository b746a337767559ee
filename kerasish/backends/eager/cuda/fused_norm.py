"""Layer, RMS and batch normalization by one kernel each; see `fused_functions`."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from kerasish import config
from kerasish.backends.eager import numpy_norm
from kerasish.backends.eager.cuda import norm
from kerasish.backends.eager.cuda.arrays import cast as cast_array
from kerasish.backends.eager.cuda.fused import Call, again, composition, fits, is_last, make_op
from kerasish.ops.basic.arithmetic import add, multiply, subtract
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.movement import broadcast_to
from kerasish.ops.networks import normalization
from kerasish.typing import Array, ArrayModule, Axis


def _kernels(xp: ArrayModule) -> ModuleType:
    return numpy_norm if xp is np else norm


def _normalize_kernel(
    xp: ArrayModule, x: Array, gamma: Array, *beta: Any, epsilon: float, groups: int
) -> Array:
    shift = beta[0] if beta else None
    if groups:
        return norm.group_norm(x, groups, gamma, shift, epsilon)
    return _kernels(xp).layer_norm(x, gamma, shift, epsilon, shift is not None)


def _normalize_gradient_kernel(
    xp: ArrayModule, g: Array, x: Array, gamma: Array, mean: Array, scale: Array, *,
    epsilon: float, groups: int, centered: bool,
) -> Array:  # fmt: skip
    if groups:
        return norm.group_norm_gradient(g, x, groups, gamma, mean, scale)
    return _kernels(xp).layer_norm_gradient(g, x, gamma, mean, scale, centered)


def _gradient_again(
    h: Array, g: Array, x: Array, gamma: Array, composed: Callable[..., Any]
) -> list[Any]:
    """Return the gradients by g, x and gamma of the gradients by x, gamma and beta.

    Args:
        composed: the normalization of x by gamma and beta.
    """

    def back(g: Array, x: Array, gamma: Array) -> Any:
        dx, *others = again(composed, [x, gamma, multiply(gamma, 0)], [g])
        return (dx, *(cast(d, "float32") for d in others))

    return again(back, [g, x, gamma], h)


def _normalize_again(
    h: Array, y: Array, g: Array, x: Array, gamma: Array, mean: Array, scale: Array,
    epsilon: float, groups: int, centered: bool,
) -> Any:  # fmt: skip
    def composed(x: Array, gamma: Array, beta: Array) -> Any:
        if groups:
            f = composition(normalization.group_normalization)
            return f(x, groups, gamma, beta, -1, epsilon)
        if centered:
            f = composition(normalization.layer_normalization)
            return f(x, gamma, beta, epsilon=epsilon)
        # Kernels also return sums of g without centering, but no code uses them.
        y = composition(normalization.rms_normalization)(x, gamma, epsilon=epsilon)
        return add(y, multiply(beta, 0))

    return (*_gradient_again(h, g, x, gamma, composed), None, None)


def _normalize_rule(
    g: Array, y: Array, x: Array, gamma: Array, *beta: Any, epsilon: float, groups: int
) -> Any:
    dx, by_gamma, by_beta = _NORMALIZE_GRADIENT(
        g[0], x, gamma, y[1], y[2], epsilon=epsilon, groups=groups, centered=bool(beta)
    )
    return (dx, cast(by_gamma, gamma.dtype), *(cast(by_beta, b.dtype) for b in beta))


_NORMALIZE_GRADIENT = make_op(_normalize_gradient_kernel, _normalize_again, outputs=3)
# Layer normalization, RMS normalization without beta, group normalization with `groups`.
_NORMALIZE = make_op(_normalize_kernel, _normalize_rule, outputs=3, shown=1)


def _epsilon(epsilon: float | None) -> float:
    return config.epsilon() if epsilon is None else float(epsilon)


def fused_layer_norm(
    x: Array, gamma: Array = None, beta: Array = None, axis: Axis = -1,
    epsilon: float | None = None,
    **kwargs: Any,
) -> Call | None:  # fmt: skip
    """Return the fused op of `layer_normalization`: along the last axis only."""
    x = as_tensor(x)
    if kwargs or gamma is None or beta is None:
        return None
    gamma, beta = as_tensor(gamma), as_tensor(beta)
    if not fits(x, gamma, beta) or not is_last(axis, len(x.shape)):
        return None
    if not gamma.shape == beta.shape == x.shape[-1:]:
        return None
    return _NORMALIZE, [x, gamma, beta], {"epsilon": _epsilon(epsilon), "groups": 0}


def fused_rms_norm(
    x: Array, scale: Array = None, axis: Axis = -1, epsilon: float | None = None
) -> Call | None:
    """Return the fused op of `rms_normalization`: along the last axis only."""
    x = as_tensor(x)
    if scale is None:
        return None
    scale = as_tensor(scale)
    if not fits(x, scale) or not is_last(axis, len(x.shape)) or scale.shape != x.shape[-1:]:
        return None
    return _NORMALIZE, [x, scale], {"epsilon": _epsilon(epsilon), "groups": 0}


def fused_group_norm(
    x: Array, groups: int, gamma: Array = None, beta: Array = None, axis: int = -1,
    epsilon: float = 1e-3,
) -> Call | None:  # fmt: skip
    """Return the fused op of `group_normalization`: along the last axis only."""
    if gamma is None or beta is None:
        return None
    x, gamma, beta = as_tensor(x), as_tensor(gamma), as_tensor(beta)
    ndim = len(x.shape)
    if not fits(x, gamma, beta) or ndim < 2 or not is_last(axis, ndim) or x.shape[-1] % groups:
        return None
    if not gamma.shape == beta.shape == x.shape[-1:]:
        return None
    return _NORMALIZE, [x, gamma, beta], {"epsilon": float(epsilon), "groups": int(groups)}


# --- moments of a batch ---------------------------------------------------------------------------


def _moments_kernel(xp: ArrayModule, x: Array) -> Array:
    return tuple(cast_array(m, x.dtype) for m in norm.column_moments(x))


def _moments_rule(g: Array, y: Array, x: Array) -> tuple[Any, ...]:
    share = x.shape[-1] / max(math.prod(x.shape), 1)
    by_variance = multiply(multiply(subtract(x, y[0]), g[1]), 2 * share)
    by_mean = broadcast_to(multiply(g[0], share), x.shape)
    return (add(by_mean, by_variance),)


_MOMENTS = make_op(_moments_kernel, _moments_rule, outputs=2)


def fused_moments(
    x: Array, axes: Axis, keepdims: bool = False, synchronized: bool = False
) -> Call | None:
    """Return the fused op of `moments`: over all axes but the last only."""
    x = as_tensor(x)
    ndim = len(x.shape)
    if keepdims or not fits(x) or not isinstance(axes, (list, tuple)):
        return None
    if sorted(a % ndim for a in axes) != list(range(ndim - 1)) or ndim < 2:
        return None
    return _MOMENTS, [x], {}


# --- batch normalization --------------------------------------------------------------------------


def _standardize_kernel(
    xp: ArrayModule,
    x: Array,
    mean: Array,
    variance: Array,
    gamma: Array,
    beta: Array,
    *,
    epsilon: float,
) -> Array:
    return norm.batch_norm(x, mean, variance, gamma, beta, epsilon)


def _batch_gradient_kernel(
    xp: ArrayModule, g: Array, x: Array, mean: Array, scale: Array, gamma: Array, *, epsilon: float
) -> Array:
    return _kernels(xp).batch_norm_gradient(g, x, mean, scale, gamma)


def _batch_again(
    h: Array, y: Array, g: Array, x: Array, mean: Array, scale: Array, gamma: Array, epsilon: float
) -> Any:
    axes = tuple(range(len(x.shape) - 1))

    def fused(x: Array, gamma: Array, beta: Array) -> Any:
        center, variance = composition(normalization.moments)(x, axes)
        return composition(normalization.standardize)(x, center, variance, gamma, beta, -1, epsilon)

    by_g, by_x, by_gamma = _gradient_again(h, g, x, gamma, fused)
    return by_g, by_x, None, None, by_gamma


def _are_moments_of(x: Array, mean: Array, variance: Array) -> bool:
    maker = mean.maker
    if maker is None or maker is not variance.maker or maker.op is not _MOMENTS:
        return False
    return (mean.index, variance.index) == (0, 1) and maker.inputs[0].value is x.value


def _standardize_rule(
    g: Array,
    y: Array,
    x: Array,
    mean: Array,
    variance: Array,
    gamma: Array,
    beta: Array,
    epsilon: float,
) -> Any:
    if not _are_moments_of(x, mean, variance):
        given = [x, mean, variance, gamma, beta]
        composed = composition(normalization.standardize)
        return again(lambda *xs: composed(*xs, -1, epsilon), given, [g[0]])
    # The whole gradient of x, including that through its moments, so the moments pass none on.
    dx, by_gamma, by_beta = _BATCH_GRADIENT(g[0], x, mean, y[1], gamma, epsilon=epsilon)
    return dx, None, None, cast(by_gamma, gamma.dtype), cast(by_beta, beta.dtype)


_BATCH_GRADIENT = make_op(_batch_gradient_kernel, _batch_again, outputs=3)
_STANDARDIZE = make_op(_standardize_kernel, _standardize_rule, outputs=2, shown=1)


def fused_standardize(
    x: Array, mean: Array, variance: Array, gamma: Array = None, beta: Array = None, axis: int = -1,
    epsilon: float = 1e-3,
) -> Call | None:  # fmt: skip
    """Return the fused op of `standardize`: along the last axis only."""
    if gamma is None or beta is None:
        return None
    given = [as_tensor(v) for v in (x, mean, variance, gamma, beta)]
    shape = given[0].shape
    if not fits(*given) or not is_last(axis, len(shape)):
        return None
    if any(v.shape != shape[-1:] for v in given[1:]):
        return None
    return _STANDARDIZE, given, {"epsilon": float(epsilon)}


# --- batch normalization by the batch's moments ---------------------------------------------------


def _batch_kernel(
    xp: ArrayModule, x: Array, gamma: Array, beta: Array, moving_mean: Array,
    moving_variance: Array, *, momentum: float, epsilon: float,
) -> Array:  # fmt: skip
    return _kernels(xp).batch_norm_training(
        x, gamma, beta, moving_mean, moving_variance, momentum, epsilon
    )


def _batch_rule(
    g: Array, y: Array, x: Array, gamma: Array, beta: Array, *moving: Any, momentum: float,
    epsilon: float,
) -> tuple[Any, ...]:  # fmt: skip
    dx, by_gamma, by_beta = _BATCH_GRADIENT(g[0], x, y[3], y[4], gamma, epsilon=epsilon)
    return dx, cast(by_gamma, gamma.dtype), cast(by_beta, beta.dtype), None, None


_BATCH_NORM = make_op(_batch_kernel, _batch_rule, outputs=5, shown=3)


def fused_standardize_batch(
    x: Array, gamma: Array, beta: Array, moving_mean: Array, moving_variance: Array,
    axis: int = -1, momentum: float = 0.99, epsilon: float = 1e-3,
) -> Call | None:  # fmt: skip
    """Return the fused op of `standardize_batch`: along the last axis only."""
    if gamma is None or beta is None:
        return None
    x, *columns = given = [as_tensor(v) for v in (x, gamma, beta, moving_mean, moving_variance)]
    if not fits(*given) or len(x.shape) < 2 or not is_last(axis, len(x.shape)):
        return None
    if any(v.shape != x.shape[-1:] or v.dtype != "float32" for v in columns):
        return None
    return _BATCH_NORM, given, {"momentum": float(momentum), "epsilon": float(epsilon)}
