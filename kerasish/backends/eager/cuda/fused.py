"""Tools for composed functions that one kernel computes; see `fused_functions`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kerasish.backends.eager.cuda.kernels import SCALARS
from kerasish.devices import current, place_of
from kerasish.ops.arrays.core import derivatives
from kerasish.ops.op import Op
from kerasish.ops.shapes import same
from kerasish.typing import Array, Axis


class FusedOp(Op):
    """An op that is in no registry, since only the eager engine uses it.

    Attributes:
        shown: the number of results that the composed function returns; the others are for its
            gradient. 0: all.
    """

    shown = 0


Call = tuple[FusedOp, list[Any], dict[str, Any]]


class Result(NamedTuple):
    """The result of a composed function that several kernels have computed."""

    value: Any


def make_op(
    kernel: Callable[..., Any],
    grad: Callable[..., Any] | None = None,
    outputs: int = 1,
    shown: int = 0,
    accumulates: bool = False,
    flops: Callable[..., int] | None = None,
) -> FusedOp:
    """Return a fused op.

    Args:
        kernel: function of the array module and of arrays.
        grad: the rule of its gradient.
        outputs: the number of results.
        shown: see `FusedOp`; gradients reach only the first result then: the rule gets None for the
            others, and no zeros are written for them.
        accumulates: whether the rule takes `onto`, see `Op.accumulates`.
        flops: see `Op.flops`.
    """
    op = FusedOp(kernel, "fused", same, grad, None, 0, None, (), False, outputs, None)
    op.shown, op.sparse_gradients = shown, shown > 0
    op.accumulates, op.flops = accumulates, flops
    return op


def again(f: Callable[..., Any], inputs: Sequence[Any], g: Array) -> list[Any]:
    """Return the gradients of f, a composition, which may be differentiated again."""
    result = derivatives["vjp"](f, inputs, g)
    return list(result)


def composition(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return the undecorated composed function, which applies its ops one by one."""
    return f.__wrapped__  # type: ignore[attr-defined]


def fits(*tensors: Any) -> bool:
    """Return whether kernels support the tensors: their dtypes, not empty."""
    return all(t.dtype in SCALARS and 0 not in t.shape for t in tensors)


def device_of(*tensors: Any) -> int:
    """Return the number of the GPU of the first of these, else of the current one."""
    places = [place_of(t.value) for t in tensors]
    return next((p for p in places if p.kind != "cpu"), current()).index


def is_last(axis: Axis, ndim: int) -> bool:
    """Return whether `axis` is only the last one."""
    given = axis[0] if isinstance(axis, (list, tuple)) and len(axis) == 1 else axis
    return ndim > 0 and isinstance(given, int) and given in (-1, ndim - 1)
