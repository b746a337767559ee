"""Tracers of exports: they record what other runtimes have no op for as ops that they have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasish import ops
from kerasish.export.factorize import expansion_of
from kerasish.graph.nested import Tracer
from kerasish.ops import dtypes
from kerasish.ops.op import Op
from kerasish.ops.shapes import Spec
from kerasish.tensor import Tensor, prepare, wrap
from kerasish.typing import Structure


class ExpandingTracer(Tracer):
    """Records factorizations of small matrices as the steps of their elimination."""

    kept: frozenset[Any] = frozenset()  # ops that are recorded nevertheless

    def apply(self, op: Op, args: Sequence[Any], attrs: dict[str, Any]) -> Structure:
        """Record an op, or those that compute the same."""
        if op.kind == "decomposition" and op not in self.kept:
            tensors, canonical = prepare(op, args, attrs)
            steps = expansion_of(op, tensors)
            if steps is not None:
                return steps(*tensors, **canonical)
        return super().apply(op, args, attrs)


class UnrollingTracer(ExpandingTracer):
    """Records no control flow where that can be said without: known branches and counts.

    If the branch is not known, all branches are computed and one is selected.
    """

    MOST = 512  # repetitions; a longer loop is recorded as one node

    def apply(self, op: Op, args: Sequence[Any], attrs: dict[str, Any]) -> Structure:
        """Record an op; compute what Python may ask: single numbers of known ones."""
        if op.elementwise and op.outputs == 1:
            tensors, canonical = prepare(op, args, attrs)
            numbers = [self.number_of(t) for t in tensors]
            if all(isinstance(n, (np.ndarray, np.generic)) and n.size == 1 for n in numbers):
                spec = op.shape(*(Spec(t.shape, t.dtype) for t in tensors), **canonical)
                with np.errstate(all="ignore"):
                    number = np.asarray(op.kernel(np, *numbers, **canonical))
                return wrap(number.astype(dtypes.array_dtype(spec.dtype)).reshape(spec.shape))
        return super().apply(op, args, attrs)

    def control(self, kind: str, **parts: Any) -> Structure:
        """Return what the loop or branch gives; NotImplemented lets Python run it."""
        if kind in ("cond", "switch"):
            return NotImplemented
        if kind == "scan":
            many = parts["length"] > self.MOST
        elif kind == "fori_loop":
            bounds = [self.number_of(parts[name]) for name in ("lower", "upper")]
            many = any(b is None for b in bounds) or int(bounds[1]) - int(bounds[0]) > self.MOST
        else:
            return self._counted(**parts)
        return super().control(kind, **parts) if many else NotImplemented

    def _counted(
        self,
        cond: Callable[..., Any],
        body: Callable[..., Any],
        loop_vars: Structure,
        maximum_iterations: int | None,
    ) -> Structure:
        """Run a `while_loop` as long as its condition is known; record the rest of it."""
        count = 0
        while count != maximum_iterations:
            holds = self._number(cond(*loop_vars))
            if holds is None or (holds and count == self.MOST):
                break
            if not holds:
                return loop_vars
            loop_vars, count = body(loop_vars), count + 1
        else:
            return loop_vars
        left = None if maximum_iterations is None else maximum_iterations - count
        return super().control(
            "while_loop", cond=cond, body=body, loop_vars=loop_vars, maximum_iterations=left
        )

    def _number(self, holds: Tensor | bool) -> bool | None:
        known = self.number_of(ops.convert_to_tensor(holds))
        return None if known is None else bool(np.all(known))
