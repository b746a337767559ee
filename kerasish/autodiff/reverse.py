"""The reverse pass, on which backward, tapes, grad and custom gradients are built.

Rules are written in ops, so a reverse pass can be traced, and differentiated again.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kerasish import ops
from kerasish.errors import ShapeError
from kerasish.ops.op import Op
from kerasish.overriding import override
from kerasish.tensor import (
    Key,
    TapeRecord,
    Tensor,
    Variable,
    convert,
    recording,
    scalar,
    wrap,
)

_HOST = (np.ndarray, np.generic)  # NumPy's arrays and numbers


def sum_to_shape(g: Any, shape: tuple[int, ...]) -> Any:
    """Return g summed over the axes along which a value of `shape` was broadcast to g's shape."""
    lead = len(g.shape) - len(shape)
    axes = tuple(range(lead)) + tuple(
        i + lead for i, size in enumerate(shape) if size == 1 and g.shape[i + lead] != 1
    )
    if axes:
        g = ops.sum(g, axes)
    return g if g.shape == shape else ops.reshape(g, shape)


def name_of(t: Tensor) -> Any:
    """Return the key of a tensor's gradient: its maker's result, or its leaf's key."""
    return t.key if t.maker is None else (t.maker, t.index)


def _results(maker: TapeRecord) -> list[Tensor]:
    tensors = []
    for index, value in enumerate(maker.results):
        t = wrap(value)
        t.maker, t.index, t.tracked = maker, index, True
        tensors.append(t)
    return tensors


def _zeros_like(value: Any) -> Tensor:
    return ops.zeros(value.shape, wrap(value).dtype)


def _apply_rule(maker: TapeRecord, gradients: dict[Any, Tensor]) -> Sequence[Any]:
    op, results = maker.op, _results(maker)
    if op.outputs == 1:
        g, rule = gradients.pop((maker, 0)), op.grad
        if type(rule) is tuple:
            return [
                each(g, results[0], *maker.inputs, **maker.attrs) if t.tracked else None
                for each, t in zip(rule, maker.inputs)
            ]
        if isinstance(op, Op) and op.accumulates:
            # The incoming gradient is passed on without a copy: the rule's result holds it.
            first = maker.inputs[0]
            onto = gradients.pop(name_of(first), None) if first.tracked else None
            return rule(g, results[0], *maker.inputs, onto=onto, **maker.attrs)
        return rule(g, results[0], *maker.inputs, **maker.attrs)
    arriving = [gradients.pop((maker, i), None) for i in range(len(results))]
    if op.sparse_gradients:
        return op.grad(tuple(arriving), tuple(results), *maker.inputs, **maker.attrs)
    gs = [_zeros_like(r.value) if g is None else g for g, r in zip(arriving, results)]
    return op.grad(tuple(gs), tuple(results), *maker.inputs, **maker.attrs)


def _one(t: Tensor) -> Tensor | None:
    """Return 1 for a number on the CPU, without an op; None for anything else."""
    return None if t.shape or not isinstance(t.value, _HOST) else scalar(1.0, t.dtype)


def walk_back(
    targets: Iterable[tuple[Tensor, Tensor]], wanted: Iterable[Any] = (), since: int = -1
) -> dict[Any, Tensor]:
    """Return the derivatives of the sum of target * g, by leaf key and by the `wanted` names.

    Args:
        targets: pairs (tensor, g), where g is the incoming derivative.
        wanted: names (see `_name`) of inner tensors whose derivatives are also kept.
        since: records with smaller serial numbers are constants.
    """
    results: dict[Any, Tensor] = {}
    kept: dict[Any, Tensor] = {}
    queue: list[tuple[int, TapeRecord]] = []
    seen: set[int] = set()
    keep = set(wanted)

    def arrive(t: Tensor, g: Tensor) -> None:
        maker = t.maker
        name = t.key if maker is None else (maker, t.index)
        if name is None:
            return
        results[name] = ops.add(results[name], g) if name in results else g
        if maker is not None and maker.serial not in seen:
            seen.add(maker.serial)
            heapq.heappush(queue, (-maker.serial, maker))

    for t, g in targets:
        if t.tracked or t.key is not None:
            arrive(t, g)
    while queue:
        maker = heapq.heappop(queue)[1]
        if keep:
            for i in range(len(maker.results)):
                if (maker, i) in keep and (maker, i) in results:
                    kept[maker, i] = results[maker, i]
        if maker.serial < since:
            continue
        recording.maker = maker  # a trace attributes the next ops to the layer of the record
        grads = _apply_rule(maker, results)
        for t, g in zip(maker.inputs, grads):
            if g is None or not t.tracked:
                continue
            given, own = g.value, t.value
            if given.shape != own.shape:
                g = sum_to_shape(g, t.shape)
            if given.dtype is not own.dtype and g.dtype != t.dtype:
                g = ops.cast(g, t.dtype)
            arrive(t, g)
    for name, g in results.items():
        if type(name) is Key:
            kept[name] = g
    return kept


def differentiate(
    targets: Sequence[Tensor], gradients: Any, wanted: Iterable[Any], create_graph: bool,
    since: int = -1,
) -> dict[Any, Tensor]:  # fmt: skip
    """Return the derivatives of targets by leaves; see `walk_back`.

    Args:
        targets: tensors.
        gradients: the incoming derivative of each; None: ones.
        wanted: names of inner tensors whose derivatives are also returned.
        create_graph: whether the reverse pass is recorded, so that it can be differentiated.
        since: records with smaller serial numbers are constants.
    """
    if gradients is None:
        gradients = []
        for t in targets:
            one = _one(t)
            gradients.append(ops.ones(t.shape, t.dtype) if one is None else one)
    pairs = []
    for t, g in zip(targets, gradients):
        g = convert(g, t.dtype)
        if g.shape != t.shape:
            g = ops.broadcast_to(g, t.shape)
        pairs.append((t, g))
    recorded = override(recording, "on", create_graph or recording.depth > 0)
    with recorded, override(recording, "maker", recording.maker):
        return walk_back(pairs, wanted, since)


def backward(target: Tensor, gradient: Any = None, create_graph: bool = False) -> None:
    """Add the derivatives of `target` to the `.grad` of every leaf that it depends on."""
    if not target.tracked:
        raise ValueError(
            "backward(): this tensor depends on nothing that requires a gradient. Start from a "
            "Variable or from Tensor(..., requires_grad=True)."
        )
    if gradient is None and target.size != 1:
        raise ShapeError(
            f"backward() needs gradient= for a tensor of {target.size} elements (shape "
            f"{target.shape}); reduce it to one number first, for example with .sum()."
        )
    result = differentiate([target], None if gradient is None else [gradient], (), create_graph)
    for key, g in result.items():
        owner = key.owner()
        if owner is not None:
            owner.grad = g if owner.grad is None else ops.add(owner.grad, g)


def gradients_of(target: Tensor, variables: Sequence[Variable]) -> list[Tensor | None]:
    """Return the derivatives of the one-number `target` by each variable (None: not reached)."""
    result = differentiate([target], None, (), False)
    return [result.get(v.key) for v in variables]


def leaves_of(results: Iterable[Tensor]) -> dict[Key, Tensor]:
    """Return the leaves that tensors depend on, by name."""
    result: dict[Key, Tensor] = {}
    seen: set[TapeRecord] = set()
    waiting = [t for t in results if t.tracked]
    while waiting:
        t = waiting.pop()
        if t.maker is None:
            result[t.key] = t
        elif t.maker not in seen:
            seen.add(t.maker)
            waiting.extend(i for i in t.maker.inputs if i.tracked)
    return result


def _leaf(source: Any) -> Any:
    return source.key if isinstance(source, Variable) else name_of(source)
