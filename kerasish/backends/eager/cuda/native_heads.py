"""Attention heads on the CPU: one op forward and one for the gradients; see `fused_on_cpu`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from kerasish.backends.eager import loop_attention
from kerasish.backends.eager.cuda.fused import Call, again, composition, make_op
from kerasish.ops.basic.activation import softmax
from kerasish.ops.basic.comparison import select
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.networks.attention import attend
from kerasish.typing import Array, ArrayModule

LOW = -1e9  # the logits that a mask excludes


def _kernel(
    xp: ArrayModule, q: Array, k: Array, v: Array, mask: Array = None, *, scale: float = 1.0
) -> tuple[Array, ...]:
    return loop_attention.heads(q, k, v, mask, scale)


def _gradient_kernel(
    xp: ArrayModule, g: Array, maxima: Array, sums: Array, q: Array, k: Array, v: Array,
    mask: Array = None, *, scale: float = 1.0,
) -> tuple[Array, ...]:  # fmt: skip
    return loop_attention.heads_gradient(g, maxima, sums, q, k, v, mask, scale)


def _weigh(logits: Any, mask: Any) -> Any:
    if mask is None:
        return softmax(logits)
    low, zero = (cast(x, logits.dtype) for x in (LOW, 0.0))
    return select(mask, softmax(select(mask, logits, low)), zero)


def _again(
    h: Any, results: Any, g: Any, maxima: Any, sums: Any, q: Any, k: Any, v: Any, mask: Any = None,
    *, scale: float,
) -> tuple[Any, ...]:  # fmt: skip
    attending = composition(attend)

    def heads(q: Any, k: Any, v: Any) -> Any:
        return attending(q, k, v, mask, _weigh, scale=scale)

    def back(g: Any, *inputs: Any) -> tuple[Any, ...]:
        return tuple(again(heads, inputs, [g]))

    by_g, *slopes = again(back, [g, q, k, v], h)
    return (by_g, None, None, *slopes, None)


def _rule(
    g: Any, y: Any, q: Any, k: Any, v: Any, mask: Any = None, *, scale: float
) -> tuple[Any, ...]:
    more = () if mask is None else (mask,)
    return (*_GRADIENT(g[0], y[1], y[2], q, k, v, *more, scale=scale), None)


def _flops(by_keys: int, by_values: int, first: int) -> Callable[..., int]:
    """Return the function that counts the FLOPs of the products.

    Args:
        by_keys, by_values: the products with the sizes of keys, and of values.
        first: the position of q among the inputs.
    """

    def count(inputs: Any, results: Any) -> int:
        q, k, v = inputs[first : first + 3]
        heads: int = math.prod(q[:3]) * k[1]
        return 2 * heads * (by_keys * q[3] + by_values * v[3])

    return count


_GRADIENT = make_op(_gradient_kernel, _again, outputs=3, flops=_flops(3, 2, 3))
_HEADS = make_op(_kernel, _rule, outputs=3, shown=1, flops=_flops(1, 1, 0))


def fused_attend(
    query: Any, key: Any, value: Any, mask: Any, weigh: Callable[..., Any], is_causal: bool = False,
    flash_attention: bool | None = None, scale: float = 1.0,
) -> Call | None:  # fmt: skip
    """Return the fused op of `attend`, `weigh` being softmax, or None if its ops compute it."""
    if flash_attention is False:
        return None
    given = [as_tensor(x) for x in (query, key, value)]
    q, k, v = (t.value for t in given)
    if not loop_attention.computes(q, k, v, mask is not None):
        return None
    if mask is not None:
        mask = as_tensor(mask)
        if not _fits(mask, (q.shape[0], q.shape[2], q.shape[1], k.shape[1])):
            return None
        given.append(mask)
    return _HEADS, given, {"scale": float(scale)}


def _fits(mask: Any, full: tuple[int, ...]) -> bool:
    """Return whether a mask is one of logits of this shape."""
    shape = mask.shape
    return (
        mask.dtype == "bool"
        and 0 < len(shape) <= 4
        and all(size in (1, whole) for size, whole in zip(shape[::-1], full[::-1]))
    )
