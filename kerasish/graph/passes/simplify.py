"""Simplify algebra: neutral elements, chained scalings, movements that cancel.

Every rule keeps NaN, Inf and the sign of zero as they are: x * 0, x - x and x + 0.0 stay. A rule
may change how a result is rounded, never whether it overflows or underflows. (The sign of a sum
that is zero depends on the order of its terms and is not kept.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasish.graph.ir import Graph, Node, Value
from kerasish.ops import dtypes
from kerasish.ops.op import REGISTRY
from kerasish.ops.shapes import Spec, broadcast_shapes
from kerasish.typing import Array

# A rule returns None (does not apply), a Value (use it instead) or a list of new nodes, the last
# of which computes the result.
Rule = Callable[["Rewriter", Node], Any]


class Rewriter:
    """One walk over the graph: rules look at a node and at the nodes of its inputs."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.constants = dict(graph.constants)
        self.makers: dict[Value, Node] = {}
        self.uses = graph.uses()
        self.nodes: list[Node] = []
        self.swaps: dict[Value, Value] = {}
        self.repeated: set[Value] = set()  # results of broadcast_to
        self._numbers: dict[Value, Any] = {}  # of the values that were asked for
        self.changed = False

    def run(self) -> Graph:
        swaps = self.swaps
        for node in self.graph.nodes:
            for v in node.inputs:
                if v in swaps:
                    inputs = [self._find(v) for v in node.inputs]
                    node = Node(node.op, inputs, node.attrs, node.outputs)
                    break
            self._rewrite(node)
        if not self.changed:
            return self.graph
        outputs = tuple(self._find(v) for v in self.graph.outputs)
        return self.graph.replace(constants=self.constants, nodes=self.nodes, outputs=outputs)

    def _find(self, v: Value) -> Value:
        while v in self.swaps:
            v = self.swaps[v]
        return v

    def _rewrite(self, node: Node) -> None:
        for _ in range(8):
            result = self._apply(node)
            if result is None:
                break
            self.changed = True
            if isinstance(result, Value):
                self.swaps[node.out] = result
                return
            for extra in result[:-1]:
                self._keep(extra)
            last = result[-1]
            node = Node(last.op, last.inputs, last.attrs, node.outputs)
        self._keep(node)

    def _apply(self, node: Node) -> Value | list[Any] | None:
        op = node.op
        if op.elementwise and op.aliases:
            return node.inputs[0]
        rules = RULES.get(op.name, ())
        if op.reduction and not op.gives_index:
            rules = (_over_nothing, *rules)
        for rule in rules:
            result = rule(self, node)
            if result is not None:
                return result
        several = op.elementwise and len(node.inputs) > 1
        if several and not self.repeated.isdisjoint(node.inputs):
            return _repeat_broadcast(self, node) or _sink_broadcast(self, node)
        return None

    def _keep(self, node: Node) -> None:
        self.nodes.append(node)
        if node.op.name == "broadcast_to":
            self.repeated.add(node.out)
        for v in node.outputs:
            self.makers[v] = node

    # --- what rules ask ---------------------------------------------------------------------

    def maker(self, v: Value, name: str) -> Node | None:
        """Return the node that computes v if its op has this name; else None."""
        node = self.makers.get(v)
        return node if node is not None and node.op.name == name else None

    def number(self, v: Value) -> Array:
        """Return the number that all elements of v equal, if it is known; else None."""
        if v not in self._numbers:
            self._numbers[v] = self._number(v)
        return self._numbers[v]

    def _number(self, v: Value) -> Array:
        array = self.constants.get(v)
        if array is not None:
            array = np.asarray(array)
            return array.reshape(-1)[0] if array.size == 1 else None
        node = self.makers.get(v)
        if node is not None and node.op.name == "fill":
            return np.asarray(node.attrs["value"], dtypes.array_dtype(v.dtype))[()]
        if node is not None and node.op.view:
            return self.number(node.inputs[0])
        return None

    def constant(self, number: Array, dtype: str) -> Value:
        """Return a new scalar constant."""
        value = Value((), dtype)
        self.constants[value] = np.asarray(number, dtypes.array_dtype(dtype))
        return value


def make(name: str, inputs: list[Value], **attrs: Any) -> Node:
    """Return a new node."""
    op = REGISTRY[name]
    spec = op.shape(*(Spec(v.shape, v.dtype) for v in inputs), **attrs)
    return Node(op, inputs, attrs, [Value(tuple(spec.shape), spec.dtype)])


def _same_spec(a: Value, b: Value) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype


def _neutral(number: float, both: bool) -> Rule:
    """x op number -> x; with `both`, also number op x."""

    def rule(r: Rewriter, node: Node) -> Value | None:
        a, b = node.inputs
        if _same_spec(a, node.out) and _is(r.number(b), number):
            return a
        if both and _same_spec(b, node.out) and _is(r.number(a), number):
            return b
        return None

    return rule


def _is(array: Array, number: float) -> bool:
    """Return whether `array` equals `number`, including the sign of a floating zero."""
    if array is None or array != number:
        return False
    return bool(np.signbit(array)) == bool(np.signbit(number)) or array.dtype.kind in "iub"


def _power(r: Rewriter, node: Node) -> Value | list[Any] | None:
    x, exponent = node.inputs
    number = r.number(exponent)
    if number is None or not _same_spec(x, node.out):
        return None
    if number == 1:
        return x
    if number == 2:
        return [make("square", [x])]
    if not dtypes.is_float(x.dtype):
        return None
    if number == 0.5:
        return _square_root(r, x)
    if number == -1:
        return [make("reciprocal", [x])]
    return None


def _square_root(r: Rewriter, x: Value) -> list[Node]:
    """x ** 0.5 by sqrt; at -Inf and -0.0 the results of the power, +Inf and 0.0, are kept."""
    root = make("sqrt", [(positive := make("add", [x, r.constant(0.0, x.dtype)])).out])
    lowest = make("equal", [x, r.constant(-np.inf, x.dtype)])
    choice = make("select", [lowest.out, r.constant(np.inf, x.dtype), root.out])
    return [positive, root, lowest, choice]


def _divide(r: Rewriter, node: Node) -> list[Any] | None:
    """x / c -> x * (1 / c) where 1 / c is exact (a power of two) and finite in x's dtype."""
    x, by = node.inputs
    number = r.number(by)
    if number is None or number == 0 or not dtypes.is_float(x.dtype):
        return None
    if x.shape != node.out.shape:
        return None  # the divisor adds axes, which a scalar would lose
    mantissa, _ = np.frexp(float(number))
    if abs(mantissa) != 0.5 or not _is_exact(1.0 / float(number), x.dtype):
        return None
    return [make("multiply", [x, r.constant(1.0 / float(number), by.dtype)])]


def _is_exact(number: float, dtype: str) -> bool:
    """Return whether `dtype` represents a finite number exactly."""
    with np.errstate(over="ignore"):
        return (
            math.isfinite(number) and float(np.asarray(number, dtypes.array_dtype(dtype))) == number
        )


def _chained_scale(r: Rewriter, node: Node) -> list[Any] | None:
    """(x * c) * d -> x * (c * d) where x * c by itself neither overflows nor underflows.

    Both factors must be at most 1 in size, or both at least 1: then x * c overflows or underflows
    only if the result does.
    """
    for x, by in (node.inputs, node.inputs[::-1]):
        outer, inner = r.number(by), r.maker(x, "multiply")
        if outer is None or inner is None or r.uses.get(x, 0) > 1:
            continue
        for y, c in (inner.inputs, inner.inputs[::-1]):
            number = r.number(c)
            if number is None or not dtypes.is_float(y.dtype) or y.shape != node.out.shape:
                continue
            if _scales_alike(float(number), float(outer), y.dtype):
                return [make("multiply", [y, r.constant(float(number) * outer, y.dtype)])]
    return None


def _scales_alike(c: float, d: float, dtype: str) -> bool:
    lowest, highest = dtypes.normal_range(dtype)
    product = abs(c * d)
    shrink = abs(c) <= 1 and abs(d) <= 1 and product >= lowest
    return shrink or (abs(c) >= 1 and abs(d) >= 1 and product <= highest)


def _double(name: str) -> Rule:
    """f(f(x)) -> x."""

    def rule(r: Rewriter, node: Node) -> Value | None:
        inner = r.maker(node.inputs[0], name)
        return inner.inputs[0] if inner is not None else None

    return rule


def _transpose(r: Rewriter, node: Node) -> Value | list[Any] | None:
    x, axes = node.inputs[0], node.attrs["axes"]
    if axes == tuple(range(len(axes))):
        return x
    inner = r.maker(x, "transpose")
    if inner is not None:
        joined = tuple(inner.attrs["axes"][a] for a in axes)
        return [make("transpose", [inner.inputs[0]], axes=joined)]
    moving = [s for s in (x.shape[a] for a in axes) if s != 1]
    if moving == [s for s in x.shape if s != 1] and len(set(moving)) == len(moving):
        return [make("reshape", [x], newshape=node.out.shape)]
    return None


def _transposed_rows(r: Rewriter, node: Node) -> list[Any] | None:
    """transpose(take_rows(x, i)) -> take_rows(x, transpose(i)), where only the axes of i move."""
    inner = r.maker(node.inputs[0], "take_rows")
    if inner is None or inner.attrs["axis"] != 0 or r.uses.get(inner.out) != 1:
        return None
    x, indices = inner.inputs
    axes = _moved_indices(node.attrs["axes"], indices)
    if axes is None:
        return None
    turned = make("transpose", [indices], axes=axes)
    return [turned, make("take_rows", [x, turned.out], axis=0)]


def _rows_of_transposed(r: Rewriter, node: Node) -> list[Any] | None:
    """add_rows(transpose(x), i) -> add_rows(x, transpose(i)), where only the axes of i move."""
    x, indices = node.inputs
    inner = r.maker(x, "transpose")
    if inner is None or node.attrs["axis"] != 0 or r.uses.get(x) != 1:
        return None
    axes = _moved_indices(inner.attrs["axes"], indices)
    if axes is None:
        return None
    turned = make("transpose", [indices], axes=tuple(axes.index(i) for i in range(len(axes))))
    return [turned, make("add_rows", [inner.inputs[0], turned.out], **node.attrs)]


def _moved_indices(axes: Sequence[int], indices: Value) -> tuple[int, ...] | None:
    """Return how a transpose moves the first axes, those of indices; None if others also move."""
    count = len(indices.shape)
    if tuple(axes[count:]) != tuple(range(count, len(axes))):
        return None
    return tuple(axes[:count])


def _last_of(name: str, attr: str) -> Rule:
    """f(f(x)) -> f(x) to the last shape, the attribute `attr`; x if that is its shape."""

    def rule(r: Rewriter, node: Node) -> Value | list[Any] | None:
        x, inner = node.inputs[0], r.maker(node.inputs[0], name)
        if x.shape == node.out.shape:
            return x
        return None if inner is None else [make(name, [inner.inputs[0]], **{attr: node.out.shape})]

    return rule


def _cast(r: Rewriter, node: Node) -> Value | list[Any] | None:
    x = node.inputs[0]
    if x.dtype == node.out.dtype:
        return x
    inner = r.maker(x, "cast")
    if inner is not None and _holds(x.dtype, inner.inputs[0].dtype):
        return [make("cast", [inner.inputs[0]], dtype=node.out.dtype)]
    return None


def _holds(wide: str, narrow: str) -> bool:
    """Return whether `wide` represents every number of `narrow` exactly."""
    return wide != narrow and dtypes.result_type(wide, narrow) == wide and not (
        dtypes.is_integer(narrow) and dtypes.is_float(wide)
    )  # fmt: skip


def _sum_of_broadcast(r: Rewriter, node: Node) -> list[Any] | None:
    """Replace a sum over axes along which the input only repeats by a multiplication."""
    inner = r.maker(node.inputs[0], "broadcast_to")
    x, shape = node.inputs[0], node.inputs[0].shape
    if inner is None or not dtypes.is_float(x.dtype) or x.dtype != node.out.dtype:
        return None
    x = inner.inputs[0]
    lead = len(shape) - len(x.shape)
    repeats = 1
    for axis in node.attrs["axis"]:
        size = 1 if axis < lead else x.shape[axis - lead]
        if size != 1:
            return None
        repeats *= shape[axis]
    if repeats == 0 or not _is_exact(repeats, x.dtype):
        return None  # an empty sum is 0, also of Inf; 16-bit floats do not hold every count
    scaled = make("multiply", [x, r.constant(float(repeats), x.dtype)])
    kept = tuple(s for i, s in enumerate(shape) if i not in node.attrs["axis"])
    target = node.out.shape if node.attrs["keepdims"] else kept
    if int(np.prod(scaled.out.shape)) != int(np.prod(target)):
        squeezed = tuple(
            s for i, s in enumerate((1,) * lead + x.shape) if i not in node.attrs["axis"]
        )
        flat = make("reshape", [scaled.out], newshape=squeezed)
        if node.attrs["keepdims"]:
            return None
        return [scaled, flat, make("broadcast_to", [flat.out], shape=target)]
    return [scaled, make("reshape", [scaled.out], newshape=target)]


def _over_nothing(r: Rewriter, node: Node) -> list[Any] | None:
    x = node.inputs[0]
    if all(x.shape[a] == 1 for a in node.attrs["axis"]) and x.dtype == node.out.dtype:
        return [make("reshape", [x], newshape=node.out.shape)]
    return None


def _full_slice(r: Rewriter, node: Node) -> Value | None:
    return node.inputs[0] if node.inputs[0].shape == node.out.shape and all(
        step in (1, None) for _, _, step in node.attrs["slices"]
    ) else None  # fmt: skip


def _repeat_broadcast(r: Rewriter, node: Node) -> list[Any] | None:
    """op(broadcast_to(x), y) -> op(x, y) where y by itself has the result's shape."""
    changed = False
    inputs = list(node.inputs)
    for i, v in enumerate(inputs):
        inner = r.maker(v, "broadcast_to")
        others = [o for j, o in enumerate(inputs) if j != i]
        if inner is not None and any(o.shape == node.out.shape for o in others):
            inputs[i] = inner.inputs[0]
            changed = True
    if not changed:
        return None
    return [Node(node.op, inputs, node.attrs, [Value(node.out.shape, node.out.dtype)])]


def _sink_broadcast(r: Rewriter, node: Node) -> list[Any] | None:
    """op(broadcast_to(x), number) -> broadcast_to(op(x, number)): compute before repeating."""
    inputs, result = [], False
    for v in node.inputs:
        inner = r.maker(v, "broadcast_to")
        if inner is not None and inner.out.shape == node.out.shape:
            inputs.append(inner.inputs[0])
            result = True
        elif v.size == 1 and len(v.shape) <= len(node.out.shape):
            inputs.append(v)
        else:
            return None
    if not result or node.out.size == 1:
        return None
    shape = broadcast_shapes(*(v.shape for v in inputs))
    small = Node(node.op, inputs, node.attrs, [Value(shape, node.out.dtype)])
    return [small, make("broadcast_to", [small.out], shape=node.out.shape)]


RULES: dict[str, tuple[Rule, ...]] = {
    "add": (_neutral(-0.0, True),),
    "subtract": (_neutral(0.0, False),),
    "multiply": (_neutral(1.0, True), _chained_scale),
    "divide": (_neutral(1.0, False), _divide),
    "power": (_power,),
    "negative": (_double("negative"),),
    "transpose": (_transpose, _transposed_rows),
    "add_rows": (_rows_of_transposed,),
    "reshape": (_last_of("reshape", "newshape"),),
    "broadcast_to": (_last_of("broadcast_to", "shape"),),
    "cast": (_cast,),
    "reduce_sum": (_sum_of_broadcast,),
    "strided_slice": (_full_slice,),
}


def simplify_algebra(graph: Graph) -> Graph:
    """Return the graph with each node in its simplest equivalent form."""
    return Rewriter(graph).run()
