"""Compares what an ONNX file computes with what the model computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasish import ops, tree
from kerasish.engine.layer.input_spec import InputSpec
from kerasish.export.onnx.convert import Named
from kerasish.export.onnx.package import find_runtime, need_onnx
from kerasish.ops import dtypes

# The difference allowed, as a share of the largest number of the result. Rounding grows with the
# number of layers: these are for deep models.
_TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 5e-2}


def compare(f: Callable[..., Any], signature: Sequence[Any], named: Named, path: str) -> None:
    """Raise unless an ONNX file gives what a function gives, for two batch sizes.

    Args:
        f: the function that was exported.
        signature: its arguments' structures.
        named: what the file holds.
        path: the file.

    Raises:
        ValueError: a result differs; the message says which, and by how much.
    """
    run, allowed = runner(path), _allowed(named.proto.graph)
    for batch in (1, 3):
        rng = np.random.default_rng(batch)
        arrays = [_example(spec, batch, rng) for spec in named.inputs]
        arguments = _arguments(signature, arrays)
        expected = [np.asarray(t) for t in tree.flatten(f(*arguments))]
        feeds = {name: a for (name, _, _), a in zip(named.inputs, arrays)}
        for (name, dtype, _), got, wanted in zip(named.outputs, run(feeds), expected):
            _check(name, dtype, np.asarray(got), wanted, batch, allowed)


def _allowed(graph: Any) -> float:
    """Return the difference that the coarsest floats in a graph allow."""
    helper = need_onnx("export to ONNX").helper

    def share(code: int) -> float:
        return _TOLERANCES.get(helper.tensor_dtype_to_np_dtype(code).name, 0.0)

    shares = [share(t.data_type) for t in graph.initializer]
    shares += [share(v.type.tensor_type.elem_type) for v in (*graph.input, *graph.output)]
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to":
                shares.append(share(attribute.i))
            if attribute.HasField("g"):
                shares.append(_allowed(attribute.g))
    return max(shares, default=0.0)


def _arguments(signature: Sequence[Any], arrays: Sequence[Any]) -> list[Any]:
    left = iter(arrays)
    return [tree.map_structure(lambda _: _entering(next(left)), _plain(part)) for part in signature]


def _entering(array: Any) -> Any:
    # Strings are no tensors, but layers on the host take arrays of them.
    return array if array.dtype == object else ops.convert_to_tensor(array)


def _plain(structure: Any) -> Any:
    """Return a structure whose leaves are 0: some leaves of signatures are tuples themselves."""
    if isinstance(structure, InputSpec):
        return 0
    return tree.map_structure(lambda _: 0, structure)


def _example(spec: tuple[str, str, tuple[Any, ...]], batch: int, rng: Any) -> Any:
    _, dtype, shape = spec
    # Open sizes other than the batch may be bounded from below by windows: 24 is enough for most.
    sizes = [n if type(n) is int else batch if n == "batch" else 24 for n in shape]
    if dtypes.is_inexact(dtype):
        return rng.uniform(-1, 1, sizes).astype(dtypes.array_dtype(dtype))
    numbers = rng.integers(0, 2, sizes)
    return numbers.astype(str if dtype == "string" else None).astype(dtypes.array_dtype(dtype))


def runner(path: str) -> Callable[[dict[str, Any]], list[Any]]:
    """Return a function that runs a file on arrays by name: onnxruntime, or onnx's evaluator."""
    runtime = find_runtime()
    if runtime is not None:
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        try:
            session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except runtime.capi.onnxruntime_pybind11_state.NotImplemented:
            return _evaluator(path)  # bfloat16 and others that its CPU kernels leave out
        if not any(node.type == "tensor(bfloat16)" for node in session.get_inputs()):
            return lambda feeds: list(session.run(None, feeds))
    return _evaluator(path)


def _evaluator(path: str) -> Callable[[dict[str, Any]], list[Any]]:
    need_onnx("export to ONNX")
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(path)
    return lambda feeds: list(evaluator.run(None, feeds))


def _check(name: str, dtype: str, got: Any, wanted: Any, batch: int, allowed: float) -> None:
    who = f"Model.export: verify: output {name!r} for a batch of {batch}"
    if got.shape != wanted.shape or dtypes.name_of(got.dtype) != dtype:
        raise ValueError(
            f"{who}: the model gives {wanted.dtype} of shape {wanted.shape}, the ONNX file "
            f"{got.dtype} of shape {got.shape}."
        )
    if not wanted.size:
        return
    if not dtypes.is_inexact(dtype):
        if (got != wanted).any():
            count = int((got != wanted).sum())
            raise ValueError(f"{who}: {count} of {wanted.size} elements differ.")
        return
    a, b = got.astype("float64"), wanted.astype("float64")
    finite = np.isfinite(b)
    # Results near 0 are what is left of larger numbers, whose rounding they have.
    scale = max(float(np.abs(b[finite]).max(initial=0.0)), 1e-3)
    with np.errstate(invalid="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        apart = np.where(finite, np.abs(a - b), np.where(same, 0, np.inf))
    worst = float(np.nanmax(np.where(np.isnan(apart), np.inf, apart)))
    if worst > allowed * scale:
        raise ValueError(
            f"{who}: the largest difference is {worst:.3g}, at numbers up to {scale:.3g}; nothing "
            "was written. verify=False writes the file all the same."
        )
