"""Attention by cuDNN, for 16-bit floats and sizes in multiples of 8; see `fused_functions`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kerasish import config
from kerasish.backends.eager.cuda import cudnn, cudnn_attention
from kerasish.backends.eager.cuda.fused import (
    Call,
    Result,
    again,
    composition,
    device_of,
    fits,
    make_op,
)
from kerasish.backends.eager.cuda.fused_heads import attend_by_products
from kerasish.ops.basic.comparison import select
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.movement import broadcast_to, reshape
from kerasish.ops.networks import normalization
from kerasish.tensor import Tensor
from kerasish.typing import Array, ArrayModule

# The logit of a masked place: its exponential is 0, and float16 can represent it. A target without
# any allowed source gets an average of all values, weighted as without the mask.
CLOSED = -60000.0


def _kernel(
    xp: ArrayModule, q: Array, k: Array, v: Array, *bias: Any, scale: float, causal: bool
) -> Array:
    return cudnn_attention.attention(q, k, v, bias[0] if bias else None, scale, causal)


def _gradient_kernel(
    xp: ArrayModule, g: Array, y: Array, stats: Array, q: Array, k: Array, v: Array,
    bias: Array = None, *, scale: float = 1.0, causal: bool = False, by_bias: bool = False,
) -> Array:  # fmt: skip
    args = (g, q, k, v, bias, y, stats, scale, causal, by_bias)
    return cudnn_attention.attention_gradient(*args)


def _composed(q: Array, k: Array, v: Array, *bias: Any, scale: float, causal: bool) -> Tensor:
    f = composition(normalization.dot_product_attention)
    return f(q, k, v, bias=bias[0] if bias else None, scale=scale, is_causal=causal)


def _again(
    h: Array, found: Sequence[Tensor], g: Array, y: Array, stats: Array, *inputs: Any, scale: float,
    causal: bool,
    by_bias: bool,
) -> tuple[Any, ...]:  # fmt: skip
    def fused(*inputs: Any) -> Tensor:
        return _composed(*inputs, scale=scale, causal=causal)

    def back(g: Array, *inputs: Any) -> tuple[Tensor, ...]:
        return tuple(again(fused, inputs, [g])[: 4 if by_bias else 3])

    by_g, *slopes = again(back, [g, *inputs], h)
    return (by_g, None, None, *slopes)


def _rule(g: Array, y: Array, *inputs: Any, scale: float, causal: bool) -> Any:
    given, attrs = (g[0], y[0], y[1], *inputs), {"scale": scale, "causal": causal}
    if len(inputs) > 3 and inputs[3].tracked:
        return _WITH_BIAS(*given, by_bias=True, **attrs)
    results = _GRADIENT(*given, by_bias=False, **attrs)
    return (*results, None) if len(inputs) > 3 else results


_GRADIENT = make_op(_gradient_kernel, _again, outputs=3)
_WITH_BIAS = make_op(_gradient_kernel, _again, outputs=4)
_ATTENTION = make_op(_kernel, _rule, outputs=2, shown=1)


def _bias(bias: Array, mask: Array, dtype: str, full: tuple[int, ...]) -> list[Any] | None:
    """Return the array that is added to the logits, of 4 axes, in a list that may be empty.

    A bias that gets a gradient is expanded to the size of the logits, because the gradient has that
    size. None: the shapes do not broadcast.
    """
    given = [None if x is None else as_tensor(x) for x in (bias, mask)]
    for x in given:
        shape = () if x is None else x.shape
        if len(shape) > 4 or any(n not in (1, m) for n, m in zip(shape[::-1], full[::-1])):
            return None
    ready = [None if x is None else reshape(x, (1,) * (4 - len(x.shape)) + x.shape) for x in given]
    bias, mask = ready
    if bias is not None:
        bias = cast(bias, dtype)
        bias = broadcast_to(bias, full) if bias.tracked else bias
    if mask is not None:
        mask = mask if mask.dtype == "bool" else cast(mask, "bool")
        open_ = cast(0.0, dtype) if bias is None else bias
        bias = select(mask, open_, cast(CLOSED, dtype))
    return [] if bias is None else [bias]


def fused_attention(
    query: Tensor, key: Array, value: Tensor, bias: Array = None, mask: Array = None,
    scale: float | None = None, is_causal: bool = False, flash_attention: bool | None = None,
    attn_logits_soft_cap: float | None = None,
) -> Call | None:  # fmt: skip
    """Return the fused op of `dot_product_attention`."""
    asked = config.is_flash_attention_enabled() if flash_attention is None else flash_attention
    given = [as_tensor(x) for x in (query, key, value)]
    q, k, v = given
    if asked is False or attn_logits_soft_cap is not None or not _fit(q, k, v):
        return None
    if cudnn.usable() is None:
        return None
    full = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    more = _bias(bias, mask, q.dtype, full)
    if more is None:
        return None
    factor = q.shape[3] ** -0.5 if scale is None else float(scale)
    request = cudnn_attention.AttentionSizes.of(
        q, k, v, more[0] if more else None, factor, bool(is_causal)
    )
    tracked = any(x.tracked for x in given + more)
    gradient = bool(more and more[0].tracked) if tracked else None
    if not cudnn_attention.does(request, device_of(*given), gradient):
        return None
    return _ATTENTION, given + more, {"scale": factor, "causal": bool(is_causal)}


def fused_attend(
    query: Tensor, key: Array, value: Tensor, mask: Array, weigh: Callable[..., Any],
    is_causal: bool = False,
    flash_attention: bool | None = None, scale: float = 1.0,
) -> Call | Result | None:  # fmt: skip
    """Return the fused op of `attend`, `weigh` being softmax, or the result by products."""
    known = None if is_causal else mask
    args = (query, key, value, None, known, scale, is_causal, flash_attention)
    call = fused_attention(*args)
    if call is not None:
        return call
    q, k, v = (as_tensor(x) for x in (query, key, value))
    result = attend_by_products(q, k, v, mask, weigh, scale)
    return None if result is None else Result(result)


def _fit(q: Array, k: Array, v: Array) -> bool:
    """Return whether the shapes of the three match, and cuDNN may compute them."""
    if not fits(q, k, v) or {q.dtype, k.dtype, v.dtype} - {q.dtype}:
        return False
    if (
        q.dtype not in cudnn_attention.DTYPES
        or not len(q.shape) == len(k.shape) == len(v.shape) == 4
    ):
        return False
    together = q.shape[0] == k.shape[0] and k.shape[:3] == v.shape[:3] and q.shape[3] == k.shape[3]
    eights = q.shape[3] % 8 == 0 and v.shape[3] % 8 == 0
    return together and eights and q.shape[2] % k.shape[2] == 0
