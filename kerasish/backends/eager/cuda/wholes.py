"""Functions composed of ops that a kernel computes as a whole: softmax, losses, norms, dropout.

`WHOLES` tells the engine of a GPU which. An entry takes the function's arguments and returns
(op, inputs, attributes) of an op of this room, or None where the composition has to do. These ops
are in no registry: nobody but this engine meets them. Their gradients are kernels, too; a gradient
of a gradient is found by differentiating the composition.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from kerasish import config
from kerasish.backends.eager.cuda import activation, norm, random, softmax
from kerasish.backends.eager.cuda.kernels import SCALARS
from kerasish.ops import activation as activations
from kerasish.ops import crossentropy, normalization
from kerasish.ops import random as randoms
from kerasish.ops.core import derivatives
from kerasish.ops.elementwise import as_tensor, cast, multiply, negative, subtract
from kerasish.ops.movement import broadcast_to, expand_axes
from kerasish.ops.op import Op, same

Call = tuple[Op, list[Any], dict[str, Any]]


def _op(kernel: Callable[..., Any], grad: Any = None, outputs: int = 1) -> Op:
    return Op(kernel, "whole", same, grad, None, 0, None, (), False, outputs, None)


def _again(f: Callable[..., Any], inputs: Any, g: Any) -> list[Any]:
    """Return the gradients of f, a composition, which may be differentiated again."""
    found = derivatives["vjp"](f, inputs, g)
    return list(found)


def _composition(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return a composed function without what asks for wholes."""
    return f.__wrapped__  # type: ignore[attr-defined, no-any-return]


def _fits(*tensors: Any) -> bool:
    return all(t.dtype in SCALARS and 0 not in t.shape for t in tensors)


def _is_last(axis: Any, ndim: int) -> bool:
    given = axis[0] if isinstance(axis, (list, tuple)) and len(axis) == 1 else axis
    return ndim > 0 and isinstance(given, int) and given in (-1, ndim - 1)


# --- softmax --------------------------------------------------------------------------------------


def _softmax_kernel(xp: Any, x: Any, *, logarithm: bool) -> Any:
    return softmax.softmax(x, logarithm)


def _softmax_gradient_kernel(xp: Any, g: Any, y: Any, *, logarithm: bool) -> Any:
    return softmax.softmax_gradient(g, y, logarithm)


def _softmax_back(g: Any, y: Any, logarithm: bool) -> Any:
    from_y = activations.exp(y) if logarithm else y
    total = activations.reduce_sum(g if logarithm else multiply(g, y), (-1,), True)
    inner = multiply(from_y, total) if logarithm else total
    return subtract(g, inner) if logarithm else multiply(y, subtract(g, inner))


_SOFTMAX_GRADIENT = _op(
    _softmax_gradient_kernel,
    lambda h, dx, g, y, logarithm: _again(lambda g, y: _softmax_back(g, y, logarithm), [g, y], [h]),
)
_SOFTMAX = _op(
    _softmax_kernel,
    lambda g, y, x, logarithm: (_SOFTMAX_GRADIENT(g, y, logarithm=logarithm),),
)


def _softmax(x: Any, axis: Any = -1, logarithm: bool = False) -> Call | None:
    x = as_tensor(x)
    if not _fits(x) or not _is_last(axis, len(x.shape)):
        return None
    return _SOFTMAX, [x], {"logarithm": logarithm}


def _log_softmax(x: Any, axis: Any = -1) -> Call | None:
    return _softmax(x, axis, True)


# --- cross-entropies of logits --------------------------------------------------------------------


def _class_loss_kernel(xp: Any, classes: Any, x: Any) -> Any:
    return softmax.class_loss(classes, x)


def _class_loss_gradient_kernel(xp: Any, g: Any, classes: Any, x: Any, whole: Any) -> Any:
    return softmax.class_loss_gradient(g, classes, x, whole)


def _class_loss_composed(classes: Any, x: Any) -> Any:
    loss = _composition(crossentropy.sparse_categorical_crossentropy)
    return loss(classes, x, from_logits=True)


def _class_loss_again(h: Any, dx: Any, g: Any, classes: Any, x: Any, whole: Any) -> Any:
    def back(g: Any, x: Any) -> Any:
        return _again(lambda x: _class_loss_composed(classes, x), [x], [g])[0]

    by_g, by_x = _again(back, [g, x], [h])
    return by_g, None, by_x, None


_CLASS_LOSS_GRADIENT = _op(_class_loss_gradient_kernel, _class_loss_again)
_CLASS_LOSS = _op(
    _class_loss_kernel,
    lambda g, y, classes, x: (None, _CLASS_LOSS_GRADIENT(g[0], classes, x, y[1])),
    outputs=2,
)


def _class_loss(target: Any, output: Any, from_logits: bool = False, axis: int = -1) -> Call | None:
    x, classes = as_tensor(output), as_tensor(target)
    if not from_logits or not _fits(x) or not _is_last(axis, len(x.shape)):
        return None
    if classes.shape != x.shape[:-1]:
        return None
    return _CLASS_LOSS, [cast(classes, "int32"), x], {}


def _target_loss_kernel(xp: Any, target: Any, x: Any) -> Any:
    return softmax.target_loss(target, x)


def _target_loss_gradient_kernel(
    xp: Any, g: Any, target: Any, x: Any, whole: Any, weight: Any
) -> Any:
    return softmax.target_loss_gradient(g, target, x, whole, weight)


def _target_loss_again(
    h: Any, dx: Any, g: Any, target: Any, x: Any, whole: Any, weight: Any
) -> Any:
    loss = _composition(crossentropy.categorical_crossentropy)

    def back(g: Any, target: Any, x: Any) -> Any:
        return _again(lambda x: loss(target, x, from_logits=True), [x], [g])[0]

    return (*_again(back, [g, target, x], [h]), None, None)


def _target_loss_rule(g: Any, y: Any, target: Any, x: Any) -> Any:
    by_x = _TARGET_LOSS_GRADIENT(g[0], target, x, y[1], y[2])
    if not target.tracked:
        return None, by_x
    arriving = expand_axes(g[0], (len(x.shape) - 1,))
    return multiply(negative(arriving), activations.log_softmax(x)), by_x


_TARGET_LOSS_GRADIENT = _op(_target_loss_gradient_kernel, _target_loss_again)
_TARGET_LOSS = _op(_target_loss_kernel, _target_loss_rule, outputs=3)


def _target_loss(
    target: Any, output: Any, from_logits: bool = False, axis: int = -1
) -> Call | None:
    x = as_tensor(output)
    if not from_logits or not _fits(x) or not _is_last(axis, len(x.shape)):
        return None
    target = cast(as_tensor(target), x.dtype)
    return (_TARGET_LOSS, [target, x], {}) if target.shape == x.shape else None


# --- layer and RMS normalisation ------------------------------------------------------------------


def _layer_norm_kernel(xp: Any, x: Any, gamma: Any, beta: Any, *, epsilon: float) -> Any:
    return norm.layer_norm(x, gamma, beta, epsilon)


def _rms_norm_kernel(xp: Any, x: Any, gamma: Any, *, epsilon: float) -> Any:
    return norm.layer_norm(x, gamma, None, epsilon, centered=False)


def _norm_gradient_kernel(
    xp: Any, g: Any, x: Any, gamma: Any, mean: Any, scale: Any, *, epsilon: float, centered: bool
) -> Any:
    return norm.layer_norm_gradient(g, x, gamma, mean, scale, centered)


def _norm_composed(x: Any, gamma: Any, beta: Any, epsilon: float, centered: bool) -> Any:
    if centered:
        f = _composition(normalization.layer_normalization)
        return f(x, gamma, beta, epsilon=epsilon)
    return _composition(normalization.rms_normalization)(x, gamma, epsilon=epsilon)


def _norm_again(
    h: Any, y: Any, g: Any, x: Any, gamma: Any, mean: Any, scale: Any, epsilon: float,
    centered: bool,
) -> Any:  # fmt: skip
    def back(g: Any, x: Any, gamma: Any) -> Any:
        beta = multiply(gamma, 0)
        given = [x, gamma, beta] if centered else [x, gamma]

        def whole(x: Any, gamma: Any, beta: Any = beta) -> Any:
            return _norm_composed(x, gamma, beta, epsilon, centered)

        found = _again(whole, given, [g])
        # Sums of g are kernels' results without centering, too, but nobody asks for them.
        return (*found[:2], cast(found[2] if centered else multiply(gamma, 0), "float32"))

    return (*_again(back, [g, x, gamma], h), None, None)


def _norm_rule(g: Any, y: Any, x: Any, gamma: Any, *beta: Any, epsilon: float) -> Any:
    centered = bool(beta)
    dx, by_gamma, by_beta = _NORM_GRADIENT(
        g[0], x, gamma, y[1], y[2], epsilon=epsilon, centered=centered
    )
    found = (dx, cast(by_gamma, gamma.dtype))
    return (*found, cast(by_beta, beta[0].dtype)) if centered else found


_NORM_GRADIENT = _op(_norm_gradient_kernel, _norm_again, outputs=3)
_LAYER_NORM = _op(_layer_norm_kernel, _norm_rule, outputs=3)
_RMS_NORM = _op(_rms_norm_kernel, _norm_rule, outputs=3)


def _epsilon(epsilon: float | None) -> float:
    return config.epsilon() if epsilon is None else float(epsilon)


def _layer_norm(
    x: Any, gamma: Any = None, beta: Any = None, axis: Any = -1, epsilon: float | None = None,
    **kwargs: Any,
) -> Call | None:  # fmt: skip
    x = as_tensor(x)
    if kwargs or gamma is None or beta is None:
        return None
    gamma, beta = as_tensor(gamma), as_tensor(beta)
    if not _fits(x, gamma, beta) or not _is_last(axis, len(x.shape)):
        return None
    if not gamma.shape == beta.shape == x.shape[-1:]:
        return None
    return _LAYER_NORM, [x, gamma, beta], {"epsilon": _epsilon(epsilon)}


def _rms_norm(
    x: Any, scale: Any = None, axis: Any = -1, epsilon: float | None = None
) -> Call | None:
    x = as_tensor(x)
    if scale is None:
        return None
    scale = as_tensor(scale)
    if not _fits(x, scale) or not _is_last(axis, len(x.shape)) or scale.shape != x.shape[-1:]:
        return None
    return _RMS_NORM, [x, scale], {"epsilon": _epsilon(epsilon)}


# --- moments of a batch ---------------------------------------------------------------------------


def _moments_kernel(xp: Any, x: Any) -> Any:
    return tuple(m.astype(x.dtype, copy=False) for m in norm.column_moments(x))


def _moments_rule(g: Any, y: Any, x: Any) -> Any:
    share = x.shape[-1] / max(math.prod(x.shape), 1)
    by_variance = multiply(multiply(subtract(x, y[0]), g[1]), 2 * share)
    by_mean = broadcast_to(multiply(g[0], share), x.shape)
    return (activations.add(by_mean, by_variance),)


_MOMENTS = _op(_moments_kernel, _moments_rule, outputs=2)


def _moments(x: Any, axes: Any, keepdims: bool = False, synchronized: bool = False) -> Call | None:
    x = as_tensor(x)
    ndim = len(x.shape)
    if keepdims or not _fits(x) or not isinstance(axes, (list, tuple)):
        return None
    if sorted(a % ndim for a in axes) != list(range(ndim - 1)) or ndim < 2:
        return None
    return _MOMENTS, [x], {}


# --- batch normalisation --------------------------------------------------------------------------


def _standardize_kernel(
    xp: Any, x: Any, mean: Any, variance: Any, gamma: Any, beta: Any, *, epsilon: float
) -> Any:
    return norm.batch_norm(x, mean, variance, gamma, beta, epsilon)


def _batch_gradient_kernel(
    xp: Any, g: Any, x: Any, mean: Any, scale: Any, gamma: Any, *, epsilon: float
) -> Any:
    return norm.batch_norm_gradient(g, x, mean, scale, gamma)


def _batch_again(
    h: Any, y: Any, g: Any, x: Any, mean: Any, scale: Any, gamma: Any, epsilon: float
) -> Any:
    axes = tuple(range(len(x.shape) - 1))

    def whole(x: Any, gamma: Any, beta: Any) -> Any:
        center, variance = _composition(normalization.moments)(x, axes)
        return _composition(normalization.standardize)(
            x, center, variance, gamma, beta, -1, epsilon
        )

    def back(g: Any, x: Any, gamma: Any) -> Any:
        dx, *others = _again(whole, [x, gamma, multiply(gamma, 0)], [g])
        return (dx, *(cast(d, "float32") for d in others))

    by_g, by_x, by_gamma = _again(back, [g, x, gamma], h)
    return by_g, by_x, None, None, by_gamma


def _are_moments_of(x: Any, mean: Any, variance: Any) -> bool:
    maker = mean.maker
    if maker is None or maker is not variance.maker or maker.op is not _MOMENTS:
        return False
    return (mean.index, variance.index) == (0, 1) and maker.inputs[0].value is x.value


def _standardize_rule(
    g: Any, y: Any, x: Any, mean: Any, variance: Any, gamma: Any, beta: Any, epsilon: float
) -> Any:
    if not _are_moments_of(x, mean, variance):
        given = [x, mean, variance, gamma, beta]
        composed = _composition(normalization.standardize)
        return _again(lambda *xs: composed(*xs, -1, epsilon), given, [g[0]])
    # All that flows to x, through its moments as well: nothing is left for these to pass on.
    dx, by_gamma, by_beta = _BATCH_GRADIENT(g[0], x, mean, y[1], gamma, epsilon=epsilon)
    return dx, None, None, cast(by_gamma, gamma.dtype), cast(by_beta, beta.dtype)


_BATCH_GRADIENT = _op(_batch_gradient_kernel, _batch_again, outputs=3)
_STANDARDIZE = _op(_standardize_kernel, _standardize_rule, outputs=2)


def _standardize(
    x: Any, mean: Any, variance: Any, gamma: Any = None, beta: Any = None, axis: int = -1,
    epsilon: float = 1e-3,
) -> Call | None:  # fmt: skip
    if gamma is None or beta is None:
        return None
    given = [as_tensor(v) for v in (x, mean, variance, gamma, beta)]
    shape = given[0].shape
    if not _fits(*given) or not _is_last(axis, len(shape)):
        return None
    if any(v.shape != shape[-1:] for v in given[1:]):
        return None
    return _STANDARDIZE, given, {"epsilon": float(epsilon)}


# --- activations, dropout -------------------------------------------------------------------------


def _activation_kernel(xp: Any, x: Any, *, kind: str) -> Any:
    return activation.bias_activation(x, None, kind)


def _activation_gradient_kernel(xp: Any, g: Any, x: Any, *, kind: str) -> Any:
    return activation.bias_activation_gradient(g, x, None, kind)[0]


def _activation_composed(x: Any, kind: str) -> Any:
    if kind == "silu":
        return _composition(activations.silu)(x)
    return _composition(activations.gelu)(x, kind == "gelu")


_ACTIVATION_GRADIENT = _op(
    _activation_gradient_kernel,
    lambda h, dx, g, x, kind: _again(
        lambda g, x: _again(lambda x: _activation_composed(x, kind), [x], [g])[0], [g, x], [h]
    ),
)
_ACTIVATION = _op(
    _activation_kernel, lambda g, y, x, kind: (_ACTIVATION_GRADIENT(g, x, kind=kind),)
)


def _gelu(x: Any, approximate: bool = True) -> Call | None:
    x = as_tensor(x)
    kind = "gelu" if approximate else "gelu_exact"
    return (_ACTIVATION, [x], {"kind": kind}) if _fits(x) else None


def _silu(x: Any) -> Call | None:
    x = as_tensor(x)
    return (_ACTIVATION, [x], {"kind": "silu"}) if _fits(x) else None


def _dropout_kernel(xp: Any, state: Any, x: Any, *, rate: float) -> Any:
    return random.dropout(state, x, rate)


_DROPOUT = _op(_dropout_kernel, lambda g, y, state, x, rate: (None, _DROPOUT(state, g, rate=rate)))


def _dropout(state: Any, inputs: Any, rate: float, noise_shape: Any = None) -> Call | None:
    x = as_tensor(inputs)
    if noise_shape is not None or not 0 < rate < 1 or not _fits(x):
        return None
    return _DROPOUT, [as_tensor(state), x], {"rate": rate}


WHOLES: dict[Any, Callable[..., Call | None]] = {
    activations.softmax: _softmax,
    activations.log_softmax: _log_softmax,
    activations.gelu: _gelu,
    activations.silu: _silu,
    crossentropy.sparse_categorical_crossentropy: _class_loss,
    crossentropy.categorical_crossentropy: _target_loss,
    normalization.layer_normalization: _layer_norm,
    normalization.rms_normalization: _rms_norm,
    normalization.moments: _moments,
    normalization.standardize: _standardize,
    randoms.dropout: _dropout,
}
# What a whole gives beside its result is for its gradient; moments are two results.
FIRST_OF_SEVERAL = (_CLASS_LOSS, _TARGET_LOSS, _LAYER_NORM, _RMS_NORM, _STANDARDIZE)
