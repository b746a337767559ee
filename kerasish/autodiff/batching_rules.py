"""The rules of `vmap`: how an op is applied to all examples together."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from kerasish import ops
from kerasish.ops.networks import quantized as quantized  # its ops have rules here
from kerasish.ops.op import REGISTRY, Op
from kerasish.ops.rows import elementwise
from kerasish.tensor import Tensor

Rule = Callable[..., Any]
RULES: dict[Op, Rule] = {}


class Inputs:
    """The inputs of an op inside `vmap`.

    Args:
        tensors: the inputs.
        batched: which of them hold one entry per example along axis 0; the others are the same for
            all examples.
        size: the number of examples.
    """

    def __init__(self, tensors: Sequence[Tensor], batched: Sequence[bool], size: int) -> None:
        self.tensors, self.batched, self.size = list(tensors), list(batched), size

    def rank(self, i: int) -> int:
        """Return the number of axes that input i has for one example."""
        return len(self.tensors[i].shape) - self.batched[i]

    def full(self, i: int) -> Tensor:
        """Return input i with the axis of examples, repeated if it is the same for all."""
        t = self.tensors[i]
        return t if self.batched[i] else ops.broadcast_to(t, (self.size, *t.shape))

    def all_full(self) -> list[Tensor]:
        """Return all inputs with the axis of examples."""
        return [self.full(i) for i in range(len(self.tensors))]

    def aligned(self) -> list[Tensor]:
        """Return the inputs such that they broadcast, with the axes of examples in one place."""
        most = max(self.rank(i) for i in range(len(self.tensors)))
        results = []
        for i, t in enumerate(self.tensors):
            missing = most - self.rank(i)
            if self.batched[i] and missing:
                t = ops.reshape(t, (self.size, *(1,) * missing, *t.shape[1:]))
            results.append(t)
        return results


def one_by_one(op: Op, inputs: Inputs, **attrs: Any) -> Any:
    """Apply an op to the examples one by one; the rule of ops without another rule."""
    results = []
    for n in range(inputs.size):
        own = [t[n] if b else t for t, b in zip(inputs.tensors, inputs.batched)]
        results.append(op(own, **attrs) if op.variadic else op(*own, **attrs))
    if op.outputs == 1:
        return ops.stack(results)
    return tuple(ops.stack(parts) for parts in zip(*results))


def _rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a function `rule(op, inputs, **attrs)` as the rule of these ops."""

    def add(rule: Rule) -> Rule:
        for name in names:
            op = REGISTRY[name]
            RULES[op] = functools.partial(rule, op)
        return rule

    return add


def _elementwise(op: Op, inputs: Inputs, **attrs: Any) -> Any:
    return op(*inputs.aligned(), **attrs)


def _leading(op: Op, inputs: Inputs, **attrs: Any) -> Any:
    """The op accepts any leading axes."""
    return op(*inputs.all_full(), **attrs)


for _op in REGISTRY.values():
    if _op.rows is elementwise:
        RULES[_op] = functools.partial(_elementwise, _op)
    elif _op.kind == "decomposition" or _op.name in ("optimization_barrier", "all_sum"):
        RULES[_op] = functools.partial(_leading, _op)


# --- reductions -----------------------------------------------------------------------------------


@_rule(*(name for name, op in REGISTRY.items() if op.reduction), "argsort", "running_sum")
def _along(op: Op, inputs: Inputs, axis: Any = None, **attrs: Any) -> Any:
    x = inputs.tensors[0]
    if axis is None and attrs.get("keepdims"):
        flat = op(ops.reshape(x, (inputs.size, -1)), axis=1)
        return ops.reshape(flat, (inputs.size, *(1,) * (len(x.shape) - 1)))
    if axis is None:
        return op(ops.reshape(x, (inputs.size, -1)), axis=1, **attrs)
    moved = tuple(a + 1 for a in axis) if isinstance(axis, (tuple, list)) else axis + 1
    return op(x, axis=moved, **attrs)


# --- movement -------------------------------------------------------------------------------------


_MOVING: dict[str, Callable[..., Any]] = {
    "reshape": lambda op, i, newshape: op(i.tensors[0], newshape=(i.size, *newshape)),
    "transpose": lambda op, i, axes: op(i.tensors[0], axes=(0, *(a + 1 for a in axes))),
    "strided_slice": lambda op, i, slices: op(i.tensors[0], slices=((0, i.size, 1), *slices)),
    "constant_pad": lambda op, i, pad_width, value: op(
        i.tensors[0], pad_width=((0, 0), *pad_width), value=value
    ),
    "concatenate": lambda op, i, axis: op(i.all_full(), axis=axis + 1),
    "write_slice": lambda op, i, starts: op(*i.all_full(), starts=(0, *starts)),
    "reinterpret": lambda op, i, **attrs: op(i.tensors[0], **attrs),
    "pick_along_axis": lambda op, i, axis: op(*i.all_full(), axis=axis + 1),
    "read_at": lambda op, i: op(i.full(0), _numbered(i, i.full(1))),
}
for _name, _moving in _MOVING.items():
    _rule(_name)(_moving)


@_rule("broadcast_to")
def _broadcast_to(op: Op, inputs: Inputs, shape: Any) -> Any:
    x = inputs.tensors[0]
    missing = len(shape) - inputs.rank(0)
    x = ops.reshape(x, (inputs.size, *(1,) * missing, *x.shape[1:]))
    return op(x, shape=(inputs.size, *shape))


@_rule("unslice")
def _unslice(op: Op, inputs: Inputs, shape: Any, slices: Any) -> Any:
    size = inputs.size
    return op(inputs.tensors[0], shape=(size, *shape), slices=((0, size, 1), *slices))


# --- indexing -------------------------------------------------------------------------------------


def _move_first(x: Tensor, axis: int) -> Tensor:
    """Return x with an axis of each example directly after that of the examples."""
    return ops.moveaxis(x, axis + 1, 1) if axis else x


def _own_rows(inputs: Inputs, indices: Tensor, size: int) -> Tensor:
    """Return indices into the rows of all examples, one after the other.

    An index out of range stays out of range.
    """
    shape = (inputs.size, *(1,) * (len(indices.shape) - 1))
    wide = ops.cast(indices, "int64")
    start = ops.reshape(ops.multiply(ops.arange(inputs.size, dtype="int64"), size), shape)
    positive = ops.where(ops.less(wide, 0), ops.add(wide, size), wide)
    wrong = ops.logical_or(ops.less(positive, 0), ops.greater_equal(positive, size))
    return ops.where(wrong, inputs.size * size, ops.add(positive, start))


@_rule("take_rows")
def _take_rows(op: Op, inputs: Inputs, axis: int) -> Any:
    x, indices = inputs.tensors
    if not inputs.batched[1]:
        return op(x, indices, axis=axis + 1)
    if not inputs.batched[0]:
        return ops.moveaxis(op(x, indices, axis=axis), axis, 0)
    x = _move_first(x, axis)
    size, rest = x.shape[1], x.shape[2:]
    rows = ops.reshape(x, (inputs.size * size, *rest))
    result = op(rows, _own_rows(inputs, indices, size), axis=0)
    return _behind(result, len(indices.shape) - 1, axis)


def _behind(x: Tensor, count: int, axis: int) -> Tensor:
    """Return x with `count` axes, those after the first, moved after the next `axis` ones."""
    if not axis:
        return x
    own, before = range(1, 1 + count), range(1 + count, 1 + count + axis)
    return ops.transpose(x, (0, *before, *own, *range(1 + count + axis, len(x.shape))))


@_rule("add_rows")
def _add_rows(op: Op, inputs: Inputs, size: int, axis: int) -> Any:
    if not inputs.batched[1]:
        return op(inputs.full(0), inputs.tensors[1], size=size, axis=axis + 1)
    x, indices = inputs.full(0), inputs.tensors[1]
    count = len(indices.shape) - 1
    own = range(1 + axis, 1 + axis + count)
    before, after = range(1, 1 + axis), range(1 + axis + count, len(x.shape))
    rest = tuple(x.shape[a] for a in (*before, *after))
    x = ops.transpose(x, (0, *own, *before, *after))
    x = ops.reshape(x, (-1, *rest) if x.size else (x.shape[0] * indices[0].size, *rest))
    rows = ops.reshape(_own_rows(inputs, indices, size), (-1,))
    total = ops.reshape(op(x, rows, size=inputs.size * size, axis=0), (inputs.size, size, *rest))
    return _behind(total, 1, axis)


@_rule("add_scaled_rows")
def _add_scaled_rows(op: Op, inputs: Inputs, size: int) -> Any:
    indices, places, factors = (inputs.full(i) for i in range(3))
    table = inputs.tensors[3]
    if inputs.batched[3]:
        indices = _own_rows(inputs, indices, table.shape[1])
        table = ops.reshape(table, (-1, table.shape[2]))
    places = _own_rows(inputs, places, size)
    entries = [ops.reshape(x, (-1,)) for x in (indices, places, factors)]
    total = op(*entries, table, size=inputs.size * size)
    return ops.reshape(total, (inputs.size, size, table.shape[1]))


@_rule("add_along_axis")
def _add_along(op: Op, inputs: Inputs, shape: Any, axis: int) -> Any:
    return op(*inputs.all_full(), shape=(inputs.size, *shape), axis=axis + 1)


def _numbered(inputs: Inputs, indices: Tensor) -> Tensor:
    """Return positions with the number of the example before them."""
    shape = indices.shape[1:-1]
    numbers = ops.reshape(
        ops.arange(inputs.size, dtype=indices.dtype), (inputs.size, *(1,) * len(shape), 1)
    )
    return ops.concatenate([ops.broadcast_to(numbers, (inputs.size, *shape, 1)), indices], axis=-1)


@_rule("add_at")
def _add_at(op: Op, inputs: Inputs, shape: Any) -> Any:
    indices = _numbered(inputs, inputs.full(1))
    return op(inputs.full(0), indices, shape=(inputs.size, *shape))


@_rule("write_at", "combine_at")
def _write_at(op: Op, inputs: Inputs, **attrs: Any) -> Any:
    x, indices, updates = inputs.all_full()
    return op(x, _numbered(inputs, indices), updates, **attrs)


# --- products -------------------------------------------------------------------------------------


@_rule("matmul")
def _matmul(op: Op, inputs: Inputs) -> Any:
    a, b = inputs.tensors
    ranks = inputs.rank(0), inputs.rank(1)
    if min(ranks) < 2:
        if inputs.batched[0] and ranks[0] == 1:
            a = ops.expand_dims(a, 1)
        if inputs.batched[1] and ranks[1] == 1:
            b = ops.expand_dims(b, -1)
        if not inputs.batched[0] and ranks[0] == 1:
            a = ops.expand_dims(a, 0)
        if not inputs.batched[1] and ranks[1] == 1:
            b = ops.expand_dims(b, -1)
        result = RULES[op](Inputs([a, b], inputs.batched, inputs.size))
        if ranks[1] == 1:
            result = ops.squeeze(result, -1)
        return ops.squeeze(result, -1 if ranks[1] == 1 else -2) if ranks[0] == 1 else result
    if ranks[1] == 2 and not inputs.batched[1]:
        return op(a, b)
    return op(*inputs.aligned())


@_rule("integer_matmul", "packed_product")
def _with_constant_weights(op: Op, inputs: Inputs, **attrs: Any) -> Any:
    if any(inputs.batched[1:]):  # separate weights for each example
        return one_by_one(op, inputs, **attrs)
    return op(*inputs.tensors, **attrs)


def _merged(x: Tensor) -> Tensor:
    """Return x with the axis of examples and the next one as one."""
    return ops.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))


def _parted(x: Tensor, size: int) -> Tensor:
    return ops.reshape(x, (size, x.shape[0] // size, *x.shape[1:]))


def _in_channels(x: Tensor) -> Tensor:
    """Return x with the axis of examples merged into the last one."""
    moved = ops.moveaxis(x, 0, -2)
    return ops.reshape(moved, (*moved.shape[:-2], moved.shape[-2] * moved.shape[-1]))


def _out_of_channels(x: Tensor, size: int) -> Tensor:
    return ops.moveaxis(ops.reshape(x, (*x.shape[:-1], size, x.shape[-1] // size)), -2, 0)


@_rule("convolution", "convolution_data_gradient")
def _convolution(op: Op, inputs: Inputs, groups: int = 1, **attrs: Any) -> Any:
    if not inputs.batched[1]:
        result = op(_merged(inputs.tensors[0]), inputs.tensors[1], groups=groups, **attrs)
        return _parted(result, inputs.size)
    if groups != 1:
        return one_by_one(op, inputs, groups=groups, **attrs)
    # One kernel per example: the examples become groups of channels.
    x, kernel = _in_channels(inputs.full(0)), inputs.tensors[1]
    result = op(x, _in_channels(kernel), groups=inputs.size, **attrs)
    return _out_of_channels(result, inputs.size)


@_rule("convolution_kernel_gradient")
def _kernel_gradient(op: Op, inputs: Inputs, groups: int = 1, **attrs: Any) -> Any:
    if groups != 1:
        return one_by_one(op, inputs, groups=groups, **attrs)
    x, g = (_in_channels(t) for t in inputs.all_full())
    return _out_of_channels(op(x, g, groups=inputs.size, **attrs), inputs.size)


@_rule("pool_max", "pool_max_gradient", "pool_max_select", "pool_average", "pool_average_gradient")
def _pool(op: Op, inputs: Inputs, **attrs: Any) -> Any:
    return _parted(op(*map(_merged, inputs.all_full()), **attrs), inputs.size)


@_rule("fourier")
def _fourier(op: Op, inputs: Inputs, axes: Any, **attrs: Any) -> Any:
    moved = tuple(a + 1 if a >= 0 else a for a in axes)
    return op(*inputs.all_full(), axes=moved, **attrs)


@_rule("solve_matrix")
def _solve(op: Op, inputs: Inputs) -> Any:
    ranks = inputs.rank(0), inputs.rank(1)
    if ranks[0] != ranks[1]:
        return one_by_one(op, inputs)
    return op(*inputs.all_full())
