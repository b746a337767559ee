"""Softmax and cross-entropies of logits by one kernel each; see `fused_functions`."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish.backends.eager import loop_softmax
from kerasish.backends.eager.cuda import softmax
from kerasish.backends.eager.cuda.fused import Call, again, composition, fits, is_last, make_op
from kerasish.ops.basic import activation as activations
from kerasish.ops.basic.arithmetic import multiply, negative, subtract
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.movement import expand_axes
from kerasish.ops.networks import crossentropy
from kerasish.typing import Array, ArrayModule, Axis

if TYPE_CHECKING:
    from kerasish.tensor import Tensor


def _kernels(xp: ArrayModule) -> ModuleType:
    return loop_softmax if xp is np else softmax


def _softmax_kernel(xp: ArrayModule, x: Array, *, logarithm: bool) -> Array:
    return _kernels(xp).softmax(x, logarithm)


def _softmax_gradient_kernel(xp: ArrayModule, g: Array, y: Array, *, logarithm: bool) -> Array:
    return _kernels(xp).softmax_gradient(g, y, logarithm)


def _softmax_back(g: Array, y: Array, logarithm: bool) -> Tensor:
    from_y = activations.exp(y) if logarithm else y
    total = activations.reduce_sum(g if logarithm else multiply(g, y), (-1,), True)
    inner = multiply(from_y, total) if logarithm else total
    return subtract(g, inner) if logarithm else multiply(y, subtract(g, inner))


_SOFTMAX_GRADIENT = make_op(
    _softmax_gradient_kernel,
    lambda h, dx, g, y, logarithm: again(lambda g, y: _softmax_back(g, y, logarithm), [g, y], [h]),
)
_SOFTMAX = make_op(
    _softmax_kernel,
    lambda g, y, x, logarithm: (_SOFTMAX_GRADIENT(g, y, logarithm=logarithm),),
)


def fused_softmax(x: Array, axis: Axis = -1, logarithm: bool = False) -> Call | None:
    """Return the fused op of `softmax`: along the last axis only."""
    x = as_tensor(x)
    if not fits(x) or not is_last(axis, len(x.shape)):
        return None
    return _SOFTMAX, [x], {"logarithm": logarithm}


def fused_log_softmax(x: Array, axis: Axis = -1) -> Call | None:
    """Return the fused op of `log_softmax`: along the last axis only."""
    return fused_softmax(x, axis, True)


# --- cross-entropies of logits --------------------------------------------------------------------


def _class_loss_kernel(xp: ArrayModule, classes: Array, x: Array) -> Array:
    return _kernels(xp).class_loss(classes, x)


def _class_loss_gradient_kernel(
    xp: ArrayModule, g: Array, classes: Array, x: Array, statistics: Array
) -> Array:
    return _kernels(xp).class_loss_gradient(g, classes, x, statistics)


def _class_loss_composed(classes: Tensor, x: Array) -> Any:
    loss = composition(crossentropy.sparse_categorical_crossentropy)
    return loss(classes, x, from_logits=True)


def _class_loss_again(
    h: Array, dx: Tensor, g: Array, classes: Tensor, x: Array, statistics: Any
) -> Any:
    def back(g: Array, x: Array) -> Any:
        return again(lambda x: _class_loss_composed(classes, x), [x], [g])[0]

    by_g, by_x = again(back, [g, x], [h])
    return by_g, None, by_x, None


_CLASS_LOSS_GRADIENT = make_op(_class_loss_gradient_kernel, _class_loss_again)
_CLASS_LOSS = make_op(
    _class_loss_kernel,
    lambda g, y, classes, x: (None, _CLASS_LOSS_GRADIENT(g[0], classes, x, y[1])),
    outputs=2,
    shown=1,
)


def fused_class_loss(
    target: Array, output: Tensor, from_logits: bool = False, axis: int = -1
) -> Call | None:
    """Return the fused op of `sparse_categorical_crossentropy`: of logits only."""
    x, classes = as_tensor(output), as_tensor(target)
    if not from_logits or not fits(x) or not is_last(axis, len(x.shape)):
        return None
    if classes.shape != x.shape[:-1]:
        return None
    if classes.dtype != "int32":
        classes = cast(classes, "int32")
    return _CLASS_LOSS, [classes, x], {}


def _target_loss_kernel(xp: ArrayModule, target: Array, x: Array) -> Array:
    return softmax.target_loss(target, x)


def _target_loss_gradient_kernel(
    xp: ArrayModule, g: Array, target: Array, x: Array, statistics: Array, weight: Array
) -> Array:
    return softmax.target_loss_gradient(g, target, x, statistics, weight)


def _target_loss_again(
    h: Array, dx: Tensor, g: Array, target: Array, x: Array, statistics: Any, weight: Array
) -> Any:
    loss = composition(crossentropy.categorical_crossentropy)

    def back(g: Array, target: Array, x: Array) -> Any:
        return again(lambda x: loss(target, x, from_logits=True), [x], [g])[0]

    return (*again(back, [g, target, x], [h]), None, None)


def _target_loss_rule(g: Array, y: Array, target: Array, x: Array) -> tuple[Any, ...]:
    by_x = _TARGET_LOSS_GRADIENT(g[0], target, x, y[1], y[2])
    if not target.tracked:
        return None, by_x
    arriving = expand_axes(g[0], (len(x.shape) - 1,))
    return multiply(negative(arriving), activations.log_softmax(x)), by_x


_TARGET_LOSS_GRADIENT = make_op(_target_loss_gradient_kernel, _target_loss_again)
_TARGET_LOSS = make_op(_target_loss_kernel, _target_loss_rule, outputs=3, shown=1)


def fused_target_loss(
    target: Array, output: Any, from_logits: bool = False, axis: int = -1
) -> Call | None:
    """Return the fused op of `categorical_crossentropy`: of logits only."""
    x = as_tensor(output)
    if not from_logits or not fits(x) or not is_last(axis, len(x.shape)):
        return None
    target = cast(as_tensor(target), x.dtype)
    return (_TARGET_LOSS, [target, x], {}) if target.shape == x.shape else None
