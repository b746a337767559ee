"""The declaration of element-wise ops: what most of them share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kerasish.ops.basic.examples import SINGLE
from kerasish.ops.op import Op, op
from kerasish.ops.shapes import same


def elementwise(
    grad: Callable[..., Any] | tuple[Callable[..., Any], ...] | None,
    promote: str | None = "float",
    shape: Callable[..., Any] = same,
    examples: Sequence[Any] = SINGLE,
    **options: Any,
) -> Callable[[Callable[..., Any]], Op]:
    """Return the decorator that makes an element-wise op of its reference kernel; see `op`.

    Args:
        grad: the gradient; None: it is 0 everywhere, or there is none.
        promote: to which dtypes the inputs are promoted.
        shape: the shape rule; for two inputs `broadcast`.
        examples: inputs of tests.
        options: further arguments of `op`.
    """
    return op("elementwise", shape, grad, promote, examples=examples, **options)
