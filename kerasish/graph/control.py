"""Control flow in a graph: nodes that hold graphs.

`branch` runs one of several graphs, `loop` runs one graph while another returns True, and `scan`
runs one graph along the leading axis of its inputs. Values of the enclosing graph that these graphs
read are passed as inputs, so every graph is pure and self-contained.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasish import ops
from kerasish.autodiff import vjp
from kerasish.devices import array_module, place_of
from kerasish.errors import TraceError, at_user_line
from kerasish.graph.interpret import interpret
from kerasish.graph.ir import Graph, Value
from kerasish.ops import dtypes
from kerasish.ops.op import Traits, current_engine
from kerasish.ops.shapes import Spec
from kerasish.tensor import Tensor, wrap
from kerasish.typing import Array, ArrayModule, Structure, TensorLike


class ControlOp(Traits):
    """An op whose attributes hold graphs; a node can hold it like any other op.

    Attributes:
        outputs: the number of results.
    """

    kind = "control"
    promote = None
    canonical = None
    variadic = False
    sparse_gradients = True
    promoted = 0

    def __init__(
        self,
        name: str,
        outputs: int,
        run: Callable[..., list[Any]],
        shapes: Callable[..., list[Spec]],
        slopes: Callable[..., Sequence[Any]],
    ) -> None:
        self.name, self.outputs = name, outputs
        self._run, self._shapes, self._slopes = run, shapes, slopes

    def kernel(self, xp: ArrayModule, *inputs: Any, **attrs: Any) -> Array:
        """Run the graphs node by node with the reference kernels."""
        runners = {
            name: [functools.partial(interpret, graph, xp=xp) for graph in _listed(value)]
            for name, value in attrs.items()
            if name in GRAPHS
        }
        return self.run(runners, *inputs, **attrs)

    def run(self, runners: dict[str, list[Any]], *inputs: Any, **attrs: Any) -> Structure:
        """Compute on arrays; `runners` holds a function inputs -> outputs for each graph."""
        result = self._run(runners, *inputs, **attrs)
        return result[0] if self.outputs == 1 else tuple(result)

    def shape(self, *specs: Spec, **attrs: Any) -> Spec | tuple[Any, ...]:
        """Return the specs of the results."""
        result = self._shapes(*specs, **attrs)
        return result[0] if self.outputs == 1 else tuple(result)

    def grad(
        self, g: Tensor | Sequence[Any], y: TensorLike, *inputs: Tensor, **attrs: Any
    ) -> Sequence[Any]:
        """Return the gradients with respect to the inputs; None where there is none."""
        gs, ys = (g, y) if self.outputs > 1 else ((g,), (y,))
        return self._slopes(gs, ys, *inputs, **attrs)

    def __repr__(self) -> str:
        return f"<op {self.name}>"


GRAPHS = ("graphs", "test", "body")  # attributes that hold graphs


def _listed(value: Graph | tuple[Any, ...]) -> Sequence[Graph]:
    return value if isinstance(value, tuple) else (value,)


def graphs_of(attrs: dict[str, Any]) -> dict[str, Sequence[Graph]]:
    """Return the graphs among a control node's attributes, by the attribute's name."""
    return {name: _listed(value) for name, value in attrs.items() if name in GRAPHS}


def replay(graph: Graph, inputs: Sequence[Any]) -> list[Tensor]:
    """Return the graph's outputs for tensors; the current engine applies each node."""
    values: dict[Value, Any] = {v: wrap(array) for v, array in graph.constants.items()}
    values.update(zip(graph.inputs, inputs))
    engine = current_engine()
    for node in graph.nodes:
        op: Any = node.op  # may also be an op that occurs only in graphs
        out = engine.apply(op, [values[v] for v in node.inputs], node.attrs)
        values.update(zip(node.outputs, (out,) if node.op.outputs == 1 else out))
    return [values[v] for v in graph.outputs]


def _is_float(x: Value | Tensor) -> bool:
    return dtypes.is_inexact(x.dtype)


def _slopes_of(graph: Graph, inputs: Sequence[Any], gs: Sequence[Any], count: int) -> list[Any]:
    """Return the gradients of sum(output * g), over `count` outputs, by the floating inputs.

    Args:
        gs: the incoming gradient of each output; None if there is none.
    """
    floating = [i for i, x in enumerate(inputs) if _is_float(x)]
    reached = [i for i in range(count) if _is_float(graph.outputs[i]) and gs[i] is not None]

    def run(*floats: Any) -> list[Any]:
        arguments = list(inputs)
        for i, x in zip(floating, floats):
            arguments[i] = x
        created = replay(graph, arguments)
        return [created[i] for i in reached]

    if not reached or not floating:
        return [_zeros(inputs[i]) for i in floating]
    result = vjp(run, [inputs[i] for i in floating], [gs[i] for i in reached])
    return [_zeros(inputs[i]) if g is None else g for i, g in zip(floating, result)]


def _zeros(x: Tensor) -> Tensor:
    return ops.zeros(x.shape, x.dtype)


def _spread(slopes: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """Return a gradient for every input: None for those that have none."""
    remaining = iter(slopes)
    return [next(remaining) if _is_float(x) else None for x in inputs]


# --- branch ---------------------------------------------------------------------------------------


def _run_branch(runners: Any, index: Array, *captured: Any, graphs: tuple[Any, ...]) -> list[Any]:
    return runners["graphs"][int(index)](captured)


def _shape_branch(index: Spec, *captured: Spec, graphs: Sequence[Graph]) -> list[Spec]:
    return [v.spec for v in graphs[0].outputs]


def _grad_branch(
    gs: Sequence[Any], ys: Sequence[Any], index: Tensor, *captured: Any, graphs: Sequence[Graph]
) -> Sequence[Any]:
    def slopes(graph: Graph) -> Callable[[], Any]:
        return lambda: _slopes_of(graph, captured, gs, len(gs))

    if not any(_is_float(x) for x in captured):
        return [None] * (1 + len(captured))
    return [None, *_spread(ops.switch(index, [slopes(g) for g in graphs]), captured)]


# --- loop -----------------------------------------------------------------------------------------


def _run_loop(
    runners: Any, *inputs: Any, test: Graph, body: Graph, carried: int, most: int | None
) -> list[Any]:
    values, captured, count = list(inputs[:carried]), inputs[carried:], 0
    (holds,), (step,) = runners["test"], runners["body"]
    while (most is None or count < most) and bool(holds([*values, *captured])[0]):
        values, count = step([*values, *captured]), count + 1
    return values


def _shape_loop(
    *inputs: Spec, test: Graph, body: Graph, carried: int, most: int | None
) -> list[Spec]:
    return list(inputs[:carried])


def _grad_loop(gs: Sequence[Any], ys: Sequence[Any], *inputs: Any, **attrs: Any) -> Sequence[Any]:
    raise TraceError(
        f"while_loop{at_user_line()}: the number of iterations of a compiled loop is not kept, so "
        "no gradient flows through it. "
        "Give maximum_iterations, use fori_loop or scan with a known count, or compile the model "
        "with run_eagerly=True."
    )


# --- scan -----------------------------------------------------------------------------------------


def _run_scan(
    runners: Any, *inputs: Any, body: Graph, carried: int, scanned: int, length: int, reverse: bool,
    trail: bool,
) -> list[Any]:  # fmt: skip
    values, xs = list(inputs[:carried]), inputs[carried : carried + scanned]
    captured, (step,) = inputs[carried + scanned :], runners["body"]
    rows: list[Any] = [None] * length
    for i in range(length)[:: -1 if reverse else 1]:
        result = step([*values, *(x[i] for x in xs), *captured])
        rows[i] = [*result[carried:], *(values if trail else ())]
        values = list(result[:carried])
    return [*values, *(_stack(column) for column in zip(*rows))]


def _stack(parts: Sequence[Any]) -> Array:
    """Return NumPy or CuPy arrays stacked along a new first axis."""
    if isinstance(parts[0], (np.ndarray, np.generic)):
        return np.stack(parts)
    return array_module(place_of(parts[0])).stack(parts)


def _shape_scan(
    *inputs: Spec, body: Graph, carried: int, scanned: int, length: int, reverse: bool, trail: bool
) -> list[Spec]:
    rows = [Spec((length, *v.shape), v.dtype) for v in body.outputs[carried:]]
    before = [Spec((length, *s.shape), s.dtype) for s in inputs[:carried]] if trail else []
    return [*inputs[:carried], *rows, *before]


def _grad_scan(
    gs: Sequence[Any], ys: Sequence[Any], *inputs: Any, body: Graph, carried: int, scanned: int,
    length: int,
    reverse: bool, trail: bool,
) -> Sequence[Any]:  # fmt: skip
    """Reverse a scan: recompute each step from its initial carry, and differentiate it."""
    rows = len(body.outputs) - carried
    carry, xs = inputs[:carried], inputs[carried : carried + scanned]
    captured, before = inputs[carried + scanned :], ys[carried + rows :]
    floats = [i for i, x in enumerate(carry) if _is_float(x)]
    arriving = [
        (_zeros(y) if g is None else g) if _is_float(y) else None
        for g, y in zip(gs[carried:], ys[carried:])
    ]

    def back(state: Sequence[Any], here: Sequence[Any]) -> tuple[Any, ...]:
        of_carry, of_captured = state
        values, parts, of_rows, of_trail = here
        left = iter(of_carry)
        g_carry = [next(left) if i in floats else None for i in range(carried)]
        given = [*values, *parts, *captured]
        result = _slopes_of(body, given, [*g_carry, *of_rows], carried + rows)
        spread = _spread(result, given)
        new = [
            spread[i] if of_trail[i] is None else ops.add(spread[i], of_trail[i]) for i in floats
        ]
        of_step = [g for g in spread[carried + scanned :] if g is not None]
        total = [ops.add(a, b) for a, b in zip(of_captured, of_step)]
        of_xs = [g for g in spread[carried : carried + scanned] if g is not None]
        return (new, total), of_xs

    first = [_zeros(carry[i]) if gs[i] is None else gs[i] for i in floats]
    empty = [_zeros(x) for x in captured if _is_float(x)]
    trail_gs = arriving[rows:]
    if all(g is None for g in gs[carried + rows :]):
        trail_gs = [None] * carried  # the usual case: no second derivative
    along = (list(before), list(xs), arriving[:rows], trail_gs)
    (of_carry, of_captured), of_xs = ops.scan(
        back, (first, empty), along, length=length, reverse=not reverse
    )
    return _spread([*of_carry, *of_xs, *of_captured], inputs)


_KINDS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = {
    "branch": (_run_branch, _shape_branch, _grad_branch),
    "loop": (_run_loop, _shape_loop, _grad_loop),
    "scan_along": (_run_scan, _shape_scan, _grad_scan),
}


@functools.lru_cache(maxsize=512)
def control_op(name: str, outputs: int) -> ControlOp:
    """Return the op "branch", "loop" or "scan_along" with this number of results."""
    return ControlOp(name, outputs, *_KINDS[name])
