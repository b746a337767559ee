"""Branches that are not taken: their variables get the gradient zero, as in a trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kerasish import ops, tree
from kerasish.autodiff import leaves_of
from kerasish.errors import TraceError
from kerasish.graph.abstract import ShapesOnly
from kerasish.ops.op import using_engine
from kerasish.tensor import Tensor, VariableScope, is_traced, record, using_scope, wrap


def run_branch(kind: str, **parts: Any) -> Tensor:
    """Run the chosen branch of a `cond` or `switch`; NotImplemented if the choice has no value.

    The other branches run on shapes only, and their assignments are dropped. If a gradient reaches
    a result, it is zero for the variables that only those branches depend on.
    """
    chooser = parts["pred" if kind == "cond" else "index"]
    if is_traced(chooser):
        return NotImplemented
    branches = _branches(kind, parts)
    taken = int(not bool(chooser)) if kind == "cond" else int(chooser)
    others = _leaves([b for i, b in enumerate(branches) if i != taken])
    result = branches[taken]()
    return tree.map_structure(lambda t: _depending(t, others), result) if others else result


def _branches(kind: str, parts: dict[str, Any]) -> list[Callable[[], Any]]:
    if kind == "cond":
        return [parts["true_fn"], parts["false_fn"]]
    operands = parts["operands"]
    return [lambda b=b: b(*operands) for b in parts["branches"]]  # type: ignore[misc]


def _leaves(branches: Sequence[Callable[[], Any]]) -> list[Tensor]:
    """Return the leaves that the results of functions depend on, computed on shapes only."""
    result: dict[Any, Tensor] = {}
    for branch in branches:
        try:
            with using_engine(ShapesOnly()), using_scope(VariableScope()):
                results = tree.flatten(branch())
        except TraceError:
            continue  # it reads numbers, which a branch that is not taken does not have
        result.update(leaves_of([t for t in results if isinstance(t, Tensor)]))
    return list(result.values())


def _depending(result: Tensor, leaves: list[Tensor]) -> Tensor:
    """Return the same numbers; a gradient that reaches them is zero for the leaves."""
    if not isinstance(result, Tensor) or result.value.dtype.kind not in "fV":
        return result
    linked = wrap(result.value)
    record(_Untaken(), [result, *leaves], {}, [linked])  # type: ignore[arg-type]
    return linked


class _Untaken:
    """The record of a branch's result: it is the first input, and the others are unused."""

    name, outputs = "cond", 1

    @staticmethod
    def grad(g: Tensor, y: Tensor, x: Tensor, *leaves: Tensor) -> list[Tensor]:
        """Return the gradient of the result, and zeros for what it could have depended on."""
        return [g, *(ops.zeros(t.shape, t.dtype) for t in leaves)]
