"""What attention layers do between their projections, in one piece that a kernel may do whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kerasish.ops.basic.arithmetic import multiply
from kerasish.ops.basic.movement import transpose
from kerasish.ops.basic.product import matmul
from kerasish.ops.op import function
from kerasish.typing import AnyTensor, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

_HEADS_FIRST = (0, 2, 1, 3)  # its own inverse


@function
def attend(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    mask: AnyTensor | None,
    weigh: Callable[[Any, Any], Any],
    is_causal: bool = False,
    flash_attention: bool | None = None,
    scale: float = 1.0,
) -> Tensor:
    """Return weigh(query * scale · key, mask) · value for each head.

    Args:
        query: shape (batch, targets, heads, size).
        key, value: shape (batch, sources, heads, size).
        mask: true where a target may attend, or None; broadcasts to (batch, heads, targets,
            sources).
        weigh: gives the weights of the sources from the logits and the mask.
        is_causal: whether the mask says that a target attends to sources up to its own place, and
            nothing else.
        flash_attention: whether a kernel may do all of it, `weigh` being softmax; None: as the
            setting says.
        scale: of the query.

    Example:
        >>> from kerasish.ops.basic.activation import softmax
        >>> ones = [[[[1.0]], [[1.0]]]]
        >>> attend(ones, ones, ones, None, lambda logits, mask: softmax(logits)).tolist()
        [[[[1.0]], [[1.0]]]]
    """
    if scale != 1.0:
        query = multiply(query, scale)
    logits = matmul(transpose(query, _HEADS_FIRST), transpose(key, (0, 2, 3, 1)))
    weights = weigh(logits, mask)
    return transpose(matmul(weights, transpose(value, _HEADS_FIRST)), _HEADS_FIRST)
