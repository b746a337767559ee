"""FLOPs of a computation, counted from shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from kerasish.graph.abstract import ShapesOnly, infer
from kerasish.ops.op import Op
from kerasish.ops.shapes import Spec
from kerasish.tensor import prepare
from kerasish.typing import Structure

_EACH = frozenset(("random", "complex"))  # kinds with some arithmetic per result element


class Counting(ShapesOnly):
    """The shape inference engine that also sums FLOPs: two per multiply-add, one per other op."""

    def __init__(self) -> None:
        self.flops = 0

    def apply(self, op: Op, args: Sequence[Any], attrs: dict[str, Any]) -> Structure:
        """Return the result of the op's shape rule, and count the op."""
        results = super().apply(op, args, attrs)
        shapes = [t.shape for t in prepare(op, args, attrs)[0]]
        result = [t.shape for t in (results if isinstance(results, tuple) else (results,))]
        self.flops += flops_of(op, shapes, result)
        return results


def flops_of(op: Op, inputs: Sequence[tuple[int, ...]], results: Sequence[tuple[int, ...]]) -> int:
    """Return the FLOPs of one op; 0 if it only moves numbers.

    Example:
        >>> from kerasish.ops.op import REGISTRY
        >>> flops_of(REGISTRY["matmul"], [(2, 3), (3, 5)], [(2, 5)])
        60
    """
    result = sum(math.prod(shape) for shape in results)
    if op.flops is not None:
        return op.flops(inputs, results)
    if op.kind in _EACH or (op.elementwise and op.native is not None):
        return result
    if op.kind in ("reduce", "pool"):
        return sum(math.prod(shape) for shape in inputs)
    return 0


def count_flops(function: Callable[..., Any], args: Any, kwargs: Any) -> tuple[int, int]:
    """Return (FLOPs, number of values in the results) of a call; the arguments hold Specs."""
    counter = Counting()
    results = specs_of(infer(function, args, kwargs, counter))
    return counter.flops, sum(math.prod(spec.shape) for spec in results)


def specs_of(structure: Structure) -> list[Spec]:
    """Return the Specs in a structure of lists, tuples and dicts."""
    if isinstance(structure, Spec):
        return [structure]
    if isinstance(structure, dict):
        structure = list(structure.values())
    if isinstance(structure, (list, tuple)):
        return [spec for part in structure for spec in specs_of(part)]
    return []
