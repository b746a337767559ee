"""From a model to plans: the graph of its inference for fixed batch sizes, as calls of kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from kerasish import config
from kerasish.backends.static.codegen.driver import load_runtime
from kerasish.backends.static.lowering.standalone import StandalonePlan
from kerasish.backends.static.lowering.standalone_units import (
    COPY,
    Repeat,
    StandaloneStep,
    UnsupportedStep,
    steps_of,
)
from kerasish.backends.static.lowering.units import Place, nbytes_of
from kerasish.engine.layer.input_spec import InputSpec
from kerasish.export.native.expand import expand_transforms
from kerasish.export.onnx.registry import UNTRANSLATED
from kerasish.export.tracing import UnrollingTracer
from kerasish.graph.by_rows import MixedRows, divided
from kerasish.graph.ir import Graph, Node, Value
from kerasish.graph.passes import drop_dead, gather, optimize
from kerasish.graph.passes.widen import widen_halves
from kerasish.graph.structure import computes_same
from kerasish.graph.trace import Traced, map_leaves, trace_by
from kerasish.ops.shapes import Spec

# Addresses of the regions of memory, as they stand in argument blocks: no size is as large.
REGION = 1 << 62
SPAN = 1 << 40
ARENA, WEIGHTS = 0, 1
AS_ONNX = "export it as ONNX instead"
AS_ARCHIVE = "export it as an archive instead, which kerasish computes (no `format`)"
LARGEST_SIZE = 1 << 32  # larger words of an argument block are addresses


class Ports(NamedTuple):
    """Where inputs or outputs lie in the arena.

    Attributes:
        offsets: the places, in bytes.
        shapes: without the batch axis.
        dtypes: the dtypes.
    """

    offsets: list[int]
    shapes: list[tuple[int, ...]]
    dtypes: list[str]


class BatchPlan(NamedTuple):
    """What runs for one batch size.

    Attributes:
        batch: the number of examples.
        steps: calls of kernels; addresses are `REGION + region * SPAN + offset`.
        arena: bytes.
        inputs, outputs: where they lie.
    """

    batch: int
    steps: list[StandaloneStep | Repeat]
    arena: int
    inputs: Ports
    outputs: Ports


class Weights:
    """The weights of all plans, each stored once, in one block of memory."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0
        self._known: dict[bytes, int] = {}

    def place(self, array: Any) -> int:
        """Return where an array lies, at a multiple of 64 bytes; store it if it is new."""
        data = np.ascontiguousarray(array).tobytes()
        if data not in self._known:
            self._known[data] = self.size
            padded = data + b"\0" * (-len(data) % 64)
            self.parts.append(padded)
            self.size += len(padded)
        return self._known[data]

    def content(self) -> bytes:
        """Return all of them."""
        return b"".join(self.parts)


def make_plan(
    f: Callable[..., Any], signature: Sequence[Any], batch: int, weights: Weights
) -> BatchPlan:
    """Return what runs for a batch of this many examples.

    Args:
        f: the inference.
        signature: for each argument a structure of `InputSpec`s or symbolic tensors.
        batch: how many examples.
        weights: where weights are stored.

    Raises:
        ValueError: a size other than the first is open, an op needs a library (the message names
            the layer), or results do not belong to examples.
    """
    arguments = [map_leaves(lambda t: _spec(t, batch), part) for part in signature]
    traced = trace_by(UnrollingTracer(), f, *arguments)
    if traced.updated:
        names = ", ".join(repr(v.path) for v in traced.updated[:3])
        raise ValueError(f"it assigns to variables ({names}), which a native library has not")
    graph = widen_halves(expand_transforms(_with_weights(traced)))
    threads = config.threads()
    config.set_threads(1)
    try:
        graph = gather(optimize(graph), blocks=False, heads=False)
        plan = StandalonePlan(graph, _namer(traced))
        steps = _steps(plan, weights)
    except UnsupportedStep as error:
        known = all(n.op not in UNTRANSLATED for n in traced.graph.nodes)
        raise ValueError(f"{error}; {AS_ONNX if known else AS_ARCHIVE}") from error
    finally:
        config.set_threads(threads)
    inputs = _ports(plan, graph.inputs, batch)
    return BatchPlan(batch, steps, plan.plan.nbytes, inputs, _ports(plan, graph.outputs, batch))


def check_rows(f: Callable[..., Any], signature: Sequence[Any]) -> None:
    """Raise unless the results of an example depend on this example alone.

    A library computes examples in groups of its own sizes: what depends on other examples, or on
    how many there are, would differ from what the model gives.

    Args:
        f: the inference.
        signature: as for `make_plan`.

    Raises:
        ValueError: nothing proves it; the message names the layer.
    """
    few, many = (
        trace_by(
            UnrollingTracer(), f, *(map_leaves(partial(_spec, batch=n), part) for part in signature)
        )
        for n in (2, 5)
    )
    try:
        part = divided(drop_dead(many.graph), many.arguments, 2)
    except MixedRows as mixed:
        where = _namer(many)(mixed.node) if mixed.node is not None else ""
        what = f"the op {mixed.node.op.name!r}" if mixed.node is not None else "a result"
        raise ValueError(
            f"{where}{what} may depend on several examples of a batch, and a native library "
            f"computes them in groups of its own; {AS_ONNX}"
        ) from None
    if not computes_same(part.graph, drop_dead(few.graph)):
        raise ValueError(
            "it depends on the number of examples in a batch, and a native library computes them "
            f"in groups of its own; {AS_ONNX}"
        )


def _spec(t: Any, batch: int) -> Spec:
    shape = t.shape if isinstance(t, InputSpec) or hasattr(t, "shape") else None
    if shape is None or not shape:
        raise ValueError(f"expected inputs with a batch axis, got {t!r}")
    sizes = (batch, *shape[1:])
    if any(n is None for n in sizes):
        raise ValueError(
            f"an input has the shape {tuple(shape)}: a native library takes any number of "
            "examples, all other sizes must be given in Input"
        )
    return Spec(tuple(int(n) for n in sizes), t.dtype or "float32")


def _with_weights(traced: Traced) -> Graph:
    """Return the graph with the weights as constants."""
    graph, count = traced.graph, traced.arguments
    values = dict(zip(graph.inputs[count:], (np.asarray(v.numpy()) for v in traced.variables)))
    return graph.replace(inputs=graph.inputs[:count], constants={**graph.constants, **values})


def _namer(traced: Traced) -> Callable[[Node], str]:
    """Return a function that names the layer of a node, as far as passes have kept it."""

    def name(node: Node) -> str:
        inner = node.attrs.get("body")
        inside = () if inner is None else getattr(inner, "graph", inner).nodes
        for one in (node, *inside):
            for v in (*one.outputs, *one.inputs):
                if v in traced.paths:
                    return f"layer {traced.paths[v]!r}: "
        return ""

    return name


def _steps(plan: StandalonePlan, weights: Weights) -> list[StandaloneStep | Repeat]:
    def locate(key: Any) -> Place:
        key = plan.root(key) if isinstance(key, Value) else key
        if key in plan.weights:
            array = plan.weights[key]
            address = REGION + WEIGHTS * SPAN + weights.place(array)
            return Place(address, array.nbytes)
        size = nbytes_of(key) if isinstance(key, Value) else 0
        return Place(REGION + ARENA * SPAN + plan.plan.offsets[key], size)

    table = load_runtime().table

    def portable(step: StandaloneStep) -> StandaloneStep:
        """Return the step without addresses of this process."""
        words = [0 if w == table else w for w in step.words]
        for place, array in step.tables:
            words[place] = REGION + WEIGHTS * SPAN + weights.place(array)
        if any(LARGEST_SIZE < w < REGION for w in words):
            raise AssertionError(f"{step.name}: an argument is an address of this process")
        return step._replace(words=tuple(words), tables=())

    results: list[StandaloneStep | Repeat] = []
    for unit in plan.units:
        for step in steps_of(unit, locate):
            if isinstance(step, Repeat):
                results.append(step._replace(steps=tuple(map(portable, step.steps))))
            else:
                results.append(portable(step))
    return results


def calls_of(plan: BatchPlan) -> list[StandaloneStep]:
    """Return the steps that call a kernel, those in loops too."""
    nested = [s.steps if isinstance(s, Repeat) else (s,) for s in plan.steps]
    return [step for steps in nested for step in steps if step.kernel != COPY]


def _ports(plan: StandalonePlan, values: Sequence[Value], batch: int) -> Ports:
    offsets, shapes, kinds = [], [], []
    for v in values:
        root = plan.root(v)
        if root in plan.weights or not v.shape or v.shape[0] != batch:
            raise ValueError(f"a result of shape {v.shape} does not belong to the examples")
        offsets.append(plan.plan.offsets[root])
        shapes.append(tuple(v.shape[1:]))
        kinds.append(v.dtype)
    return Ports(offsets, shapes, kinds)
