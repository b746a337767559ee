"""From a function of tensors to an ONNX model: trace it, translate each op, name what goes in."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish.engine.model.exported import trace_samples
from kerasish.errors import TraceError
from kerasish.export.onnx import ops as ops
from kerasish.export.onnx import stored
from kerasish.export.onnx.fuse import fused, inputs_of, renamed
from kerasish.export.onnx.package import need_onnx
from kerasish.export.onnx.registry import COMPOSED, HOST_LAYERS, TRANSLATIONS, UNTRANSLATED, Call
from kerasish.export.onnx.writer import Item, OnnxWriter
from kerasish.export.tracing import ExpandingTracer
from kerasish.graph.control import ControlOp
from kerasish.graph.ir import GraphOp
from kerasish.graph.symbolic import OpenSize, SymbolicGraph, SymbolicNode, SymbolicRecorder
from kerasish.typing import Structure

OLDEST_OPSET = 18
_FOLDED = 2**16  # elements: larger results of known numbers are computed when the model runs


class ExportTracer(ExpandingTracer):
    """Records composed functions that are one ONNX operator as one node."""

    kept = frozenset(TRANSLATIONS)
    fuses_calls = True
    opset = OLDEST_OPSET

    def fused_call(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Structure:
        """Return the result of a node that stands for the function; None: write its ops.

        Args:
            function: a composed function, or a layer that runs on the host.
        """
        host = HOST_LAYERS.get(type(function))
        if host is not None:
            return host(function, *args, **kwargs)
        since, rule = COMPOSED.get(function, (0, None))
        parts = None if rule is None or since > self.opset else rule(*args, **kwargs)
        if parts is None:
            return None
        op: Any = parts[0]
        _, inputs, attrs = parts
        return self.apply(op, inputs, attrs)


SMALL = 1024  # bytes: smaller initializers stay in the file of the graph


class Named(NamedTuple):
    """A model in ONNX.

    Attributes:
        proto: the `onnx.ModelProto`.
        inputs: (name, dtype, shape) of each input; open sizes are names.
        outputs: likewise.
        large: name -> array of the initializers whose numbers the proto does not hold.
    """

    proto: Any
    inputs: list[tuple[str, str, tuple[Any, ...]]]
    outputs: list[tuple[str, str, tuple[Any, ...]]]
    large: dict[str, Any]


def convert(
    f: Callable[..., Any],
    signature: Sequence[Any],
    input_names: Sequence[str],
    output_names: Sequence[str],
    opset: int = OLDEST_OPSET,
    name: str = "model",
    most: float = math.inf,
) -> Named:
    """Return an ONNX model that computes `f`.

    Args:
        f: a function of structures of tensors.
        signature: for each argument a structure of `InputSpec`s or symbolic tensors; sizes that are
            None become symbolic dimensions.
        input_names: a name for each tensor of the signature.
        output_names: a name for each tensor of the result; too few: the others are numbered.
        opset: the version of ONNX's operator set.
        name: of the graph.
        most: bytes of initializers that the proto holds; of more, it holds the small ones.

    Raises:
        ValueError: an op has no translation (the message names the layer), or `f` depends on open
            sizes in a way that ONNX cannot express here.
        ImportError: the package onnx is not installed.
    """
    onnx = need_onnx("export to ONNX")
    tracer = type("ExportTracer", (ExportTracer,), {"opset": opset})
    sampled = trace_samples(f, signature, tracer)
    graph = SymbolicRecorder(sampled.samples, sampled.traces).symbolic(
        [t.graph for t in sampled.traces]
    )
    count = sampled.traces[0].arguments
    w = OnnxWriter(opset)
    inputs = [
        Item(w.name(wanted), spec.dtype, spec.shape)
        for wanted, spec in zip(input_names, graph.inputs[:count])
    ]
    w.open_sizes = [(inputs[spots[0][0]], spots[0][1]) for spots in sampled.open]
    variables = [w.initializer(v.numpy(), v.path) for v in sampled.traces[0].variables]
    w.translate = lambda inner, body, given: Translator(inner).graph(body, given)
    results = Translator(w).graph(graph, [*inputs, *variables])
    open_names = _open_names(sampled.open)
    names = [*output_names[: len(results)]]
    names += [f"output_{i}" for i in range(len(names), len(results))]
    outputs = [w.export_item(item, w.name(wanted)) for item, wanted in zip(results, names)]
    specs = _value_specs(inputs, open_names), _value_specs(outputs, open_names)
    large = _large(w.initializers, most)
    return Named(_proto(onnx, w, name, *specs, large), *specs, large)


def _large(arrays: Mapping[str, Any], most: float) -> dict[str, Any]:
    """Return the arrays that a proto does not hold: none where all of them take `most` bytes."""
    sizes = {key: stored.size_of(a) for key, a in arrays.items()}
    if sum(sizes.values()) <= most:
        return {}
    return {key: a for key, a in arrays.items() if sizes[key] >= SMALL}


def _open_names(spots: Sequence[Sequence[tuple[int, int]]]) -> dict[OpenSize, str]:
    names = {}
    for number, several in enumerate(spots):
        i, axis = several[0]
        label = "batch" if axis == 0 else f"input{i}_axis{axis}"
        names[OpenSize(((1, (number,)),))] = label
    return names


def _value_specs(
    items: Sequence[Item], open_names: dict[OpenSize, str]
) -> list[tuple[str, str, tuple[Any, ...]]]:
    def label(size: Any) -> Any:
        return size if type(size) is int else open_names.get(size)

    return [(x.name, x.dtype, tuple(label(n) for n in x.shape)) for x in items]


def _proto(
    onnx: Any, w: OnnxWriter, name: str, inputs: Any, outputs: Any, large: dict[str, Any]
) -> Any:
    """Return the model; of `large`, what it reads stays, as initializers without numbers."""
    helper = onnx.helper

    def info(spec: tuple[str, str, tuple[Any, ...]]) -> Any:
        return helper.make_tensor_value_info(spec[0], w.code(spec[1]), spec[2])

    wanted = {spec[0] for spec in outputs}
    nodes = renamed(fused(w, _needed(w.nodes, set(wanted)), wanted))
    read = {n for node in nodes for n in inputs_of(node)}
    for key in large.keys() - read:
        del large[key]
    kept = {key: a for key, a in w.initializers.items() if key in read}
    tensors = [stored.tensor(onnx, key, a, key not in large) for key, a in kept.items()]
    ins, outs = list(map(info, inputs)), list(map(info, outputs))
    graph = helper.make_graph(nodes, name, ins, outs, tensors)
    opsets = [helper.make_opsetid(*pair) for pair in {"": w.opset, **w.domains}.items()]
    proto = helper.make_model(graph, opset_imports=opsets, producer_name="kerasish")
    proto.ir_version = min(proto.ir_version, helper.find_min_ir_version_for(opsets))
    proto.ir_version = max(proto.ir_version, 8)
    return proto


def _needed(nodes: Sequence[Any], wanted: set[str]) -> list[Any]:
    """Return the nodes whose results are needed for the outputs."""
    kept = []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted.update(inputs_of(node))
    return kept[::-1]


class Translator:
    """Translates the nodes of a graph.

    Args:
        writer: the graph that is written.
    """

    def __init__(self, writer: OnnxWriter) -> None:
        self.writer = writer
        self.makers: dict[str, tuple[Any, Call]] = {}

    def graph(self, graph: SymbolicGraph, inputs: Sequence[Item]) -> list[Item]:
        """Return the values of the graph's outputs, its nodes written."""
        w, path = self.writer, self.writer.path
        values = [*inputs, *(self._constant(c) for c in graph.constants)]
        for node in graph.nodes:
            w.path = node.path or path
            values.extend(self._node(node, [values[i] for i in node.inputs]))
        w.path = path
        return [values[i] for i in graph.outputs]

    def _constant(self, constant: Any) -> Item:
        if not isinstance(constant, tuple):
            return self.writer.initializer(np.asarray(constant))
        spec, value = constant
        return self.writer.filled(value, spec.dtype, spec.shape)

    def _node(self, node: SymbolicNode, inputs: list[Item]) -> list[Item]:
        key: Any = node.op.name if isinstance(node.op, ControlOp) else node.op
        where = f"layer {node.path!r}: " if node.path else ""
        folded = _folded(self.writer, node, inputs)
        if folded is not None:
            return folded
        rule = TRANSLATIONS.get(key)
        if rule is None:
            reason = UNTRANSLATED.get(key, "it has no translation")
            raise ValueError(f"{where}the op {node.op.name!r} cannot be written as ONNX: {reason}.")
        call = Call(inputs, node.attrs, node.outputs, self.makers)
        try:
            result = rule(self.writer, call)
        except (ValueError, TraceError) as error:
            raise ValueError(
                f"{where}the op {node.op.name!r} cannot be written as ONNX: {error}."
            ) from error
        items = result if isinstance(result, list) else [result]
        for item, spec in zip(items, node.outputs):
            item.shape = spec.shape
            if item.dtype != spec.dtype:
                raise AssertionError(f"{node.op.name}: {item} should be of {spec.dtype}")
            self.makers.setdefault(item.name, (node.op, call))
        return items


def _folded(w: OnnxWriter, node: SymbolicNode, inputs: list[Item]) -> list[Item] | None:
    """Return the results as stored arrays where all numbers are known and few."""
    if isinstance(node.op, (ControlOp, GraphOp)) or any(x.array is None for x in inputs):
        return None
    sizes = [n for spec in node.outputs for n in spec.shape]
    if any(type(n) is not int for n in sizes) or any(map(_has_open, node.attrs.values())):
        return None
    most = max([_FOLDED, *(x.array.size for x in inputs)])
    if any(np.prod(spec.shape, dtype="int64") > most for spec in node.outputs):
        return None
    with np.errstate(all="ignore"):
        out = node.op.kernel(np, *(x.array for x in inputs), **node.attrs)
    arrays = (out,) if node.op.outputs == 1 else out
    if len(inputs) == 1 and len(arrays) == 1 and _same_array(arrays[0], inputs[0].array):
        return [inputs[0]]
    return [w.initializer(np.asarray(a), w.path or "constant") for a in arrays]


def _same_array(a: Any, b: Any) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _has_open(value: Any) -> bool:
    """Return whether an attribute holds an open size."""
    if isinstance(value, OpenSize):
        return True
    return isinstance(value, tuple) and any(_has_open(v) for v in value)
