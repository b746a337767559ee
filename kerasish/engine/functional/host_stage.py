"""Host preprocessing: the layers of a model that run on the host, before each compiled step.

Some layers (lookups, hashing, text) work on Python's strings and tables: no engine can compile
them. In a functional or sequential model they are first, next to the inputs. `HostStage` cuts the
model's graph after them: the data goes through the first part on the host, batch by batch (or at
once, where it fits into memory), and the compiled step gets the results: `HostInputs`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from kerasish import tree
from kerasish.callbacks.resume_point import ResumePoint
from kerasish.engine.data.arrays import ArrayData
from kerasish.engine.data.batch import Batch
from kerasish.engine.data.data import Data
from kerasish.engine.functional.functional import Graph, call_operation
from kerasish.engine.layer.layer import Layer
from kerasish.engine.layer.operation import KerasTensor
from kerasish.errors import TraceError
from kerasish.graph.abstract import Abstract
from kerasish.graph.nested import Tracer
from kerasish.ops import dtypes
from kerasish.ops.op import current_engine
from kerasish.outside import first_stand_in
from kerasish.tensor import Tensor, convert, is_traced, to_numpy, wrap
from kerasish.typing import AnyTensor, Structure

_MOST_BYTES = 2**28  # of prepared data that is kept in memory
_ROWS = 4096  # prepared at once


class HostLayer(Layer):
    """A layer that NumPy and Python compute in memory, never a compiled step.

    Subclasses define `compute_output_spec` and `call`, which gets what the user gave: arrays of
    strings or numbers, lists, tensors. Gradients do not flow through it.
    """

    runs_on_host = True

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.built = True

    def _take(self, x: Structure) -> Structure:
        return x  # strings are no tensors, and numbers are not cast

    def _cast_specs(self, structure: Structure) -> Structure:
        return structure

    def __call__(self, *args: Any, **kwargs: Any) -> Structure:
        """Compute at once, or remember a call on symbolic tensors."""
        leaves = tree.flatten(args)
        symbol = first_stand_in(leaves)
        if symbol is not None:
            return symbol.__kerasish_function__(self, args, kwargs)
        unknown = [t for t in leaves if isinstance(t, Tensor) and is_traced(t)]
        if unknown and isinstance(unknown[0].value, Abstract):
            return self._call_on_shapes(args)
        engine = current_engine()
        if unknown and engine is not None and engine.fuses_calls:
            result = engine.fused_call(self, args, kwargs)  # an export may have ops for it
            if result is not None:
                return result
        if unknown or isinstance(engine, Tracer) and any(map(_is_text, args)):
            raise TraceError(
                f"{self.display_name()} runs on the host, not in a compiled step. Put it first in "
                "a "
                "Sequential or functional model (its inputs are then prepared before each step), "
                "map the data through it before fit(), or compile the model with "
                "run_eagerly=True."
            )
        return super().__call__(*args, **kwargs)

    def _call_on_shapes(self, args: tuple[Any, ...]) -> Tensor:
        specs = tree.map_structure(_symbol, args)
        result = self.compute_output_spec(*specs)
        return tree.map_structure(lambda t: wrap(Abstract(t.shape, t.dtype)), result)


def _symbol(x: Tensor) -> KerasTensor:
    if isinstance(x, Tensor):
        return KerasTensor(x.shape, x.dtype)
    return KerasTensor(x.shape, "string") if _is_text(x) else x


def _is_text(x: AnyTensor) -> bool:
    if isinstance(x, (list, tuple)):
        return any(map(_is_text, x))
    return isinstance(x, (str, bytes)) or isinstance(x, np.ndarray) and x.dtype.kind in "OUST"


def runs_on_host(operation: Any) -> bool:
    """Return whether an operation, or a layer inside it, cannot be part of a compiled step."""
    if not isinstance(operation, Layer):
        return False
    return any(layer.runs_on_host for layer in operation.flatten_layers())


class HostInputs(NamedTuple):
    """The results of a host stage for a batch: the values at the cut, in its order."""

    values: list[Any]


class HostStage:
    """A model's graph in two: `graph` runs on the host, `rest` in the step.

    Args:
        graph: the whole.
        host: the ids of the calls that run on the host.
    """

    def __init__(self, graph: Graph, host: set[int]) -> None:
        ends = {id(t) for t in graph.inputs}
        calls = [n for n in graph.nodes if not any(id(t) in ends for t in tree.flatten(n.outputs))]
        self.operations = [n.operation for n in calls if id(n) in host]
        results = {id(t) for n in calls if id(n) not in host for t in tree.flatten(n.outputs)}
        needed = [t for n in calls if id(n) not in host for t in n.inputs]
        cut = {id(t): t for t in (*needed, *graph.outputs) if id(t) not in results}
        self._cut = list(cut.values())
        self.graph = Graph(graph.inputs, self._cut, graph.name)
        self.rest = Graph(self._cut, graph.outputs, graph.name)
        # Strings among the outputs cannot be a step's results.
        strings = any(t.dtype == "string" for t in self._cut)
        self.needs_eager = strings or len(host) == len(calls)

    def __call__(self, values: list[Any]) -> HostInputs:
        """Return what the step gets for the values of the model's inputs."""
        result = self.graph.run([_tensor(v) for v in values], call_operation)
        return HostInputs([v if _is_text(v) else to_numpy(v) for v in result])

    def finish(self, prepared: HostInputs) -> list[Any]:
        """Return the model's outputs, flat, for the results of the host stage."""
        return self.rest.run([_tensor(v) for v in prepared.values], call_operation)

    def row_bytes(self) -> float:
        """Return the bytes per row of the results; inf where rows differ in shape."""
        total = 0.0
        for t in self._cut:
            if not t.shape or None in t.shape[1:]:
                return math.inf
            total += math.prod(t.shape[1:]) * dtypes.array_dtype(t.dtype).itemsize
        return total

    def check_trainable(self, who: str) -> None:
        """Raise where training would have to go through the host."""
        for operation in self.operations:
            if isinstance(operation, Layer) and operation.trainable_variables:
                raise ValueError(
                    f"{who}: {operation.name!r} has weights to train, but it precedes, "
                    "or holds, a layer that runs on the host (StringLookup, TextVectorization, "
                    "Hashing ...): no gradient reaches it. Put the layers that run on the host "
                    "first, directly in this model."
                )


def _tensor(value: AnyTensor) -> AnyTensor:
    return value if value is None or _is_text(value) else convert(value)


def host_stage_of(graph: Graph | None) -> HostStage | None:
    """Return the host stage of a model's graph, None where all of it can be compiled."""
    if graph is None:
        return None
    result = graph.__dict__.get("_host_stage", graph)
    if result is graph:
        result = graph._host_stage = _find_host_stage(graph)
    return result


def _find_host_stage(graph: Graph) -> HostStage | None:
    host: set[int] = set()
    needed: set[int] = set()
    known: dict[int, bool] = {}
    ends = {id(t) for t in graph.inputs}
    for node in reversed(graph.nodes):  # a call that one on the host needs is on the host too
        outputs = {id(t) for t in tree.flatten(node.outputs)}
        if outputs & ends:
            continue
        key = id(node.operation)
        if key not in known:
            known[key] = runs_on_host(node.operation)
        if known[key] or outputs & needed:
            host.add(id(node))
            needed.update(id(t) for t in node.inputs)
    strings = any(t.dtype == "string" for t in graph.inputs)
    return HostStage(graph, host) if host or strings else None


class HostStageData(Data):
    """The batches of other data, each processed by a host stage."""

    def __init__(self, data: Data, prepare: Any) -> None:
        super().__init__()
        self._data, self._prepare = data, prepare
        self._numbered, self.reads_ahead = data._numbered, data.reads_ahead
        self.num_samples, self.batch_size = data.num_samples, data.batch_size

    @property
    def num_batches(self) -> int | None:
        return self._data.num_batches

    @property
    def exhausted(self) -> bool:  # type: ignore[override]
        """Whether the data behind is exhausted."""
        return self._data.exhausted

    def peek(self, epoch: int = 0) -> Batch:
        x, y, weights = self._data.peek(epoch)
        return self._prepare(x), y, weights

    def state(self) -> dict[str, Any] | None:
        return self._data.state()

    def go_to(self, point: ResumePoint) -> None:
        self._data.go_to(point)

    def facts(self) -> dict[str, str]:
        return self._data.facts()

    def close(self) -> None:
        super().close()
        self._data.close()

    def _batches(self, epoch: int, start: int) -> Iterator[Batch]:
        with self._data.epoch(epoch, start) as batches:
            for x, y, weights in batches:
                yield self._prepare(x), y, weights


def stage_data(data: Data, stage: HostStage, prepare: Callable[[Any], HostInputs]) -> Data:
    """Return data whose x has gone through a model's host stage.

    Args:
        data: what the user gave.
        stage: the host stage.
        prepare: returns what the step gets for an x.
    """
    if isinstance(data, ArrayData) and data.in_memory:
        count = data.num_samples or 0
        if stage.row_bytes() * count <= _MOST_BYTES:
            x = data.pack(data.arrays)[0]
            return data.with_x(_in_parts(prepare, x, count))
    return HostStageData(data, prepare)


def _in_parts(prepare: Callable[..., Any], x: Structure, count: int) -> HostInputs:
    parts = []
    for start in range(0, count, _ROWS):
        rows = tree.map_structure(lambda a: a[start : start + _ROWS], x)  # noqa: B023 (used at once)
        parts.append(prepare(rows).values)
    return HostInputs([np.concatenate(column) for column in zip(*parts)])
