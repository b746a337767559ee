"""Branches that are not taken: what they depend on has the gradient zero, as in a trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kerasish import tree
from kerasish.autodiff import leaves_of
from kerasish.errors import TraceError
from kerasish.graph.abstract import ShapesOnly
from kerasish.ops.op import using_engine
from kerasish.tensor import Tensor, VariableScope, is_traced, recording, using_scope


def note_branches(kind: str, **parts: Any) -> None:
    """Note what the branches of a `cond` or `switch` depend on that is about to be decided.

    They run on shapes alone; what they assign is forgotten.
    """
    if is_traced(parts["pred"] if kind == "cond" else parts["index"]):
        return
    for branch in _branches(kind, parts):
        try:
            with using_engine(ShapesOnly()), using_scope(VariableScope()):
                results = tree.flatten(branch())
        except TraceError:
            continue  # it asks for numbers, which a branch that is not taken never has
        tensors = [t for t in results if isinstance(t, Tensor)]
        recording.not_taken = recording.not_taken | leaves_of(tensors)


def _branches(kind: str, parts: dict[str, Any]) -> list[Callable[[], Any]]:
    if kind == "cond":
        return [parts["true_fn"], parts["false_fn"]]
    operands = parts["operands"]
    return [lambda b=b: b(*operands) for b in parts["branches"]]  # type: ignore[misc]
