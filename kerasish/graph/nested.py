"""Tracing control flow: branches and loop bodies become graphs inside a node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kerasish import ops, tree
from kerasish.errors import TraceError, at_user_line
from kerasish.graph.control import control_op
from kerasish.graph.ir import Graph, Node, Value
from kerasish.graph.tracer import NodeWriter, effect_order
from kerasish.ops.basic.control import keep_kind, tensors_of
from kerasish.ops.op import using_engine
from kerasish.ops.shapes import Spec
from kerasish.tensor import Tensor, Variable, current_scope, record, recording, using_scope, wrap
from kerasish.typing import Structure, TensorLike

UNROLLED = 8  # loops of at most this many iterations are unrolled, so that passes can fuse them
MASKED = 64  # the same for while_loops that are differentiated


class Tracer(NodeWriter):
    """Writes ops as nodes, and control flow as nodes that hold graphs."""

    def control(self, kind: str, **parts: Any) -> Structure:
        """Return the result of `ops.cond` and similar ops; NotImplemented lets Python run it."""
        return _KINDS[kind](self, **parts)

    # --- kinds ----------------------------------------------------------------------------------

    def _cond(
        self, pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any]
    ) -> Structure:
        known = self.number_of(pred)
        if known is not None:
            return true_fn() if bool(known) else false_fn()
        index = ops.cast(ops.cast(pred, "bool"), "int32")
        return self._branches(index, [false_fn, true_fn], "cond: the result of true_fn")

    def _switch(
        self, index: Tensor, branches: tuple[Any, ...], operands: Sequence[Tensor]
    ) -> Structure:
        known = self.number_of(index)
        if known is not None:
            return branches[int(known)](*operands)
        functions = [lambda b=b: b(*operands) for b in branches]
        return self._branches(index, functions, "switch: the result of a later branch")

    def _branches(
        self, index: Tensor, functions: Sequence[Callable[[], Any]], what: str
    ) -> Structure:
        inners = [Inner(self) for _ in functions]
        results: list[Any] = []
        for inner, function in zip(inners, functions):
            with inner.inside():
                result = tensors_of(function())
                results.append(keep_kind(result, results[0], what) if results else result)
        written = list(dict.fromkeys(v for inner in inners for v in inner.written))
        outputs = [
            [*inner.values_of(result), *(inner.own_value(v) for v in written)]
            for inner, result in zip(inners, results)
        ]
        captured = _captured(inners)
        graphs = tuple(inner.graph(captured, [], out) for inner, out in zip(inners, outputs))
        created = self._node("branch", [index, *captured.values()], {"graphs": graphs})
        return self._leave(results[0], created, written)

    def _while_loop(
        self,
        cond: Callable[..., Any],
        body: Callable[..., Any],
        loop_vars: Structure,
        maximum_iterations: int | None,
    ) -> Structure:
        written: list[Variable] = []
        while True:
            step = Inner(self)
            state = _State(self, loop_vars, written)
            with step.inside():
                entered = state.enter(step)
                result = step.values_of(body(entered))
            if len(written) == len(step.written):
                break
            written = list(step.written)
        test = Inner(self)
        with test.inside():
            entered = state.enter(test)
            before = test.written.get(effect_order())
            holds = ops.cast(ops.reshape(cond(*entered), ()), "bool")
            decision = test.value_of(holds)
        if test.written.get(effect_order()) is not before:
            raise TraceError(f"while_loop{at_user_line()}: cond must not print; print in the body.")
        if set(test.written) - set(written):
            raise TraceError(
                f"while_loop{at_user_line()}: cond must not assign variables; assign them in the "
                "body."
            )
        captured = _captured([step, test])
        inputs = [*state.tensors, *captured.values()]
        tracked = recording.on and any(t.tracked for t in inputs)
        if tracked and maximum_iterations is not None and maximum_iterations <= MASKED:
            return NotImplemented
        attrs = {
            "test": test.graph(captured, state.values(test), [decision]),
            "body": step.graph(
                captured, state.values(step), [*result, *(step.own_value(v) for v in written)]
            ),
            "carried": len(state.tensors),
            "most": maximum_iterations,
        }
        return self._leave(loop_vars, self._node("loop", inputs, attrs), written)

    def _scan(
        self, f: Callable[..., Any], init: TensorLike, xs: TensorLike, length: int, reverse: bool
    ) -> Any:
        if length <= UNROLLED:
            return NotImplemented
        along = [x for x in tree.flatten(xs) if x is not None]
        written: list[Variable] = []
        while True:
            step = Inner(self)
            state = _State(self, init, written)
            with step.inside():
                entered = state.enter(step)
                slices = [step.input(Spec(x.shape[1:], x.dtype)) for x in along]
                carry, rows = f(entered, _filled(xs, slices))
                result = step.values_of(carry)
                row_values = step.values_of(rows)
            if len(written) == len(step.written):
                break
            written = list(step.written)
        captured = _captured([step])
        inputs = [*state.tensors, *along, *captured.values()]
        trail = recording.on and any(t.tracked for t in inputs)
        outputs = [*result, *(step.own_value(v) for v in written), *row_values]
        entering = [*state.values(step), *(t.value for t in slices)]
        attrs = {
            "body": step.graph(captured, entering, outputs),
            "carried": len(state.tensors),
            "scanned": len(along),
            "length": length,
            "reverse": reverse,
            "trail": trail,
        }
        results = self._node("scan_along", inputs, attrs)
        count = len(state.tensors)
        materialize = self._leave(init, results[:count], written)
        return materialize, _filled(rows, results[count : count + len(row_values)])

    def _fori_loop(
        self, lower: Any, upper: Any, body_fun: Callable[..., Any], init_val: Structure
    ) -> Structure:
        low, high = self.number_of(lower), self.number_of(upper)
        if low is None or high is None:
            return NotImplemented
        if int(high) - int(low) <= UNROLLED:
            for i in range(int(low), int(high)):
                init_val = body_fun(ops.convert_to_tensor(i), init_val)
            return init_val
        places = ops.arange(int(low), int(high), dtype=lower.dtype)
        return ops.scan(lambda state, i: (body_fun(i, state), None), init_val, places)[0]

    # --- nodes ----------------------------------------------------------------------------------

    def _node(self, name: str, inputs: Sequence[Tensor], attrs: dict[str, Any]) -> list[Tensor]:
        """Write a control node; return its results."""
        count = _count(name, attrs)
        if not count:
            return []
        op = control_op(name, count)
        values = [self.value_of(t) for t in inputs]
        specs = op.shape(*(v.spec for v in values), **attrs)
        outputs = [Value(s.shape, s.dtype) for s in ((specs,) if count == 1 else specs)]
        self.write_node(Node(op, values, attrs, outputs))
        results = [wrap(v) for v in outputs]
        if recording.on and any(t.tracked for t in inputs):
            record(op, inputs, attrs, results)  # type: ignore[arg-type]
        return results

    def _leave(
        self, like: Structure, results: Sequence[Tensor], written: Sequence[Variable]
    ) -> Structure:
        """Return results in the structure of `like`; assign the remaining ones to `written`."""
        count = len(results) - len(written)
        for variable, new in zip(written, results[count:]):
            # Effects belong to the trace: no user scope inside it withholds them.
            scope = self if variable is effect_order() else current_scope() or self
            scope.write(variable, new)
        return _filled(like, results[:count])


class Inner(Tracer):
    """The tracer inside a branch or loop body: values captured from outside become inputs."""

    def __init__(self, outer: Tracer) -> None:
        super().__init__()
        self.around = outer
        self.effects = outer.effects
        self.own: set[Value] = set()
        self.captured: dict[Any, tuple[Tensor, Value]] = {}  # (value, its gradient's name) -> ...

    def inside(self) -> _Inside:
        """Make this tracer the current engine in a `with` block."""
        return _Inside(self)

    def input(self, spec: Spec) -> Tensor:
        """Return a new input."""
        value = Value(tuple(spec.shape), spec.dtype)
        self.own.add(value)
        return wrap(value)

    def write_node(self, node: Node) -> None:
        """Record the node, and that its results belong to this tracer."""
        self.own.update(node.outputs)
        super().write_node(node)

    def value_of(self, tensor: Tensor) -> Value:
        """Return the value of a tensor in this graph; a value from outside is captured."""
        value = tensor.value
        if not isinstance(value, Value):
            created = super().value_of(tensor)
            self.own.add(created)
            return created
        if value in self.own:
            return value
        key = (value, (tensor.maker, tensor.index, tensor.key) if tensor.tracked else None)
        result = self.captured.get(key)
        if result is None:
            result = self.captured[key] = (tensor, self.input(value.spec).value)
        return result[1]

    def number_of(self, tensor: Tensor) -> Any:
        """Return the array of a tensor whose numbers are known, in this graph or outside."""
        value = tensor.value
        if isinstance(value, Value) and value not in self.own:
            return self.around.number_of(tensor)
        return super().number_of(tensor)

    def numbers_of(self, tensor: Tensor) -> Any:
        """Return the array of a value from outside that Python reads inside."""
        value = tensor.value
        if isinstance(value, Value) and value not in self.own:
            return self.around.numbers_of(tensor)
        return super().numbers_of(tensor)

    def read(self, variable: Variable) -> Tensor:
        """Return the value assigned in this graph, or else the variable's value outside."""
        result = self.written.get(variable)
        if result is not None:
            return result
        return self.around.read(variable) if self.outer is None else self.outer.read(variable)

    def values_of(self, structure: Structure) -> list[Value]:
        """Return the values of the tensors of a structure, without None."""
        return [self.value_of(t) for t in tree.flatten(structure) if t is not None]

    def own_value(self, variable: Variable) -> Value:
        """Return the value that a variable has at the end."""
        return self.value_of(self.read(variable))

    def graph(
        self, captured: dict[Any, Tensor], entering: Sequence[Value], outputs: Sequence[Value]
    ) -> Graph:
        """Return the graph with the inputs `entering`, then one for each of `captured`."""
        taken = [
            self.captured[key][1] if key in self.captured else Value(*key[0].spec)
            for key in captured
        ]
        return Graph([*entering, *taken], self.constants, self.nodes, outputs)


class _Inside:
    def __init__(self, inner: Inner) -> None:
        self._engine, self._scope = using_engine(inner), using_scope(inner)

    def __enter__(self) -> None:
        self._engine.__enter__()
        self._scope.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._scope.__exit__(*error)
        self._engine.__exit__(*error)


class _State:
    """The carry of a loop: the user's values, then the variables that its body assigns."""

    def __init__(self, outer: Tracer, structure: Structure, written: Sequence[Variable]) -> None:
        self.structure, self.written = structure, list(written)
        leaves = [t for t in tree.flatten(structure) if t is not None]
        self._count = len(leaves)
        self.tensors: list[Tensor] = [
            *leaves,
            *((current_scope() or outer).read(v) for v in written),
        ]
        self._entered: dict[int, list[Tensor]] = {}

    def enter(self, inner: Inner) -> Tensor | tuple[Any, ...]:
        """Return the carried structure inside the body; assign the carried variables."""
        results = [inner.input(Spec(tuple(t.shape), t.dtype)) for t in self.tensors]
        self._entered[id(inner)] = results
        for variable, tensor in zip(self.written, results[self._count :]):
            inner.written[variable] = tensor
        return _filled(self.structure, results[: self._count])

    def values(self, inner: Inner) -> list[Value]:
        """Return the inputs that `enter` created."""
        return [t.value for t in self._entered[id(inner)]]


def _captured(inners: Iterable[Inner]) -> dict[Any, Tensor]:
    """Return everything that the tracers capture from outside, in a common order."""
    return {key: pair[0] for inner in inners for key, pair in inner.captured.items()}


def _count(name: str, attrs: dict[str, Any]) -> int:
    if name == "branch":
        return len(attrs["graphs"][0].outputs)
    count = len(attrs["body"].outputs)
    return count + (attrs["carried"] if attrs.get("trail") else 0)


def _filled(structure: Structure, leaves: Iterable[Any]) -> Structure:
    remaining = iter(leaves)
    return tree.map_structure(lambda x: None if x is None else next(remaining), structure)


_KINDS: dict[str, Callable[..., Any]] = {
    "cond": Tracer._cond,
    "switch": Tracer._switch,
    "while_loop": Tracer._while_loop,
    "scan": Tracer._scan,
    "fori_loop": Tracer._fori_loop,
}
